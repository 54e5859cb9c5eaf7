"""``kdump verify`` reports damage as it finds it, and never writes."""

from __future__ import annotations

import errno
import os
import re
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from docutils import nodes

from builders.batches import BASE_TIMESTAMP_MS, batch
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.manual import document_of
from builders.verified import NOW_MS, LogModel, file, forged, records, state_of
from kdump.check.findings import Severity
from kdump.check.invariants import INVARIANTS
from kdump.formats import names
from kdump.formats.names import FileKind
from kdump.formats.partition_metadata import PartitionMetadata, encode_partition_metadata
from kdump.storage import local_disk


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Return a valid log directory."""
    return LogModel().write(tmp_path / "logs").parent


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Return a log directory with a wrong checksum and a foreign file."""
    model = LogModel()
    content = bytearray(model.segments[0][1])
    content[-2] ^= 1
    model.segments[0][1] = bytes(content)
    partition = model.write(tmp_path / "logs")
    (partition / "README").write_bytes(b"hello")
    return partition.parent


def verify(*args: str | Path) -> Outcome:
    return run_kdump(["verify", "--now", str(NOW_MS), *map(str, args)], Path.cwd())


def said(*args: str | Path) -> list[dict[str, Any]]:
    outcome = verify("--output", "jsonl", *args)
    assert outcome.stderr == b""
    return objects(outcome.stdout)


def test_a_valid_directory_ends_with_0(log_dir: Path) -> None:
    outcome = verify(log_dir)
    assert (outcome.exit_status, outcome.stderr) == (0, b"")
    assert outcome.stdout.decode().splitlines()[0] == (
        "1 partition, 2 segments, 7 batches, 18 records"
    )


def test_damage_ends_with_4(damaged: Path) -> None:
    outcome = verify(damaged)
    assert outcome.exit_status == 4
    first = outcome.stdout.decode().splitlines()[0]
    assert first.startswith(f"error: {damaged}/orders-0/00000000000000000000.log at byte ")
    assert "[batch-checksum]" in first


@pytest.fixture
def other_broker(tmp_path: Path) -> Path:
    """Return a valid log directory of another broker, with the same partition."""
    log_dir = LogModel().write(tmp_path / "other").parent
    properties = log_dir / names.META_PROPERTIES
    properties.write_bytes(properties.read_bytes().replace(b"node.id=7", b"node.id=8"))
    return log_dir


def test_salvage_is_advised_for_the_disks_of_the_damaged_broker(
    damaged: Path, other_broker: Path, tmp_path: Path
) -> None:
    second = shutil.copytree(other_broker, tmp_path / "second")
    shutil.copy(damaged / names.META_PROPERTIES, second)
    shutil.rmtree(second / "orders-0")

    *_, advice = verify(damaged, other_broker, second).stdout.decode().splitlines()

    assert advice.endswith(
        f": kdump recover --policy salvage --partition orders-0 {damaged} {second}"
    )


def test_a_replica_without_damage_is_named(damaged: Path, other_broker: Path) -> None:
    lines = verify(damaged, other_broker).stdout.decode().splitlines()
    assert f"{damaged}/orders-0: no damage found in {other_broker}/orders-0" in lines


def test_a_replica_of_another_topic_with_the_name_is_not_named(
    damaged: Path, other_broker: Path
) -> None:
    metadata = other_broker / "orders-0" / names.PARTITION_METADATA
    metadata.write_bytes(encode_partition_metadata(PartitionMetadata(0, UUID(int=5))))
    said = verify(damaged, other_broker).stdout.decode()
    assert "no damage found" not in said


def test_a_warning_alone_is_not_damage(log_dir: Path) -> None:
    (log_dir / "orders-0" / "00000000000000000000.log.swap").write_bytes(b"")
    assert verify(log_dir).exit_status == 0


def test_an_unreadable_file_ends_with_8(log_dir: Path) -> None:
    log = file(log_dir / "orders-0", 0, FileKind.LOG)
    log.unlink()
    log.symlink_to(log)
    outcome = verify(log_dir)
    assert outcome.exit_status & 8
    assert "file-unreadable" in outcome.stdout.decode()


