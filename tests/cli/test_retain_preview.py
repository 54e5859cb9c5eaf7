"""A preview of many partitions, made by workers, says what that of a few says."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.batches import BASE_TIMESTAMP_MS
from builders.freeing import (
    ALL_IS_OLD,
    EVERY_TOPIC,
    FIRST_IS_OLD,
    run,
    second_partition,
    write_line,
)
from builders.in_process import Outcome
from builders.samples import examples
from builders.trees import tree_of
from builders.verified import END_OFFSET, LogModel
from kdump.formats import names
from kdump.jobs.listing import list_partitions as partition_listing
from kdump.jobs.writing import execution

REPLICATED = {names.REPLICATION_OFFSET_CHECKPOINT: END_OFFSET}
FIRST = "00000000000000000000"
SECOND = "00000000000000000012"


def _replicated(root: Path, name: str) -> Path:
    return second_partition(root, name, REPLICATED)


def _unknown_high_watermark(root: Path, name: str) -> None:
    second_partition(root, name, {})


def _log_start(root: Path, name: str) -> None:
    _replicated(root, name)
    write_line(root, names.LOG_START_OFFSET_CHECKPOINT, (name[:-2], int(name[-1])), 5)


def _stale_log_start(root: Path, name: str) -> None:
    _replicated(root, name)
    write_line(root, names.LOG_START_OFFSET_CHECKPOINT, (name[:-2], int(name[-1])), 0)


def _deleted_file(root: Path, name: str) -> None:
    (_replicated(root, name) / f"{FIRST}.log.deleted").write_bytes(b"old")


def _swap(root: Path, name: str) -> None:
    (_replicated(root, name) / f"{FIRST}.log.swap").write_bytes(b"")


def _flipped_bit(root: Path, name: str) -> None:
    path = _replicated(root, name) / f"{FIRST}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)


def _wrong_time_index(root: Path, name: str) -> None:
    path = _replicated(root, name) / f"{FIRST}.timeindex"
    path.write_bytes(path.read_bytes()[:7] + b"\0" + path.read_bytes()[8:])


def _no_index(root: Path, name: str) -> None:
    (_replicated(root, name) / f"{SECOND}.index").unlink()


def _no_identity(root: Path, name: str) -> None:
    (_replicated(root, name) / names.PARTITION_METADATA).unlink()


def _malformed_identity(root: Path, name: str) -> None:
    (_replicated(root, name) / names.PARTITION_METADATA).write_bytes(b"version: x")


def _foreign(root: Path, name: str) -> None:
    partition = _replicated(root, name)
    (partition / "notes").mkdir()
    (partition / "a.txt").symlink_to("nowhere")


def _in_the_way(root: Path, name: str) -> None:
    """A broken link has the name of the segment that replaces all others."""
    (_replicated(root, name) / f"{END_OFFSET:020d}.log").symlink_to("nowhere")


def _pipe(root: Path, name: str) -> None:
    partition = _replicated(root, name)
    (partition / f"{SECOND}.log").unlink()
    os.mkfifo(partition / f"{SECOND}.log")


def _moving(root: Path, name: str) -> None:
    _replicated(root, name).rename(root / f"{name}.{'0' * 32}-future")


def _stray(root: Path, name: str) -> None:
    _replicated(root, name).rename(root / f"{name}.{'0' * 32}-stray")


def _link(root: Path, name: str) -> None:
    _replicated(root, name).rename(root.parent / name)
    (root / name).symlink_to(root.parent / name)


def _internal(root: Path, name: str) -> None:
    _replicated(root, f"__consumer_offsets-{name[-1]}")


def _empty(root: Path, name: str) -> None:
    partition = _replicated(root, name)
    for path in partition.iterdir():
        path.unlink()


def _no_partition(root: Path, name: str) -> None:
    (root / f"no partition {name[-1]}").mkdir()


def _no_marker(root: Path, name: str) -> None:
    (root / names.CLEAN_SHUTDOWN_MARKER).unlink(missing_ok=True)


def _old_mtime(root: Path, name: str) -> None:
    """A segment without a timestamp is as old as its file."""
    partition = _replicated(root, name)
    (partition / f"{FIRST}.timeindex").write_bytes(b"")
    os.utime(partition / f"{FIRST}.log", (1, 1))


USUAL: tuple[Callable[[Path, str], object], ...] = (
    _replicated,
    _unknown_high_watermark,
    _log_start,
    _stale_log_start,
    _deleted_file,
    _swap,
    _flipped_bit,
    _wrong_time_index,
    _no_index,
    _no_identity,
    _malformed_identity,
    _foreign,
    _pipe,
    _moving,
    _stray,
    _internal,
    _empty,
    _old_mtime,
)
UNUSUAL = (_in_the_way, _link, _no_partition, _no_marker)
OPTIONS = (
    FIRST_IS_OLD,
    ALL_IS_OLD,
    (*ALL_IS_OLD, "--undo"),
    (*FIRST_IS_OLD, "--high-watermark=end"),
    (f"--now={BASE_TIMESTAMP_MS}", "--config=retention.bytes=300"),
    (f"--now={BASE_TIMESTAMP_MS}", "--config=retention.ms=1000"),
    ("--config=retention.ms=1", "--partition=*-1"),
    ("--partition=nothing-*",),
    ("--config=remote.storage.enable=true",),
)


def previews(root: Path, options: tuple[str, ...]) -> tuple[Outcome, Outcome]:
    """Preview retention in this process, and as if there were many partitions."""
    here = run("retain", "--dry-run", root, *EVERY_TOPIC, *options)
    with mock.patch.object(partition_listing, "_LEAST_FOR_WORKERS", 0):
        return here, run("retain", "--dry-run", root, *EVERY_TOPIC, *options)


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_a_preview_of_all_kinds_of_partitions_is_the_same(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    root = LogModel().write(tmp_path / "logs").parent
    for number, write in enumerate(USUAL):
        write(root, f"topic{number:02}-{number % 10}")
    before = tree_of(root)

    here, in_workers = previews(root, options)

    assert in_workers == here
    assert tree_of(root) == before


@given(data=st.data())
@settings(max_examples=examples(0.2))
def test_a_preview_of_any_partitions_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = LogModel().write(tmp_path_factory.mktemp("any") / "logs").parent
    writes = data.draw(st.lists(st.sampled_from((*USUAL, *UNUSUAL)), max_size=5))
    for number, write in enumerate(writes):
        write(root, f"topic{number:02}-{number % 10}")

    here, in_workers = previews(root, data.draw(st.sampled_from(OPTIONS)))

    assert in_workers == here


def test_a_preview_of_many_partitions_makes_no_plan_for_all_of_them(tmp_path: Path) -> None:
    root = LogModel().write(tmp_path / "logs").parent
    for number in range(5):
        _replicated(root, f"topic-{number}")
    expected = run("retain", "--dry-run", root, *EVERY_TOPIC, *ALL_IS_OLD)

    with (
        mock.patch.object(partition_listing, "_LEAST_FOR_WORKERS", 0),
        mock.patch.object(execution, "plan_and_apply", side_effect=AssertionError),
    ):
        assert run("retain", "--dry-run", root, *EVERY_TOPIC, *ALL_IS_OLD) == expected
