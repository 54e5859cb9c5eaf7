"""The sound batches of a log, in order, and the damage between them."""

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
    """Bytes that hold no records that can be read.

    Attributes:
        path: the file.
        start: the first of them.
        end: the first behind them.
        problem: what is wrong.
    """

    path: str
    start: int
    end: int
    problem: FormatError | str

    def __str__(self) -> str:
        return f"{self.path}: bytes {self.start} to {self.end}: {self.problem}"


OnDamage = Callable[[Damage], None]
"""Takes damage that was found; raises if reading is to fail."""


def batch_damage(window: Window, row: int, path: str, problem: FormatError | str) -> Damage:
    """That one batch is damaged."""
    start = int(window.batches.position[row])
    return Damage(path, start, int(window.batches.next_position[row]), problem)


@dataclass(frozen=True, slots=True)
class LogPart:
    """Part of the log of a segment.

    Attributes:
        start: byte at which a batch begins.
        end: byte behind its last batch; None is the end of the file.
        least_offset: no batch of the segment has a lower one.
        end_offset: all batches of the segment lie below it; None where no segment follows.
        may_be_padded: whether zeroes at its end are space set aside for what is written next.
    """

    start: int = 0
    end: int | None = None
    least_offset: int = 0
    end_offset: int | None = None
    may_be_padded: bool = False


def segment_part(segment: Segment, following: Segment | None, start: int = 0) -> LogPart:
    """A segment's log from byte ``start`` on, with what is known of its offsets."""
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
    """The batches of a part that are sound and where they belong, and the damage, in order.

    Damaged are bytes that are no batch, batches with another checksum, batches that begin at or
    below the last offset of the one before, and batches of another segment. As long as there is
    no damage nothing is looked at twice.

    Args:
        source: the segment's log.
        part: which part of it.
        window_bytes: as in :func:`~kdump.scan.batches.read_windows`.
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
        is_sound = batches.is_valid & ~is_misplaced
        last_offset = int(batches.last_offset[-1]) if batches.is_valid[-1] else NO_OFFSET
        if is_sound.all():
            yield step
        else:
            yield from _split_runs(step, is_sound, path)


def _is_misplaced(batches: BatchColumns, part: LogPart, last_offset: int) -> Flags:
    before = np.concatenate(([last_offset], batches.last_offset[:-1]))
    # The offsets of a damaged batch may be damaged, too.
    before[1:][~batches.is_valid[:-1]] = NO_OFFSET
    is_bad: Flags = (batches.base_offset <= before) | (batches.base_offset < part.least_offset)
    is_bad |= batches.last_offset < batches.base_offset
    if part.end_offset is not None:
        is_bad |= batches.last_offset >= part.end_offset
    return is_bad


def _split_runs(window: Window, is_sound: Flags, path: str) -> Iterator[Window | Damage]:
    """The sound batches of a window in runs, and each of the others by itself."""
    edges = [0, *(np.flatnonzero(np.diff(is_sound)) + 1).tolist(), len(is_sound)]
    for begin, end in itertools.pairwise(edges):
        if is_sound[begin]:
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
    """Whether all that follows is space that was set aside."""
    if not part.may_be_padded:
        return False
    end = source.size_bytes if part.end is None else part.end
    return is_zero(source, position, end)
