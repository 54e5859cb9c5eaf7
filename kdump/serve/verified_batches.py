"""The valid batches of segments, verified once and remembered while the server runs."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.formats.errors import FormatError, OverLimitError
from kdump.formats.names import FileKind
from kdump.log.batch_validity import LogPart
from kdump.log.log_search import SegmentSearch, Trust
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.log.valid_windows import Damage, batch_damage, segment_part, valid_windows
from kdump.scan.batches import BatchColumns, Window
from kdump.scan.record_validity import undecodable_without_records
from kdump.scan.records import RecordColumns
from kdump.scan.walk import MessageSet, expand_window
from kdump.storage.location import Location, StoredFile

_STEP_BYTES: Final = 1 << 20
"""So much of a log is verified at once, at least."""
_MOST_BATCHES: Final = 200_000
"""So many batches are remembered: about 25 MB of columns."""

Step = BatchColumns | Damage
"""Valid batches in a row, or the damage after them."""


class _Stretch(Struct):
    """A part of a log that was read from front to back.

    Attributes:
        start: its first byte, where a batch begins.
        end: the byte up to which it was read.
        first_offset: no batch before the stretch has this offset or a larger one.
        last_offsets: up to the end of each step, the largest offset.
        batches: how many there are in the steps.
        is_complete: whether nothing follows in the segment.
    """

    start: int
    end: int
    first_offset: int
    steps: list[Step] = field(default_factory=list)
    last_offsets: list[int] = field(default_factory=list)
    batches: int = 0
    is_complete: bool = False

    @property
    def reached_offset(self) -> int:
        """The first offset after the batches that were found."""
        return self.last_offsets[-1] + 1 if self.last_offsets else self.first_offset


class SegmentBatches(Struct):
    """What was verified of one segment.

    Attributes:
        partition: as a starting broker loads it.
        following: the segment after it; None for the last one.
        with_records: whether records that cannot be decoded are damage of their batch.
    """

    partition: Partition
    segment: Segment
    following: Segment | None
    with_records: bool = False
    _identity: tuple[int | str, ...] | None = None
    _stretches: list[_Stretch] = field(default_factory=list)

    @property
    def path(self) -> Location:
        """Where the log is."""
        return self.partition.segment_path(self.segment, FileKind.LOG)

    @property
    def batches(self) -> int:
        """How many batches are remembered."""
        return sum(each.batches for each in self._stretches)

    def steps_from(self, log: StoredFile, offset: int) -> Iterator[Step]:
        """The batches and the damage from about an offset on; what is new is verified.

        The first step may begin before the offset, by what an index entry stands for.

        Args:
            log: of the segment, open.
            offset: where to begin.

        Raises:
            OSError: the log cannot be read.
        """
        identity = log.identity()
        if identity != self._identity:
            # A broker has written to it, or put another file in its place.
            self._identity = identity
            self._stretches.clear()
        stretch = self._stretch_for(offset)
        number = bisect_left(stretch.last_offsets, offset)
        while number and isinstance(stretch.steps[number - 1], Damage):
            number -= 1  # the offset may be lost with it
        while True:
            while number == len(stretch.steps):
                if stretch.is_complete:
                    return
                self._extend(log, stretch)
            yield stretch.steps[number]
            number += 1

    def _stretch_for(self, offset: int) -> _Stretch:
        for each in self._stretches:
            if each.first_offset <= offset <= each.reached_offset:
                return each
        with SegmentSearch.of(self.partition, self.segment, Trust.CHECKSUMS) as search:
            start = search.position_of(offset)
        for each in self._stretches:
            if each.start == start or each.start < start < each.end:
                each.first_offset = min(each.first_offset, offset)
                return each
        # Only what the index leads to is known: damage before it is not seen.
        found = _Stretch(start, start, offset if start else self.segment.base_offset)
        self._stretches.append(found)
        return found

    def _extend(self, log: StoredFile, stretch: _Stretch) -> None:
        """Verify some more of the log, up to where another stretch begins."""
        later = [each for each in self._stretches if each.start > stretch.start]
        follower = min(later, key=lambda each: each.start, default=None)
        if follower is not None and follower.start <= stretch.end:
            self._join(stretch, follower)
            return
        part = replace(
            segment_part(self.segment, self.following, stretch.end),
            end=None if follower is None else follower.start,
        )
        if stretch.last_offsets:
            part = replace(part, least_offset=stretch.reached_offset)
        begin = stretch.end
        for step in self._read(log, part):
            if isinstance(step, Damage):
                stretch.steps.append(step)
                stretch.last_offsets.append(stretch.reached_offset - 1)
                stretch.end = max(stretch.end, step.end)
                continue
            stretch.steps.append(step.batches)
            stretch.batches += step.batches.count
            stretch.last_offsets.append(int(step.batches.last_offset[-1]))
            stretch.end = int(step.batches.next_position[-1])
            if stretch.end - begin >= _STEP_BYTES:
                return
        if follower is None:
            stretch.is_complete = True
        else:
            self._join(stretch, follower)

    def _read(self, log: StoredFile, part: LogPart) -> Iterator[Window | Damage]:
        for step in valid_windows(log, part, window_bytes=_STEP_BYTES):
            if self.with_records and isinstance(step, Window):
                yield from _decodable(step, str(log.location))
            else:
                yield step

    def _join(self, stretch: _Stretch, follower: _Stretch) -> None:
        """Make one of two stretches that meet."""
        stretch.steps += follower.steps
        stretch.batches += follower.batches
        stretch.last_offsets += follower.last_offsets
        stretch.end = max(stretch.end, follower.end)
        stretch.is_complete = follower.is_complete
        self._stretches.remove(follower)


def _decodable(window: Window, path: str) -> Iterator[Window | Damage]:
    """Yield the batches whose records can be decoded in runs, and each of the others on its own."""
    begin = 0
    for row, problem in sorted(_undecodable(window).items()):
        if begin < row:
            yield window.rows(slice(begin, row))
        yield batch_damage(window, row, path, problem)
        begin = row + 1
    if begin < window.batches.count:
        yield window.rows(slice(begin, None))


def _undecodable(window: Window) -> dict[int, FormatError]:
    """What is wrong with the records of batches, by row; a consumer never comes past them."""
    found = undecodable_without_records(window)
    for records in expand_window(window, with_records=True):
        if isinstance(records, RecordColumns):
            positions = records.batches.position
            found |= {int(positions[row]): why for row, why in records.problems.items()}
        elif isinstance(records, MessageSet) and records.problem is not None:
            found[int(records.window.batches.position[0])] = records.problem
    rows = window.batches.position
    return {
        int(rows.searchsorted(position)): why
        for position, why in found.items()
        if not isinstance(why, OverLimitError)
    }


class VerifiedBatches:
    """What was verified of all segments; what was not asked for longest is forgotten first.

    Args:
        with_records: whether records that cannot be decoded are damage of their batch.
    """

    def __init__(self, *, with_records: bool = False) -> None:
        self._with_records = with_records
        self._lock = threading.Lock()
        self._segments: OrderedDict[Location, SegmentBatches] = OrderedDict()
        self._counts: dict[Location, int] = {}
        self._total = 0

    def of(
        self, partition: Partition, segment: Segment, following: Segment | None
    ) -> SegmentBatches:
        """What was verified of a segment; who reads a partition locks it."""
        path = partition.segment_path(segment, FileKind.LOG)
        with self._lock:
            found = self._segments.get(path)
            if found is None or (found.segment, found.following) != (segment, following):
                found = self._segments[path] = SegmentBatches(
                    partition, segment, following, self._with_records
                )
            self._segments.move_to_end(path)
            return found

    def note_size(self, found: SegmentBatches) -> None:
        """Take note of how much is remembered of a segment, and forget others if it is too much."""
        with self._lock:
            path, count = found.path, found.batches
            if self._segments.get(path) is not found:
                return  # it was forgotten while it was read
            self._total += count - self._counts.get(path, 0)
            self._counts[path] = count
            while self._total > _MOST_BATCHES and len(self._segments) > 1:
                path, _ = self._segments.popitem(last=False)
                self._total -= self._counts.pop(path, 0)
