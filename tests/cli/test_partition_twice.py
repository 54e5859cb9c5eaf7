"""A partition with two directories: a broker does not start, and nothing is written."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.log_directories import META_PROPERTIES, write_log_directory
from builders.trees import contents_of
from builders.verified import LogModel, file
from kdump.formats import names
from kdump.formats.names import FileKind
from kdump.formats.uuids import format_uuid


def kdump(*args: str | Path) -> Outcome:
    return run_kdump([str(arg) for arg in args], Path.cwd())


def rows(*args: str | Path) -> list[dict[str, Any]]:
    outcome = kdump(*args, "--output", "jsonl")
    return objects(outcome.stdout)


@pytest.fixture
def disks(tmp_path: Path) -> tuple[Path, Path]:
    """Return two unclean log directories of one broker, both with the partition orders-0."""
    d1, d2 = tmp_path / "d1", tmp_path / "d2"
    partition = LogModel(is_clean=False).write(d1)
    write_log_directory(d2, clean=False)
    other_id = format_uuid(uuid.UUID(int=7777)).encode()
    properties = META_PROPERTIES.replace(b"V1dW8O41RR6_pKmks-3sKg", other_id)
    (d2 / names.META_PROPERTIES).write_bytes(properties)
    shutil.copytree(partition, d2 / partition.name)
    for log_dir in (d1, d2):
        file(log_dir / partition.name, 0, FileKind.OFFSET_INDEX).unlink()
    return d1, d2


WRITING = (
    ("recover",),
    ("recover", "--policy", "salvage"),
    ("verify", "--repair"),
    ("resolve",),
    ("rebuild-index",),
    ("snapshot", "rebuild"),
)


@pytest.mark.parametrize("command", WRITING, ids=" ".join)
def test_no_command_writes_to_either_copy(
    disks: tuple[Path, Path], command: tuple[str, ...]
) -> None:
    before = [contents_of(log_dir / "orders-0") for log_dir in disks]

    outcome = kdump(*command, *disks)

    assert outcome.exit_status & 4
    assert str(disks[0] / "orders-0") in outcome.stdout.decode()
    assert [contents_of(log_dir / "orders-0") for log_dir in disks] == before


@pytest.mark.parametrize("command", [("recover", "--dry-run"), ("verify",)], ids=" ".join)
def test_a_broker_would_refuse_to_start(disks: tuple[Path, Path], command: tuple[str, ...]) -> None:
    said = rows(*command, *disks)

    verdicts = [row["verdict_kind"] for row in said if row["type"] == "partition"]
    codes = [row["code"] for row in said if row["type"] == "finding"]
    assert verdicts == ["refused", "refused"]
    assert codes.count("partition-twice") == 2


def test_both_directories_are_called_as_they_were_named(disks: tuple[Path, Path]) -> None:
    said = run_kdump(["verify", "d1", "d2"], disks[0].parent).stdout.decode()
    assert "d1/orders-0: the partition is also in d2/orders-0:" in " ".join(said.split())


def test_neither_directory_becomes_clean(disks: tuple[Path, Path]) -> None:
    kdump("recover", *disks)
    assert not any((log_dir / names.CLEAN_SHUTDOWN_MARKER).exists() for log_dir in disks)


def test_other_partitions_are_recovered(disks: tuple[Path, Path]) -> None:
    shutil.copytree(disks[0] / "orders-0", disks[0] / "orders-1")

    said = {row["directory"]: row for row in rows("recover", *disks) if row["type"] == "partition"}

    assert said["orders-1"]["verdict_kind"] == "rebuilt"
    assert file(disks[0] / "orders-1", 0, FileKind.OFFSET_INDEX).exists()


def test_two_directories_of_one_partition_in_one_log_directory_are_two_copies(
    tmp_path: Path,
) -> None:
    partition = LogModel(is_clean=False).write(tmp_path / "d1")
    shutil.copytree(partition, tmp_path / "d1" / "orders-00")

    outcome = kdump("recover", tmp_path / "d1")

    assert outcome.exit_status == 4
    assert b"partition-twice" in outcome.stdout
    assert not (tmp_path / "d1" / names.CLEAN_SHUTDOWN_MARKER).exists()


def test_a_copy_that_becomes_stray_does_not_count(disks: tuple[Path, Path]) -> None:
    (disks[1] / "orders-0" / names.PARTITION_METADATA).unlink()

    said = rows("recover", "--dry-run", *disks)

    verdicts = [row["verdict_kind"] for row in said if row["type"] == "partition"]
    assert verdicts[0] == "rebuilt"
    assert "partition-twice" not in [row.get("code") for row in said]


def test_a_directory_given_twice_has_its_partitions_once(disks: tuple[Path, Path]) -> None:
    said = rows("verify", disks[0], f"{disks[0]}/../d1", disks[0] / "orders-0")
    assert "partition-twice" not in [row.get("code") for row in said]
