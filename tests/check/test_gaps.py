"""Missing offsets are lost records, unless the log was compacted or kdump quarantined data."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.batches import batch
from builders.freeing import run
from builders.log_directories import offset_checkpoint, write_log_directory, write_partition
from builders.recovery import joined, log_name, of_producer
from builders.verified import records
from kdump.check.findings import Finding, Severity
from kdump.check.part import Level
from kdump.errors import ExitStatus
from kdump.formats import names
from kdump.jobs.verify.verify import VerifyRequest, VerifyTarget, verify
from kdump.jobs.verify.verify_partition import PartitionReport
from kdump.log.directory import read_log_directory
from kdump.state.metadata.settings import read_settings
from kdump.storage.local_disk import local

HOLE = {0: 6, 12: 6}
"""Records by segment: 6 to 11 are missing."""


def log_directory(path: Path, logs: dict[int, bytes], *, cleaned_to: int = 0) -> Path:
    write_log_directory(path)
    cleaned = offset_checkpoint({("orders", 0): cleaned_to})
    (path / names.CLEANER_OFFSET_CHECKPOINT).write_bytes(cleaned)
    write_partition(path / "orders-0", logs)
    return path


def with_gap() -> dict[int, bytes]:
    return {
        base: joined(*(of_producer(base + n, sequence=base + n) for n in range(count)))
        for base, count in HOLE.items()
    }


def found(
    path: Path, *codes: str, policy: str | None = None
) -> tuple[list[Finding], PartitionReport]:
    directory = read_log_directory(local(path))
    given = {} if policy is None else {"cleanup.policy": policy}
    settings = read_settings([directory], given)
    targets = [VerifyTarget(each, directory) for each in directory.partitions]
    said = list(verify(VerifyRequest(targets, [directory], Level.DEFAULT, 0, settings)))
    (report,) = [each for each in said if isinstance(each, PartitionReport)]
    return [each for each in said if isinstance(each, Finding) and each.code in codes], report


@pytest.mark.parametrize(
    ("policy", "severity"),
    [
        ("delete", Severity.ERROR),
        (None, Severity.WARNING),
        ("compact", Severity.INFO),
        ("compact,delete", Severity.INFO),
    ],
)
def test_the_severity_of_a_missing_segment_depends_on_the_policy(
    tmp_path: Path, policy: str | None, severity: Severity
) -> None:
    path = log_directory(tmp_path / "d1", with_gap())

    (gap,), _ = found(path, "segment-gap", policy=policy)

    assert (gap.severity, gap.place.offset) == (severity, 6)


def test_a_partition_with_a_gap_is_not_valid(tmp_path: Path) -> None:
    path = log_directory(tmp_path / "d1", with_gap())

    _, report = found(path, policy="delete")

    assert report.verdict_kind == "damaged"


def test_a_log_that_was_compacted_once_may_have_gaps(tmp_path: Path) -> None:
    path = log_directory(tmp_path / "d1", with_gap(), cleaned_to=12)

    (gap,), _ = found(path, "segment-gap", policy="delete")

    assert gap.severity is Severity.INFO


def test_batches_that_lost_records_show_that_a_log_was_compacted(tmp_path: Path) -> None:
    first, _, last = records(0, 3)
    path = log_directory(tmp_path / "d1", {0: batch([first, last]), 12: batch(records(12, 3))})

    (gap,), _ = found(path, "segment-gap")

    assert gap.severity is Severity.INFO


@pytest.mark.parametrize(("missing", "code"), [(1, "offset-gap"), (3, "offset-gap")])
def test_a_missing_batch_is_as_severe_as_a_missing_segment(
    tmp_path: Path, missing: int, code: str
) -> None:
    each = [of_producer(offset, sequence=offset) for offset in range(6)]
    del each[missing]
    path = log_directory(tmp_path / "d1", {0: joined(each[:2]), 3: joined(each[2:])})

    (gap,), _ = found(path, code, policy="delete")

    assert gap.severity is Severity.ERROR
    assert f"offsets {missing} to {missing} are missing" in gap.what


@pytest.mark.parametrize("policy", ["delete", None])
def test_producers_with_records_in_a_gap_are_named(tmp_path: Path, policy: str | None) -> None:
    path = log_directory(tmp_path / "d1", with_gap())

    (gap,), _ = found(path, "producer-sequence-gap", policy=policy)

    assert gap.loss == "sequences 6 to 11"


@pytest.mark.parametrize(("log", "severity"), [(0, Severity.INFO), (24, Severity.ERROR)])
def test_quarantined_data_explains_the_gap(tmp_path: Path, log: int, severity: Severity) -> None:
    path = log_directory(tmp_path / "d1", with_gap())
    (path / "orders-0" / f"damaged-{log_name(log)}-400-800").write_bytes(b"x" * 400)

    (gap,), _ = found(path, "segment-gap", policy="delete")

    assert gap.severity is severity


def salvaged(path: Path, *options: str) -> int:
    return run("recover", "--policy", "salvage", *options, path).exit_status


@pytest.mark.parametrize(
    ("logs", "code"),
    [
        (with_gap(), "segment-gap"),
        ({0: joined([of_producer(0, sequence=0), of_producer(3, sequence=3)])}, "offset-gap"),
    ],
)
def test_a_gap_is_damage_until_the_log_is_salvaged(
    tmp_path: Path, logs: dict[int, bytes], code: str
) -> None:
    path = log_directory(tmp_path / "d1", logs)
    (before,), _ = found(path, code, policy="delete")

    assert salvaged(path, "--config=cleanup.policy=delete") == ExitStatus.REPAIRED

    (after,), report = found(path, code, policy="delete")
    assert (before.severity, after.severity) == (Severity.ERROR, Severity.INFO)
    assert report.verdict_kind == "valid"
    assert salvaged(path, "--config=cleanup.policy=delete") == ExitStatus.SOUND


def test_a_repair_by_salvage_notes_a_gap_too(tmp_path: Path) -> None:
    path = log_directory(tmp_path / "d1", with_gap())
    options = ("--repair", "--config=cleanup.policy=delete", path)

    assert run("verify", *options).exit_status & ExitStatus.DAMAGE_LEFT
    assert run("verify", "--policy", "salvage", *options).exit_status == ExitStatus.REPAIRED


@pytest.mark.parametrize("options", [(), ("--config=cleanup.policy=compact",)])
def test_nothing_is_noted_where_compaction_may_have_left_the_gap(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    path = log_directory(tmp_path / "d1", with_gap())

    salvaged(path, *options)

    assert list((path / "orders-0").glob("damaged-*")) == []


def test_a_log_that_begins_late_has_no_gap(tmp_path: Path) -> None:
    path = log_directory(tmp_path / "d1", {12: batch(records(14, 3))})

    assert found(path, "segment-gap", "offset-gap", policy="delete")[0] == []
