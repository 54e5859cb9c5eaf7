"""A real cluster with tiered storage: its disks, its remote segments, and what a consumer read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from builders.cluster_clients import ClusterClients
from builders.cluster_jvms import ClusterJvms
from builders.cluster_nodes import Node, Partition
from builders.kraft_cluster import KraftCluster

REMOTE: Final = "kafka-tiered-storage"
"""The directory that ``LocalTieredStorage`` makes in the directory of its configuration."""
PATIENCE_S: Final = 90
FIRST_MS: Final = 1_780_000_000_000
STEP_MS: Final = 60_000
SMALL: Final = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "1500",
    "index.interval.bytes": "200",
    "retention.ms": "-1",
}
LOCAL_GOES: Final = SMALL | {"local.retention.bytes": "1"}
"""Every closed segment is deleted locally when it is copied."""
LOCAL_STAYS: Final = SMALL | {"local.retention.ms": "-2"}
PARTITIONS: Final[Sequence[Partition]] = (
    ("orders", 0),
    ("orders", 1),
    ("tx", 0),
    ("moved", 0),
    ("kept", 0),
    ("cut", 0),
    ("plain", 0),
)
MOVED: Final[Partition] = ("moved", 0)


def properties(folder: Path) -> dict[str, str]:
    """Return the properties of nodes that copy to tiered storage in ``folder``, and often."""
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": (
            "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
        ),
        "remote.log.storage.manager.impl.prefix": "rsm.config.",
        "rsm.config.dir": str(folder),
        "remote.log.metadata.manager.impl.prefix": "rlmm.config.",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "2",
        "rlmm.config.remote.log.metadata.initialization.retry.interval.ms": "100",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "remote.log.manager.task.interval.ms": "100",
        "log.initial.task.delay.ms": "500",
        "log.retention.check.interval.ms": "200",
        "log.segment.delete.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "2",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "2",
        "transaction.state.log.min.isr": "1",
        "rlmm.config.remote.log.metadata.topic.min.isr": "1",
        "default.replication.factor": "2",
        "min.insync.replicas": "1",
    }


def write_tiered_disks(jvms: ClusterJvms, folder: Path) -> None:
    """Let two brokers live with tiered storage, and stop them.

    ``folder`` has then their disks ``b1`` and ``b2``, the controller's ``c``, ``remote/`` with the
    remote segments, and ``consumed.json``: what a consumer read at each isolation level, and the
    answers to ListOffsets. Leaders change on the way, one of them uncleanly: broker 1 had copied
    segments that are not in the lineage of broker 2.
    """
    (folder / "remote").mkdir(parents=True)
    nodes = [
        Node(101, ("c",), "controller"),
        Node(1, ("b1",), "broker"),
        Node(2, ("b2",), "broker"),
    ]
    cluster = KraftCluster(jvms, folder, nodes, properties=properties(folder / "remote"))
    cluster.format()
    cluster.start()
    clients = cluster.clients
    _create_topics(clients)
    clients.open_producer("plain", linger_ms="0", batch_size="300")
    clients.open_producer("zstd", linger_ms="5", batch_size="600", compression_type="zstd")
    clients.open_producer("tx", linger_ms="0", batch_size="300", transactional_id="tx-1")
    _write(clients, "first", 60)
    wait_until_tiered(cluster, PARTITIONS, 1, 2)
    cluster.stop(2)  # broker 1 leads everything
    _write(clients, "second", 60, "moved", "orders", "tx")
    wait_until_tiered(cluster, PARTITIONS, 1)
    cluster.stop(1)
    cluster.start(2)
    clients.open_producer("late", linger_ms="0", batch_size="300")
    clients.elect(cluster.nodes[2], *PARTITIONS, *_internal(clients))
    _send(clients, "late", MOVED, "third", 90)
    wait_until_tiered(cluster, [MOVED], 2)
    cluster.start(1)
    clients.wait_for_replicas()
    clients.open_producer("last", linger_ms="0", batch_size="300")
    for partition in PARTITIONS:
        _send(clients, "last", partition, "fourth", 25)
    clients.ask("delete_records", partition=("cut", 0), offset=33)
    wait_until_tiered(cluster, PARTITIONS, 1, 2)
    (folder / "consumed.json").write_text(json.dumps(consumed(clients), indent=0))
    cluster.stop()


def _create_topics(clients: ClusterClients) -> None:
    configs = {"orders": LOCAL_GOES, "tx": LOCAL_GOES, "moved": LOCAL_GOES, "cut": LOCAL_GOES}
    configs |= {"kept": LOCAL_STAYS, "plain": {"retention.ms": "-1"}}
    topics = [
        {
            "name": name,
            "partitions": sum(topic == name for topic, _ in PARTITIONS),
            "replicas": 2,
            "assignment": None,
            "configs": of_topic,
        }
        for name, of_topic in configs.items()
    ]
    clients.ask("create", topics=topics)
    clients.wait_for_replicas()


def _internal(clients: ClusterClients) -> list[Partition]:
    names = clients.describe()["topics"]
    return [
        (name, number)
        for name, topic in names.items()
        if name.startswith("__")
        for number in range(len(topic["partitions"]))
    ]


def _write(clients: ClusterClients, word: str, count: int, *topics: str) -> None:
    for partition in PARTITIONS:
        if topics and partition[0] not in topics:
            continue
        if partition[0] == "tx":
            for turn in range(6):
                with clients.transaction("tx", commits=turn % 3 != 1):
                    _send(clients, "tx", partition, f"{word}-{turn}", count // 6)
        else:
            _send(clients, "zstd" if partition[0] == "orders" else "plain", partition, word, count)


def _send(
    clients: ClusterClients, producer: str, partition: Partition, word: str, count: int
) -> None:
    for begin in range(0, count, 5):
        pairs = [
            (f"key-{number % 7}", f"{word} {number} " + "x" * (40 + number % 9))
            for number in range(begin, min(begin + 5, count))
        ]
        clients.send(producer, partition, pairs, FIRST_MS + begin * STEP_MS)


def wait_until_tiered(
    cluster: KraftCluster, partitions: Iterable[Partition], *brokers: int
) -> None:
    """Wait until all closed segments are copied, and deleted locally unless they are kept."""
    for topic, number in partitions:
        if topic == "plain":
            continue

        def is_done(topic: str = topic, number: int = number) -> bool:
            rounds = [[(topic, number, spec)] for spec in ("earliest-local", "latest-tiered")]
            answers = cluster.clients.list_offsets(rounds, "READ_UNCOMMITTED")
            local, tiered = (answer[0][0] for answer in answers)
            folders = [each / f"{topic}-{number}" for each in cluster.log_dirs(*brokers)]
            closed = min(max(int(log.stem) for log in each.glob("*.log")) for each in folders)
            return tiered >= closed - 1 and (topic == "kept" or local == tiered + 1)

        _wait(is_done, f"{topic}-{number} is tiered")


def _wait(is_done: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_done():
        assert time.monotonic() < end, what


def consumed(clients: ClusterClients) -> dict[str, Any]:
    """Return all records by isolation level, and offsets: earliest, local, tiered and latest."""
    specs = ("earliest", "earliest-local", "latest-tiered", "latest")
    rounds = [[(*partition, spec) for partition in PARTITIONS] for spec in specs]
    answers = clients.list_offsets(rounds, "READ_UNCOMMITTED")
    offsets = {
        f"{topic}-{number}": {spec: answers[i][at][0] for i, spec in enumerate(specs)}
        for at, (topic, number) in enumerate(PARTITIONS)
    }
    levels = ("read_uncommitted", "read_committed")
    records = {level: clients.read(*PARTITIONS, isolation=level) for level in levels}
    return {"offsets": offsets, **records}
