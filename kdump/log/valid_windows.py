"""The valid batches of a log in order, and the damage between them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from kdump.formats.errors import FormatError
from kdump.log.segment import Segment
from kdump.scan.batches import (
    WINDOW_BYTES,
    BatchColumns,
    Bytes,
    Flags,
    StopReason,
    Window,
    read_windows,
)
from kdump.scan.source import is_zero
from kdump.scan.walk import Skipped, walk_windows
from kdump.storage.location import StoredFile

NO_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes without readable records.

    Attributes:
        path: the file.
        start: the first byte.
        end: the byte after the last one; the same as ``start`` if whole files are missing.
        problem: what is wrong.
    """

    path: str
    start: int
    end: int
    problem: FormatError | str

    def __str__(self) -> str:
        if self.start == self.end:
            return f"{self.path}: {self.problem}"
        return f"{self.path}: bytes {self.start} to {self.end}: {self.problem}"


OnDamage = Callable[[Damage], None]
"""Takes the damage that is found; raises to stop the reading."""


def batch_damage(window: Window, row: int, path: str, problem: FormatError | str) -> Damage:
    """Return the damage of one batch."""
    start = int(window.batches.position[row])
    return Damage(path, start, int(window.batches.next_position[row]), problem)


@dataclass(frozen=True, slots=True)
class LogPart:
    """Part of the log of a segment.

    Attributes:
        start: byte where a batch begins.
        end: byte where its last batch ends, exclusive; None for the end of the file.
        least_offset: the smallest offset in the segment.
        end_offset: the first offset after the segment; None for the last segment.
        may_be_padded: whether zeroes at its end are preallocated space.
    """

    start: int = 0
    end: int | None = None
    least_offset: int = 0
    end_offset: int | None = None
    may_be_padded: bool = False


def segment_part(segment: Segment, following: Segment | None, start: int = 0) -> LogPart:
    """Return the part of a segment's log from byte ``start`` on."""
    return LogPart(
        start,
        least_offset=segment.base_offset,
        end_offset=None if following is None else following.base_offset,
        may_be_padded=following is None,
    )


def valid_windows(
    source: StoredFile,
    part: LogPart,
    *,
    window_bytes: int = WINDOW_BYTES,
    buffer: Bytes | None = None,
) -> Iterator[Window | Damage]:
    """Yield the valid batches of a part and the damage between them, in order.

    Damage is: bytes that are not a batch, batches with a wrong checksum, batches that do not
    begin after the last offset of the one before, and batches of another segment. Nothing is
    read twice before the first damage.

    Args:
        source: the segment's log.
        part: the part to read.
        window_bytes: as for :func:`~kdump.scan.batches.read_windows`.
        buffer: likewise.

    Raises:
        OSError: the log cannot be read.
    """
    path = str(source.location)
    last_offset = NO_OFFSET
    for step in _walk(source, part, window_bytes, buffer):
        if isinstance(step, Skipped):
            yield Damage(path, step.start, step.end, step.problem)
            continue
        batches = step.batches
        if not batches.count:
            continue
        is_misplaced = _is_misplaced(batches, part, last_offset)
        are_valid = batches.is_valid & ~is_misplaced
        last_offset = int(batches.last_offset[-1]) if batches.is_valid[-1] else NO_OFFSET
        if are_valid.all():
            yield step
        else:
            yield from _split_runs(step, are_valid, path)


def _is_misplaced(batches: BatchColumns, part: LogPart, last_offset: int) -> Flags:
    before = np.concatenate(([last_offset], batches.last_offset[:-1]))
    # A damaged batch may have damaged offsets, too.
    before[1:][~batches.is_valid[:-1]] = NO_OFFSET
    is_bad: Flags = (batches.base_offset <= before) | (batches.base_offset < part.least_offset)
    is_bad |= batches.last_offset < batches.base_offset
    if part.end_offset is not None:
        is_bad |= batches.last_offset >= part.end_offset
    return is_bad


def _split_runs(window: Window, are_valid: Flags, path: str) -> Iterator[Window | Damage]:
    """Yield the valid batches of a window in runs, and each of the others on its own."""
    edges = [0, *(np.flatnonzero(np.diff(are_valid)) + 1).tolist(), len(are_valid)]
    for begin, end in itertools.pairwise(edges):
        if are_valid[begin]:
            yield window.rows(slice(begin, end))
            continue
        for row in range(begin, end):
            yield batch_damage(window, row, path, _problem(window.batches, row))


def _problem(batches: BatchColumns, row: int) -> str:
    if not batches.is_valid[row]:
        return "its checksum is wrong"
    offsets = f"{int(batches.base_offset[row])} to {int(batches.last_offset[row])}"
    return f"its offsets, {offsets}, do not follow those before, or belong to another segment"


def _walk(
    source: StoredFile, part: LogPart, window_bytes: int, buffer: Bytes | None
) -> Iterator[Window | Skipped]:
    position: int | None = None
    for window in read_windows(
        source, part.start, part.end, window_bytes=window_bytes, buffer=buffer
    ):
        is_valid = window.batches.is_valid
        if not is_valid.all():
            first = int(np.argmin(is_valid))
            position = int(window.batches.position[first])
            yield window.rows(slice(0, first))
            break
        yield window
        stop = window.stop
        if stop is not None and stop.problem is not None:
            if stop.reason is StopReason.ZERO_FILL and _is_padding(source, part, stop.position):
                return
            position = stop.position
    if position is None:
        return
    for step in walk_windows(
        source, position, part.end, follow_bad=True, window_bytes=window_bytes
    ):
        if isinstance(step, Window) or (
            isinstance(step, Skipped) and not _is_padding(source, part, step.start)
        ):
            yield step


def _is_padding(source: StoredFile, part: LogPart, position: int) -> bool:
    """Whether everything from ``position`` on is preallocated space."""
    if not part.may_be_padded:
        return False
    end = source.size_bytes if part.end is None else part.end
    return is_zero(source, position, end)