@pytest.fixture
def make_unreadable(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Make the disk fail where a file is read."""
    bad: set[str] = set()
    opened = local_disk._open_listed

    def open_unless_bad(path: str) -> tuple[int, int]:
        if path in bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return opened(path)

    monkeypatch.setattr(local_disk, "_open_listed", open_unless_bad)
    return lambda path: bad.add(str(path))


@pytest.mark.parametrize("base_offset", LogModel().segments)
def test_what_depends_on_an_unreadable_log_is_not_judged(
    log_dir: Path, base_offset: int, make_unreadable: Callable[[Path], None]
) -> None:
    make_unreadable(file(log_dir / "orders-0", base_offset, FileKind.LOG))
    outcome = verify(log_dir)
    *_, advice = lines = outcome.stdout.decode().splitlines()
    damage = [line for line in lines if line.startswith(("severe:", "error:"))]
    assert all("[file-unreadable]" in line for line in damage)
    assert "--repair" not in advice


@pytest.mark.parametrize("at", [0, -1])
@pytest.mark.parametrize("name", ["clean/d1", "clean/d2", "crashed/d1", "crashed/d2", "legacy"])
def test_an_unreadable_log_of_each_real_partition_is_the_only_damage(
    name: str,
    at: int,
    fixtures: Path,
    tmp_path: Path,
    make_unreadable: Callable[[Path], None],
) -> None:
    log_dir = tmp_path / "d1"
    shutil.copytree(fixtures / "out" / name, log_dir)
    before = damage_in(log_dir)
    made = set()
    for partition in log_dir.glob("*-*/"):
        if logs := sorted(partition.glob("*.log")):
            make_unreadable(logs[at])
            made.add(str(logs[at]))
    found = damage_in(log_dir)
    assert {path for path, code in found if code == "file-unreadable"} == made
    assert {each for each in found if each[1] != "file-unreadable"} <= before


def damage_in(log_dir: Path) -> set[tuple[str, str]]:
    return {
        (each["path"], each["code"])
        for each in objects(verify("--output", "jsonl", log_dir).stdout)
        if each["type"] == "finding" and each["severity"] in ("severe", "error")
    }


def test_a_missing_path_ends_with_8(tmp_path: Path) -> None:
    outcome = verify(tmp_path / "nowhere")
    assert outcome.exit_status == 8
    assert outcome.stdout == b""
    assert b"nowhere" in outcome.stderr


def test_a_directory_that_is_not_kafkas_ends_with_8(tmp_path: Path) -> None:
    assert verify(tmp_path).exit_status == 8


def test_a_topic_without_a_match_is_an_error(log_dir: Path) -> None:
    outcome = verify("--topic", "payments*", log_dir)
    assert outcome.exit_status == 16
    assert b"payments*" in outcome.stderr


def test_quick_and_deep_are_mutually_exclusive(log_dir: Path) -> None:
    assert verify("--quick", "--deep", log_dir).exit_status == 16


def test_quick_does_not_find_a_wrong_checksum(damaged: Path) -> None:
    assert verify("--quick", damaged).exit_status == 0


def test_quick_finds_that_a_recovering_broker_would_lose_a_batch(tmp_path: Path) -> None:
    model = LogModel(is_clean=False)
    content = bytearray(model.segments[12][-1])
    content[-2] ^= 1
    model.segments[12][-1] = bytes(content)
    log_dir = model.write(tmp_path / "logs").parent
    outcome = verify("--quick", "--output=jsonl", log_dir)
    (loss,) = [each for each in objects(outcome.stdout) if each.get("severity") == "severe"]
    assert loss["code"] == "load-loss"
    assert "a broker would truncate segment" in loss["what"]
    assert outcome.exit_status == 4


def test_deep_finds_what_a_valid_checksum_hides(tmp_path: Path) -> None:
    model = LogModel()
    content = model.segments[0][0]
    model.segments[0][0] = forged(batch(records(0, 2)), last_offset_delta=2, records_count=3)
    assert len(model.segments[0][0]) != len(content)
    log_dir = model.write(tmp_path / "logs").parent
    assert (verify(log_dir).exit_status, verify("--deep", log_dir).exit_status) == (0, 4)


def test_programs_get_findings_partitions_and_a_summary(damaged: Path) -> None:
    rows = said(damaged)
    assert [row["type"] for row in rows].count("finding") == len(rows) - 2
    assert [row["type"] for row in rows[-2:]] == ["partition", "summary"]
    finding = next(row for row in rows if row.get("code") == "batch-checksum")
    assert finding == {
        "type": "finding",
        "severity": "error",
        "code": "batch-checksum",
        "path": str(damaged / "orders-0" / "00000000000000000000.log"),
        "position": finding["position"],
        "offset": 3,
        "what": "the checksum of a batch does not match",
        "expected": None,
        "found": finding["found"],
        "loss": "the batch at offset 3 (3 records)",
    }


def test_the_summary_accounts_for_every_byte(damaged: Path) -> None:
    summary = said(damaged)[-1]
    total = sum(path.stat().st_size for path in damaged.rglob("*") if path.is_file())
    assert summary["total_bytes"] == total
    assert summary["foreign_bytes"] == len(b"hello")
    assert (
        summary["valid_bytes"]
        + summary["padding_bytes"]
        + summary["damaged_bytes"]
        + summary["foreign_bytes"]
        == total
    )


def test_json_is_one_array_of_what_jsonl_has(damaged: Path) -> None:
    whole = objects(verify("--output", "json", damaged).stdout)
    lines = said(damaged)
    for rows in (whole, lines):
        del rows[-1]["seconds"]
    assert whole == lines


def test_junit_has_a_case_for_each_partition_and_a_failure_for_damage(damaged: Path) -> None:
    suite = ET.fromstring(verify("--output", "junit", damaged).stdout)
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    failure = cases["orders-0"].find("failure")
    assert failure is not None
    assert failure.get("type") == "batch-checksum"
    assert suite.get("failures") == "1"


def test_the_table_has_the_findings_and_the_partitions(damaged: Path) -> None:
    text = verify("--output", "table", damaged).stdout.decode()
    assert "batch-checksum" in text
    assert "orders-0" in text


def test_people_see_info_only_with_verbose(damaged: Path) -> None:
    assert b"foreign-file" not in verify(damaged).stdout
    assert b"foreign-file" in verify("-v", damaged).stdout


def test_the_clock_can_be_set(log_dir: Path) -> None:
    before = said("--now", str(BASE_TIMESTAMP_MS - 4_000_000), log_dir)
    assert "future-timestamp" in {row.get("code") for row in before}
    assert "future-timestamp" not in {row.get("code") for row in said(log_dir)}


def test_a_partition_can_be_verified_alone(damaged: Path) -> None:
    outcome = verify("--output", "jsonl", damaged / "orders-0")
    assert outcome.exit_status == 4


def test_a_segment_can_be_verified_alone(damaged: Path) -> None:
    partition = damaged / "orders-0"
    assert verify(file(partition, 0, FileKind.LOG)).exit_status == 4
    assert verify(file(partition, 12, FileKind.LOG)).exit_status == 0


def test_a_file_that_is_not_a_log_is_refused(damaged: Path) -> None:
    assert verify(damaged / "meta.properties").exit_status == 8


def test_a_topic_can_be_selected(damaged: Path) -> None:
    rows = said("--topic", "ord*", damaged)
    assert rows[-1]["partitions"] == 1


@pytest.mark.parametrize("level", ["--quick", "--now=0", "--deep"])
def test_nothing_is_written_and_no_time_changes(damaged: Path, level: str) -> None:
    before = state_of(damaged)
    verify(level, damaged)
    assert state_of(damaged) == before


def document() -> nodes.document:
    return document_of("kdump-verify")


def test_the_manual_explains_every_code_by_severity() -> None:
    (findings,) = [
        each for each in document().findall(nodes.section) if each[0].astext() == "FINDINGS"
    ]
    by_severity = {
        section[0].astext(): [term.astext() for term in section.findall(nodes.term)]
        for section in findings.children
        if isinstance(section, nodes.section)
    }
    assert list(by_severity) == ["Severe", "Errors", "Warnings", "Information"]
    assert list(by_severity.values()) == [
        [each.code for each in INVARIANTS.values() if each.severity is severity]
        for severity in reversed(Severity)
    ]


def test_the_manual_names_every_field(damaged: Path) -> None:
    text = document().astext()
    fields = {name for row in said(damaged) for name in row}
    assert not [name for name in fields if not re.search(rf"\b{name}\b", text)]


CLEAN = (
    ("clean/d1", "clean/d2"),
    ("clean-mv39/logs", "clean-mv39/meta"),
    ("recovered/d1", "recovered/d2"),
    ("legacy/logs",),
    ("leftover-1-cleaned-partial-recovered/logs",),
    ("leftover-2-cleaned-complete-recovered/logs",),
    ("leftover-3-swap-log-only-recovered/logs",),
    ("leftover-4-swap-complete-recovered/logs",),
)


@pytest.mark.slow
@pytest.mark.parametrize("level", [[], ["--quick"], ["--deep"]], ids=["default", "quick", "deep"])
@pytest.mark.parametrize("directories", CLEAN, ids=[each[0] for each in CLEAN])
def test_clean_directories_of_a_real_broker_are_valid(
    fixtures: Path, directories: tuple[str, ...], level: list[str]
) -> None:
    paths = [fixtures / "out" / each for each in directories]
    rows = said(*level, *paths)
    found = {row["code"] for row in rows if row["type"] == "finding" and row["severity"] != "info"}
    # Old formats do not show whether topics are compacted, and their offsets have gaps.
    assert found == ({"segment-gap"} if directories[0].startswith("legacy") else set())
    total = sum(file.stat().st_size for path in paths for file in path.rglob("*") if file.is_file())
    assert rows[-1]["total_bytes"] == total
    assert rows[-1]["damaged_bytes"] == 0


def test_severities_have_the_names_in_the_manual() -> None:
    text = document().astext()
    assert all(each.label in text for each in Severity)
