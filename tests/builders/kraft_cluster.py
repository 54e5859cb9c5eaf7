"""A real cluster: controllers and brokers in JVMs that can be killed, and clients in another.

:class:`KraftCluster` is a set of nodes over one folder of disks. Several may use the same
:class:`ClusterJvms`, one after another: only the first start of a JVM is slow.
"""

from __future__ import annotations

import base64
import contextlib
import json
import random
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from builders.broker import RequestFailed
from builders.java_server import JavaServer

HOST: Final = "127.0.0.1"
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

Partition = tuple[str, int]


def random_id(rng: random.Random) -> str:
    """Make an id as Kafka's ``Uuid`` writes it; none that begins with a dash."""
    while True:
        text = base64.urlsafe_b64encode(rng.randbytes(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def free_port() -> int:
    """Find a free port below those that outgoing connections get, so that it stays free."""
    for _ in range(1_000):
        port = random.randrange(15_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server((HOST, port)):
            return port
    raise AssertionError("no free port")


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


class ClusterJvm(JavaServer):
    """The server ``tests/java/src/ClusterHost.java``."""

    def __init__(self, classpath: str, log: Path, heap: str, patience_s: int) -> None:
        self.log = log
        super().__init__(
            classpath,
            "ClusterHost",
            f"-Xmx{heap}",
            "-Xshare:auto",
            f"-Dpatience={patience_s}",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.clients=error",
            "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=error",
            "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.server.config=error",
            "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaConfig=error",
            f"-Dorg.slf4j.simpleLogger.logFile={log}",
        )

    def ask(self, request: str, **fields: Any) -> Any:
        """Send a request, and return its answer.

        Raises:
            RequestFailed: it failed.
        """
        self.requests.write(json.dumps({"do": request} | fields).encode() + b"\n")
        self.requests.flush()
        line = self.answers.readline()
        if not line:
            raise self.ended()
        answer = json.loads(line)
        if isinstance(answer, dict) and "failed" in answer:
            raise RequestFailed(f"{request}: {answer['failed']}")
        return answer


class ClusterJvms:
    """JVMs by name; each starts when it is first asked for. All are killed at the end."""

    def __init__(self, classpath: str, logs: Path, *, patience_s: int = 120) -> None:
        self._classpath = classpath
        self._logs = logs
        self._patience_s = patience_s
        self._running: dict[str, ClusterJvm] = {}

    def __getitem__(self, name: str) -> ClusterJvm:
        if name not in self._running:
            log = self._logs / f"{name}.log"
            self._running[name] = ClusterJvm(self._classpath, log, "1g", self._patience_s)
        return self._running[name]

    def kill(self, *names: str) -> None:
        """End JVMs as ``kill -9`` does; all if none is named."""
        for name in names or list(self._running):
            if name in self._running:
                self._running.pop(name).kill()

    def logged(self, name: str) -> list[str]:
        """Return the lines that nodes in the latest JVM of this name have logged."""
        log = self._logs / f"{name}.log"
        return log.read_text(errors="replace").splitlines() if log.exists() else []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


class KraftCluster:
    """Nodes, and their log directories below ``folder``.

    With ``is_dynamic`` the voters are those of the metadata (kraft.version 1), else those of the
    configuration. ``properties`` are added to :data:`PROPERTIES` of each node.
    """

    def __init__(
        self,
        jvms: ClusterJvms,
        folder: Path,
        nodes: Iterable[Node],
        *,
        is_dynamic: bool = True,
        cluster_id: str = CLUSTER_ID,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.nodes = {node.node_id: node for node in nodes}
        self.clients = ClusterClients(jvms)
        self.is_dynamic = is_dynamic
        self._jvms = jvms
        self._cluster_id = cluster_id
        self._properties = dict(properties or {})
        self._jvm_of: dict[int, str] = {}

    @property
    def brokers(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_broker]

    @property
    def controllers(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_controller]

    def log_dirs(self, *node_ids: int) -> list[Path]:
        """Return the log directories of nodes; those of all brokers if none is named."""
        nodes = [self.nodes[each] for each in node_ids] or self.brokers
        return [self.folder / name for node in nodes for name in node.disks]

    def properties_file(self, node: Node) -> Path:
        """Write the properties of a node as they are now, and return the file."""
        addresses = [f"{HOST}:{each.controller_port}" for each in self.controllers]
        voters = [each.endpoint for each in self.controllers]
        quorum = (
            {"controller.quorum.bootstrap.servers": ",".join(addresses)}
            if self.is_dynamic
            else {"controller.quorum.voters": ",".join(voters)}
        )
        ports = []
        if node.is_broker:
            ports += [("PLAINTEXT", node.client_port), ("SASL", node.sasl_port)]
        if node.is_controller:
            ports += [("CONTROLLER", node.controller_port)]
        own = {
            "node.id": str(node.node_id),
            "process.roles": node.roles,
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports),
            "log.dirs": ",".join(str(self.folder / name) for name in node.disks),
        }
        given = PROPERTIES | own | quorum | self._properties
        if not node.is_broker:
            del given["inter.broker.listener.name"]
        path = self.folder / f"{node.node_id}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        return path

    # ---- Nodes -----------------------------------------------------------------------------------

    def format(self, *node_ids: int, voters: str | None = None) -> None:
        """Format the directories of nodes with Kafka's own tool; of all nodes if none is named.

        ``voters`` are the options that say which controllers vote, such as ``--standalone``. By
        default all controllers are voters, if the quorum is dynamic.
        """
        initial = f"--initial-controllers {','.join(each.voter for each in self.controllers)}"
        for node in [self.nodes[each] for each in node_ids] or list(self.nodes.values()):
            options = voters
            if options is None and self.is_dynamic:
                options = initial if node.is_controller else "--no-initial-controllers"
            config = self.properties_file(node)
            args = ["--config", str(config), "--cluster-id", self._cluster_id]
            self._jvms[NODES].ask("format", args=[*args, *(options or "").split()])

    def start(self, *node_ids: int, jvm: str = NODES) -> None:
        """Start nodes in a JVM, all at once; all nodes if none is named. Brokers are unfenced then.

        Raises:
            RequestFailed: a node did not start.
        """
        nodes = [self.nodes[each] for each in node_ids] or list(self.nodes.values())
        for node in nodes:
            self._jvm_of[node.node_id] = jvm
        files = {str(node.node_id): str(self.properties_file(node)) for node in nodes}
        _require_none(self._jvms[jvm].ask("start", nodes=files))
        self.connect()

    def connect(self) -> None:
        """Let clients know the brokers that were started."""
        started = [node.client_port for node in self.brokers if node.node_id in self._jvm_of]
        if started:
            addresses = [f"{HOST}:{port}" for port in started]
            self.clients.ask("connect", bootstrap=",".join(addresses))

    def stop(self, *node_ids: int) -> None:
        """Stop nodes as SIGTERM does, brokers first; all nodes if none is named."""
        ids = node_ids or tuple(self._jvm_of)
        brokers = [each for each in ids if self.nodes[each].is_broker]
        for group in (brokers, [each for each in ids if each not in brokers]):
            for jvm in {self._jvm_of[each] for each in group}:
                of_jvm = [each for each in group if self._jvm_of[each] == jvm]
                _require_none(self._jvms[jvm].ask("stop", nodes=of_jvm))
            for each in group:
                del self._jvm_of[each]

    def kill(self, *jvms: str) -> None:
        """Kill JVMs with all of their nodes, as ``kill -9`` does; those of all nodes by default."""
        killed = set(jvms or self._jvm_of.values())
        if killed:
            self._jvms.kill(*killed)
        self._jvm_of = {each: jvm for each, jvm in self._jvm_of.items() if jvm not in killed}

    def logged(self, node_id: int) -> list[str]:
        """Return what was logged in the JVM of a node that runs, also by others in it."""
        return self._jvms.logged(self._jvm_of[node_id])

    @contextlib.contextmanager
    def running(self, *node_ids: int) -> Iterator[ClusterClients]:
        """Start nodes for a context, and stop all nodes at its end, or kill them if it fails."""
        try:
            self.start(*node_ids)
            yield self.clients
            self.stop()
        finally:
            self.kill()


def _require_none(failures: Mapping[str, str]) -> None:
    if failures:
        raise RequestFailed("; ".join(f"node {node}: {why}" for node, why in failures.items()))


class ClusterClients:
    """Clients of a cluster. Keys and values are texts; a partition is (topic, number)."""

    def __init__(self, jvms: ClusterJvms) -> None:
        self._jvms = jvms

    def ask(self, request: str, **fields: Any) -> Any:
        """Send a request to the JVM of all clients."""
        return self._jvms["clients"].ask(request, **fields)

    # ---- The cluster -----------------------------------------------------------------------------

    def describe(self, groups: Iterable[str] = ()) -> dict[str, Any]:
        """Return everything that ``Admin`` says (see ``ClusterDescription.java``).

        Coordinators of ``groups`` are waited for; groups of others may be missing soon after a
        start.
        """
        found: dict[str, Any] = self.ask("describe", wait_for=list(groups))
        return found

    def wait_for_replicas(self, *topics: str) -> None:
        """Wait until all replicas of topics are in sync; of all topics if none is named."""
        self.ask("wait", replicas="all", topics=list(topics) or None)

    def wait_for_leaders(self, *topics: str) -> None:
        """Wait until all partitions of topics have a leader; of all topics if none is named."""
        self.ask("wait", replicas="leader", topics=list(topics) or None)

    def wait_for_leader(self, partition: Partition, leader: int) -> None:
        """Wait until a broker leads a partition."""
        self.ask("leads", partition=partition, leader=leader)

    def wait_for_markers(self, partition: Partition) -> None:
        """Wait until no transaction is open: a commit returns before its markers are written."""
        self.ask("ends", partition=partition)

    def wait_for_state(self, state: str, *groups: str) -> None:
        """Wait until groups are in a state."""
        self.ask("state", state=state, groups=groups)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replicas: int = 3,
        assignment: Sequence[Sequence[int]] | None = None,
        **configs: str,
    ) -> None:
        """Create a topic; the names of ``configs`` have ``_`` for the dot."""
        named = {each.replace("_", "."): value for each, value in configs.items()}
        topic = {
            "name": name,
            "partitions": partitions,
            "replicas": replicas,
            "assignment": assignment,
            "configs": named,
        }
        self.ask("create", topics=[topic])

    def create_topics(self, names: Iterable[str], partitions: int, *, replicas: int = 3) -> None:
        """Create many topics at once."""
        common: dict[str, Any] = {"partitions": partitions, "replicas": replicas}
        common |= {"assignment": None, "configs": {}}
        self.ask("create", topics=[common | {"name": name} for name in names])

    def configure(self, kind: str, name: str, **configs: str) -> None:
        """Set the configuration of a ``TOPIC``, ``BROKER`` (empty: all brokers) or ``GROUP``."""
        named = {each.replace("_", "."): value for each, value in configs.items()}
        self.ask("configure", type=kind, name=name, set=named)

    def elect(self, leader: Node, *partitions: Partition) -> None:
        """Elect the only broker that runs for partitions, even if it is not in sync."""
        self.ask("elect", leader=leader.node_id, partitions=partitions)

    def allow(self, principal: str, operation: str, topic: str, pattern: str = "LITERAL") -> None:
        """Create an ACL that allows an operation on topics."""
        self.ask(
            "acl",
            principal=principal,
            operation=operation,
            resource_type="TOPIC",
            name=topic,
            pattern=pattern,
        )

    def set_password(self, user: str, password: str) -> None:
        """Set the SCRAM-SHA-256 credential of a user."""
        self.ask("scram", user=user, mechanism="SCRAM-SHA-256", password=password)

    def topics_seen_by(self, user: str, password: str, broker: Node) -> set[str]:
        """Log in as a user, and list the topics that it may see.

        Raises:
            RequestFailed: the password is wrong, or unknown to the broker.
        """
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        configs = {
            "bootstrap.servers": f"{HOST}:{broker.sasl_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
        }
        return set(self.ask("topics", configs=configs))

    def list_offsets(
        self, rounds: Sequence[Sequence[tuple[str, int, int | str]]], isolation: str
    ) -> list[list[tuple[int, int, int | None]]]:
        """Ask ``Admin.listOffsets`` for times or special timestamps.

        A round asks a partition once. Answers are offset, time and leader epoch.
        """
        found = self.ask("offsets", rounds=rounds, isolation=isolation)
        return [[(row[0], row[1], row[2]) for row in answers] for answers in found]

    def producer_ids(self, partition: Partition) -> list[int]:
        """Return the producers that the leader of a partition knows."""
        return sorted(row[0] for row in self.ask("producers", partition=partition))

    def run_tool(self, name: str, *args: str) -> list[str]:
        """Run an official tool in the JVM of clients; return the lines that it prints.

        Raises:
            RequestFailed: its exit status is not 0.
        """
        answer = self.ask("tool", name=name, args=args)
        if answer["status"]:
            raise RequestFailed(f"{name}: status {answer['status']}: {answer['lines']}")
        return list(answer["lines"])

    # ---- Producers -------------------------------------------------------------------------------

    def open_producer(self, producer: str, **configs: str) -> None:
        """Open a producer; the names of ``configs`` have ``_`` for the dot."""
        named = {each.replace("_", "."): value for each, value in configs.items()}
        self.ask("open", producer=producer, configs=named)

    def send(
        self,
        producer: str,
        partition: Partition,
        pairs: Iterable[tuple[str | None, str | None]],
        timestamp_ms: int | None = None,
    ) -> list[int]:
        """Write keys and values; return their offsets when all are acknowledged."""
        records = [[*partition, timestamp_ms, *pair] for pair in pairs]
        offsets: list[int] = self.ask("send", producer=producer, records=records)
        return offsets

    @contextlib.contextmanager
    def transaction(self, producer: str, *, commits: bool = True) -> Iterator[None]:
        """Begin a transaction, and commit or abort it at the end."""
        self.ask("begin", producer=producer)
        yield
        self.ask("commit" if commits else "abort", producer=producer)

    # ---- Consumers -------------------------------------------------------------------------------

    def read(self, *partitions: Partition, isolation: str = "read_committed") -> dict[str, Any]:
        """Consume partitions whole; return rows of offset, time, key and value by TOPIC-NUMBER."""
        found: dict[str, Any] = self.ask("read", partitions=partitions, isolation=isolation)
        return found

    def join(
        self, member: str, group: str, topics: Iterable[str], records: int, protocol: str
    ) -> None:
        """Let a member join a group, read at least so many records, and commit; it stays.

        ``protocol`` is ``classic`` or ``consumer``.
        """
        configs = {"group.id": group, "group.protocol": protocol}
        if protocol == "classic":
            configs |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": "1000"}
        self.ask("join", member=member, topics=list(topics), records=records, configs=configs)

    def share(self, group: str, topics: Iterable[str], records: int) -> None:
        """Let a member of a share group accept at least so many records, and leave."""
        self.ask("share", topics=list(topics), records=records, configs={"group.id": group})

    def commit_offsets(self, group: str, offsets: Mapping[Partition, int], text: str = "") -> None:
        """Commit offsets of a group without members."""
        rows = [[*partition, offset, text] for partition, offset in offsets.items()]
        self.ask("commit_offsets", group=group, offsets=rows)
