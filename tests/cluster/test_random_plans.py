"""Plans for randomly damaged replicas are started: no record is lost that a plan does not name."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any, Final

import pytest

from builders.cluster_clients import ClusterClients
from builders.cluster_disks import KILLED, ClusterDisks
from builders.cluster_jvms import ON_BOTH_KAFKAS, ClusterJvms
from builders.cluster_nodes import controller
from builders.damaged_replicas import (
    DAMAGES_AND_RETENTION,
    DISKS,
    MORE_DAMAGES,
    Held,
    collected,
    damage_some,
    held,
    replicas,
)
from builders.kraft_cluster import KraftCluster
from builders.rebuilding import Rebuilding
from kdump.formats import names
from kdump.state.metadata.disk_collection import CollectedLoad, DiskCollection

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

DAMAGED: Final = ("orders", "pairs", "expanded", "trimmed", "recreated", "younger")
"""Topics with some damaged replicas; none has transactions that the coordinator may end."""
SEEDS: Final = (37, 92, 1002)
"""With the first two, a ``-delete`` directory is all that is left of a partition; with the first,
the file of an unfinished swap, of another; with the last, a ``-stray`` directory has what no log
has. With all, ``-future`` directories lead."""
WITH_RETENTION: Final = 10_000
"""From this seed on; what a seed stands for changes with the damages that it chooses from."""
EMPTY: Final = CollectedLoad(0, 0, ())
"""What a broker creates where it has no replica."""
NOT_LOADED: Final = ("-delete", "-stray")
PATIENCE_S: Final = 300


def partitions_of(folder: Path) -> list[str]:
    found = {
        path.name
        for topic in DAMAGED
        for path in folder.glob(f"b*/{topic}-*")
        if path.name.rpartition("-")[0] == topic
    }
    return sorted(found)


def planned_partitions(plan: dict[str, Any]) -> dict[str, tuple[str, int]]:
    """The leaders of damaged partitions, with the id of the topic."""
    return {
        f"{topic['name']}-{each['partition']}": (topic["topic_id"], each["leader"])
        for topic in plan["topics"]
        if topic["name"] in DAMAGED
        for each in topic["partitions"]
    }


def loads(
    plan: dict[str, Any], collections: list[DiskCollection]
) -> dict[str, CollectedLoad | None]:
    """What a starting broker makes of the leaders' logs; None if it does not load one."""
    found: dict[str, CollectedLoad | None] = {}
    for name, (topic_id, leader) in planned_partitions(plan).items():
        replica = replicas(collections, name).get(leader)
        is_own = replica is not None and replica.topic_id == topic_id
        found[name] = replica.loaded if is_own and replica is not None else EMPTY
    return found


def unsaid_losses(
    plan: dict[str, Any], collections: list[DiskCollection], before: Path, after: Path
) -> list[str]:
    """Return the partitions that lose valid batches that a disk has, without a notice.

    A notice about a topic is about its directories with another topic id.
    """
    asked = [each for each in plan["notices"] if each["needs_acceptance"]]
    said = {f"{each['topic']}-{each['partition']}" for each in asked}
    said_of_ids = {each["topic"] for each in asked if each["partition"] is None}
    found = []
    for name, load in loads(plan, collections).items():
        topic_id, leader = planned_partitions(plan)[name]
        logs = [*after.glob(f"*/{name}"), *after.glob(f"*/{name}.*-future")]
        places = [*logs, *(path for end in NOT_LOADED for path in after.glob(f"*/{name}.*{end}"))]
        batches = {
            (DISKS[path.parent.name], path in logs): held_of(path, before, name)
            for path in places
            if topic_id_of(path) in (topic_id, None)
            # Another topic of the name was deleted.
            or (path.name == name and name.rpartition("-")[0] not in said_of_ids)
        }
        kept = set[Held]()
        if load is not None:
            kept = {
                each
                for each in batches.get((leader, True), ())
                if load.log_start_offset <= each.last_offset < load.log_end_offset
            }
        lost = set().union(*batches.values()) - kept
        start = before_start(collections, name)
        if any(each.last_offset >= start for each in lost) and name not in said:
            found.append(f"{name}: leader {leader}, {load}, loses {min(lost)}")
    return found


