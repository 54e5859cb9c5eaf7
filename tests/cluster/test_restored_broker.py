"""A broker that comes back from a backup into a cluster that went on without it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Final

import pytest

from builders.cluster_clients import ClusterClients
from builders.cluster_jvms import ClusterJvms
from builders.cluster_nodes import ALONE, Node, controller
from builders.in_process import run_kdump
from builders.kraft_cluster import KraftCluster
from builders.memory import in_memory
from builders.ports import HOST
from builders.runbook import commands_of, words_of

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

CONTROLLER: Final = 101
RESTORED: Final = 1
"""The last broker in sync."""
OTHER: Final = 2
ORDERS: Final = ("orders", 0)
VALUES: Final = ("before", "after", "alone")
"""From before the backup; acknowledged by both brokers after it; by one alone at the end."""
*_, UNAVAILABLE, ELECT = commands_of("backups-that-were-restored", "kafka-")


@pytest.fixture
def cluster(
    cluster_jvms: ClusterJvms, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KraftCluster]:
    """Return a stopped cluster whose last broker in sync was restored."""
    with in_memory(tmp_path_factory.mktemp("restored")) as folder:
        brokers = [Node(RESTORED, ("d1",), "broker"), Node(OTHER, ("d2",), "broker")]
        found = KraftCluster(
            cluster_jvms, folder, [controller(CONTROLLER), *brokers], properties=ALONE
        )
        found.format()
        before, after, alone = VALUES
        with found.running() as clients:
            clients.create_topic(ORDERS[0], assignment=[[RESTORED, OTHER]])
            clients.open_producer("p", acks="all")
            clients.send("p", ORDERS, [(None, before)])
            clients.wait_for_replicas(ORDERS[0])
            run_kdump(["backup", "create", "repository", "d1"], folder)
            clients.send("p", ORDERS, [(None, after)])
            found.stop(OTHER)
            clients.send("p", ORDERS, [(None, alone)])
        shutil.rmtree(folder / "d1")
        outcome = run_kdump(["backup", "restore", "--into", "d1", "repository"], folder)
        last = outcome.stdout.decode().splitlines()[-1]
        assert last.startswith(f"broker {OTHER} has replicas of 1 partition: if they have run")
        yield found


def read(clients: ClusterClients) -> list[str]:
    """Wait until both replicas are in sync, and return all values."""
    clients.wait_for_replicas(ORDERS[0])
    (rows,) = clients.read(ORDERS).values()
    return [value for *_, value in rows]


def test_what_restore_warns_of_happens(cluster: KraftCluster) -> None:
    with cluster.running() as clients:
        assert read(clients) == ["before"]


def test_the_runbook_keeps_what_the_others_have(cluster: KraftCluster) -> None:
    instead = {"HOST:9092": f"{HOST}:{cluster.nodes[OTHER].client_port}"}
    tool, *words = words_of(ELECT, instead)
    shown, *to_show = words_of(UNAVAILABLE, instead)
    try:
        cluster.start(CONTROLLER, OTHER)
        clients = cluster.clients
        assert "Topic: orders" in "".join(clients.run_tool(shown, *to_show))
        clients.run_tool(tool, *words)
        clients.wait_for_leader(ORDERS, OTHER)
        cluster.start(RESTORED)
        assert read(clients) == ["before", "after"]
        cluster.stop()
    finally:
        cluster.kill()
