"""The nodes of a real cluster: their roles, ports, disks and properties."""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass, field
from typing import Final

from builders.ports import HOST, free_port

SESSION_MS: Final = "6000"
"""After that a coordinator removes members that were killed."""
NODES: Final = "nodes"
"""The JVM of nodes for which no other is named."""
CLUSTER_ID: Final = "kdumpClusterAAAAAAAAAA"
PROPERTIES: Final = {
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT"
    ),
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.sasl.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.fetch.timeout.ms": "5000",
    # By default a broker gives up after a minute, which a busy machine may need for six nodes.
    "initial.broker.registration.timeout.ms": "600000",
    # Small: six nodes share two cores and one JVM.
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "2",
    "log.index.size.max.bytes": "65536",
    "log.cleaner.dedupe.buffer.size": "4194304",
    # Disable everything that runs by the clock: retention, transaction timeouts.
    "log.initial.task.delay.ms": "3600000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
}
"""Properties of each node. Clients without a name may do everything."""

ALONE: Final = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "default.replication.factor": "1",
}
"""Of a cluster with one broker."""

Partition = tuple[str, int]


def random_id(rng: random.Random) -> str:
    """Make an id as Kafka's ``Uuid`` writes it; none that begins with a dash."""
    while True:
        text = base64.urlsafe_b64encode(rng.randbytes(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a cluster.

    Attributes:
        node_id: its id.
        disks: the names of its log directories; the first has the metadata.
        roles: ``broker``, ``controller`` or ``broker,controller``.
        directory_id: of the first directory, if a controller is formatted as a voter.
    """

    node_id: int
    disks: tuple[str, ...]
    roles: str
    directory_id: str = field(default_factory=lambda: random_id(random.Random()))
    client_port: int = field(default_factory=free_port)
    sasl_port: int = field(default_factory=free_port)
    controller_port: int = field(default_factory=free_port)

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def endpoint(self) -> str:
        """ID@HOST:PORT of a controller."""
        return f"{self.node_id}@{HOST}:{self.controller_port}"

    @property
    def voter(self) -> str:
        """ID@HOST:PORT:DIRECTORY_ID of a controller."""
        return f"{self.endpoint}:{self.directory_id}"


def controller(node_id: int) -> Node:
    return Node(node_id, (f"c{node_id}",), "controller")


def three_controllers(first: int = 101) -> list[Node]:
    return [controller(first + number) for number in range(3)]


def three_brokers() -> list[Node]:
    """Return brokers 1 to 3; the second has two disks."""
    disks = (("b1-d1",), ("b2-d1", "b2-d2"), ("b3-d1",))
    return [Node(number, names, "broker") for number, names in enumerate(disks, start=1)]
