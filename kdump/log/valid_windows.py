"""The valid batches of a log in order, and the damage between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kdump.formats.errors import FormatError
from kdump.formats.record_batch import HEADER_BYTES, PREFIX_BYTES
from kdump.log.batch_validity import BatchJudge, JudgedWindow, LogPart
from kdump.log.lock_holders import is_in_use_around
from kdump.log.segment import Segment
from kdump.scan.batches import (
    WINDOW_BYTES,
    Bytes,
    StopReason,
    Window,
    read_windows,
)
from kdump.scan.source import is_zero
from kdump.scan.walk import Skipped, walk_windows
from kdump.storage.location import StoredFile


class Damage(Struct, frozen=True):
    """Bytes without readable records.

    Attributes:
        start: the first byte.
        end: the byte after the last one; the same as ``start`` if whole files are missing.
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

    Damage is: bytes that are not a batch, and batches that :mod:`kdump.log.batch_validity` does
    not take for valid; not what a broker is writing at the end of a log. Nothing is read twice
    before the first damage.

    Args:
        source: the segment's log.
        window_bytes: as for :func:`~kdump.scan.batches.read_windows`.
        buffer: likewise.

    Raises:
        OSError: the log cannot be read.
    """
    judge = BatchJudge(source, part)
    path = str(source.location)
    held: Window | None = None
    after: list[Damage] = []
    for step, may_wait in _walk(source, part, window_bytes, buffer):
        if isinstance(step, Skipped):
            if _is_being_written(source, part, step):
                continue
            damage = Damage(path, step.start, step.end, step.problem)
            if held is None:
                yield damage
            else:
                after.append(damage)
            continue
        if not step.batches.count:
            continue
        if held is not None:
            yield from _split_runs(judge.judge(held, step.batches), path)
            yield from after
            held, after = None, []
        if may_wait:
            held = step
        else:
            yield from _split_runs(judge.judge(step), path)
    if held is not None:
        yield from _split_runs(judge.judge(held), path)
        yield from after


def _is_being_written(source: StoredFile, part: LogPart, skipped: Skipped) -> bool:
    """Whether bytes that are no batch are the end of a log that a broker is using.

    Then they may be the first half of a batch, and no damage.
    """
    is_end = part.end is None and part.end_offset is None and skipped.end >= source.size_bytes
    return is_end and is_in_use_around(source.location.parent)


def _split_runs(judged: JudgedWindow, path: str) -> Iterator[Window | Damage]:
    """Yield the valid batches of a window in runs, and each of the others on its own."""
    window, problems = judged.window, judged.problems
    if not problems:
        yield window
        return
    begin = 0
    for row in sorted(problems):
        if begin < row:
            yield window.rows(slice(begin, row))
        damage = batch_damage(window, row, path, problems[row])
        begin = row + 1
        if judged.is_valid[row]:
            # Only its header is damaged.
            damage, begin = replace(damage, end=damage.start + HEADER_BYTES), row
        yield damage
    if begin < window.batches.count:
        yield window.rows(slice(begin, None))


def _walk(
    source: StoredFile, part: LogPart, window_bytes: int, buffer: Bytes | None
) -> Iterator[tuple[Window | Skipped, bool]]:
    """Yield each step, and whether it stays as it is when the next one is requested."""
    position: int | None = None
    for window in read_windows(
        source, part.start, part.end, window_bytes=window_bytes, buffer=buffer
    ):
        is_valid = window.batches.is_valid
        if not is_valid.all():
            first = int(np.argmin(is_valid))
            position = int(window.batches.position[first])
            yield window.rows(slice(0, first)), True
            break
        stop = window.stop
        if stop is not None and stop.problem is not None:
            if stop.reason is StopReason.ZERO_FILL and _is_padding(source, part, stop.position):
                yield window, True
                return
            position = stop.position
        yield window, position is not None
    if position is None:
        return
    for step in walk_windows(
        source, position, part.end, follow_bad=True, window_bytes=window_bytes
    ):
        if isinstance(step, Window) or (
            isinstance(step, Skipped) and not _is_padding(source, part, step.start)
        ):
            yield step, True


def _is_padding(source: StoredFile, part: LogPart, position: int) -> bool:
    """Whether everything from ``position`` on is preallocated space."""
    if not part.may_be_padded:
        return False
    end = source.size_bytes if part.end is None else part.end
    # Fewer zeroes may be the start of an offset.
    return end - position > PREFIX_BYTES and is_zero(source, position, end)
