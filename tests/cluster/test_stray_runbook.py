"""The runbooks for stray partitions and a deleted topic, from the first line to a client."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from builders.cluster_clients import ClusterClients
from builders.cluster_disks import METADATA, directory_id
from builders.cluster_jvms import ClusterJvms
from builders.cluster_nodes import ALONE, Node, controller
from builders.in_process import run_kdump
from builders.kraft_cluster import KraftCluster
from builders.memory import in_memory
from builders.ports import HOST
from builders.runbook import commands_of, words_of

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

STRAY: Final = "everything-became-stray"
GONE: Final = "deleted-topic"
DISKS: Final = ("d1", "d2")
CONTROLLER: Final = 101
TOPICS: Final = ("orders", "users")
DELETED: Final = "orders"
PARTITIONS: Final = 4
RECORDS: Final = 10


@pytest.fixture(scope="module")
def cluster(
    cluster_jvms: ClusterJvms, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KraftCluster]:
    """Return a cluster whose broker met an empty controller; ``backup`` has the old metadata."""
    with in_memory(tmp_path_factory.mktemp("stray")) as folder:
        nodes = [controller(CONTROLLER), Node(1, DISKS, "broker")]
        running = KraftCluster(cluster_jvms, folder / "disks", nodes, properties=ALONE)
        running.format()
        with running.running() as clients:
            clients.open_producer("of-strays")
            for topic in TOPICS:
                clients.create_topic(topic, PARTITIONS, replicas=1)
                for number in range(PARTITIONS):
                    pairs = [("key", f"value {at}") for at in range(RECORDS)]
                    clients.send("of-strays", (topic, number), pairs)
        _lose_the_controller(running)
        with running.running():
            pass
        yield running


def _lose_the_controller(cluster: KraftCluster) -> None:
    folder = cluster.folder
    shutil.rmtree(folder / f"c{CONTROLLER}")
    backup = folder / "backup"
    backup.mkdir()
    shutil.copy(folder / "d1" / "meta.properties", backup)
    (folder / "d1" / METADATA).rename(backup / METADATA)
    cluster.format(CONTROLLER, voters="--standalone")


def stray_in(cluster: KraftCluster) -> list[str]:
    return [path.name for each in cluster.log_dirs() for path in each.glob("*-stray")]


def instead(cluster: KraftCluster) -> Mapping[str, str]:
    """Return what stands for the names in the runbook."""
    folder, node = cluster.folder, cluster.nodes[CONTROLLER]
    log_dir = folder / f"c{CONTROLLER}"
    return {
        "--metadata DIR": f"--metadata {folder / 'backup'}",
        "/data/1": str(folder / "d1"),
        "/data/2": str(folder / "d2"),
        "/ctrl": str(log_dir),
        "101@ctrl-1:9093": f"{node.endpoint}:{directory_id(log_dir)}",
        "broker-1.json": str(folder / "broker-1.json"),
        "controller-101.json": str(folder / "controller-101.json"),
        "plan.json": str(folder / "plan.json"),
        "HOST:PORT": f"{HOST}:{cluster.nodes[1].client_port}",
    }


def said(cluster: KraftCluster, runbook: str, start: str, *, status: int = 0) -> str:
    """Run the command of a runbook that begins with these words; return what it prints."""
    (found,) = (line for line in commands_of(runbook) if line.startswith(start))
    outcome = run_kdump(words_of(found, instead(cluster))[1:], Path.cwd())
    printed = outcome.stdout.decode()
    assert outcome.exit_status == status, (found, outcome.stderr.decode(), printed)
    return " ".join(printed.split())


def records_of(clients: ClusterClients, *topics: str) -> dict[str, int]:
    read = clients.read(*((topic, at) for topic in topics for at in range(PARTITIONS)))
    return {name: len(rows) for name, rows in read.items()}


def complete(*topics: str) -> dict[str, int]:
    return {f"{topic}-{number}": RECORDS for topic in topics for number in range(PARTITIONS)}


@dataclass(frozen=True, slots=True)
class Story:
    """Observations, in the order in which they were made.

    Attributes:
        stray: how many directories the broker made ``-stray``.
        printed: by the commands of the runbook, by their first words.
        described: the lines of ``kafka-topics.sh``.
        consumed: the lines of ``kafka-console-consumer.sh``.
        records: by partition.
        stray_after: like ``stray``, after the cluster has run.
    """

    stray: int
    printed: Mapping[str, str]
    described: Sequence[str]
    consumed: Sequence[str]
    records: Mapping[str, int]
    stray_after: int


@pytest.fixture(scope="module")
def story(cluster: KraftCluster) -> Story:
    """Follow the runbook for stray partitions."""
    stray = len(stray_in(cluster))
    printed = {
        start: said(cluster, STRAY, start, status=status)
        for start, status in (
            ("kdump info", 0),
            ("kdump undelete --dry-run /data", 4),
            ("kdump undelete --dry-run --metadata", 1),
            ("kdump undelete --partition", 5),
            ("kdump metadata collect /data", 0),
            ("kdump metadata collect /ctrl", 0),
            ("kdump metadata plan", 0),
            ("kdump metadata apply", 0),
            ("kdump recover --dry-run --metadata", 1),
            ("kdump recover --metadata", 0),
        )
    }
    names = instead(cluster)
    tools = [words_of(line, names) for line in commands_of(STRAY) if line.startswith("kafka-")]
    with cluster.running() as clients:
        described, consumed = (clients.run_tool(*words) for words in tools)
        records = records_of(clients, *TOPICS)
    return Story(stray, printed, described, consumed, records, len(stray_in(cluster)))


def test_every_record_of_stray_partitions_is_back(story: Story) -> None:
    assert story.stray == len(TOPICS) * PARTITIONS
    assert story.records == complete(*TOPICS)
    assert story.stray_after == 0
    assert any("Topic: orders" in line for line in story.described)
    assert any(line.startswith("value ") for line in story.consumed)


def test_each_step_for_stray_partitions_says_what_the_runbook_says(story: Story) -> None:
    printed = story.printed
    count = story.stray
    renames = f"the next start renames {count} of them to -stray"
    assert renames in printed["kdump undelete --dry-run /data"]
    assert "keeps them" in printed["kdump undelete --dry-run --metadata"]
    assert f"{count} partitions restored" in printed["kdump undelete --partition"]
    assert "stray" not in printed["kdump recover --dry-run --metadata"]


def _delete_by_mistake(cluster: KraftCluster) -> None:
    """Delete a topic, and kill the cluster as soon as its directories are renamed."""
    cluster.start()
    cluster.clients.ask("delete", topic=DELETED)
    for _ in range(1000):
        found = [path for each in cluster.log_dirs() for path in each.glob(f"{DELETED}-*-delete")]
        if len(found) == PARTITIONS:
            break
        cluster.clients.describe()
    cluster.kill()


def test_every_record_of_a_deleted_topic_is_back(story: Story, cluster: KraftCluster) -> None:
    assert story.stray_after == 0
    _delete_by_mistake(cluster)
    (cluster.folder / "plan.json").unlink()
    for name in ("broker-1.json", "controller-101.json"):
        (cluster.folder / name).unlink()

    assert said(cluster, GONE, "kdump ls").count(" delete ") == PARTITIONS
    restored = said(cluster, GONE, "kdump undelete", status=5)
    assert f"{PARTITIONS} partitions restored" in restored
    assert f"{DELETED} deleted" in said(cluster, GONE, "kdump metadata history")
    for start in ("collect /data", "collect /ctrl", "plan", "apply"):
        said(cluster, GONE, f"kdump metadata {start}")
    assert "stray" not in said(cluster, STRAY, "kdump recover --dry-run --metadata", status=1)

    with cluster.running() as clients:
        assert records_of(clients, *TOPICS) == complete(*TOPICS)
    assert stray_in(cluster) == []
