"""A plan ranks replicas by what starting brokers make of them, and loses nothing silently."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from builders.damaged_replicas import (
    DISKS,
    HERE,
    Damage,
    Held,
    change_an_epoch,
    collected,
    cut_half,
    cut_last_batch,
    damage_some,
    empty_logs,
    held,
    kill_brokers,
    lose_logs,
    lose_metadata,
    misplace_a_batch,
    misplace_the_last_batch,
    move_start_after_the_end,
    planned,
    raise_the_last_epoch,
    replicas,
    take_out_a_batch,
    zero_a_batch,
)
from builders.dead_clusters import partition_of
from builders.samples import seeds
from kdump.broker.loader.load_context import load_context
from kdump.broker.loader.recovered_partition import Recovered
from kdump.formats.names import CLEAN_SHUTDOWN_MARKER, RECOVERY_POINT_CHECKPOINT
from kdump.jobs.diff.diff import DiffSplit, ReplicaToCompare, compare_replicas
from kdump.jobs.diff.results import PartitionDiff
from kdump.jobs.recover import RecoverRequest, recover
from kdump.log.directory import read_log_directory
from kdump.state.metadata.cluster_plan import ClusterPlan, Notice
from kdump.state.metadata.disk_collection import (
    CollectedDirectory,
    CollectedLoad,
    DiskCollection,
)
from kdump.state.metadata.settings import Settings
from kdump.storage.local_disk import local

NAME = "orders-1"
"""A partition of three replicas that all end at offset 61."""
END = 61


@pytest.fixture(scope="module")
def cluster(fixtures: Path) -> Path:
    return fixtures / "states" / "clean"


def of(plan: ClusterPlan, name: str) -> list[tuple[str, str]]:
    """What refuses a plan, for a partition.

    Node 3 stopped last, and is alone in sync: that it is behind when it is damaged is no matter.
    """
    topic, _, number = name.rpartition("-")
    return [
        (each.code, each.what)
        for each in plan.notices
        if each.needs_acceptance
        and each.code != "isr-behind"
        and (each.topic, each.partition) == (topic, int(number))
    ]


# --- one damaged replica


@pytest.mark.parametrize(
    "damage",
    [lose_logs, lose_metadata, move_start_after_the_end, cut_half, empty_logs, zero_a_batch],
)
def test_a_damaged_replica_does_not_lead_where_another_has_all(
    damage: Damage, cluster: Path, quick_path: Path
) -> None:
    folder = kill_brokers(cluster, quick_path / "case", [NAME])
    for seed, (disk, node) in enumerate(DISKS.items()):
        path = folder / disk / NAME
        if not path.exists():
            continue
        damage(path, random.Random(seed))
        plan = planned(collected(folder))
        leader = partition_of(plan, "orders", 1).leader
        assert leader != node
        assert not of(plan, NAME)
        shutil.rmtree(path.parent)
        kill_brokers(cluster, quick_path / "again", [NAME])
        shutil.move(quick_path / "again" / disk, folder)
        shutil.rmtree(quick_path / "again")


@pytest.mark.parametrize("damage", [misplace_the_last_batch, raise_the_last_epoch])
def test_a_replica_does_not_lead_by_a_header_that_no_checksum_covers(
    damage: Damage, cluster: Path, quick_path: Path
) -> None:
    for disk, node in DISKS.items():
        folder = kill_brokers(cluster, quick_path / disk, [NAME])
        path = folder / disk / NAME
        if not path.exists():
            continue
        damage(path, random.Random(node))
        plan = planned(collected(folder))
        assert partition_of(plan, "orders", 1).leader != node
        assert "may be wrong" in " ".join(each.what for each in plan.notices)
        # Whether the last batch is that of the other replicas is not known.
        assert bool(of(plan, NAME)) == (damage is misplace_the_last_batch)


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize("damage", [misplace_a_batch, change_an_epoch])
def test_a_replica_does_not_lead_with_a_batch_that_no_start_reads(
    damage: Damage, is_clean: bool, cluster: Path, quick_path: Path
) -> None:
    """A broker neither reads it nor compares it with the others."""
    for seed, (disk, node) in enumerate([*DISKS.items()] * 4):
        folder = kill_brokers(cluster, quick_path / str(seed), [NAME])
        for name in (CLEAN_SHUTDOWN_MARKER, RECOVERY_POINT_CHECKPOINT) if is_clean else ():
            for each in DISKS:
                shutil.copy(cluster / each / name, folder / each)
        path = folder / disk / NAME
        if not path.exists():
            continue
        damage(path, random.Random(seed))
        collections = collected(folder)
        assert replicas(collections, NAME)[node].problems
        plan = planned(collections)
        assert partition_of(plan, "orders", 1).leader != node
        assert not of(plan, NAME)
        if is_clean:  # Otherwise a start may cut it off.
            (notice,) = damaged_followers(plan)
            assert (notice.topic, notice.partition) == ("orders", 1)
            assert f"node {node} " in notice.what
        shutil.rmtree(folder)


def test_a_replica_that_lacks_a_batch_does_not_lead_and_has_to_be_copied_again(
    cluster: Path, quick_path: Path
) -> None:
    for disk, node in DISKS.items():
        folder = kill_brokers(cluster, quick_path / disk, [NAME])
        path = folder / disk / NAME
        if not path.exists():
            continue
        take_out_a_batch(path, random.Random(1))
        collections = collected(folder)
        assert not replicas(collections, NAME)[node].problems
        plan = planned(collections)
        assert partition_of(plan, "orders", 1).leader != node
        assert not of(plan, NAME)
        (notice,) = damaged_followers(plan)
        assert disk in notice.what


def test_a_leader_that_lacks_a_batch_of_a_shorter_replica_is_asked_for(
    cluster: Path, quick_path: Path
) -> None:
    folder = kill_brokers(cluster, quick_path / "case", [NAME])
    (path,) = folder.glob(f"b2-*/{NAME}")
    take_out_a_batch(path, random.Random(1))
    for disk, node in DISKS.items():
        if node != 2:
            cut_last_batch(folder / disk / NAME)
    plan = planned(collected(folder))
    assert partition_of(plan, "orders", 1).leader == 2
    assert {code for code, _ in of(plan, NAME)} == {"damaged-leader"}


def test_a_partition_of_the_topic_that_has_lost_its_log_hides_no_hole_of_a_leader(
    cluster: Path, quick_path: Path
) -> None:
    folder = kill_brokers(cluster, quick_path / "case", [NAME, "orders-0"])
    (path,) = folder.glob(f"b2-*/{NAME}")
    take_out_a_batch(path, random.Random(1))
    for disk, node in DISKS.items():
        if node != 2:
            cut_last_batch(folder / disk / NAME)
    lose_logs(next(folder.glob("b3-*/orders-0")), random.Random(1))
    plan = planned(collected(folder))
    assert {code for code, _ in of(plan, NAME)} == {"damaged-leader"}


@pytest.mark.parametrize(("is_clean", "stays"), [(True, True), (False, False)])
def test_a_follower_stays_damaged_unless_a_start_cuts_the_damage_off(
    is_clean: bool, stays: bool, cluster: Path, quick_path: Path
) -> None:
    folder = kill_brokers(cluster, quick_path / "case", [NAME])
    for name in (CLEAN_SHUTDOWN_MARKER, RECOVERY_POINT_CHECKPOINT) if is_clean else ():
        for each in DISKS:
            shutil.copy(cluster / each / name, folder / each)
    zero_a_batch(folder / "b3-d1" / NAME, random.Random(3))
    assert bool(damaged_followers(planned(collected(folder)))) == stays


def damaged_followers(plan: ClusterPlan) -> list[Notice]:
    return [each for each in plan.notices if each.code == "damaged-follower"]


@pytest.mark.parametrize("damage", [lose_metadata, move_start_after_the_end, zero_a_batch])
def test_what_only_a_damaged_replica_has_is_named(
    damage: Damage, cluster: Path, quick_path: Path
) -> None:
    """Its records are valid, and a start hides them: the plan needs acceptance."""
    folder = kill_brokers(cluster, quick_path / "case", [NAME])
    shutil.rmtree(folder / "b1-d1" / NAME)
    shutil.rmtree(folder / "b3-d1" / NAME)
    (path,) = folder.glob(f"b2-*/{NAME}")
    damage(path, random.Random(4))
    plan = planned(collected(folder))
    ((code, what),) = of(plan, NAME)
    assert code == "lost-at-start"
    assert f"to {END - 1}" in what


def test_an_emptied_replica_alone_is_no_loss_any_more(cluster: Path, quick_path: Path) -> None:
    folder = kill_brokers(cluster, quick_path / "case", [NAME])
    for path in folder.glob(f"*/{NAME}"):
        empty_logs(path, random.Random(1))
    assert not of(planned(collected(folder)), NAME)


# --- disks that were not collected


def test_a_forgotten_disk_that_was_in_sync_is_named_and_refused(
    cluster: Path, quick_path: Path
) -> None:
    """Only broker 2's disk was in sync, and the plan is made without that disk."""
    folder = kill_brokers(cluster, quick_path / "case", [NAME])
    (path,) = folder.glob(f"b2-*/{NAME}")
    for disk, node in DISKS.items():
        if node != 2:
            cut_half(folder / disk / NAME, random.Random(3))
    disks = [disk for disk in DISKS if disk != path.parent.name]
    found = collected(folder, disks)
    plan = planned([alone_in_sync(each, NAME, 2) for each in found])
    assert "node 2, directory id" in " ".join(
        each.what for each in plan.notices if each.code == "disk-not-collected"
    )
    ((code, what),) = of(plan, NAME)
    assert code == "isr-not-collected"
    assert what.startswith("in sync: 2; node ")
    # The others are in sync by the metadata, too, but they have lost what was committed.
    ((code, what),) = of(planned(found), NAME)
    assert code == "isr-not-collected"
    assert what.startswith(f"not behind, because offsets before {END} were committed: 2; node ")


