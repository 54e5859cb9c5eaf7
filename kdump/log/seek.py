"""Seek in the log of a segment by offset and by time, and trust no batch without its checksum.

Like :mod:`kdump.log.header_seek`, but an index entry counts only if the batch that it points to is
valid. Seeking by time follows ``LogSegment.findOffsetByTimestamp``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from kdump.formats.record_batch import NO_TIMESTAMP
from kdump.log.header_seek import HeaderSeekableLog, find_in_index
from kdump.log.headers import BatchSpan
from kdump.log.index_tail import TimeIndexEntry, last_time_entry, time_entry_below
from kdump.scan import compiled_loops
from kdump.scan.batches import Window, read_windows
from kdump.scan.records import RecordColumns
from kdump.scan.source import read_at
from kdump.scan.usual_batches import LARGEST_SMALL_LOG_BYTES, UnusualError, usual_batches
from kdump.scan.walk import MessageSet, expand_window

_OFFSETS_END: Final = 2**63
_FIRST_BYTES: Final = 16 << 10
"""Usually only the first batch is needed, or the next one."""
_MAX_BYTES_AFTER_LAST_ENTRY: Final = 1 << 20
"""The batch with the largest time is usually among the last: this bounds what is read after it."""


@dataclass(frozen=True, slots=True)
class SeekableLog(HeaderSeekableLog):
    """The log of a segment, and where its indexes are; checksums decide what counts."""

    def _is_trusted(self, span: BatchSpan) -> bool:
        """Whether the checksum of a batch holds."""
        batches = next(read_windows(self.log, span.position, first_bytes=_FIRST_BYTES)).batches
        return bool(batches.count and batches.is_valid[0])

    def position_after_times_below(self, timestamp_ms: int) -> int:
        """The start of a batch before which all records are older; 0 in doubt.

        Raises:
            OSError: the log cannot be read.
        """
        entry = find_in_index(self.time_index, lambda index: time_entry_below(index, timestamp_ms))
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
        entry = find_in_index(self.time_index, last_time_entry)
        if entry is not None and self.log.size_bytes <= LARGEST_SMALL_LOG_BYTES:
            data = read_at(self.log, 0, self.log.size_bytes)
            found = largest_timestamp_of_usual(data, self.base_offset, entry)
            if found is not None:
                return found
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


def largest_timestamp_of_usual(data: bytes, base_offset: int, entry: TimeIndexEntry) -> int | None:
    """As :meth:`SeekableLog.largest_timestamp`, of a small log; None if anything is unusual.

    Whatever the offset index says then, it leads to the batch that holds the entry's offset.

    Args:
        data: all of the log.
        base_offset: of the segment.
        entry: the last one of its time index.
    """
    largest = compiled_loops.largest_timestamps(data)
    if largest is None or entry.timestamp < 0 or entry.relative_offset < 0:
        return None
    offset = base_offset + entry.relative_offset
    last_offset, row_of_entry = -1, -1
    try:
        for row, (_, _, header) in enumerate(usual_batches(data, checksums=False)):
            if not last_offset < header[0] <= header[0] + header[6] < _OFFSETS_END:
                return None
            last_offset = header[0] + header[6]
            if row_of_entry < 0 and last_offset >= offset:
                if header[0] > offset or largest[row] != entry.timestamp:
                    return None
                row_of_entry = row
    except UnusualError:
        return None
    return max(largest[row_of_entry:]) if row_of_entry >= 0 else None


def _largest_timestamp(window: Window) -> int | None:
    """The largest timestamp of the records in a window, not of headers; None if it is damaged."""
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
