"""What brokers do on the disk, or with the ids, of another broker, and what kdump says of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from builders.broker import RequestFailed
from builders.cluster_disks import directory_id
from builders.cluster_jvms import ClusterJvms
from builders.cluster_nodes import ALONE, Node, controller
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.kraft_cluster import KraftCluster
from builders.memory import in_memory
from kdump.formats import names

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

CONTROLLER: Final = 101
TOPIC: Final = "orders"
PARTITIONS: Final = 12
UNKNOWN_ID: Final = "V1dW8O41RR6_pKmks-3sKg"


@pytest.fixture
def cluster(
    cluster_jvms: ClusterJvms, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KraftCluster]:
    """Return a stopped cluster of two brokers, each with the only replicas of six partitions."""
    with in_memory(tmp_path_factory.mktemp("swapped")) as folder:
        nodes = [controller(CONTROLLER), Node(1, ("d1",), "broker"), Node(2, ("d2",), "broker")]
        running = KraftCluster(cluster_jvms, folder / "disks", nodes, properties=ALONE)
        running.format()
        with running.running() as clients:
            clients.open_producer("p")
            clients.create_topic(TOPIC, PARTITIONS, replicas=1)
            for number in range(PARTITIONS):
                clients.send("p", (TOPIC, number), [("key", f"value {number}")])
        yield running


def said(folder: Path, disk: str, properties: Path) -> list[dict[str, Any]]:
    args = ["identity", "--server-properties", str(properties), disk, "--output", "jsonl"]
    return objects(run_kdump(args, folder).stdout)


def findings(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["code"], each["expected"]) for each in rows if each["type"] == "finding"]


def partitions_in(disk: Path) -> set[str]:
    return {path.name for path in disk.glob(f"{TOPIC}-*")}


def exchange(cluster: KraftCluster) -> None:
    """Mount the disk of each broker in place of the other's."""
    for old, new in (("d1", "x"), ("d2", "d1"), ("x", "d2")):
        (cluster.folder / old).rename(cluster.folder / new)


def test_a_broker_does_not_start_on_the_disk_of_another(cluster: KraftCluster) -> None:
    exchange(cluster)
    file = cluster.properties_file(cluster.nodes[1])

    rows = said(cluster.folder, "d1", file)

    assert not rows[-1]["is_startable"]
    with pytest.raises(RequestFailed, match="Stored node id 2 doesn't match previous node id 1"):
        cluster.start(1)
    cluster.kill()


def test_a_broker_starts_on_the_disk_of_another_with_its_own_properties(
    cluster: KraftCluster,
) -> None:
    theirs = directory_id(cluster.folder / "d2")
    own = (cluster.folder / "d1" / names.META_PROPERTIES).read_bytes()
    shutil.rmtree(cluster.folder / "d1")
    shutil.copytree(cluster.folder / "d2", cluster.folder / "d1")
    (cluster.folder / "d1" / names.META_PROPERTIES).write_bytes(own)

    rows = said(cluster.folder, "d1", cluster.properties_file(cluster.nodes[1]))
    before = partitions_in(cluster.folder / "d1")
    with cluster.running():
        pass

    assert rows[-1]["is_startable"]
    assert findings(rows) == [("directory-of-other-node", f"node 2, directory {theirs}")]
    after = partitions_in(cluster.folder / "d1")
    assert len(before) == PARTITIONS // 2
    assert sum(name.endswith("-stray") for name in after) == PARTITIONS // 2


def test_partitions_get_a_leader_at_the_second_start_with_an_unknown_directory_id(
    cluster: KraftCluster,
) -> None:
    own = directory_id(cluster.folder / "d1")
    file = cluster.folder / "d1" / names.META_PROPERTIES
    file.write_bytes(file.read_bytes().replace(own.encode(), UNKNOWN_ID.encode()))

    own_partitions = [
        (TOPIC, int(name.rpartition("-")[2])) for name in partitions_in(cluster.folder / "d1")
    ]
    rows = said(cluster.folder, "d1", cluster.properties_file(cluster.nodes[1]))
    # A broker that is slow tells its directories early enough to lead at the first start already.
    with cluster.running():
        pass
    with cluster.running() as clients:
        for partition in own_partitions:
            clients.wait_for_leader(partition, 1)
        read = clients.read(*own_partitions)

    assert findings(rows) == [("directory-id-unknown", f"node 1, directory {own}")]
    assert {len(found) for found in read.values()} == {1}