def alone_in_sync(collection: DiskCollection, name: str, node: int) -> DiskCollection:
    """The same, but all copies of the metadata say that one node is in sync."""
    alone = {"isr": [node], "leader": node, "eligibleLeaderReplicas": []}
    topic, _, number = name.rpartition("-")

    def changed(directory: CollectedDirectory) -> CollectedDirectory:
        metadata = directory.metadata
        if metadata is None:
            return directory
        ids = {
            each.data["topicId"]
            for each in metadata.records
            if each.type == "TOPIC_RECORD" and each.data["name"] == topic
        }
        records = tuple(
            replace(each, data={**each.data, **alone})
            if each.type == "PARTITION_RECORD"
            and each.data["topicId"] in ids
            and each.data["partitionId"] == int(number)
            else each
            for each in metadata.records
        )
        return replace(directory, metadata=replace(metadata, records=records))

    return replace(collection, log_directories=tuple(map(changed, collection.log_directories)))


# --- random damage

PARTITIONS = (
    *(f"orders-{number}" for number in range(6)),
    *(f"groups-in-{number}" for number in range(4)),
    *("idem-2", "div-a-1", "div-txn-1"),
)


def damaged_cluster(cluster: Path, folder: Path, seed: int) -> Path:
    """Damage some replicas of some partitions."""
    kill_brokers(cluster, folder, PARTITIONS)
    damage_some(folder, PARTITIONS, seed)
    return folder


