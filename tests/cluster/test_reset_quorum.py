"""A cluster that lost two of three controllers goes on with the metadata of the third."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import pytest

from builders.cluster_checks import answers_as_before, fingerprint
from builders.cluster_disks import KILLED, ClusterDisks, directory_id
from builders.cluster_jvms import ON_BOTH_KAFKAS, ClusterJvms
from builders.cluster_nodes import ALONE, Node, controller
from builders.in_process import run_kdump
from builders.kraft_cluster import KraftCluster

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

LEFT: Final = 103
EARLY: Final = 3
"""The broker that stopped before the others, and is behind them."""


def kdump(*words: str | Path) -> str:
    outcome = run_kdump([str(each) for each in words], Path.cwd())
    assert outcome.exit_status == 0, (words, outcome.stderr)
    return outcome.stdout.decode()


@ON_BOTH_KAFKAS
@pytest.mark.parametrize("new", [(), (301, 302)], ids=["alone", "with two new ones"])
def test_the_cluster_goes_on_with_new_voters(
    new: tuple[int, ...], cluster_disks: ClusterDisks, cluster_jvms: ClusterJvms, case_folder: Path
) -> None:
    folder = cluster_disks.copy(KILLED, case_folder / "case")
    shutil.rmtree(folder / "c101")
    shutil.rmtree(folder / "c102")
    (left,) = (node for node in cluster_disks.nodes if node.node_id == LEFT)
    nodes = [left, *map(controller, new), *cluster_disks.brokers]
    cluster = KraftCluster(cluster_jvms, folder, nodes)
    if new:
        cluster.format(*new, voters="--no-initial-controllers")
    disk = folder / left.disks[0]
    voters = {
        str(node.node_id): directory_id(folder / node.disks[0]) for node in nodes[: 1 + len(new)]
    }
    brokers = cluster.log_dirs()
    before = fingerprint(brokers)

    assert "1 of 3 voters shown" in kdump("quorum", "show", disk)
    words = [
        word
        for node in cluster.controllers
        for word in ("--voter", f"{node.endpoint}:{voters[str(node.node_id)]}")
    ]
    copies = [word for each in ("b1-d1", "b2-d1") for word in ("--show-also", folder / each)]
    kdump("quorum", "reset", disk, *words, *copies)

    assert fingerprint(brokers) == before
    ids = [node.node_id for node in nodes if node.node_id != EARLY]
    with cluster.running(*ids) as clients:
        clients.wait_for_leaders("orders", "unclean")
        cluster.start(EARLY)
        after = answers_as_before(clients, cluster_disks.said, cluster.brokers)
        assert after["quorum"]["voters"] == voters


def test_no_record_and_no_replica_is_lost_with_the_last_records_of_the_metadata(
    cluster_jvms: ClusterJvms, case_folder: Path
) -> None:
    """They had the id of a producer, and leader epochs that are on the brokers' disks."""
    folder = case_folder / "case"
    folder.mkdir()
    node = controller(101)
    brokers = [Node(number, (f"b{number}",), "broker") for number in (1, 2)]
    cluster = KraftCluster(cluster_jvms, folder, [node, *brokers], properties=ALONE)
    cluster.format()
    with cluster.running() as clients:
        clients.create_topic("orders", assignment=[[1, 2]])
    shutil.copytree(folder / "c101", folder / "behind")
    with cluster.running() as clients:
        clients.wait_for_leaders("orders")
    _send_one(cluster, "first")
    shutil.rmtree(folder / "c101")
    (folder / "behind").rename(folder / "c101")
    kdump("quorum", "reset", folder / "c101", "--voter", node.voter)
    _send_one(cluster, "second")
    with cluster.running() as clients:
        (found,) = clients.read(("orders", 0), isolation="read_uncommitted").values()
    assert [value for *_, value in found] == ["first", "second"]


def _send_one(cluster: KraftCluster, value: str) -> None:
    with cluster.running() as clients:
        clients.wait_for_leaders("orders")
        clients.open_producer(value)
        clients.send(value, ("orders", 0), [("key", value)])
        clients.wait_for_replicas()
