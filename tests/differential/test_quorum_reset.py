"""A cluster that lost two of three controllers starts again after ``kdump quorum reset``."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from builders import cluster_story
from builders.freeing import of_type, run
from builders.json_answers import objects
from builders.kraft_cluster import (
    CLUSTER_ID,
    HOST,
    ClusterJvms,
    KraftCluster,
    Node,
    three_brokers,
    three_controllers,
)
from builders.memory import in_memory
from kdump.formats.meta_properties import decode_meta_properties
from kdump.formats.uuids import format_uuid

pytestmark = [pytest.mark.differential, pytest.mark.soak]

SEED: Final = 7
KEPT: Final = ("acls", "scram", "quotas", "features")


@pytest.fixture
def jvms(java_classpath: str, tmp_path: Path) -> Iterator[ClusterJvms]:
    with ClusterJvms(java_classpath, tmp_path) as running:
        yield running


def reset(survivor: Path, voters: Iterable[str], *others: Path) -> str:
    """Reset the quorum of a surviving controller, and return what kdump says."""
    options = [f"--voter={each}" for each in voters]
    options += [f"--show-also={each}" for each in others]
    done = run("quorum", "reset", survivor, *options)
    assert done.exit_status == 0, done.stderr
    return done.stdout.decode()


def with_the_most(cluster: KraftCluster) -> list[Node]:
    """The controllers, the one whose disk has the most first."""
    disks = [cluster.folder / f"c{node.node_id}" for node in cluster.controllers]
    rows = objects(run("quorum", "show", "--output", "jsonl", *disks).stdout)
    return [cluster.nodes[row["node_id"]] for row in of_type(rows, "copy")]


def topics_of(said: dict[str, Any]) -> dict[str, Any]:
    """Ids and end offsets; coordinators write to internal topics after every start."""
    return {
        name: [
            topic["id"],
            [
                [row["partition"], row["replicas"], None if name.startswith("__") else row["end"]]
                for row in topic["partitions"]
            ],
        ]
        for name, topic in said["topics"].items()
    }


def require_same_cluster(said: dict[str, Any], before: dict[str, Any]) -> None:
    assert topics_of(said) == topics_of(before)
    for name in KEPT:
        assert said[name] == before[name], name
    for name in cluster_story.GROUPS:
        assert said["groups"][name]["offsets"] == before["groups"][name]["offsets"]
    configs = {
        key: value for key, value in before["configs"].items() if not key.startswith("BROKER")
    }
    assert {key: said["configs"][key] for key in configs} == configs


def require_transactions_work(cluster: KraftCluster, producer: str) -> None:
    clients = cluster.clients
    clients.open_producer(producer, transactional_id=producer)
    with clients.transaction(producer):
        offsets = clients.send(producer, ("payments", 0), [("key", producer)])
    rows = clients.read(("payments", 0))["payments-0"]
    assert next(row for row in rows if row[0] == offsets[0])[3] == producer


def require_no_stray(cluster: KraftCluster) -> None:
    strays = [
        path for log_dir in cluster.log_dirs() for path in log_dir.iterdir() if "stray" in path.name
    ]
    assert strays == []


def directory_id(log_dir: Path) -> str:
    properties = decode_meta_properties((log_dir / "meta.properties").read_bytes())
    assert properties.directory_id is not None
    return format_uuid(properties.directory_id)


def with_controllers(cluster: KraftCluster, jvms: ClusterJvms, *nodes: Node) -> KraftCluster:
    return KraftCluster(jvms, cluster.folder, [*nodes, *cluster.brokers])


def test_dynamic_voters_one_first_and_then_three(jvms: ClusterJvms, tmp_path: Path) -> None:
    with in_memory(tmp_path) as folder:
        controllers = three_controllers()
        cluster = KraftCluster(jvms, folder, [*controllers, *three_brokers()])
        cluster.format()
        try:
            cluster.start()
            cluster_story.tell(cluster.clients, SEED)
            before = cluster.clients.describe(cluster_story.GROUPS)
        finally:
            cluster.kill()
        survivor, *lost = with_the_most(cluster)
        for node in lost:
            shutil.rmtree(folder / f"c{node.node_id}")

        home = folder / f"c{survivor.node_id}"
        said = reset(home, [survivor.endpoint], *cluster.log_dirs(1, 3))
        assert f"1 voter in the snapshot: {survivor.node_id}" in said
        alone = with_controllers(cluster, jvms, survivor)
        with alone.running() as clients:
            clients.wait_for_leaders()
            now = clients.describe(cluster_story.GROUPS)
            assert now["quorum"]["voters"] == {str(survivor.node_id): survivor.directory_id}
            require_same_cluster(now, before)
            require_transactions_work(alone, "after-one")
            before = clients.describe(cluster_story.GROUPS)
        require_no_stray(alone)

        # Two controllers that Kafka's own tool formats without voters fetch the snapshot.
        cluster.format(*(node.node_id for node in lost), voters="--no-initial-controllers")
        ids = {node.node_id: directory_id(folder / f"c{node.node_id}") for node in lost}
        voters = [
            survivor.endpoint,
            *(f"{node.node_id}@{HOST}:{node.controller_port}:{ids[node.node_id]}" for node in lost),
        ]
        reset(home, voters, *alone.log_dirs(1, 2))
        with cluster.running() as clients:
            clients.wait_for_leaders()
            now = clients.describe(cluster_story.GROUPS)
            assert now["quorum"]["voters"] == {
                str(survivor.node_id): survivor.directory_id,
                **{str(node_id): each for node_id, each in ids.items()},
            }
            require_same_cluster(now, before)
            require_transactions_work(cluster, "after-three")
        require_no_stray(cluster)
        assert before["cluster_id"] == CLUSTER_ID


@pytest.mark.parametrize("voters", [1, 3])
def test_static_voters(voters: int, jvms: ClusterJvms, tmp_path: Path) -> None:
    with in_memory(tmp_path) as folder:
        controllers = three_controllers()
        brokers = three_brokers()[:1]
        cluster = KraftCluster(jvms, folder, [*controllers, *brokers], is_dynamic=False)
        cluster.format()
        try:
            cluster.start()
            cluster.clients.create_topic("orders", 3, replicas=1)
            cluster.clients.open_producer("p")
            cluster.clients.send("p", ("orders", 0), [("k", "v")] * 5)
            before = cluster.clients.describe()
        finally:
            cluster.kill()
        survivor, *lost = with_the_most(cluster)
        for node in lost:
            shutil.rmtree(folder / f"c{node.node_id}")

        kept = [survivor, *lost][:voters]
        after = KraftCluster(jvms, folder, [*kept, *brokers], is_dynamic=False)
        for node in kept[1:]:
            after.format(node.node_id)
        addresses = [node.endpoint for node in kept]
        said = reset(folder / f"c{survivor.node_id}", addresses, *after.log_dirs(1))
        assert f"controller.quorum.voters={','.join(addresses)}" in " ".join(said.split())
        with after.running() as clients:
            clients.wait_for_leaders()
            now = clients.describe()
            assert now["quorum"]["voters"].keys() == {str(node.node_id) for node in kept}
            assert topics_of(now) == topics_of(before)