@pytest.mark.parametrize("seed", seeds(0, count=30, in_main=2))
def test_the_plan_recovery_and_comparison_have_one_answer(
    seed: int, cluster: Path, quick_path: Path
) -> None:
    folder = damaged_cluster(cluster, quick_path / "case", seed)
    directories = [read_log_directory(local(folder / disk)) for disk in DISKS]
    request = RecoverRequest(directories, {each.path: Settings() for each in directories})
    recovered = {
        str(each.partition.path): each
        for result in recover(request, HERE)
        for each in result.partitions
        if not each.partition.is_cluster_metadata
    }
    assert recovered
    loads: dict[str, list[CollectedLoad | None]] = {}
    for collection in collected(folder):
        (directory,) = collection.log_directories
        for each in directory.partitions:
            path = f"{directory.path}/{each.directory}"
            loads.setdefault(each.directory, []).append(each.loaded)
            outcome = recovered[path].outcome
            if isinstance(outcome, Recovered):
                assert each.loaded == load_of(outcome)
            else:
                assert each.loaded is None
            assert recovered[path].becomes_stray == (each.topic_id is None)
    for name, expected in loads.items():
        if len(expected) > 1:
            result = compare_replicas(split_of(folder, name))
            assert isinstance(result, PartitionDiff)
            found = [each.loaded for topic in result.topics for each in topic.replicas]
            assert [None if each is None else load_of(each) for each in found] == expected


