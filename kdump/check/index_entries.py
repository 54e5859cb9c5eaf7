"""Compare the entries of the offset and time index with the batches.

The entries are checked for what a reader needs to find the right record, not for what the newest
broker writes: brokers before 4.0 wrote other offsets and timestamps.

An entry (offset, position) of the offset index is used for lookups of every offset from its own up
to the next entry's. A reader starts at the position and takes the first batch that ends at or above
the offset (``LogSegment.translateOffset``). That is the right batch if and only if a batch begins
at the position and all batches before it end below the entry's offset. No entry may be above the
last offset of the segment; otherwise ``LogSegment.readNextOffset`` finds no batch and takes the
segment for empty.

An entry (timestamp, offset) of the time index is used in the same way for every timestamp from its
own up to the next entry's (``LogSegment.findOffsetByTimestamp``): all batches that end below its
offset must have smaller timestamps. The last timestamp must not be above all of the segment's;
otherwise a lookup searches this segment in vain and never the next one. That is checked in
:mod:`kdump.check.partition`.

The order of entries is checked elsewhere, so a part of a segment does not depend on earlier parts:
if the first entry past its end agrees with its batches, all later ones do.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kdump.check import invariants
from kdump.check.collector import Collector
from kdump.check.findings import Finding, Place
from kdump.formats.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from kdump.formats.offset_index import OffsetIndex
from kdump.formats.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from kdump.formats.time_index import TimeIndex
from kdump.scan.batches import BatchColumns, Column, Flags
from kdump.words import counted

_BELOW_ALL: Final = int(np.iinfo(np.int64).min)


def _rising(column: Column) -> Column:
    """The rows in the order of ``column``; a stable sort."""
    if (column[1:] >= column[:-1]).all():
        return np.arange(len(column))
    return np.argsort(column, kind="stable")


def _greatest_before(column: Column, first: int) -> Column:
    """The maximum of ``first`` and all values before each row, and after the last row."""
    greatest = np.empty(len(column) + 1, np.int64)
    greatest[0] = first
    greatest[1:] = column
    np.maximum.accumulate(greatest, out=greatest)
    return greatest


# ---- What each entry is compared with: once, for the entries of one segment and of many ----


def points_into_batch(position: Column, batch_position: Column, batch_end: Column) -> Flags:
    """Whether an entry of the offset index points into the middle of a batch.

    Args:
        position: of each entry.
        batch_position: where the last batch that begins at or below it begins.
        batch_end: where that batch ends.
    """
    is_inside: Flags = (batch_position < position) & (position < batch_end)
    return is_inside


def points_past_offset(
    position: Column, offset: Column, batch_position: Column, last_offset_before: Column
) -> Flags:
    """Whether an entry of the offset index points past the batch with its offset.

    Args:
        position: of each entry.
        offset: likewise.
        batch_position: as for :func:`points_into_batch`.
        last_offset_before: the greatest last offset before that batch.
    """
    is_past: Flags = (batch_position == position) & (offset <= last_offset_before)
    return is_past


def points_past_log(position: Column, log_bytes: int | Column) -> Flags:
    """Whether an entry of the offset index points past the end of the log."""
    is_past: Flags = position >= log_bytes
    return is_past


def is_above_log(offset: Column, last_offset: int | Column) -> Flags:
    """Whether an entry of the offset index is above the last offset of the segment."""
    is_above: Flags = offset > last_offset
    return is_above


def points_past_time(timestamp: Column, greatest_before: Column) -> Flags:
    """Whether an entry of the time index points past a batch of the same or a later time.

    Args:
        timestamp: of each entry.
        greatest_before: the greatest timestamp of the batches that end below its offset.
    """
    is_past: Flags = timestamp <= greatest_before
    return is_past


class OffsetEntries:
    """Compares the entries of an offset index with batches, which come in order.

    Args:
        index: without its padding.
        start: byte of the log at which the batches begin.
    """

    def __init__(self, path: str, index: OffsetIndex, start: int, into: Collector) -> None:
        self._path = path
        self._into = into
        self._slot = _rising(index.position)
        self._position = index.position[self._slot]
        self._offset = index.offset[self._slot]
        self._next = int(np.searchsorted(self._position, start))
        self._greatest_offset = _BELOW_ALL

    def check(self, batches: BatchColumns, end: int) -> None:
        """Check the entries that point before byte ``end``.

        Args:
            batches: valid batches, after those of the last call. The bytes between them are
                damaged; an entry that points there is not wrong.
            end: byte after the batches, and after damage that follows them.
        """
        first = self._next
        last = first + int(np.searchsorted(self._position[first:], end))
        self._next = last
        if not batches.count:
            return
        last_offset = batches.last_offset
        if first == last:
            self._greatest_offset = max(self._greatest_offset, int(last_offset.max()))
            return
        before = _greatest_before(last_offset, self._greatest_offset)
        self._greatest_offset = int(before[-1])
        position, offset = self._position[first:last], self._offset[first:last]
        row = np.searchsorted(batches.position, position, "right") - 1
        batch_position = batches.position[row]
        is_off = points_into_batch(position, batch_position, batches.next_position[row])
        for entry in np.flatnonzero(is_off).tolist():
            slot = int(self._slot[first + entry])
            self._into.add(
                invariants.OFFSET_INDEX_POSITION.finding(
                    Place(self._path, slot * OFFSET_ENTRY_BYTES, int(offset[entry])),
                    "an entry of the offset index points into the middle of a batch",
                    expected=f"byte {int(batches.position[row[entry]])}",
                    found=f"byte {int(position[entry])}",
                )
            )
        is_past = points_past_offset(position, offset, batch_position, before[row])
        for entry in np.flatnonzero(is_past).tolist():
            self._into.add(self._leads_past(first + entry, int(before[row[entry]])))

    def _leads_past(self, entry: int, last_offset_before: int) -> Finding:
        slot, offset = int(self._slot[entry]), int(self._offset[entry])
        return invariants.OFFSET_INDEX_OFFSET.finding(
            Place(self._path, slot * OFFSET_ENTRY_BYTES, offset),
            f"an entry of the offset index points past the batch that ends with offset"
            f" {last_offset_before}, to byte {int(self._position[entry])}",
            expected=f"an offset above {last_offset_before}",
            found=offset,
            loss=f"records from offset {offset} on, for lookups by offset",
        )

    def finish_part(self) -> None:
        """Check the first entry past the end of a part other than the last."""
        entry = self._next
        if entry < len(self._offset) and self._offset[entry] <= self._greatest_offset:
            self._into.add(self._leads_past(entry, self._greatest_offset))

    def finish(self, log_bytes: int, *, is_whole: bool) -> None:
        """Report the entries past the last batch of the log.

        Args:
            log_bytes: size of the log.
            is_whole: whether the part has no damage, which could hide the last batch.
        """
        count = int(np.count_nonzero(points_past_log(self._position, log_bytes)))
        first = len(self._position) - count
        if count:
            slot = int(self._slot[first])
            self._into.add(
                invariants.OFFSET_INDEX_POSITION.finding(
                    Place(self._path, slot * OFFSET_ENTRY_BYTES, int(self._offset[first])),
                    f"the offset index has {counted(count, 'entry', 'entries')} past the end of"
                    " the log",
                    expected=f"less than byte {log_bytes}",
                    found=f"byte {int(self._position[first])}",
                )
            )
        if not is_whole or self._greatest_offset == _BELOW_ALL:
            return
        above = np.flatnonzero(is_above_log(self._offset[:first], self._greatest_offset))
        if above.size:
            entry = int(above[0])
            self._into.add(
                invariants.OFFSET_INDEX_OFFSET.finding(
                    Place(
                        self._path,
                        int(self._slot[entry]) * OFFSET_ENTRY_BYTES,
                        int(self._offset[entry]),
                    ),
                    "an entry of the offset index is above the last offset of the segment:"
                    " a broker that looks for the end of the log treats the segment as empty",
                    expected=f"at most {self._greatest_offset}",
                    found=int(self._offset[entry]),
                )
            )


class TimeEntryCheck:
    """Compares the entries of a time index with batches, which come in order."""

    def __init__(self, path: str, index: TimeIndex, into: Collector) -> None:
        self._path = path
        self._into = into
        self._slot = _rising(index.offset)
        self._offset = index.offset[self._slot]
        self._timestamp = index.timestamp[self._slot]
        self._next = 0
        self._greatest_timestamp = _BELOW_ALL
        self._has_begun = False

    def check(self, batches: BatchColumns, *, is_first: bool) -> None:
        """Check the entries with offsets in ``batches``: valid ones, after those of the last call.

        Args:
            batches: of magic 2, or of 0 and 1, which do not tell where a compressed set begins.
            is_first: whether the segment begins with this part.
        """
        if not batches.count:
            return
        if not self._has_begun:
            self._has_begun = True
            if not is_first:
                # Entries before these belong to the previous part.
                self._next = int(np.searchsorted(self._offset, int(batches.base_offset[0])))
        before = _greatest_before(batches.max_timestamp, self._greatest_timestamp)
        self._greatest_timestamp = int(before[-1])
        last_offset = batches.last_offset
        first = self._next
        last = first + int(np.searchsorted(self._offset[first:], int(last_offset[-1]), "right"))
        self._next = last
        if first == last:
            return
        row = np.searchsorted(last_offset, self._offset[first:last])
        is_past = points_past_time(self._timestamp[first:last], before[row])
        for entry in np.flatnonzero(is_past).tolist():
            self._into.add(self._leads_past(first + entry, int(before[row[entry]])))

    def _leads_past(self, entry: int, timestamp_before: int) -> Finding:
        timestamp, offset = int(self._timestamp[entry]), int(self._offset[entry])
        return invariants.TIME_INDEX_ENTRY.finding(
            Place(self._path, int(self._slot[entry]) * TIME_ENTRY_BYTES, offset),
            "an entry of the time index points past a batch of the same or a later time",
            expected=f"a timestamp above {timestamp_before}, the greatest before offset {offset}",
            found=f"timestamp {timestamp} at offset {offset}",
            loss=f"records from timestamp {timestamp} on, for lookups by time",
        )

    def finish(self, *, is_first: bool, is_last: bool) -> None:
        """Check the entries past the last batch.

        Args:
            is_first: whether the segment begins with this part.
            is_last: whether the segment ends with this part, without damage; no entry may then
                be past it.
        """
        if not (self._has_begun or is_first):
            return  # without a batch, this part does not know its entries
        entry = self._next
        count = len(self._offset) - entry
        if not count:
            return
        if is_last:
            self._into.add(
                invariants.TIME_INDEX_ENTRY.finding(
                    Place(
                        self._path,
                        int(self._slot[entry]) * TIME_ENTRY_BYTES,
                        int(self._offset[entry]),
                    ),
                    f"the time index has {counted(count, 'entry', 'entries')} past the last batch",
                    expected="the offset of a batch",
                    found=f"timestamp {int(self._timestamp[entry])} at offset"
                    f" {int(self._offset[entry])}",
                )
            )
        elif self._timestamp[entry] <= self._greatest_timestamp:
            self._into.add(self._leads_past(entry, self._greatest_timestamp))
