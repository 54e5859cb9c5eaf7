"""Share groups of a cluster that was cut at a moment go on where they were then."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

import pytest

from builders.cluster_clients import ClusterClients
from builders.cluster_jvms import ON_BOTH_KAFKAS, ClusterJvms
from builders.cluster_nodes import ALONE, Node, controller
from builders.json_answers import asked
from builders.kraft_cluster import KraftCluster
from builders.waiting import a_moment

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

TOPIC: Final = "jobs"
OTHER: Final = "ahead"
PARTITION: Final = (TOPIC, 0)
PROPERTIES: Final = ALONE | {
    "share.coordinator.state.topic.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
    "share.coordinator.state.topic.prune.interval.ms": "200",
    "transaction.state.log.num.partitions": "1",
}
STATES: Final = "__share_group_state"
HOUR_MS: Final = 3_600_000


@pytest.fixture
def cluster(cluster_jvms: ClusterJvms, case_folder: Path) -> KraftCluster:
    nodes = [controller(100), Node(1, ("a", "b"), "broker")]
    running = KraftCluster(cluster_jvms, case_folder / "disks", nodes, properties=PROPERTIES)
    running.format()
    return running


def values(*texts: str) -> list[tuple[str | None, str | None]]:
    return [("key", text) for text in texts]


def offsets_of(clients: ClusterClients, group: str) -> Any:
    return clients.describe([])["groups"][group]["offsets"]


def accept(
    clients: ClusterClients, group: str, topic: str, *texts: str, left: tuple[str, ...] = ()
) -> None:
    assert sorted(clients.share(group, [topic], len(texts), left)) == sorted(texts)


def wait_until_pruned(clients: ClusterClients, after: int) -> None:
    """Wait until coordinators have deleted all that they had written before an offset."""
    deadline = time.monotonic() + 60
    while clients.describe([])["topics"][STATES]["partitions"][0]["start"] <= after:
        assert time.monotonic() < deadline


@ON_BOTH_KAFKAS
def test_share_groups_go_on_where_they_were_at_the_moment(cluster: KraftCluster) -> None:
    with cluster.running() as clients:
        clients.create_topic(TOPIC, 1, replicas=1)
        clients.create_topic(OTHER, 1, replicas=1)
        clients.open_producer("plain")
        for group in ("first", "second", "later", "ahead"):
            clients.configure("GROUP", group, share_auto_offset_reset="earliest")
        clients.send("plain", PARTITION, values(*"abcdef"))
        ahead_ms = round(time.time() * 1000) + HOUR_MS
        clients.send("plain", (OTHER, 0), values("a", "b", "c"))
        clients.send("plain", (OTHER, 0), values("d", "e", "f"), timestamp_ms=ahead_ms)
        accept(clients, "first", TOPIC, *"acd", left=("b", "e", "f"))
        accept(clients, "second", TOPIC, *"abcdef")
        accept(clients, "ahead", OTHER, *"acdef", left=("b",))
        said = {group: offsets_of(clients, group) for group in ("first", "second", "ahead")}
        moment_ms = a_moment()
        end = clients.describe([])["topics"][STATES]["partitions"][0]["end"]
        accept(clients, "first", TOPIC, *"bef")
        accept(clients, "later", TOPIC, *"abcdef")
        accept(clients, "ahead", OTHER, "b")
        for text in "ghijk":
            clients.send("plain", PARTITION, values(text))
            clients.send("plain", (OTHER, 0), values(text))
            for group in ("first", "second", "later"):
                accept(clients, group, TOPIC, text)
            accept(clients, "ahead", OTHER, text)
        wait_until_pruned(clients, end)
    log_dirs = cluster.log_dirs()
    found = asked("rewind", f"--to={moment_ms}", *log_dirs, status=1)
    assert {each["group"]: each["outcome"] for each in found if each["type"] == "share_offset"} == {
        "first": "restored",
        "second": "restored",
        "ahead": "lowered",
    }
    asked("verify", *log_dirs, status=0)
    with cluster.running() as clients:
        assert offsets_of(clients, "first") == said["first"]
        assert offsets_of(clients, "second") == said["second"]
        assert offsets_of(clients, "ahead") == said["ahead"]  # "b" is not accepted in both
        assert "later" not in clients.describe([])["groups"]
        clients.open_producer("again")
        clients.send("again", PARTITION, values("new"))
        clients.send("again", (OTHER, 0), values("d again"))
        accept(clients, "first", TOPIC, "b", "e", "f", "new")
        accept(clients, "second", TOPIC, "new")
        accept(clients, "ahead", OTHER, "b", "d again")
        accept(clients, "later", TOPIC, *"abcdef", "new")