def load_of(log: object) -> CollectedLoad:
    return CollectedLoad(log.log_start_offset, log.log_end_offset, tuple(log.leader_epochs))  # type: ignore[attr-defined]


def split_of(folder: Path, name: str) -> DiffSplit:
    found = []
    for side, disk in enumerate(DISKS):
        directory = read_log_directory(local(folder / disk))
        for each in directory.partitions:
            if each.path.name == name and each.topic_partition is not None:
                context = load_context(directory, each.topic_partition)
                found.append(ReplicaToCompare(side, each.path, name, context))
    return DiffSplit(found[0].path, key=None, replicas=tuple(found), is_one_topic=True)


@pytest.mark.parametrize("seed", seeds(0, count=300, in_main=10))
def test_a_plan_for_damaged_replicas_is_that_of_a_model(
    seed: int, cluster: Path, quick_path: Path
) -> None:
    """The best replica by loaded epoch and end leads, and what only others hold is named."""
    folder = damaged_cluster(cluster, quick_path / "case", seed)
    collections = collected(folder)
    plan = planned(collections)
    before = {
        name: {batch for path in cluster.glob(f"b*/{name}") for batch in held(path, path)}
        for name in PARTITIONS
    }
    for name in PARTITIONS:
        topic, _, number = name.rpartition("-")
        found = replicas(collections, name)
        loads = {node: each.loaded for node, each in found.items() if each.topic_id is not None}
        batches = {
            DISKS[path.parent.name]: held(cluster / path.parent.name / name, path)
            for path in folder.glob(f"*/{name}")
        }
        kept = {node: loaded_of(batches[node], load) for node, load in loads.items()}
        best = max(
            (end_of(kept[node]) for node, load in loads.items() if load is not None), default=None
        )
        if best is None:
            continue
        leader = partition_of(plan, topic, int(number)).leader
        assert end_of(kept.get(leader, [])) == best, (name, leader)
        # What a replica has before its own start was deleted, unless all of it was.
        starts = {node: each.log_start_offset or 0 for node, each in found.items()}
        lost = {
            batch
            for node in batches
            for batch in batches[node]
            if batch.last_offset >= starts[node]
        } - {*kept.get(leader, ())}
        # Records whose header alone is damaged are named, and still on the leader's disk.
        for path in folder.glob(f"*/{name}") if found[leader].problems else ():
            if DISKS[path.parent.name] == leader:
                lost -= held(cluster / path.parent.name / name, path, misplaced=True)
        if lost:
            assert of(plan, name), (name, leader, min(lost))
        load = loads.get(leader)
        start = 0 if load is None else load.log_start_offset
        # What follows the valid batches of a replica may be those of other offsets.
        is_doubtful = any(
            each.loaded is not None and each.loaded.log_end_offset > (each.log_end_offset or 0)
            for each in found.values()
        )
        whole = {each for each in kept.get(leader, ()) if each.base_offset >= start}
        if not before[name] - whole and not is_doubtful:
            assert not of(plan, name), (name, leader)


def loaded_of(batches: set[Held], load: CollectedLoad | None) -> list[Held]:
    """The batches that a broker has when it started."""
    if load is None:
        return []
    return sorted(
        each
        for each in batches
        if each.last_offset < load.log_end_offset and each.last_offset >= load.log_start_offset
    )


def end_of(batches: Sequence[Held]) -> tuple[int, int]:
    return (batches[-1].leader_epoch, batches[-1].last_offset + 1) if batches else (-1, 0)
