"""Which batches of a log are valid: the rule of everything that reads records.

A batch is valid by itself if its checksum matches, its magic is known, its offsets are possible and
lie in its segment, and a control batch can be parsed. The base offset and the magic are outside the
checksum. Where the offsets of valid batches conflict, those count that form the heaviest sequence
with increasing offsets, as in a salvage (:mod:`kdump.scan.increasing_offsets`). A reader decides
this window by window: it looks at the header that follows a window, and reads the next window too
if that header conflicts.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kdump.formats.errors import FormatError
from kdump.formats.record_batch import GREATEST_OFFSET, HEADER_BYTES, NEWEST_MAGIC
from kdump.scan.batches import PADDING_BYTES, BatchColumns, Column, Flags, Window
from kdump.scan.control_batches import malformed_control_batches
from kdump.scan.increasing_offsets import BATCH_WEIGHT, heaviest_sequence, touched
from kdump.scan.record_validity import last_record, reaching_records
from kdump.scan.resync import is_valid_batch
from kdump.scan.source import read_at
from kdump.scan.walk import walk_windows
from kdump.storage.location import StoredFile

NO_OFFSET: Final = -1
_BATCHES_AHEAD: Final = 100
"""So many batches after a window decide which of its batches count."""
_AHEAD_BYTES: Final = 64 << 10


class LogPart(Struct, frozen=True):
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


class JudgedWindow(Struct, frozen=True):
    """A window, and which of its batches are valid.

    Attributes:
        window: all batches. Where a header claims too few or too many offsets, the last offset is
            that of the records.
        is_valid: of each batch.
        problems: by row, what is wrong; of a valid batch, what is wrong with its header.
    """

    window: Window
    is_valid: Flags
    problems: dict[int, FormatError | str]


class BatchJudge:
    """Judges the windows of a part of a log, in order.

    Args:
        source: the segment's log.
    """

    def __init__(self, source: StoredFile, part: LogPart) -> None:
        self._source = source
        self._part = part
        self._last_offset = NO_OFFSET

    def judge(self, window: Window, ahead: BatchColumns | None = None) -> JudgedWindow:
        """Judge the next window, which has a batch.

        Args:
            ahead: the batches of the next window, if that was read; otherwise its first header is.

        Raises:
            OSError: the log cannot be read.
        """
        claimed = window.batches
        window = reaching_records(window)
        batches = window.batches
        is_possible, problems = by_itself(window)
        last_offset = batches.last_offset
        if (
            not problems
            and self._is_inside(batches, last_offset).all()
            and int(batches.base_offset[0]) > self._last_offset
            and _rise(batches, last_offset)
            and not self._conflicts(window, int(last_offset[-1]), ahead)
        ):
            self._last_offset = int(last_offset[-1])
            return JudgedWindow(window, is_possible, problems)
        following = self._read_ahead(int(batches.next_position[-1]))
        window = _within_claims(window, claimed, following[0])
        return self._settle(window, is_possible, problems, following)

    def _is_inside(self, batches: BatchColumns, last_offset: Column) -> Flags:
        return _lie_inside(batches, last_offset, self._part.least_offset, self._part.end_offset)

    def _conflicts(self, window: Window, last_offset: int, ahead: BatchColumns | None) -> bool:
        """Whether what follows a window does not begin after its last offset."""
        if ahead is not None:
            following = ahead.base_offset[ahead.is_valid]
            return not following.size or int(following[0]) <= last_offset
        position = int(window.batches.next_position[-1])
        at = position - window.start
        if at + HEADER_BYTES <= len(window.data) - PADDING_BYTES:
            header = window.data[at : at + HEADER_BYTES].tobytes()
        else:
            header = read_at(self._source, position, HEADER_BYTES)
        if len(header) < HEADER_BYTES or not any(header):
            return False
        if int.from_bytes(header[:8], "big", signed=True) <= last_offset:
            return True
        before = window.batches.last_offset[-2] if window.batches.count > 1 else self._last_offset
        leaps = int(window.batches.base_offset[-1]) != int(before) + 1
        # After a leap, a header counts only if it is not damaged itself.
        return leaps and not is_valid_batch(self._source, position, self._source.size_bytes)

    def _read_ahead(self, position: int) -> tuple[Column, Column]:
        """First and last offsets of the next batches that can count."""
        firsts, lasts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        found = 0
        for step in walk_windows(
            self._source, position, follow_bad=True, window_bytes=_AHEAD_BYTES
        ):
            if not isinstance(step, Window):
                continue
            batches = reaching_records(step).batches
            first, last = batches.base_offset, batches.last_offset
            counts = _is_sound(batches)
            counts &= self._is_inside(batches, last) & (first > self._last_offset)
            firsts.append(first[counts])
            lasts.append(last[counts])
            found += int(np.count_nonzero(counts))
            if found >= _BATCHES_AHEAD:
                break
        return np.concatenate(firsts), np.concatenate(lasts)

    def _settle(
        self,
        window: Window,
        is_possible: Flags,
        problems: dict[int, FormatError | str],
        following: tuple[Column, Column],
    ) -> JudgedWindow:
        """Choose the batches whose offsets fit together."""
        ahead_first, ahead_last = following
        end_offset = GREATEST_OFFSET if self._part.end_offset is None else self._part.end_offset
        next_offset = int(ahead_first[0]) if ahead_first.size else end_offset
        window, claims = without_false_claims(window, is_possible, next_offset, end_offset)
        batches = window.batches
        first, last = batches.base_offset, batches.last_offset
        fits = is_possible & self._is_inside(batches, last) & (first > self._last_offset)
        rows = np.flatnonzero(fits)
        before = self._part.least_offset - 1 if self._last_offset < 0 else self._last_offset
        firsts = np.concatenate(([before], first[rows], ahead_first))
        lasts = np.concatenate(([before], last[rows], ahead_last))
        kept = heaviest_sequence(firsts, lasts, BATCH_WEIGHT + touched(firsts, lasts))
        is_valid = np.zeros(batches.count, np.bool_)
        is_valid[rows] = kept[1 : 1 + rows.size]
        problems = dict(problems)
        for row in np.flatnonzero(is_possible & ~is_valid).tolist():
            problems[row] = (
                f"its offsets, {int(first[row])} to {int(last[row])}, do not fit between those"
                " around them, or belong to another segment"
            )
        for row, claimed in claims.items():
            if is_valid[row]:
                problems[row] = (
                    f"its header claims offsets up to {claimed}, which belong to later batches;"
                    f" its records end at {int(last[row])}"
                )
        if is_valid.any():
            self._last_offset = int(last[is_valid][-1])
        return JudgedWindow(window, is_valid, problems)


def valid_together(window: Window, least_offset: Column, end_offset: Column) -> Window | None:
    """Take the batches of whole segments of a log, which are all that these have.

    Args:
        window: the batches.
        least_offset: for each batch, the smallest offset in its segment.
        end_offset: for each batch, the first offset after its segment.

    Returns:
        The window with last offsets as in :class:`JudgedWindow`; None if there is no batch, or
        some have to be judged segment by segment.
    """
    if not window.batches.count:
        return None
    window = reaching_records(window)
    _, problems = by_itself(window)
    batches, last_offset = window.batches, window.batches.last_offset
    if (
        problems
        or not _lie_inside(batches, last_offset, least_offset, end_offset).all()
        or not _rise(batches, last_offset)
    ):
        return None
    return window


def _lie_inside(
    batches: BatchColumns,
    last_offset: Column,
    least_offset: int | Column,
    end_offset: int | Column | None,
) -> Flags:
    is_inside: Flags = batches.base_offset >= least_offset
    if end_offset is not None:
        is_inside &= last_offset < end_offset
    return is_inside


def _rise(batches: BatchColumns, last_offset: Column) -> bool:
    """Whether each batch begins after the one before."""
    return bool((batches.base_offset[1:] > last_offset[:-1]).all())


def without_false_claims(
    window: Window,
    is_possible: Flags,
    next_offset: int,
    end_offset: int = GREATEST_OFFSET,
) -> tuple[Window, dict[int, int]]:
    """End batches at their last record where their claim to more offsets conflicts.

    Args:
        window: the batches.
        is_possible: which of them count.
        next_offset: the base offset of the batch after them.
        end_offset: of the segment.

    Returns:
        The window, and the claims by row.
    """
    batches = window.batches
    first, last = batches.base_offset, batches.last_offset
    later = np.append(first[1:], next_offset)
    # Of all that follow, the batch with the smallest offset, unless it is its own that is wrong.
    smallest = np.minimum.accumulate(later[::-1])[::-1]
    following = np.where(smallest > first, smallest, later)
    is_wide = (batches.magic >= 2) & (last - first >= batches.records_count) & is_possible
    is_wide &= (last >= np.minimum(following, end_offset)) & (first < following)
    claims: dict[int, int] = {}
    deltas = batches.last_offset_delta.copy()
    for row in np.flatnonzero(is_wide).tolist():
        reached = last_record(window.rows(slice(row, row + 1)))
        if reached is not None and int(first[row]) <= reached < int(last[row]):
            claims[row] = int(last[row])
            deltas[row] = reached - int(first[row])
    if claims:
        window = replace(window, batches=replace(batches, last_offset_delta=deltas))
    return window, claims


def _within_claims(window: Window, claimed: BatchColumns, ahead_first: Column) -> Window:
    """End batches where their headers say if the offsets of more records would conflict."""
    batches = window.batches
    following = np.append(
        batches.base_offset[1:], ahead_first[0] if ahead_first.size else 2**63 - 1
    )
    is_kept = batches.last_offset < following
    deltas = np.where(is_kept, batches.last_offset_delta, claimed.last_offset_delta)
    return replace(window, batches=replace(batches, last_offset_delta=deltas))


def has_possible_offsets(batches: BatchColumns) -> Flags:
    """Which headers have possible offsets; the magic may be unknown."""
    delta = batches.last_offset_delta
    is_possible: Flags = (batches.base_offset >= 0) & (delta >= 0)
    is_possible &= batches.base_offset <= GREATEST_OFFSET - delta
    return is_possible


def has_known_magic(batches: BatchColumns) -> Flags:
    """Which batches are in a format that Kafka knows; the magic is outside the checksum."""
    is_known: Flags = (batches.magic >= 0) & (batches.magic <= NEWEST_MAGIC)
    return is_known


def _is_sound(batches: BatchColumns) -> Flags:
    return batches.is_valid & has_known_magic(batches) & has_possible_offsets(batches)


def by_itself(window: Window) -> tuple[Flags, dict[int, FormatError | str]]:
    """Which batches are valid by themselves, and by row what is wrong with the others."""
    batches = window.batches
    is_possible = _is_sound(batches)
    problems: dict[int, FormatError | str] = {}
    for row in (~is_possible).nonzero()[0].tolist():
        if not batches.is_valid[row]:
            problems[row] = "its checksum is wrong"
        elif not has_known_magic(batches)[row]:
            problems[row] = f"its magic, {int(batches.magic[row])}, is unknown"
        else:
            header = batches.header(row)
            problems[row] = (
                f"its offsets, {header.base_offset} to {header.last_offset}, are impossible"
            )
    for row, problem in malformed_control_batches(window, is_possible).items():
        problems[row] = problem
        is_possible[row] = False
    return is_possible, problems
