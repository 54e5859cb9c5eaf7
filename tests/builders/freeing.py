"""A clean log directory whose old segments can be deleted, and kdump run on it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from builders.batches import BASE_TIMESTAMP_MS
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.log_directories import begin_epochs_at, offset_checkpoint
from builders.manual import document_of
from builders.verified import END_OFFSET
from kdump.formats import names
from kdump.formats.checkpoints import decode_offset_checkpoint

OF_A_RUN: Final = frozenset({"is_applied", "undo", "is_dry_run", "seconds"})
"""Fields that differ between a dry run and the run itself."""
EVERY_TOPIC: Final = (
    "--topic=*",
    "--config=cleanup.policy=delete",
    "--config=remote.storage.enable=false",
)
"""Options that select all topics, with the configuration that a pattern requires."""
FIRST_IS_OLD: Final = (f"--now={BASE_TIMESTAMP_MS + 1_012}", "--config=retention.ms=1000")
"""Options by which the first segment of ``LogModel`` is too old, but not the second."""
ALL_IS_OLD: Final = (f"--now={BASE_TIMESTAMP_MS + 9_000}", "--config=retention.ms=1000")


def second_partition(root: Path, name: str, offsets: Mapping[str, int]) -> Path:
    """Copy the partition ``orders-0``, and write lines for the copy in checkpoints by file name."""
    other = root / name
    other.mkdir()
    for each in (root / "orders-0").iterdir():
        (other / each.name).write_bytes(each.read_bytes())
    topic, _, number = name.rpartition("-")
    for file_name, offset in (
        {names.RECOVERY_POINT_CHECKPOINT: END_OFFSET} | dict(offsets)
    ).items():
        write_line(root, file_name, (topic, int(number)), offset)
    return other


def move_to_another_disk(root: Path) -> Path:
    """Begin to move the partition ``orders-0`` to another log directory; returns that."""
    other = root.with_name("other")
    shutil.copytree(root, other)
    properties = other / names.META_PROPERTIES
    lines = properties.read_bytes().splitlines(keepends=True)
    properties.write_bytes(b"".join(line for line in lines if b"directory.id" not in line))
    (other / "orders-0").rename(other / f"orders-0.{'a' * 32}-future")
    return other


def write_line(root: Path, file_name: str, key: tuple[str, int], offset: int | None) -> None:
    """Write ``offset`` into a partition's line of a checkpoint; None removes the line."""
    path = root / file_name
    entries = decode_offset_checkpoint(path.read_bytes())
    before: dict[tuple[str, int], int] = {each: at for each, at in entries if each != key}
    path.write_bytes(offset_checkpoint(before if offset is None else before | {key: offset}))
    if file_name == names.LOG_START_OFFSET_CHECKPOINT and offset is not None:
        begin_epochs_at(root / "{}-{}".format(*key), offset)


def lines_of(root: Path, file_name: str) -> dict[str, int]:
    """Read the offsets of a checkpoint by partition directory."""
    entries = decode_offset_checkpoint((root / file_name).read_bytes())
    return {str(each): offset for each, offset in entries}


def logs_of(partition: Path) -> list[int]:
    """Return the base offsets of a partition's logs."""
    return sorted(int(path.stem) for path in partition.glob("*.log"))


def run(command: str, *args: str | Path) -> Outcome:
    return run_kdump([command, *map(str, args)], Path.cwd())


def rows_of(command: str, *args: str | Path) -> list[dict[str, Any]]:
    """Run a command that must succeed; return its JSON objects."""
    outcome = run(command, "--output", "jsonl", *args)
    assert outcome.stderr == b""
    return objects(outcome.stdout)


def of_type(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["type"] == kind]


def verify(root: Path) -> int:
    return run("verify", root).exit_status


def fields_missing_from(page: str, rows: list[dict[str, Any]]) -> set[str]:
    """Return the names of fields that a manual page does not mention."""
    text = document_of(page).astext()
    return _fields(rows) - set(re.findall(r"\w+", text))


def _fields(value: Any) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(_fields, value))
    if isinstance(value, dict):
        return value.keys() | set().union(*map(_fields, value.values()))
    return set()
