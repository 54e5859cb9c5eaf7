"""Seek in the log of a segment by offset and by time.

An index lookup gives a position at or before the one sought, and a short scan forward from there
finds the batch (``LogSegment.translateOffset``, ``LogSegment.findOffsetByTimestamp``). But an index
is a hint here: it may be stale, damaged, cut short or another segment's. An entry counts only once
the batch that it points to agrees with it. Where it does not, the scan starts at the first byte:
slower, never wrong. An index lookup reads a few entries, however large the index is.

What a broker makes of a wrong index is another question: :mod:`kdump.broker.loader` repeats that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from kdump.formats.names import FileKind
from kdump.formats.record_batch import NO_TIMESTAMP
from kdump.log.headers import BatchSpan, batch_span_at, batch_spans
from kdump.log.index_tail import (
    OffsetIndexEntry,
    TimeIndexEntry,
    last_offset_entry,
    last_time_entry,
    offset_entry_at_or_below,
    time_entry_below,
)
from kdump.scan.batches import Window, read_windows
from kdump.scan.records import RecordColumns
from kdump.scan.walk import MessageSet, expand_window
from kdump.storage.byte_source import ByteSource
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.log.partition import Partition
    from kdump.log.segment import Segment

Entry = TypeVar("Entry")

_FIRST_BYTES: Final = 16 << 10
"""Usually only the first batch is needed, or the next one."""
_MAX_BYTES_AFTER_LAST_ENTRY: Final = 1 << 20
"""The batch with the largest time is usually among the last: this bounds what is read after it."""


@dataclass(frozen=True, slots=True)
class SeekableLog:
    """The log of a segment, and where its indexes are, if it has any.

    Attributes:
        log: its bytes.
        base_offset: of the segment.
        offset_index: the file.
        time_index: the file.
        checks_batches: whether the batch that an index entry points to has to have a valid
            checksum; otherwise its header decides, which takes one small read.
    """

    log: ByteSource
    base_offset: int
    offset_index: Location
    time_index: Location
    checks_batches: bool = True

    @classmethod
    def of_segment(
        cls,
        partition: Partition,
        segment: Segment,
        log: ByteSource,
        *,
        checks_batches: bool = True,
    ) -> SeekableLog:
        """A segment of a partition; ``log`` is its opened log."""
        return cls(
            log,
            segment.base_offset,
            partition.segment_path(segment, FileKind.OFFSET_INDEX),
            partition.segment_path(segment, FileKind.TIME_INDEX),
            checks_batches,
        )

    # ---- By offset ----

    def position_of(self, offset: int) -> int:
        """The start of a batch before which all offsets are below ``offset``; 0 in doubt.

        Raises:
            OSError: the log cannot be read.
        """
        if offset <= self.base_offset:
            return 0
        relative_offset = offset - self.base_offset
        return self._verified_position(
            _in_index(
                self.offset_index, lambda index: offset_entry_at_or_below(index, relative_offset)
            )
        )

    def last_indexed_position(self) -> int:
        """Where the batch of the offset index's last entry begins; 0 in doubt.

        Raises:
            OSError: the log cannot be read.
        """
        return self._verified_position(_in_index(self.offset_index, last_offset_entry))

    def find_batch(self, offset: int) -> BatchSpan | None:
        """The batch that holds ``offset``, or else the first after it; None if the log ends before.

        By headers alone; follows ``FileRecords.searchForOffsetFromPosition``.

        Raises:
            OSError: the log cannot be read.
        """
        for span in batch_spans(self.log, self.position_of(offset), self.base_offset):
            if span.last_offset >= offset:
                return span
        return None

    def _verified_position(self, entry: OffsetIndexEntry | None) -> int:
        """The position of an entry if its batch is there; 0 otherwise.

        Before Kafka 4 an entry could stand for several batches that were appended together: it has
        the last one's offset and the first one's position.
        """
        if entry is None or not 0 < entry.position < self.log.size_bytes:
            return 0
        span = batch_span_at(self.log, entry.position)
        if span is None or not (
            self.base_offset <= span.base_offset <= self.base_offset + entry.relative_offset
        ):
            return 0
        return entry.position if not self.checks_batches or self._is_valid(span) else 0

    def _is_valid(self, span: BatchSpan) -> bool:
        """Whether the checksum of a batch holds."""
        batches = next(read_windows(self.log, span.position, first_bytes=_FIRST_BYTES)).batches
        return bool(batches.count and batches.is_valid[0])

    # ---- By time ----

    def position_after_times_below(self, timestamp_ms: int) -> int:
        """The start of a batch before which all records are older; 0 in doubt.

        Raises:
            OSError: the log cannot be read.
        """
        entry = _in_index(self.time_index, lambda index: time_entry_below(index, timestamp_ms))
        return (None if entry is None else self._position_after(entry)) or 0

    def start_of(self, offset: int | None, timestamp_ms: int | None) -> int:
        """Where to begin reading for records from an offset and a time on; None for any.

        Raises:
            OSError: the log cannot be read.
        """
        return max(
            0 if offset is None else self.position_of(offset),
            0 if timestamp_ms is None else self.position_after_times_below(timestamp_ms),
        )

    def largest_timestamp(self) -> int | None:
        """The largest timestamp of the records; None if that takes reading much of the log.

        It is that of the time index's last entry, or of a record after the batch of that entry.

        Raises:
            OSError: the log cannot be read.
        """
        entry = _in_index(self.time_index, last_time_entry)
        position = None if entry is None else self._position_after(entry)
        if entry is None or position is None:
            return None
        if self.log.size_bytes - position > _MAX_BYTES_AFTER_LAST_ENTRY:
            return None
        after = self._largest_from(position)
        return None if after is None else max(entry.timestamp, after)

    def read_largest_timestamp(self) -> int | None:
        """The same from the records alone; None if some of them are damaged.

        Raises:
            OSError: the log cannot be read.
        """
        return self._largest_from(0)

    def is_true(self, entry: TimeIndexEntry) -> bool:
        """Whether the batch at the offset of a time index entry has its timestamp, by its header.

        Raises:
            OSError: the log cannot be read.
        """
        span = self.find_batch(self.base_offset + entry.relative_offset)
        return span is not None and span.max_timestamp_ms == entry.timestamp

    def _largest_from(self, position: int) -> int | None:
        largest = NO_TIMESTAMP
        for window in read_windows(self.log, position):
            if window.stop is not None and window.stop.problem is not None:
                return None
            found = _largest_timestamp(window)
            if found is None:
                return None
            largest = max(largest, found)
        return largest

    def _position_after(self, entry: TimeIndexEntry) -> int | None:
        """Where the batch of a time index entry ends; None if the entry is not true.

        The batch has to hold the entry's offset, and the largest time of its records has to be the
        entry's.
        """
        if entry.timestamp < 0 or entry.relative_offset < 0:
            return None
        offset = self.base_offset + entry.relative_offset
        start = self.position_of(offset)
        for window in read_windows(self.log, start, first_bytes=_FIRST_BYTES):
            batches = window.batches
            reaches = batches.last_offset >= offset
            row = int(np.argmax(reaches)) if reaches.any() else batches.count
            if not batches.is_valid[: row + 1].all():
                return None
            if row == batches.count:
                continue
            is_inside = int(batches.base_offset[row]) <= offset or int(batches.magic[row]) < 2
            batch = window.rows(slice(row, row + 1))
            if is_inside and _largest_timestamp(batch) == entry.timestamp:
                return int(batches.next_position[row])
            return None
        return None


def _in_index(path: Location, find: Callable[[ByteSource], Entry | None]) -> Entry | None:
    """What a lookup in an index finds; None if the index cannot be read."""
    try:
        with path.open_file() as index:
            return find(index)
    except OSError:
        return None


def _largest_timestamp(window: Window) -> int | None:
    """Of the records of a window, whatever headers claim; None if there is damage."""
    if not window.batches.is_valid.all():
        return None
    largest = NO_TIMESTAMP
    for step in expand_window(window, with_records=True):
        if isinstance(step, RecordColumns):
            if step.problems:
                return None
            largest = max(largest, int(step.timestamp.max(initial=NO_TIMESTAMP)))
        elif isinstance(step, MessageSet):
            if step.problem is not None:
                return None
            largest = max([largest, *(message.timestamp for message in step.messages)])
    return largest
