"""Seven backups of a cluster that lives, stops and is killed; each is what it was then."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from builders.cluster_checks import KEPT
from builders.cluster_clients import ClusterClients
from builders.cluster_jvms import CLIENTS, ON_BOTH_KAFKAS, ClusterJvms
from builders.cluster_ledger import (
    AGAIN,
    GROUPS,
    LONELY,
    ORDERS,
    Ledger,
    Said,
    Story,
    Window,
    now_ms,
    opened,
    said_by,
)
from builders.cluster_nodes import three_brokers, three_controllers
from builders.json_answers import asked
from builders.kraft_cluster import KraftCluster
from builders.memory import in_memory

pytestmark = [ON_BOTH_KAFKAS, pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

SESSIONS: Final = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "300"}
"""Controllers wait for that before a broker that was killed is gone, or may come back."""
OTHERS: Final = (101, 102, 103, 1, 3)
"""All nodes but broker 2, which is in a JVM of its own."""
PATIENCE_S: Final = 60
ROUNDS: Final = 2
"""How much happens from one snapshot to the next."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot, and what is known of the cluster then.

    Attributes:
        said: what ``Admin`` said before; None if clients were at work meanwhile.
        stopped_ms: when all brokers had last stopped cleanly, and so written where logs start.
        lived_ms: when clients began what they did before it.
    """

    name: str
    begun_ms: int
    ended_ms: int
    said: dict[str, Any] | None
    stopped_ms: int
    lived_ms: int


@dataclass(slots=True)
class Life:
    """A cluster that is backed up now and then to one repository."""

    cluster: KraftCluster
    repository: Path
    ledger: Ledger = field(default_factory=Ledger)
    snapshots: dict[str, Snapshot] = field(default_factory=dict)
    stopped_ms: int = 0
    lived_ms: int = 0

    @property
    def disks(self) -> list[str]:
        return [str(each) for each in self.cluster.log_dirs(*self.cluster.nodes)]

    def lead(self) -> None:
        """Make seven snapshots, and let clients do a bit of everything in between.

        An open transaction lasts from the second to the fifth.
        """
        cluster = self.cluster
        cluster.format()
        self.start()
        story = Story(cluster.clients)
        self.ledger = story.ledger
        story.begin()
        self.live(story)
        self.back_up("quiet", story.quiet())
        self.live(story)
        self.back_up_beside("busy", story)
        story.open()
        cluster.kill("b2")
        cluster.clients.wait_for_leader(LONELY, -1)
        self.live(story, is_whole=False)
        self.back_up("one-killed", story.quiet())
        self.live(story, is_whole=False)
        said = story.quiet()
        cluster.start(2, jvm="b2")
        self.back_up("one-back", said)
        cluster.clients.wait_for_replicas()
        story.commit()
        self.live(story)
        said = story.quiet()
        cluster.stop()
        self.stopped_ms = now_ms()
        self.back_up("stopped", said)
        self.start()
        cluster.clients.wait_for_replicas()
        story.open()
        self.live(story)
        said = story.quiet()
        cluster.kill()
        self.back_up("killed", said)
        self.start()
        cluster.clients.wait_for_replicas()
        self.live(story)
        self.back_up_beside("busy-again", story)
        cluster.kill()

    def start(self) -> None:
        self.cluster.start(*OTHERS)
        self.cluster.start(2, jvm="b2")

    def live(self, story: Story, *, is_whole: bool = True) -> None:
        self.lived_ms = now_ms()
        story.live(ROUNDS, is_whole=is_whole)

    def back_up(self, name: str, said: dict[str, Any] | None) -> None:
        row = asked("backup", "create", self.repository, *self.disks)[-1]
        listed = asked("backup", "list", self.repository)
        (begun_ms,) = {each["begun_ms"] for each in listed if each["snapshot"] == row["snapshot"]}
        self.snapshots[name] = Snapshot(
            row["snapshot"], begun_ms, now_ms(), said, self.stopped_ms, self.lived_ms
        )

    def back_up_beside(self, name: str, story: Story) -> None:
        """Back up while clients are at work."""
        is_backed_up = threading.Event()

        def live() -> None:
            while not is_backed_up.is_set():
                story.live(1)

        with ThreadPoolExecutor(1) as worker:
            traffic = worker.submit(live)
            try:
                self.back_up(name, None)
            finally:
                is_backed_up.set()
            traffic.result()


@pytest.fixture(scope="module")
def life(cluster_jvms: ClusterJvms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    with in_memory(tmp_path_factory.mktemp("seven")) as folder:
        nodes = [*three_controllers(), *three_brokers()]
        cluster = KraftCluster(cluster_jvms, folder / "disks", nodes, properties=SESSIONS)
        life = Life(cluster, folder / "repository")
        try:
            life.lead()
        finally:
            cluster.kill()
            cluster_jvms.kill(CLIENTS)
        asked("backup", "check", life.repository)
        yield life


@pytest.fixture
def restored(life: Life, cluster_jvms: ClusterJvms, case_folder: Path) -> KraftCluster:
    """Return the cluster with disks that are to be restored."""
    return KraftCluster(
        cluster_jvms, case_folder / "disks", life.cluster.nodes.values(), properties=SESSIONS
    )


@pytest.mark.parametrize(
    "name", ["quiet", "busy", "one-killed", "one-back", "stopped", "killed", "busy-again"]
)
def test_a_snapshot_is_what_the_cluster_was(life: Life, restored: KraftCluster, name: str) -> None:
    snapshot = life.snapshots[name]
    words = ["--snapshot", snapshot.name]
    if snapshot.said is None:
        words += ["--to", str(snapshot.begun_ms)]
    restore(life, restored, *words)
    with restored.running() as clients:
        clients.wait_for_replicas()
        if snapshot.said is not None:
            require_said(clients, exact(snapshot.said))
        said = said_by(clients)
        assert contradictions(life, snapshot, said, snapshot.begun_ms) == []
        goes_on(clients)


@pytest.mark.parametrize("name", ["busy", "one-killed", "one-back", "stopped", "killed"])
def test_a_moment_before_a_snapshot_is_what_the_cluster_was(
    life: Life, restored: KraftCluster, name: str
) -> None:
    snapshot = life.snapshots[name]
    moments = life.ledger.amid_commits(snapshot.lived_ms, snapshot.begun_ms)
    moment_ms = moments[len(moments) // 2]
    restore(life, restored, "--to", str(moment_ms))
    rewind_metadata(restored, moment_ms)
    with restored.running() as clients:
        clients.wait_for_replicas()
        said = said_by(clients)
        assert contradictions(life, snapshot, said, moment_ms, is_rewound=True) == []
        goes_on(clients)


def rewind_metadata(cluster: KraftCluster, moment_ms: int) -> None:
    """Bring topics, configurations and the like back to a moment, too, as the runbook says.

    Of a topic that was deleted since, nothing is left but what the metadata say.
    """
    collection, plan = cluster.folder.parent / "all.json", cluster.folder.parent / "plan.json"
    disks = cluster.log_dirs(*cluster.nodes)
    asked("metadata", "collect", f"--to={moment_ms}", *disks, "--out", collection)
    words: list[str | Path] = [f"--controller={each.voter}" for each in cluster.controllers]
    words += [f"--set=topic.{AGAIN}.partition.0.leader=1", "--accept-loss"]
    asked("metadata", "plan", *words, collection, "--out", plan)
    for node in cluster.controllers:
        for log_dir in cluster.log_dirs(node.node_id):
            asked("metadata", "apply", plan, log_dir)


def restore(life: Life, cluster: KraftCluster, *words: str) -> None:
    """Restore the disks of all nodes, and require that nothing is wrong with them."""
    disks = cluster.log_dirs(*cluster.nodes)
    into = [word for disk in disks for word in ("--into", str(disk))]
    asked("backup", "restore", life.repository, *words, *into)
    for node in cluster.nodes:
        findings = asked("verify", *cluster.log_dirs(node))
        assert [row for row in findings if row.get("severity", "info") != "info"] == []


def contradictions(
    life: Life, snapshot: Snapshot, said: Said, moment_ms: int, *, is_rewound: bool = False
) -> list[str]:
    """What a restored cluster says otherwise than it was.

    Records, offsets and transactions are of the moment, metadata of the snapshot, or if they were
    rewound, of the moment, too. Where logs start is what running brokers forget if they are killed.
    """
    then = Window(moment_ms, moment_ms)
    in_snapshot = Window(snapshot.begun_ms, snapshot.ended_ms)
    return life.ledger.contradictions(
        said,
        records=then,
        starts=Window(snapshot.stopped_ms, snapshot.ended_ms),
        metadata=then if is_rewound else in_snapshot,
        partitions=in_snapshot,
        emptied=[AGAIN] if is_rewound else [],
    )


def exact(said: dict[str, Any]) -> dict[str, Any]:
    """What ``Admin`` says before a backup beside clients that wait, and again after its restore."""
    topics = {
        name: [topic["id"], [[row["end"], row["stable"]] for row in topic["partitions"]]]
        for name, topic in said["topics"].items()
        if name != LONELY[0]  # may have no leader
    }
    return {name: said[name] for name in (*KEPT, "configs")} | {"topics": topics}


def require_said(clients: ClusterClients, known: dict[str, Any]) -> None:
    """Require that ``Admin`` comes to say what is known.

    A leader that starts has its high watermark from a checkpoint, up to five seconds old. A replica
    that has all before it gets in sync, and the end is where that one is until it has fetched.
    """
    deadline = time.monotonic() + PATIENCE_S
    while (found := exact(clients.describe(GROUPS))) != known and time.monotonic() < deadline:
        pass
    assert found == known


def goes_on(clients: ClusterClients) -> None:
    """Write, commit and create again."""
    clients.create_topic("new")
    clients.wait_for_replicas("new")
    with opened(clients, "new", transactional_id="ended"):
        with clients.transaction("new"):
            sent = {
                each: clients.send("new", each, [("key", "new")])[0]
                for each in [*ORDERS, ("new", 0)]
            }
        for each in sent:
            clients.wait_for_markers(each)
    rows = clients.read(*sent)
    for (topic, number), offset in sent.items():
        assert rows[f"{topic}-{number}"][-1][::3] == [offset, "new"]
    clients.commit_offsets(GROUPS[0], sent)
    offsets = clients.describe(GROUPS)["groups"][GROUPS[0]]["offsets"]
    assert {name: each[0] for name, each in offsets.items()} == {
        f"{topic}-{number}": offset for (topic, number), offset in sent.items()
    }
