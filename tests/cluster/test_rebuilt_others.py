"""Other clusters that are rebuilt: of the fixtures, of a combined node, and a large one."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import Any, Final

import pytest

from builders.cluster_disks import copy_disks
from builders.cluster_jvms import ClusterJvms
from builders.cluster_nodes import Node, controller, three_brokers
from builders.cluster_story import PASSWORD
from builders.kraft_cluster import KraftCluster
from builders.log_directories import (
    META_PROPERTIES,
    TOPIC_ID,
    write_log_directory,
    write_partition,
)
from builders.rebuilding import Rebuilding
from kdump.formats import names
from kdump.formats.partition_metadata import PartitionMetadata, encode_partition_metadata
from kdump.formats.uuids import format_uuid

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

FOREVER: Final = {
    "offsets.retention.minutes": "2000000000",
    "producer.id.expiration.ms": "2000000000",
    "transactional.id.expiration.ms": "2000000000",
}
"""For disks that are older than what brokers keep."""
SMALL: Final = {
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
}
UNCLEAN: Final = "unclean.leader.election.enable"
OFFSETS: Final = ("start", "end", "stable")
MANY: Final = 10_000
IN_A_TOPIC: Final = 100


def offsets_of(partitions: dict[str, Any]) -> list[tuple[int, int, int]]:
    """Return the offsets of a topic's partitions in a manifest of the fixtures."""
    return [
        (
            each["earliest"]["offset"],
            each["latest"]["offset"],
            each["latest_committed"]["offset"],
        )
        for each in (partitions[name] for name in sorted(partitions, key=int))
    ]


def test_the_cluster_of_the_fixtures_is_as_its_manifest_says(
    fixtures: Path, cluster_jvms: ClusterJvms, case_folder: Path
) -> None:
    """But for three records that only broker 1 has: broker 3 had them truncated.

    The plan keeps them, and so switches unclean elections off.
    """
    source = fixtures / "states" / "clean"
    manifest = json.loads((source / "after.json").read_text())
    case_folder.joinpath("case").mkdir()
    for node in three_brokers():
        for name in node.disks:
            copy_disks(source / name, case_folder / "case" / name)
    nodes = [controller(201), controller(202), controller(203), *three_brokers()]
    cluster = KraftCluster(
        cluster_jvms,
        case_folder / "case",
        nodes,
        cluster_id=manifest["cluster"]["clusterId"],
        properties=FOREVER,
    )
    rebuilt = Rebuilding(cluster, ["--accept-loss"])
    rebuilt.rebuild()

    groups = [name for name, each in manifest["groups"].items() if each["type"] != "Share"]
    with rebuilt.running() as clients:
        said = clients.describe(groups)
    assert {
        name: [topic["id"], [tuple(row[each] for each in OFFSETS) for row in topic["partitions"]]]
        for name, topic in said["topics"].items()
        if name != "__consumer_offsets"
    } == {
        name: [topic["id"], offsets_of(topic["partitions"])]
        for name, topic in manifest["topics"].items()
        if name != "__consumer_offsets"
    } | {"div-a": [manifest["topics"]["div-a"]["id"], [(0, 29, 29), (0, 40, 40), (0, 53, 53)]]}
    assert {
        name: {partition: row[0] for partition, row in said["groups"][name]["offsets"].items()}
        for name in groups
    } == {
        name: {
            partition: row["committed_offset"]
            for partition, row in manifest["groups"][name]["offsets"].items()
        }
        for name in groups
    }
    for name, topic in manifest["topics"].items():
        unclean = {UNCLEAN: "false"} if name.startswith("div-") else {}
        assert said["configs"].get(f"TOPIC {name}", {}) == topic["configs"] | unclean
    assert said["scram"].keys() == manifest["scram"].keys()
    assert len(said["acls"]) == len(manifest["acls"])
    assert len(said["quotas"]) == len(manifest["quotas"])
    assert [path for each in cluster.log_dirs() for path in each.glob("*-stray")] == []


@pytest.mark.parametrize("is_dynamic", [True, False], ids=["dynamic voters", "static voters"])
def test_a_former_combined_node_is_a_broker_of_a_new_controller(
    is_dynamic: bool, cluster_jvms: ClusterJvms, case_folder: Path
) -> None:
    brokers = [Node(1, ("b1",), "broker,controller"), Node(2, ("b2-d1", "b2-d2"), "broker")]
    cluster = KraftCluster(
        cluster_jvms, case_folder / "case", brokers, is_dynamic=is_dynamic, properties=SMALL
    )
    cluster.format()
    with cluster.running() as clients:
        clients.create_topic("orders", 4, replicas=2)
        clients.open_producer("plain")
        for number in range(4):
            clients.send("plain", ("orders", number), [("key", "value")] * (number + 1))
        clients.set_password("alice", PASSWORD)
        clients.wait_for_replicas()
        before = clients.describe()

    new = [controller(201), Node(1, ("b1",), "broker"), brokers[1]]
    cluster = KraftCluster(
        cluster_jvms, cluster.folder, new, is_dynamic=is_dynamic, properties=SMALL
    )
    rebuilt = Rebuilding(cluster)
    rebuilt.rebuild()
    rebuilt.move_copies_aside()

    with rebuilt.running() as clients:
        after = clients.describe()
        for name in ("topics", "scram", "features"):
            assert without_leaders(after)[name] == without_leaders(before)[name]
        assert list(after["quorum"]["voters"]) == ["201"]
        assert set(after["quorum"]["observers"]) == {"1", "2"}
        clients.open_producer("new")
        assert clients.send("new", ("orders", 3), [("key", "new")]) == [4]


def without_leaders(said: dict[str, Any]) -> dict[str, Any]:
    rows = {
        name: [topic["id"], [[row["start"], row["end"]] for row in topic["partitions"]]]
        for name, topic in said["topics"].items()
    }
    return said | {"topics": rows}


def write_many(root: Path, node_id: int) -> dict[str, str]:
    """Write the disk of a broker with empty partitions; return the ids of their topics."""
    write_log_directory(root)
    properties = re.sub(rb"node\.id=\d+", b"node.id=%d" % node_id, META_PROPERTIES)
    (root / names.META_PROPERTIES).write_bytes(properties)
    ids = {}
    for number in range(MANY // IN_A_TOPIC):
        topic_id = uuid.UUID(int=TOPIC_ID.int + number)
        ids[f"topic-{number}"] = format_uuid(topic_id)
        metadata = encode_partition_metadata(PartitionMetadata(0, topic_id))
        for partition in range(IN_A_TOPIC):
            files = {names.PARTITION_METADATA: metadata}
            write_partition(root / f"topic-{number}-{partition}", {0: b""}, others=files)
    return ids


def test_ten_thousand_partitions_are_in_the_new_metadata(
    cluster_jvms: ClusterJvms, case_folder: Path
) -> None:
    """A broker without any of them publishes the metadata."""
    old, new = Node(1, ("old",), "broker"), Node(2, ("new",), "broker")
    cluster = KraftCluster(
        cluster_jvms,
        case_folder / "case",
        [controller(201), old, new],
        cluster_id="a-cluster",
        properties=SMALL,
    )
    cluster.format(new.node_id)
    ids = write_many(cluster.folder / "old", old.node_id)
    rebuilt = Rebuilding(cluster)
    rebuilt.rebuild()

    with cluster.running(201, new.node_id) as clients:
        said = clients.describe()
    assert {name: topic["id"] for name, topic in said["topics"].items()} == ids
    replicas = [row["replicas"] for topic in said["topics"].values() for row in topic["partitions"]]
    assert replicas == [[old.node_id]] * MANY
