"""A cluster whose metadata were brought back to a moment says of itself what it said then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from builders.cluster_checks import KEPT, committed, require_login
from builders.cluster_clients import ClusterClients
from builders.cluster_disks import CLEAN, ClusterDisks
from builders.cluster_jvms import ON_BOTH_KAFKAS, ClusterJvms
from builders.cluster_nodes import ALONE, Node
from builders.cluster_story import GROUPS
from builders.json_answers import asked
from builders.kraft_cluster import KraftCluster
from kdump.formats import names

pytestmark = [ON_BOTH_KAFKAS, pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

ORDERS: Final = ("orders", 0)
TIMES: Final = ("times", 0)
"""Its topic is deleted, and its directories are still there."""
LATER: Final = ("later", 0)
GONE: Final = [("empty", 0), ("empty", 1), ("appended", 0)]
"""Partitions of deleted topics that left nothing."""
KEEP_DELETED: Final = {"log.segment.delete.delay.ms": "3600000"}


def live_on(clients: ClusterClients) -> None:
    """Change what the metadata have, of each kind, and write."""
    clients.create_topic(LATER[0], retention_ms="-1")
    clients.open_producer("later")
    for partition in (ORDERS, TIMES):
        clients.send("later", partition, [("key", "later")])
    for topic in ("empty", "appended", TIMES[0]):
        clients.ask("delete", topic=topic)
    clients.create_topic("appended", 2)
    clients.configure("TOPIC", "orders", retention_ms="1", cleanup_policy="compact")
    clients.configure("BROKER", "2", log_cleaner_threads="2")
    clients.allow("User:mallory", "ALL", "orders")
    clients.set_password("alice", "stolen")
    clients.set_password("mallory", "secret")
    clients.ask("quota", user="alice", name="producer_byte_rate", value=1.0)
    for partition in (ORDERS, LATER):
        clients.send("later", partition, [("key", "later")])


def told(said: dict[str, Any]) -> dict[str, Any]:
    """What only the metadata say; of topics, the ids and the numbers of partitions."""
    topics = {
        name: (each["id"], [sorted(row["replicas"]) for row in each["partitions"]])
        for name, each in said["topics"].items()
    }
    return {name: said[name] for name in (*KEPT, "configs")} | {"topics": topics}


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_the_metadata_are_those_of_the_moment(
    cluster_disks: ClusterDisks, cluster_jvms: ClusterJvms, case_folder: Path, is_killed: bool
) -> None:
    folder = cluster_disks.copy(CLEAN, case_folder / "case")
    cluster = KraftCluster(cluster_jvms, folder, cluster_disks.nodes, properties=KEEP_DELETED)
    everywhere = cluster.log_dirs(*cluster.nodes)
    with cluster.running() as clients:
        clients.wait_for_replicas()
        said = clients.describe(GROUPS)
        records = clients.read(ORDERS, TIMES)
        moment_ms = clients.a_moment()
        live_on(clients)
        assert told(clients.describe()) != told(said)
        if is_killed:
            cluster.kill()
    for each in everywhere:
        (each / names.LOCK_FILE).unlink(missing_ok=True)

    # The status is also that the metadata do not have the topic yet.
    asked("undelete", "--topic", TIMES[0], *cluster.log_dirs(), status=5)
    asked("rewind", f"--to={moment_ms}", *cluster.log_dirs(), status=1)
    collection, plan = folder / "collection.json", folder / "plan.json"
    to = f"--to={moment_ms}"
    asked("metadata", "collect", to, *everywhere, "--out", collection, status=0)
    voters = [f"--controller={each.voter}" for each in cluster.controllers]
    # What they had is gone with their directories.
    empty = [f"--set=topic.{topic}.partition.{number}.leader=1" for topic, number in GONE]
    words: list[str | Path] = [*voters, *empty, "--accept-loss", collection, "--out", plan]
    asked("metadata", "plan", *words, status=0)
    notices = {(each["code"], each["topic"]) for each in json.loads(plan.read_text())["notices"]}
    assert ("later-topic", LATER[0]) in notices
    for node in cluster.controllers:
        for log_dir in cluster.log_dirs(node.node_id):
            asked("metadata", "apply", plan, log_dir, status=0)

    with cluster.running() as clients:
        clients.wait_for_replicas()
        after = clients.describe(GROUPS)
        assert told(after) == told(said)
        assert committed(after) == committed(said)
        assert clients.read(ORDERS, TIMES) == records
        require_login(clients, cluster.brokers[0])
        clients.create_topic(LATER[0])
        clients.open_producer("new")
        for partition in (ORDERS, LATER, ("empty", 0)):
            clients.send("new", partition, [("key", "new")])
        assert [row[3] for row in clients.read(LATER)["later-0"]] == ["new"]


def test_the_metadata_of_a_broker_that_is_its_own_controller_are_those_of_the_moment(
    cluster_jvms: ClusterJvms, case_folder: Path
) -> None:
    node = Node(1, ("d1", "d2"), "broker,controller")
    cluster = KraftCluster(cluster_jvms, case_folder / "disks", [node], properties=ALONE)
    cluster.format()
    disks = cluster.log_dirs()
    with cluster.running() as clients:
        clients.create_topic(ORDERS[0], 2, replicas=1)
        clients.open_producer("any")
        clients.send("any", ORDERS, [("key", "before")])
        said = clients.describe()
        moment_ms = clients.a_moment()
        clients.send("any", ORDERS, [("key", "later")])
        clients.create_topic(LATER[0], replicas=1)
        clients.configure("TOPIC", ORDERS[0], retention_ms="1")
    asked("rewind", f"--to={moment_ms}", *disks, status=1)
    words = ("--into", disks[0], f"--controller={node.voter}", f"--to={moment_ms}")
    asked("metadata", "rebuild", *words, *disks, status=0)
    with cluster.running() as clients:
        clients.wait_for_replicas()
        assert told(clients.describe()) == told(said)
        assert [row[3] for row in clients.read(ORDERS)["orders-0"]] == ["before"]
