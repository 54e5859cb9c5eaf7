"""What must hold between the entries of the offset and time index, and the batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kdump.check import invariants
from kdump.check.collector import Collector
from kdump.check.findings import Finding, Place
from kdump.formats.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from kdump.formats.offset_index import OffsetIndex
from kdump.formats.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from kdump.formats.time_index import TimeIndex
from kdump.scan.batches import BatchColumns, Column


def _rising(column: Column) -> Column:
    """The rows by what they have in ``column``, and in their order where that is the same."""
    if (column[1:] >= column[:-1]).all():
        return np.arange(len(column))
    return np.argsort(column, kind="stable")


class OffsetEntries:
    """Holds the entries of an offset index against batches that come in order.

    Args:
        path: of the index.
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

    def check(self, batches: BatchColumns, end: int) -> None:
        """Check the entries that lead to somewhere before byte ``end``.

        Args:
            batches: sound ones, those behind the last call's. What lies between them is damaged,
                which is not the fault of an entry that leads there.
            end: byte behind them, and behind damage that follows them.
        """
        first = self._next
        last = first + int(np.searchsorted(self._position[first:], end))
        self._next = last
        if first == last or not batches.count:
            return
        position, offset = self._position[first:last], self._offset[first:last]
        row = np.searchsorted(batches.position, position, "right") - 1
        is_inside = (row >= 0) & (position < batches.next_position[row])
        is_off = is_inside & (batches.position[row] != position)
        for entry in np.flatnonzero(is_off).tolist():
            slot = int(self._slot[first + entry])
            self._into.add(
                invariants.OFFSET_INDEX_POSITION.broken(
                    Place(self._path, slot * OFFSET_ENTRY_BYTES, int(offset[entry])),
                    "an entry of the offset index leads into the middle of a batch",
                    expected=f"byte {int(batches.position[row[entry]])}",
                    found=f"byte {int(position[entry])}",
                )
            )
        good = np.flatnonzero(is_inside & ~is_off)
        if good.size:
            self._check_offsets(batches, first + good, row[good], offset[good])

    def _check_offsets(
        self, batches: BatchColumns, entries: Column, row: Column, offset: Column
    ) -> None:
        last_offset = batches.last_offset
        is_bad = offset != last_offset[row]
        if not is_bad.any():
            return
        # Before Kafka 4 an entry could stand for several batches that were appended together:
        # its offset is then the last one's, its position the first one's.
        suspect = np.flatnonzero(is_bad)
        found = np.searchsorted(last_offset, offset[suspect])
        is_later = (offset[suspect] > last_offset[row[suspect]]) & (
            (found >= batches.count)
            | (last_offset[np.minimum(found, batches.count - 1)] == offset[suspect])
        )
        for place in suspect[~is_later].tolist():
            slot = int(self._slot[entries[place]])
            self._into.add(
                invariants.OFFSET_INDEX_OFFSET.broken(
                    Place(self._path, slot * OFFSET_ENTRY_BYTES, int(offset[place])),
                    "an entry of the offset index leads to a batch that does not end there",
                    expected=f"offset {int(last_offset[row[place]])}, as the batch at byte"
                    f" {int(batches.position[row[place]])}",
                    found=int(offset[place]),
                )
            )

    def finish(self, log_bytes: int) -> None:
        """Say of the entries that lead past the end of the log that they do."""
        first = int(np.searchsorted(self._position, log_bytes))
        count = len(self._position) - first
        if count:
            slot = int(self._slot[first])
            self._into.add(
                invariants.OFFSET_INDEX_POSITION.broken(
                    Place(self._path, slot * OFFSET_ENTRY_BYTES, int(self._offset[first])),
                    f"{count} entries of the offset index lead past the end of the log",
                    expected=f"less than byte {log_bytes}",
                    found=f"byte {int(self._position[first])}",
                )
            )


class TimeEntries:
    """Holds the entries of a time index against batches that come in order."""

    def __init__(self, path: str, index: TimeIndex, into: Collector) -> None:
        self._path = path
        self._into = into
        self._slot = _rising(index.offset)
        self._offset = index.offset[self._slot]
        self._timestamp = index.timestamp[self._slot]
        self._next = 0
        self._has_begun = False

    def check(self, batches: BatchColumns, *, is_first: bool, is_whole: bool) -> None:
        """Check the entries of the offsets in ``batches``, which are sound and behind the last.

        Args:
            batches: of magic 2, or 0 and 1, which do not say where a compressed set begins.
            is_first: whether the segment begins with this part.
            is_whole: whether there was no damage up to now, in which an offset may be.
        """
        if not batches.count:
            return
        if not self._has_begun:
            self._has_begun = True
            if not is_first:
                # What lies before is for the part before.
                self._next = int(np.searchsorted(self._offset, int(batches.base_offset[0])))
        first = self._next
        end = int(batches.last_offset[-1])
        last = first + int(np.searchsorted(self._offset[first:], end, "right"))
        self._next = last
        if first == last:
            return
        offset, timestamp = self._offset[first:last], self._timestamp[first:last]
        last_offset = batches.last_offset
        row = np.minimum(np.searchsorted(last_offset, offset), batches.count - 1)
        is_inside = (batches.base_offset[row] <= offset) | (batches.magic[row] < 2)
        is_bad = batches.max_timestamp[row] != timestamp
        is_bad = is_bad | ~is_inside if is_whole else is_bad & is_inside
        for entry in np.flatnonzero(is_bad).tolist():
            at = int(row[entry])
            expected = (
                f"timestamp {int(batches.max_timestamp[at])}, as the batch at offsets"
                f" {int(batches.base_offset[at])} to {int(last_offset[at])}"
                if is_inside[entry]
                else "the offset of a batch"
            )
            self._into.add(self._contradiction(first + entry, expected))

    def _contradiction(self, entry: int, expected: str) -> Finding:
        return invariants.TIME_INDEX_ENTRY.broken(
            Place(self._path, int(self._slot[entry]) * TIME_ENTRY_BYTES, int(self._offset[entry])),
            "an entry of the time index contradicts the batches",
            expected=expected,
            found=f"timestamp {int(self._timestamp[entry])} at offset {int(self._offset[entry])}",
        )

    def finish(self, *, is_first: bool) -> None:
        """Say of the entries with an offset behind the last batch that there is none."""
        if not (self._has_begun or is_first):
            return  # without a batch, this part does not know which entries are its own
        count = len(self._offset) - self._next
        if count:
            self._into.add(
                replace(
                    self._contradiction(self._next, "the offset of a batch"),
                    what=f"{count} entries of the time index lie behind the last batch",
                )
            )
