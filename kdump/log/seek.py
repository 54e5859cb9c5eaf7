"""Where in a segment's log to begin looking for an offset or a time, by its indexes.

An index is a hint: it may be stale, damaged, cut short, or another segment's. An entry counts only
after the batch that it leads to was looked at; where it does not hold, looking begins at the front.
That is slower, and never wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from kdump.formats.record_batch import NO_TIMESTAMP
from kdump.log.index_tail import TimeEntries, offset_entry_at_or_below, used_time_entries
from kdump.scan.batches import Window, read_windows
from kdump.scan.records import RecordColumns
from kdump.scan.walk import MessageSet, expand_window
from kdump.storage.byte_source import ByteSource
from kdump.storage.local_disk import local

_FIRST_BYTES: Final = 16 << 10
"""Mostly the first batch is all that is wanted, or the next one."""
_MOST_BEHIND_BYTES: Final = 1 << 20
"""The batch with the largest time is mostly among the last; what is read behind it is bounded."""


@dataclass(frozen=True, slots=True)
class IndexedLog:
    """The log of a segment, and where its indexes are if there are any.

    Attributes:
        log: its bytes.
        base_offset: of the segment.
        offset_index: the file.
        time_index: the file.
    """

    log: ByteSource
    base_offset: int
    offset_index: Path
    time_index: Path

    def position_of(self, offset: int) -> int:
        """The start of a batch before which all offsets are below ``offset``; 0 in doubt.

        An entry counts if a sound batch is where it leads to, and begins at ``offset`` or below:
        offsets rise in a log.

        Raises:
            OSError: the log cannot be read.
        """
        if offset <= self.base_offset:
            return 0
        try:
            with local(self.offset_index).open_file() as index:
                entry = offset_entry_at_or_below(index, offset - self.base_offset)
        except OSError:
            return 0
        if entry is None or not 0 < entry.position < self.log.size_bytes:
            return 0
        batch = _batch_at(self.log, entry.position)
        if batch is None:
            return 0
        is_there = self.base_offset <= int(batch.batches.base_offset[0]) <= offset
        return entry.position if is_there else 0

    def position_after_times_below(self, timestamp_ms: int) -> int:
        """The start of a batch before which all records are older; 0 in doubt.

        Raises:
            OSError: the log cannot be read.
        """
        entries = self._time_entries()
        if entries is None:
            return 0
        slot = int(np.searchsorted(entries.timestamp, timestamp_ms)) - 1
        if slot < 0:
            return 0
        position = self._position_behind(entries, slot)
        return 0 if position is None else position

    def largest_timestamp(self) -> int | None:
        """The largest timestamp of the records; None where that takes reading much of the log.

        By the last entry of the time index, and the records behind the batch that it names.

        Raises:
            OSError: the log cannot be read.
        """
        entries = self._time_entries()
        if entries is None or not len(entries.timestamp):
            return None
        position = self._position_behind(entries, -1)
        if position is None or self.log.size_bytes - position > _MOST_BEHIND_BYTES:
            return None
        behind = self._largest_behind(position)
        return None if behind is None else max(int(entries.timestamp[-1]), behind)

    def read_largest_timestamp(self) -> int | None:
        """The same from the records alone; None where some of them are damaged.

        Raises:
            OSError: the log cannot be read.
        """
        return self._largest_behind(0)

    def _largest_behind(self, position: int) -> int | None:
        largest = NO_TIMESTAMP
        for window in read_windows(self.log, position):
            stop = window.stop
            if stop is not None and stop.problem is not None:
                return None
            found = _largest_timestamp(window)
            if found is None:
                return None
            largest = max(largest, found)
        return largest

    def _time_entries(self) -> TimeEntries | None:
        """The entries before the padding; None where the index is no use."""
        try:
            with local(self.time_index).open_file() as index:
                entries = used_time_entries(index)
        except OSError:
            return None
        is_rising = (np.diff(entries.timestamp) > 0).all() and (np.diff(entries.offset) >= 0).all()
        is_inside = not len(entries.offset) or (
            entries.offset[0] >= 0 and entries.timestamp[0] >= 0
        )
        return entries if is_rising and is_inside else None

    def _position_behind(self, entries: TimeEntries, slot: int) -> int | None:
        """Where the batch ends that an entry of the time index names; None where it is another.

        It has to hold the entry's offset, and its records' largest time has to be the entry's.
        """
        offset = self.base_offset + int(entries.offset[slot])
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
            if is_inside and _largest_timestamp(batch) == int(entries.timestamp[slot]):
                return int(batches.next_position[row])
            return None
        return None


def _batch_at(log: ByteSource, position: int) -> Window | None:
    """The sound batch that begins at ``position``, and perhaps some behind it; None if none is."""
    window = next(read_windows(log, position, first_bytes=_FIRST_BYTES))
    batches = window.batches
    if not batches.count or not batches.is_valid[0]:
        return None
    return window if int(batches.last_offset[0]) >= int(batches.base_offset[0]) else None


def _largest_timestamp(window: Window) -> int | None:
    """Of the records in the batches of a window, headers unseen; None where there is damage."""
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
