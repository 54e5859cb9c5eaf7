"""A broker that stopped just before the end of a move between its disks keeps the copy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from builders.cluster_clients import ClusterClients
from builders.cluster_jvms import ON_BOTH_KAFKAS, ClusterJvms
from builders.cluster_nodes import ALONE, Node, controller
from builders.in_process import run_kdump
from builders.kraft_cluster import KraftCluster
from builders.memory import in_memory

pytestmark = [ON_BOTH_KAFKAS, pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

TOPIC: Final = "moved"
DISKS: Final = ("d1", "d2")
SOME: Final = 10
ALL: Final = 20
COMPLETE, SHORT, ALONE_ON_DISK, SET_ASIDE = range(4)
"""Partitions: with a copy that has all, that lacks half, whose log is lost; and one whose copy that
lacks half is renamed as ``kdump explain log-replaced`` says."""


@dataclass(frozen=True, slots=True)
class Story:
    """What kdump said before the broker started, and what it then had.

    Attributes:
        found: severities and losses of the findings about replaced logs, by partition.
        alone: the copies whose log is said to be nowhere.
        predicted: the verdicts on the logs, by partition.
        records: how many a client reads, by partition.
    """

    found: Mapping[int, tuple[str, str | None]]
    alone: Sequence[str]
    predicted: Mapping[int, str]
    records: Mapping[int, int]


def send(clients: ClusterClients) -> None:
    for number in range(4):
        clients.send("p", (TOPIC, number), [("key", f"value {at}") for at in range(SOME)])


def where(cluster: KraftCluster, number: int) -> tuple[Path, Path]:
    """Return the disk that has a partition, and the other one."""
    first, second = cluster.log_dirs()
    if (first / f"{TOPIC}-{number}").exists():
        return first, second
    return second, first


def json_lines(*words: str) -> list[dict[str, Any]]:
    done = run_kdump([*words, "--output", "jsonl"], Path.cwd())
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def story(cluster_jvms: ClusterJvms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with in_memory(tmp_path_factory.mktemp("moves")) as folder:
        nodes = [controller(101), Node(1, DISKS, "broker")]
        cluster = KraftCluster(cluster_jvms, folder / "disks", nodes, properties=ALONE)
        cluster.format()
        with cluster.running() as clients:
            clients.open_producer("p")
            clients.create_topic(TOPIC, 4, replicas=1)
            send(clients)
        for number in range(4):
            assigned, _ = where(cluster, number)
            shutil.copytree(assigned / f"{TOPIC}-{number}", folder / "early" / str(number))
        with cluster.running() as clients:
            clients.open_producer("p")
            send(clients)
        for number in range(4):
            _leave_unfinished(cluster, number, folder / "early" / str(number))

        log_dirs = list(map(str, cluster.log_dirs()))
        found = json_lines("verify", *log_dirs)
        predicted = json_lines("recover", "--dry-run", *log_dirs)
        with cluster.running() as clients:
            read = clients.read(*((TOPIC, number) for number in range(4)))
        logs = {f"{TOPIC}-{number}": number for number in range(4)}
        yield Story(
            found={
                logs[Path(each["path"]).name]: (each["severity"], each["loss"])
                for each in found
                if each.get("code") == "log-replaced"
            },
            alone=[each["path"] for each in found if each.get("code") == "directory-future-alone"],
            predicted={
                logs[each["directory"]]: each["verdict_kind"]
                for each in predicted
                if each["type"] == "partition" and each["directory"] in logs
            },
            records={number: len(read[name]) for name, number in logs.items()},
        )


def _leave_unfinished(cluster: KraftCluster, number: int, early: Path) -> None:
    """Move a log to the other disk, with a copy of it where it is assigned."""
    assigned, other = where(cluster, number)
    log = assigned / f"{TOPIC}-{number}"
    copied = log if number in (COMPLETE, ALONE_ON_DISK) else early
    suffix = "stray" if number == SET_ASIDE else "future"
    shutil.copytree(copied, assigned / f"{TOPIC}-{number}.{'4' * 32}-{suffix}")
    if number == ALONE_ON_DISK:
        shutil.rmtree(log)
    else:
        shutil.move(log, other)


def test_a_log_whose_copy_lacks_records_is_no_valid_log(story: Story) -> None:
    assert story.records[SHORT] == SOME
    severity, loss = story.found[SHORT]
    assert severity == "severe"
    assert loss is not None
    assert f"offsets {SOME} to {ALL - 1}" in loss
    assert story.predicted[SHORT] == "replaced"


def test_a_log_whose_copy_has_all_is_replaced_without_loss(story: Story) -> None:
    assert story.records[COMPLETE] == ALL
    assert story.found[COMPLETE] == ("info", None)
    assert story.predicted[COMPLETE] == "replaced"


def test_a_copy_becomes_the_log_where_the_metadata_assigns_the_replica_to_it(story: Story) -> None:
    assert story.records[ALONE_ON_DISK] == ALL
    assert story.alone == []


def test_a_log_stays_once_its_copy_is_renamed_as_explained(story: Story) -> None:
    assert story.records[SET_ASIDE] == ALL
    assert SET_ASIDE not in story.found
    assert story.predicted[SET_ASIDE] == "valid"
