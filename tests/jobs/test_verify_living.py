"""Verifying a directory while a broker changes it finds what is damaged, and nothing else."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from builders.log_directories import TOPIC_ID
from builders.metadata_log import topic_record, write_metadata_log
from builders.samples import seeds
from builders.simulated_broker import SimulatedBroker, SteppedDisk
from builders.verified import LogModel, file
from kdump.check.findings import Finding, Severity
from kdump.check.part import Level
from kdump.engine.engine_choice import EngineOptions
from kdump.errors import KdumpError
from kdump.formats.names import FileKind
from kdump.formats.snapshot_writer import SnapshotHead, encode_snapshot
from kdump.jobs.verify.verify import VerifyRequest, VerifySummary, VerifyTarget, verify
from kdump.jobs.verify.verify_partition import PartitionReport
from kdump.log.directory import LogDirectory, read_log_directory
from kdump.state.metadata.settings import read_settings
from kdump.storage.local_disk import LocalDisk, LocalFile, local
from kdump.storage.location import Location

HERE: Final = EngineOptions(processes=1)
NOW_MS: Final = 2**62


def found_in(
    root: Location, level: Level = Level.DEEP, *, is_living: bool = True
) -> tuple[list[Finding], list[PartitionReport], VerifySummary]:
    return found(read_log_directory(root), level, is_living=is_living)


def found(
    directory: LogDirectory, level: Level = Level.DEEP, *, is_living: bool = True
) -> tuple[list[Finding], list[PartitionReport], VerifySummary]:
    request = VerifyRequest(
        [VerifyTarget(each, directory, is_living=is_living) for each in directory.partitions],
        [directory],
        level,
        NOW_MS,
        read_settings([directory], {}),
        living=[directory.path] if is_living else [],
    )
    findings, reports = [], []
    for event in verify(request, HERE):
        if isinstance(event, Finding):
            findings.append(event)
        elif isinstance(event, PartitionReport):
            reports.append(event)
        else:
            return findings, reports, event
    raise AssertionError("a summary comes last")


def damage(findings: list[Finding]) -> list[Finding]:
    """All but what is only for information, such as the offsets that a cleaner removed."""
    return [each for each in findings if each.severity > Severity.INFO]


def unclean_log(root: Path) -> Path:
    model = LogModel()
    model.is_clean = False
    return model.write(root)


def stepped(root: Path, step: Callable[[], None]) -> Location:
    return Location(SteppedDisk(step), str(root))


@pytest.mark.parametrize("seed", seeds(0, count=60, in_main=12))
def test_what_a_broker_does_meanwhile_is_no_finding(quick_path: Path, seed: int) -> None:
    broker = SimulatedBroker(quick_path / "log", seed)
    broker.steps(200 + 40 * (seed % 7))
    paces = [broker.step, lambda: broker.steps(1 + seed % 5)]
    for level, pace in zip((Level.DEFAULT, Level.DEEP), paces, strict=True):
        findings, reports, summary = found_in(stepped(quick_path / "log", pace), level)
        assert damage(findings) == []
        assert summary.account.damaged_bytes == 0
        assert all(not each.worst for each in reports)


@pytest.mark.parametrize("seed", seeds(100, count=12, in_main=2))
def test_a_broker_that_hangs_between_two_operations_is_no_finding(
    quick_path: Path, seed: int
) -> None:
    broker = SimulatedBroker(quick_path / "log", seed)
    broker.steps(250)
    for _ in range(60):
        broker.step()
        findings, _, summary = found_in(local(quick_path / "log"), Level.QUICK)
        assert damage(findings) == []
        assert summary.account.damaged_bytes == 0


@pytest.mark.parametrize("is_mount_point", [False, True])
def test_a_disk_that_is_unmounted_meanwhile_is_not_valid(
    quick_path: Path, is_mount_point: bool
) -> None:
    """Else all its partitions would count as deleted by their broker."""
    whole = LogModel().write(quick_path / "whole").parent
    _, _, complete = found_in(local(whole))
    ended_early = 0
    for moment in itertools.count(1):
        root = shutil.copytree(whole, quick_path / str(moment))
        left = itertools.count(moment, -1)

        def step(root: Path = root, left: Iterator[int] = left) -> None:
            if not next(left):
                shutil.rmtree(root)
                if is_mount_point:
                    root.mkdir()

        try:
            listed = read_log_directory(stepped(root, step))
        except OSError:
            continue
        if next(left) < 0:
            continue  # while it was listed
        try:
            findings, _, summary = found(listed)
        except KdumpError:
            ended_early += 1
            continue
        if next(left) >= 0:
            break
        is_read = summary.account.valid_bytes == complete.account.valid_bytes
        assert is_read or any(each.severity.is_damage for each in findings)
    assert ended_early > 10


@pytest.mark.usefixtures("no_starting_broker")
def test_read_as_stopped_the_same_directory_has_findings(quick_path: Path) -> None:
    broker = SimulatedBroker(quick_path / "log", 1)
    broker.steps(300)
    findings, _, _ = found_in(stepped(quick_path / "log", broker.step), is_living=False)
    assert any(each.severity.is_damage for each in findings)


@pytest.mark.parametrize("seed", seeds(200, count=24, in_main=6))
def test_a_flip_in_a_closed_segment_is_found_under_load(quick_path: Path, seed: int) -> None:
    broker = SimulatedBroker(quick_path / "log", seed)
    broker.steps(500)
    logs = sorted(broker.kept.glob("*.log"))
    log = logs[seed % (len(logs) - 2)]
    content = bytearray(log.read_bytes())
    content[80] ^= 1
    log.write_bytes(content)
    findings, _, summary = found_in(stepped(quick_path / "log", broker.step), Level.DEFAULT)
    assert ("batch-checksum", str(log)) in [(each.code, each.place.path) for each in findings]
    assert {Path(each.place.path).parent for each in damage(findings)} == {broker.kept}
    assert summary.account.damaged_bytes > 0


def test_a_flip_before_the_end_of_the_last_segment_is_found(quick_path: Path) -> None:
    log = file(unclean_log(quick_path / "log"), 12, FileKind.LOG)
    content = bytearray(log.read_bytes())
    content[80] ^= 1
    log.write_bytes(content)
    findings, _, _ = found_in(local(quick_path / "log"))
    assert [(each.code, each.place.position) for each in findings] == [("batch-checksum", 0)]


@pytest.mark.parametrize("size", range(1, 80, 7))
def test_the_end_of_a_log_is_not_judged(quick_path: Path, size: int) -> None:
    log = file(unclean_log(quick_path / "log"), 12, FileKind.LOG)
    log.write_bytes(log.read_bytes() + log.read_bytes()[:size])
    findings, (report,), summary = found_in(local(quick_path / "log"))
    assert findings == []
    assert report.verdict_kind == "not-judged"
    assert summary.account.damaged_bytes == 0


class FailingDisk(LocalDisk, frozen=True):
    """A disk that cannot read one file."""

    name: str = ""

    def open_file(self, location: Location) -> LocalFile:
        if location.name == self.name:
            raise OSError(errno.EIO, os.strerror(errno.EIO), location.path)
        return LocalDisk.open_file(self, location)


def test_a_file_that_cannot_be_read_is_a_finding(quick_path: Path) -> None:
    log = file(unclean_log(quick_path / "log"), 0, FileKind.LOG)
    findings, _, summary = found_in(Location(FailingDisk(log.name), str(quick_path / "log")))
    assert [(each.code, each.place.path) for each in damage(findings)] == [
        ("file-unreadable", str(log))
    ]
    assert summary.is_unreadable


def test_a_cut_snapshot_of_the_metadata_is_found(tmp_path: Path) -> None:
    values = [topic_record("orders", TOPIC_ID.int)]
    partition = write_metadata_log(tmp_path, values).path.local_path
    *batches, _ = encode_snapshot(SnapshotHead(0, 0, 0), values)
    cut = partition / "00000000000000000001-0000000000.checkpoint"
    cut.write_bytes(b"".join(batches))
    findings, _, _ = found_in(local(tmp_path))
    assert [(each.code, each.place.path) for each in damage(findings)] == [
        ("metadata-snapshot-damaged", str(cut))
    ]


def test_a_directory_in_the_place_of_a_snapshot_of_the_metadata_is_found(tmp_path: Path) -> None:
    partition = write_metadata_log(tmp_path, [topic_record("orders", TOPIC_ID.int)]).path
    snapshot = partition.local_path / "00000000000000000001-0000000000.checkpoint"
    snapshot.mkdir()
    findings, _, _ = found_in(local(tmp_path))
    assert [(each.code, each.place.path) for each in damage(findings)] == [
        ("metadata-snapshot-damaged", str(snapshot))
    ]


def test_a_directory_with_the_name_of_an_older_snapshot_is_no_finding(tmp_path: Path) -> None:
    """Of several snapshots, a node takes that of the highest epoch, not of the highest offset."""
    values = [topic_record("orders", TOPIC_ID.int)]
    partition = write_metadata_log(tmp_path, values).path.local_path
    newest = partition / "00000000000000000001-0000000001.checkpoint"
    newest.write_bytes(b"".join(encode_snapshot(SnapshotHead(0, 0, 0), values)))
    (partition / "00000000000000000009-0000000000.checkpoint").mkdir()
    findings, _, _ = found_in(local(tmp_path))
    assert damage(findings) == []


def test_a_partition_that_never_rests_is_said_not_to_be_judged(quick_path: Path) -> None:
    log = file(unclean_log(quick_path / "log"), 0, FileKind.LOG)
    flipped = bytearray(log.read_bytes())
    flipped[80] ^= 1

    def rewrite() -> None:
        aside = quick_path / "aside"
        aside.write_bytes(flipped)
        aside.rename(log)

    findings, (report,), summary = found_in(stepped(quick_path / "log", rewrite))
    assert damage(findings) == []
    assert report.verdict_kind == "unsettled"
    assert summary.unsettled == 1


def test_leftover_files_of_a_partition_that_nobody_changes_are_named(quick_path: Path) -> None:
    log = file(unclean_log(quick_path / "log"), 0, FileKind.LOG)
    shutil.copyfile(log, f"{log}.swap")
    shutil.copyfile(log, f"{log}.cleaned")
    _, (report,), summary = found_in(local(quick_path / "log"))
    assert report.verdict_kind == "not-judged"
    assert report.verdict == (
        "2 leftover files (.cleaned, .swap, .deleted) and what a starting broker would do are not"
        " judged: it is read as in use"
    )
    assert summary.unsettled == 0


def flip(log: Path) -> None:
    content = bytearray(log.read_bytes())
    content[80] ^= 1
    log.write_bytes(content)


def test_a_segment_that_is_about_to_be_replaced_is_judged(quick_path: Path) -> None:
    partition = unclean_log(quick_path / "log")
    for kind in (FileKind.LOG, FileKind.OFFSET_INDEX):
        shutil.copyfile(file(partition, 0, kind), f"{file(partition, 0, kind)}.swap")
    flip(file(partition, 0, FileKind.LOG))
    file(partition, 0, FileKind.OFFSET_INDEX).unlink()
    findings, (report,), _ = found_in(local(quick_path / "log"))
    assert [each.code for each in damage(findings)] == ["batch-checksum", "index-missing"]
    assert report.verdict_kind == "not-judged"


def test_the_log_of_a_segment_whose_indexes_are_not_in_place_is_judged(quick_path: Path) -> None:
    """As a broker leaves it that is killed in the middle of a swap."""
    partition = unclean_log(quick_path / "log")
    index = file(partition, 0, FileKind.OFFSET_INDEX)
    index.rename(f"{index}.swap")
    flip(file(partition, 0, FileKind.LOG))
    findings, _, summary = found_in(local(quick_path / "log"))
    assert [each.code for each in damage(findings)] == ["batch-checksum"]
    assert summary.account.damaged_bytes > 0


def test_damage_beside_leftover_files_is_not_put_down_to_a_change(quick_path: Path) -> None:
    index = file(unclean_log(quick_path / "log"), 0, FileKind.TIME_INDEX)
    index.rename(f"{index}.swap")
    _, (report,), _ = found_in(local(quick_path / "log"))
    assert report.verdict_kind == "unsettled"
    assert report.verdict == (
        "nothing changed while it was read, but it has 1 leftover file (.cleaned, .swap, .deleted):"
        " they, some other files, and what a starting broker would do are not judged"
    )


def test_a_partition_that_is_gone_is_no_finding(quick_path: Path) -> None:
    partition = unclean_log(quick_path / "log")
    directory = read_log_directory(local(quick_path / "log"))
    shutil.rmtree(partition)
    findings, (report,), _ = found(directory)
    assert findings == []
    assert report.verdict_kind == "gone"
