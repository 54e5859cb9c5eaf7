"""Records are erased on one broker after the other, while the rest of the cluster runs."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

import pytest

from builders.cluster_clients import ClusterClients
from builders.cluster_jvms import ON_BOTH_KAFKAS, ClusterJvms
from builders.cluster_nodes import Node, Partition, controller
from builders.in_process import run_kdump
from builders.kraft_cluster import KraftCluster
from builders.trees import contents_of

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

ALICE: Final = "alice-4711"
BROKERS: Final = (1, 2, 3)
LEVELS: Final = ("read_committed", "read_uncommitted")
COMPACTED: Final = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
TOPICS: Final[dict[str, dict[str, Any]]] = {
    "plain": {"segment_bytes": "1048576"},
    "transactional": {},
    "compacted": COMPACTED | {"segment_ms": "1000"},
    "masked": {},
}
PARTITIONS: Final[list[Partition]] = [(topic, 0) for topic in TOPICS]


def pairs(count: int) -> list[tuple[str, str]]:
    """Make records, every third of Alice, and the last one, too."""
    return [
        (ALICE if at % 3 == 0 or at == count - 1 else f"key-{at}", f"value {at}")
        for at in range(count)
    ]


def write(clients: ClusterClients) -> None:
    for topic, configs in TOPICS.items():
        clients.create_topic(topic, **configs)
        is_transactional = {"transactional_id": topic} if topic == "transactional" else {}
        clients.open_producer(topic, compression_type="zstd", **is_transactional)
        for count in (5, 9, 1):
            if is_transactional:
                for commits in (True, False):
                    with clients.transaction(topic, commits=commits):
                        clients.send(topic, (topic, 0), pairs(count))
            else:
                clients.send(topic, (topic, 0), pairs(count))


Row = list[Any]
"""Offset, time, key and value of a record."""


def read(clients: ClusterClients) -> dict[str, dict[str, list[Row]]]:
    """Return the rows of each partition, by isolation level."""
    return {level: clients.read(*PARTITIONS, isolation=level) for level in LEVELS}


def expected(name: str, before: list[Row]) -> list[Row]:
    """Return the rows that are left of those that were there."""
    if name != "masked-0":
        return [row for row in before if row[2] != ALICE]
    hashed = hashlib.sha256(ALICE.encode()).hexdigest()
    return [
        [offset, time, hashed, "*" * len(value)] if key == ALICE else [offset, time, key, value]
        for offset, time, key, value in before
    ]


@ON_BOTH_KAFKAS
def test_replicas_stay_in_sync_and_clients_go_on(
    cluster_jvms: ClusterJvms, case_folder: Path
) -> None:
    nodes = [controller(101), *(Node(each, (f"b{each}",), "broker") for each in BROKERS)]
    cluster = KraftCluster(cluster_jvms, case_folder / "disks", nodes)
    cluster.format()

    def erase(node_id: int, *words: str) -> int:
        disks = map(str, cluster.log_dirs(node_id))
        outcome = run_kdump(["erase", "--kafka-version=4.3.1", *words, *disks], case_folder)
        return outcome.exit_status

    named = [f"--topic={topic}" for topic in TOPICS if topic != "masked"]
    with cluster.running() as clients:
        write(clients)
        before = read(clients)
        for node_id in BROKERS:
            cluster.stop(node_id)
            key = f"--key={ALICE}"
            assert erase(node_id, *named, key, "--yes") == 1
            assert erase(node_id, "--topic=masked", "--mask", key, "--yes") == 1
            cluster.start(node_id)
            clients.wait_for_replicas()
            for topic in TOPICS:
                if topic != "transactional":
                    clients.send(topic, (topic, 0), [(f"key of {node_id}", "after")])
            with clients.transaction("transactional"):
                clients.send("transactional", ("transactional", 0), [("key", "after")])
            clients.wait_for_replicas()
        for node_id in BROKERS:
            cluster.stop(node_id)
            certificate = case_folder / f"erased-{node_id}.json"
            assert erase(node_id, "--finish", f"--certificate={certificate}") == 0
            cluster.start(node_id)
            clients.wait_for_replicas()
        after = read(clients)

    for level in LEVELS:
        for name, rows in after[level].items():
            old = before[level][name]
            left = [row for row in rows if row[0] <= old[-1][0]]
            if name == "compacted-0":  # the cleaner may have removed others meanwhile
                assert [row for row in expected(name, old) if row in left] == left
            else:
                assert left == expected(name, old)
            assert [row[3] for row in rows[len(left) :]] == ["after"] * len(BROKERS)
    for topic in ("plain", "transactional", "masked"):
        logs = [
            [path.read_bytes() for path in sorted((log_dir / f"{topic}-0").glob("*.log"))]
            for log_dir in cluster.log_dirs()
        ]
        assert logs[1:] == logs[:-1], topic
    for log_dir in cluster.log_dirs():
        assert not any(ALICE.encode() in each for each in contents_of(log_dir).values())
        assert run_kdump(["verify", "--deep", str(log_dir)], case_folder).exit_status == 0
