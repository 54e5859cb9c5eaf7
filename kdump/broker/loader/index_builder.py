"""Rebuild the indexes of a segment: decide, a window at a time, which batches get entries.

Follows ``LogSegment.recover``: a batch gets an entry if it starts more than
``index.interval.bytes`` after the last one that got an entry. With it, the time index gets an entry
if a larger timestamp was seen since its own last entry.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from kdump.broker.loader.indexes import NO_TIMESTAMP, InvalidOffset, OffsetIndexFile, TimeIndexFile
from kdump.formats.index_search import Column
from kdump.scan.batches import BatchColumns
from kdump.target.refusal import Refused


class IndexPlan(Struct, frozen=True):
    """The entries for the batches of one window.

    Attributes:
        count: how many batches are before the first one out of order; all if there is none.
        invalid: why that one is out of order.
        row: row of the batch, for each entry.
        offset: last offset of the batch, for each entry.
        position: of the batch, for each entry.
        timestamp: largest one so far, for each batch.
        timestamp_offset: last offset of the batch with that timestamp, for each batch.
        has_time: for each entry, whether the time index gets one as well.
    """

    count: int
    invalid: InvalidOffset | None
    row: Column
    offset: Column
    position: Column
    timestamp: Column
    timestamp_offset: Column
    has_time: np.ndarray[tuple[int], np.dtype[np.bool_]]

    @property
    def reach(self) -> int:
        """How many batches are examined: also the one out of order, which has a timestamp."""
        return self.count + (self.invalid is not None)


class IndexBuilder:
    """Collects entries, which :meth:`store` writes to the indexes at the end.

    Args:
        interval_bytes: ``index.interval.bytes``.
    """

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._last_position = 0
        self._largest = (NO_TIMESTAMP, base_offset)
        self._has_batches = False
        self._offset_entries: list[tuple[Column, Column]] = []
        self._offset_count = 0
        self._last_offset = base_offset
        self._time_entries: list[tuple[Column, Column]] = []
        self._time_count = 0
        self._last_time = (NO_TIMESTAMP, base_offset)

    @property
    def max_timestamp(self) -> tuple[int, int] | None:
        """The largest timestamp and its offset; None without a batch."""
        return self._largest if self._has_batches else None

    def plan(self, batches: BatchColumns) -> IndexPlan:
        """Decide which of these valid batches get entries. Changes nothing."""
        last_offset = batches.last_offset
        timestamp, timestamp_offset = self._largest_so_far(batches, last_offset)
        row = self._entry_rows(batches)
        offset = last_offset[row]
        count, invalid = batches.count, None
        before = np.concatenate(([self._last_offset], offset[:-1]))
        follows = offset > before
        if len(row) and not self._offset_count:
            follows[0] = True
        entries = len(row)
        if not follows.all():
            entries = int(np.argmin(follows))
            count = int(row[entries])
            invalid = InvalidOffset(int(offset[entries]), int(before[entries]))
        # Kafka checks the timestamp of a batch after its offset.
        has_time, time_invalid = self._time_entries_of(
            timestamp[row[:entries]], timestamp_offset[row[:entries]]
        )
        if time_invalid is not None:
            entries, invalid = time_invalid
            count = int(row[entries])
            entries += 1  # its offset entry was accepted
            has_time = has_time[:entries]
            has_time[-1] = False
        return IndexPlan(
            count=count,
            invalid=invalid,
            row=row[:entries],
            offset=offset[:entries],
            position=batches.position[row[:entries]],
            timestamp=timestamp,
            timestamp_offset=timestamp_offset,
            has_time=has_time,
        )

    def commit(
        self, plan: IndexPlan, count: int, offset_index: OffsetIndexFile, time_index: TimeIndexFile
    ) -> None:
        """Accept the entries that were planned for the first ``count`` batches.

        Raises:
            Refused: an index is full.
        """
        entries = int(np.searchsorted(plan.row, count))
        if count:
            self._has_batches = True
            self._largest = (int(plan.timestamp[count - 1]), int(plan.timestamp_offset[count - 1]))
        if not entries:
            return
        self._require_room(plan, entries, offset_index, time_index)
        self._offset_entries.append((plan.offset[:entries], plan.position[:entries]))
        self._offset_count += entries
        self._last_offset = int(plan.offset[entries - 1])
        self._last_position = int(plan.position[entries - 1])
        rows = plan.row[:entries][plan.has_time[:entries]]
        if len(rows):
            self._time_entries.append((plan.timestamp[rows], plan.timestamp_offset[rows]))
            self._time_count += len(rows)
            self._last_time = (int(plan.timestamp[rows[-1]]), int(plan.timestamp_offset[rows[-1]]))

    def store(self, offset_index: OffsetIndexFile, time_index: TimeIndexFile) -> None:
        """Write the entries to the indexes; to be called once."""
        for entries, index in (
            (self._offset_entries, offset_index),
            (self._time_entries, time_index),
        ):
            if entries:
                index.extend(
                    np.concatenate([first for first, _ in entries]),
                    np.concatenate([second for _, second in entries]),
                )

    def _largest_so_far(self, batches: BatchColumns, last_offset: Column) -> tuple[Column, Column]:
        timestamp, offset = self._largest
        highest = np.maximum.accumulate(np.concatenate(([timestamp], batches.max_timestamp)))
        rises = highest[1:] > highest[:-1]
        source = np.maximum.accumulate(np.where(rises, np.arange(batches.count), -1))
        of_largest = np.where(source < 0, offset, last_offset[source])
        return highest[1:], of_largest

    def _entry_rows(self, batches: BatchColumns) -> Column:
        """Which batches start more than the interval after the previous entry."""
        position = batches.position
        interval = self._interval_bytes
        first = int(np.searchsorted(position, self._last_position + interval, side="right"))
        if (batches.size_bytes[first:-1] > interval).all():
            return np.arange(first, batches.count)
        following = np.searchsorted(position, position + interval, side="right").tolist()
        rows = []
        row, count = first, batches.count
        while row < count:
            rows.append(row)
            row = following[row]
        return np.array(rows, np.int64)

    def _time_entries_of(
        self, timestamp: Column, offset: Column
    ) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], tuple[int, InvalidOffset] | None]:
        """Which entries the time index gets, and the first whose offset is lower than the last."""
        before = np.concatenate(([self._last_time[0]], timestamp[:-1]))
        is_news = timestamp > before
        news = np.flatnonzero(is_news)
        offsets = offset[news]
        last = np.concatenate(([self._last_time[1]], offsets[:-1]))
        goes_back = offsets < last
        if len(news) and not self._time_count:
            goes_back[0] = False
        if not goes_back.any():
            return is_news, None
        at = int(np.argmax(goes_back))
        return is_news, (int(news[at]), InvalidOffset(int(offsets[at]), int(last[at])))

    def _require_room(
        self,
        plan: IndexPlan,
        entries: int,
        offset_index: OffsetIndexFile,
        time_index: TimeIndexFile,
    ) -> None:
        if self._offset_count + entries > offset_index.room:
            raise Refused("the offset index is full", offset_index.name, "IllegalArgumentException")
        times = self._time_count + int(plan.has_time[: entries - 1].sum())
        if times >= time_index.room:
            raise Refused("the time index is full", time_index.name, "IllegalArgumentException")
