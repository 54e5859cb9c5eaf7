"""A broker starts without the directory of a partition that is assigned to it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

from builders.cluster_clients import ClusterClients
from builders.cluster_jvms import ON_BOTH_KAFKAS, ClusterJvms
from builders.cluster_nodes import three_brokers, three_controllers
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.kraft_cluster import KraftCluster

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

BEHIND: Final = "behind"
ALONE: Final = "alone"
STRAY: Final = "stray"
RECORDS: Final = 10


def lose(cluster: KraftCluster, topics: list[str], folder: Path) -> set[tuple[str, str, str]]:
    """Take replicas of broker 1 away; return what verify then says of partitions without a log.

    That of ``STRAY`` becomes a directory that a broker with other metadata has renamed.
    """
    (log_dir,) = cluster.log_dirs(1)
    for topic in topics:
        log = log_dir / f"{topic}-0"
        if topic == STRAY:
            log.rename(log_dir / f"{topic}-0.184f5a4c945d4277a4671794019b3c74-stray")
        else:
            shutil.rmtree(log)
    said = run_kdump(["verify", "--quick", "--output", "jsonl", str(log_dir)], folder)
    return {
        (row["code"], row["severity"], Path(row["path"]).name.partition(".")[0])
        for row in objects(said.stdout)
        if row.get("code") in ("partition-missing", "stray-assigned")
    }


def log_bytes(cluster: KraftCluster, topic: str) -> list[int]:
    """Return the sizes of the replicas' logs."""
    logs = [path for each in cluster.log_dirs() for path in each.glob(f"{topic}-0/*.log")]
    return [path.stat().st_size for path in logs]


def records(clients: ClusterClients, topic: str) -> int:
    return len(clients.read((topic, 0))[f"{topic}-0"])


def started(jvms: ClusterJvms, folder: Path, *topics: str) -> KraftCluster:
    """Return a running cluster, in which all replicas of the topics are in sync."""
    nodes = three_controllers() + three_brokers()
    cluster = KraftCluster(jvms, folder / "disks", nodes)
    cluster.format()
    cluster.start()
    clients = cluster.clients
    clients.open_producer("of-all", acks="all")
    for topic in topics:
        clients.create_topic(topic, assignment=[[2, 1, 3]])
        clients.send("of-all", (topic, 0), [("key", f"value {at}") for at in range(RECORDS)])
    clients.wait_for_replicas()
    return cluster


@ON_BOTH_KAFKAS
def test_a_replica_that_is_alone_in_sync_is_lost_and_another_is_copied(
    cluster_jvms: ClusterJvms, case_folder: Path
) -> None:
    cluster = started(cluster_jvms, case_folder, BEHIND, ALONE, STRAY)
    try:
        cluster.stop(1)
        said_behind = lose(cluster, [BEHIND], case_folder)
        cluster.start(1)
        cluster.clients.wait_for_replicas()
        for node_id in (3, 2):
            cluster.stop(node_id)
        cluster.stop()
        said_alone = lose(cluster, [ALONE, STRAY], case_folder)
        cluster.start()
        cluster.clients.wait_for_replicas()
        left = {topic: records(cluster.clients, topic) for topic in (BEHIND, ALONE, STRAY)}
        sizes = {topic: log_bytes(cluster, topic) for topic in (BEHIND, ALONE, STRAY)}
        cluster.stop()
    finally:
        cluster.kill()
    assert said_behind == {("partition-missing", "warning", "behind-0")}
    assert said_alone == {
        ("partition-missing", "severe", "alone-0"),
        ("stray-assigned", "severe", "stray-0"),
    }
    assert left == {BEHIND: RECORDS, ALONE: 0, STRAY: 0}
    assert all(sizes[BEHIND])
    assert sizes[ALONE] == sizes[STRAY] == [0, 0, 0]