def topic_id_of(path: Path) -> str | None:
    file = path / names.PARTITION_METADATA
    return file.read_text().split()[-1] if file.exists() else None


def held_of(path: Path, before: Path, name: str) -> set[Held]:
    """The batches that a replica still has, whatever the topic id beside them says."""
    return held(before / path.parent.name / name, path)


def before_start(collections: list[DiskCollection], name: str) -> int:
    """The largest start of a replica within its log: what is before it was deleted.

    It may also be where a torn log ends now, if that is not its high watermark; or, if it is, or
    there is none, the end of a log whose records were all deleted by retention.
    """
    starts = (
        each.log_start_offset
        for each in replicas(collections, name).values()
        if each.log_start_offset is not None
        and each.log_end_offset is not None
        and each.log_start_offset <= each.log_end_offset
        and (
            each.log_start_offset < each.log_end_offset
            or each.high_watermark is None
            or each.log_start_offset <= each.high_watermark
        )
    )
    return max(starts, default=0)


def remove_refused(collections: list[DiskCollection], folder: Path) -> None:
    """Remove the replicas that keep a broker from starting, which the plan names."""
    for collection in collections:
        (directory,) = collection.log_directories
        for each in directory.partitions:
            if each.topic in DAMAGED and each.loaded is None:
                (path,) = folder.glob(f"{Path(directory.path).name}/{each.directory}")
                shutil.rmtree(path)


def settled(
    clients: ClusterClients, expected: dict[str, tuple[int, int, int]]
) -> dict[str, tuple[int, int, int]]:
    """Ask for leaders, starts and ends until they are as expected, or patience ends."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := served(clients.describe(), set(expected))) != expected:
        if time.monotonic() > deadline:
            break
    return found


def served(said: dict[str, Any], partitions: set[str]) -> dict[str, tuple[int, int, int]]:
    return {
        name: (row["leader"], row["start"], row["end"])
        for topic, described in said["topics"].items()
        for row in described["partitions"]
        if (name := f"{topic}-{row['partition']}") in partitions and "end" in row
    }


@pytest.fixture
def rebuilding(
    seed: int, cluster_disks: ClusterDisks, cluster_jvms: ClusterJvms, case_folder: Path
) -> Rebuilding:
    """Kill a cluster, take its controllers away, and damage replicas; return how to rebuild it."""
    folder = cluster_disks.copy(KILLED, case_folder / "case")
    for node in cluster_disks.nodes:
        if node.is_controller:
            shutil.rmtree(folder / node.disks[0])
    for disk in DISKS if seed % 2 else ():  # nothing was flushed
        (folder / disk / names.RECOVERY_POINT_CHECKPOINT).unlink()
    damages = MORE_DAMAGES if seed < WITH_RETENTION else DAMAGES_AND_RETENTION
    damage_some(folder, partitions_of(folder), seed, damages)
    cluster = KraftCluster(cluster_jvms, folder, [controller(201), *cluster_disks.brokers])
    return Rebuilding(cluster, ["--accept-loss"])


@pytest.mark.parametrize("seed", [*range(30), 7148, 9691, *range(10_000, 10_015)])
def test_a_plan_names_every_record_that_it_loses(
    rebuilding: Rebuilding, cluster_disks: ClusterDisks
) -> None:
    folder = rebuilding.cluster.folder
    rebuilding.make_plan()
    before = cluster_disks.folder / KILLED
    assert unsaid_losses(rebuilding.plan, collected(folder), before, folder) == []


@ON_BOTH_KAFKAS
@pytest.mark.parametrize("seed", SEEDS)
def test_a_started_cluster_is_what_the_plan_says(
    rebuilding: Rebuilding, cluster_disks: ClusterDisks
) -> None:
    folder = rebuilding.cluster.folder
    rebuilding.rebuild()
    collections = collected(folder)
    before = cluster_disks.folder / KILLED
    assert unsaid_losses(rebuilding.plan, collections, before, folder) == []
    led = {
        name: (leader, load.log_start_offset, load.log_end_offset)
        for name, load in loads(rebuilding.plan, collections).items()
        if load is not None and (leader := planned_partitions(rebuilding.plan)[name][1]) >= 0
    }
    assert len(led) > 10
    remove_refused(collections, folder)

    with rebuilding.running() as clients:
        assert settled(clients, led) == led
