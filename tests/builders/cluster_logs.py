"""A log directory with work for several workers: every partition is a part of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from builders.batches import batch, record
from builders.compactable_directories import NOW_MS, closed
from builders.group_records import offset_key, offset_value

PARTITIONS: Final = 8
"""How many each topic has."""

_SEGMENTS: Final = 3
_BATCHES: Final = 200
_KEYS: Final = 500
_RECORDS_EACH: Final = 50
_GROUPS: Final = 7


def write_cluster_logs(path: Path) -> Path:
    """Write a log directory of a topic to compact, and the commits of groups to it."""
    for number in range(PARTITIONS):
        _write_partition(path / f"users-{number}", _users)
        _write_partition(path / f"__consumer_offsets-{number}", partial(_commits, number))
    return closed(path)


def _write_partition(path: Path, batch_at: Callable[[int], tuple[bytes, int]]) -> None:
    """Write inactive segments, and an active one with a single batch."""
    path.mkdir(parents=True)
    offset = 0
    for number in range(_SEGMENTS + 1):
        log = path / f"{offset:020d}.log"
        written = []
        for _ in range(_BATCHES if number < _SEGMENTS else 1):
            content, offset = batch_at(offset)
            written.append(content)
        log.write_bytes(b"".join(written))


def _users(offset: int) -> tuple[bytes, int]:
    """A batch at an offset, and the offset after it."""
    end = offset + _RECORDS_EACH
    rows = [record(at, b"key-%d" % (at * 7 % _KEYS), b"%0150d" % at) for at in range(offset, end)]
    return batch(rows), end


def _commits(partition: int, offset: int) -> tuple[bytes, int]:
    """The same with the commit of one of the groups that a partition has."""
    end = offset + PARTITIONS
    group = b"group-%d-%d" % (partition, offset // PARTITIONS % _GROUPS)
    rows = [
        record(at, offset_key(group, b"users", at - offset), offset_value(at, NOW_MS))
        for at in range(offset, end)
    ]
    return batch(rows), end
