"""The cluster metadata log: always recovered, and never ends before its newest snapshot."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builders.apply_target import apply_target
from builders.batches import batches
from builders.log_directories import write_partition
from builders.recovery import joined, log_name, positions
from kdump.broker.loader.load_context import LoadContext
from kdump.broker.loader.recovered_partition import Recovered
from kdump.formats.record_batch import CRC_START
from kdump.log.directory import read_lone_partition
from kdump.repair.partition_repair import repair_partition
from kdump.repair.policies import Policy
from kdump.storage.local_disk import local
from kdump.target.refusal import Refusal
from kdump.target.target_file import Gone, Kept, KeptUpTo, NewBytes

LOG = log_name(0)


def partition(path: Path, *snapshots: str, base_offset: int = 0) -> Path:
    """Write a log of twelve records in epoch 0, and snapshots with these names."""
    return write_partition(
        path / "__cluster_metadata-0",
        {base_offset: joined(batches(4, base_offset=base_offset))},
        others=dict.fromkeys(snapshots, b"a snapshot"),
    )


def loaded(path: Path, policy: Policy = Policy.BROKER) -> Recovered | Refusal:
    context = LoadContext(is_clean=True, recovery_point=12)
    return repair_partition(read_lone_partition(local(path), path.name), context, policy)


def recovered(path: Path, policy: Policy = Policy.BROKER) -> Recovered:
    outcome = loaded(path, policy)
    assert isinstance(outcome, Recovered), outcome
    return outcome


def snapshot(end_offset: int, epoch: int, suffix: str = ".checkpoint") -> str:
    return f"{end_offset:020d}-{epoch:010d}{suffix}"


def test_the_metadata_log_is_recovered_even_after_a_clean_shutdown(tmp_path: Path) -> None:
    path = partition(tmp_path)
    log = bytearray((path / LOG).read_bytes())
    at = positions(batches(4))[2]
    log[at + CRC_START] ^= 1
    (path / LOG).write_bytes(log)

    assert recovered(path).files[LOG] == KeptUpTo(at)


def test_unfinished_and_deleted_snapshots_are_deleted(tmp_path: Path) -> None:
    unfinished = (snapshot(6, 0, "-123.checkpoint.part"), snapshot(3, 0, ".checkpoint.deleted"))
    path = partition(tmp_path, *unfinished, snapshot(9, 0))

    files = recovered(path).files

    assert [files[name] for name in unfinished] == [Gone(), Gone()]
    assert files[snapshot(9, 0)] == Kept()


def test_snapshots_before_the_log_start_are_deleted(tmp_path: Path) -> None:
    path = partition(tmp_path, snapshot(6, 0), snapshot(12, 0), base_offset=12)

    files = recovered(path).files

    assert (files[snapshot(6, 0)], files[snapshot(12, 0)]) == (Gone(), Kept())


def test_a_log_that_starts_after_all_snapshots_is_refused(tmp_path: Path) -> None:
    outcome = loaded(partition(tmp_path, snapshot(6, 0), base_offset=12))

    assert isinstance(outcome, Refusal)
    assert outcome.exception == "IllegalStateException"


@pytest.mark.parametrize(
    "name", [snapshot(6, 0, "-1.checkpoint.part"), snapshot(3, 0, ".checkpoint.deleted")]
)
def test_a_directory_that_cannot_be_deleted_as_a_snapshot_is_refused(
    tmp_path: Path, name: str
) -> None:
    path = partition(tmp_path)
    (path / name).mkdir()
    assert isinstance(loaded(path), Recovered)

    (path / name / "file").touch()
    outcome = loaded(path)
    (path / name).rename(tmp_path / "full")
    (path / name).symlink_to(tmp_path / "full")

    assert isinstance(outcome, Refusal)
    assert (outcome.file, outcome.exception) == (name, "DirectoryNotEmptyException")
    assert isinstance(loaded(path), Recovered)


@pytest.mark.parametrize("suffix", [".checkpoint", ".checkpoint.part", ".checkpoint.deleted"])
def test_a_directory_with_the_suffix_of_a_snapshot_is_refused(tmp_path: Path, suffix: str) -> None:
    path = partition(tmp_path)
    (path / f"other{suffix}").mkdir()

    outcome = loaded(path)

    assert isinstance(outcome, Refusal)
    assert (outcome.file, outcome.exception) == (f"other{suffix}", "NumberFormatException")


@pytest.mark.parametrize(("end_offset", "epoch"), [(13, 0), (20, 0), (3, 1)])
def test_a_log_that_ends_before_its_newest_snapshot_is_replaced_by_an_empty_one(
    tmp_path: Path, end_offset: int, epoch: int
) -> None:
    path = partition(tmp_path, snapshot(2, 0), snapshot(end_offset, epoch))

    outcome = recovered(path)
    apply_target(path, outcome.files)

    assert {file.name for file in path.iterdir()} == {
        *(f"{end_offset:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")),
        snapshot(end_offset, epoch),
        "leader-epoch-checkpoint",
        "partition.metadata",
    }
    assert (outcome.log_start_offset, outcome.log_end_offset) == (end_offset, end_offset)
    assert outcome.files[log_name(end_offset)] == NewBytes(b"")
    assert [dropped.loss.records for dropped in outcome.report.dropped] == [12]


@pytest.mark.parametrize(("end_offset", "epoch"), [(13, 0), (3, 1)])
def test_a_directory_for_which_the_log_would_be_deleted_is_refused(
    tmp_path: Path, end_offset: int, epoch: int
) -> None:
    path = partition(tmp_path, snapshot(12, 0))
    (path / snapshot(end_offset, epoch)).mkdir()

    outcome = loaded(path)

    assert isinstance(outcome, Refusal)
    assert outcome.file == snapshot(end_offset, epoch)


def test_a_directory_for_which_the_log_stays_is_not(tmp_path: Path) -> None:
    path = partition(tmp_path, snapshot(12, 0))
    (path / snapshot(6, 0)).mkdir()

    assert isinstance(loaded(path), Recovered)


def test_a_log_that_reaches_its_newest_snapshot_is_kept(tmp_path: Path) -> None:
    path = partition(tmp_path, snapshot(12, 0))

    assert recovered(path).files[LOG] == Kept()


def test_salvage_keeps_all_valid_batches(tmp_path: Path) -> None:
    path = partition(tmp_path)
    log = bytearray((path / LOG).read_bytes())
    each = batches(4)
    log[positions(each)[1] + CRC_START] ^= 1
    (path / LOG).write_bytes(log)

    apply_target(path, recovered(path, Policy.SALVAGE).files)

    assert (path / LOG).read_bytes() == joined(each[:1], each[2:])


@pytest.mark.parametrize("name", ["crashed", "recovered", "clean"])
def test_the_log_of_a_real_controller_is_left_unchanged(
    fixtures: Path, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "__cluster_metadata-0"
    shutil.copytree(fixtures / "out" / name / "d1" / path.name, path)
    logs = {file.name: file.read_bytes() for file in path.glob("*.log")}

    apply_target(path, recovered(path).files)

    assert {file.name: file.read_bytes() for file in path.glob("*.log")} == logs
