"""Check many small segments at once, over columns with the number of the segment beside each row.

A log directory has tens of thousands of segments with a few batches each. For so few, each of the
hundred NumPy calls of :mod:`kdump.check.segment_check` costs more than what it computes; for those
of fifty segments together it does not.

No invariant is stated here, and no finding is made. Every check of batches and of index entries is
asked which rows violate it, and a segment that has one is left to the check by windows, which asks
the same checks and describes what they find. So is what is not only headers: transactions, old
formats, and batches with fewer records than offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from kdump.check import batches as batch_checks
from kdump.check import index_entries, index_files
from kdump.check.batches import NO_END, SegmentScope, Surroundings, is_small
from kdump.check.index_files import CheckedEntries
from kdump.check.part import ByteAccount, EpochRun, Level, PartStatistics, SegmentPart
from kdump.formats import offset_index, record_batch, time_index
from kdump.formats.names import FileKind
from kdump.formats.record_batch import NO_TIMESTAMP
from kdump.scan.batches import BatchColumns, Column, Flags
from kdump.scan.joined_logs import JoinedBatches, read_joined
from kdump.state.transactions.producer_events import (
    BatchRun,
    EventBuilder,
    ProducerEvent,
    single_runs,
)
from kdump.storage.location import Location

MOST_SEGMENTS: Final = 128
"""So many are worth checking at once: their bytes have to fit into the CPU's cache."""
_OFFSET_INDEX: Final = FileKind.OFFSET_INDEX.value
_TIME_INDEX: Final = FileKind.TIME_INDEX.value
_SHIFT: Final = 32
"""Bits of an offset relative to a segment's base offset, which precede those of its number."""


class _Files(Struct, frozen=True):
    """The content of a segment's files; empty for an index that is missing."""

    log: bytes
    offset_index: bytes
    time_index: bytes


def check_small(
    scopes: Sequence[SegmentScope], level: Level, now_ms: int, *, with_statistics: bool = False
) -> list[SegmentPart | None]:
    """Check whole segments and their indexes; None for each that is left to the check by windows.

    Args:
        scopes: the segments; at most :data:`MOST_SEGMENTS` are worth it.
        level: how far to go.
        with_statistics: whether the parts have statistics.
    """
    found: list[SegmentPart | None] = [None] * len(scopes)
    if level >= Level.DEEP:
        return found
    read = {number: _read(scope) for number, scope in enumerate(scopes) if _may_be_plain(scope)}
    numbers = [number for number, files in read.items() if files is not None]
    if numbers:
        files = [each for each in read.values() if each is not None]
        checked = _SmallSegments([scopes[number] for number in numbers], files, level, now_ms)
        parts = checked.parts(with_statistics=with_statistics)
        for number, part in zip(numbers, parts, strict=True):
            found[number] = part
    return found


def _may_be_plain(scope: SegmentScope) -> bool:
    return scope.is_small and not scope.is_0_7


def _read(scope: SegmentScope) -> _Files | None:
    """The files of a segment; None if one is large, has an odd size or cannot be read."""
    folder, stem = scope.log.parent, scope.log.name.removesuffix(FileKind.LOG.value)
    try:
        log = scope.log.read_listed()
        by_offset = _read_index(folder / f"{stem}{_OFFSET_INDEX}")
        by_time = _read_index(folder / f"{stem}{_TIME_INDEX}")
    except OSError:
        return None
    if (
        not is_small(len(log), len(by_offset), len(by_time))
        or index_files.has_odd_size(by_offset, offset_index.ENTRY_BYTES)
        or index_files.has_odd_size(by_time, time_index.ENTRY_BYTES)
    ):
        return None
    return _Files(log, by_offset, by_time)


def _read_index(path: Location) -> bytes:
    """Read an index; empty if it is missing, which the check of the partition reports."""
    try:
        return path.read_listed()
    except FileNotFoundError:
        return b""


class _SmallSegments:
    """Segments, by their numbers, and which of them are left to the check by windows."""

    def __init__(
        self, scopes: Sequence[SegmentScope], files: Sequence[_Files], level: Level, now_ms: int
    ) -> None:
        self._scopes = scopes
        self._files = files
        self._joined = read_joined([each.log for each in files], checksums=level > Level.QUICK)
        self._is_left = ~self._joined.is_covered
        self._base_offset = np.array([each.base_offset for each in scopes], np.int64)
        batches, segment = self._joined.batches, self._joined.log
        self._first = np.searchsorted(segment, np.arange(len(scopes)))
        """The first row of each segment; of one without batches, that of the next."""
        self._end = np.append(self._first[1:], batches.count)
        self._last_offset = batches.last_offset
        if batches.count:
            self._check_batches(batches, segment, now_ms)
        self._is_left[self._entries_in_log()] = True
        self._is_left[self._entries_in_time()] = True

    def _check_batches(self, batches: BatchColumns, segment: Column, now_ms: int) -> None:
        ends = [
            NO_END if each.next_base_offset is None else each.next_base_offset
            for each in self._scopes
        ]
        is_first = np.ones(batches.count, np.bool_)
        is_first[1:] = segment[1:] != segment[:-1]
        around = Surroundings(
            self._base_offset[segment],
            np.array(ends, np.int64)[segment],
            np.where(
                is_first, batches.base_offset - 1, batch_checks.previous(self._last_offset, 0)
            ),
            np.where(is_first, 0, batch_checks.previous(batches.next_position, 0)),
            now_ms,
        )
        is_bad: Flags = batches.magic != record_batch.NEWEST_MAGIC
        is_bad |= batches.attributes & record_batch.OF_TRANSACTIONS != 0
        is_bad |= batches.records_count != batches.last_offset_delta + 1
        for check in batch_checks.ALL:
            is_bad |= check.find(batches, around)
        self._is_left[segment[is_bad]] = True

    def _entries(
        self, data: list[bytes], dtype: np.dtype[np.void], value: str
    ) -> tuple[CheckedEntries, Column]:
        """The entries of all indexes, and the number of the segment for each."""
        counts = [len(each) // dtype.itemsize for each in data]
        entries = np.frombuffer(b"".join(data), dtype)
        segment = np.repeat(np.arange(len(data)), counts)
        base_offset = self._base_offset[segment]
        is_first = np.ones(len(entries), np.bool_)
        is_first[1:] = segment[1:] != segment[:-1]
        offset = entries["relative_offset"] + base_offset
        return CheckedEntries(
            base_offset, is_first, offset, entries[value].astype(np.int64)
        ), segment

    def _entries_in_log(self) -> Column:
        """The segments whose offset index violates an invariant."""
        entries, segment = self._entries(
            [each.offset_index for each in self._files], offset_index.ENTRY_DTYPE, "position"
        )
        position, offset = entries.value, entries.offset
        is_bad = np.zeros(len(segment), np.bool_)
        if not len(segment):
            return segment
        for check in index_files.OF_OFFSET_INDEX:
            is_bad |= check.find(entries)
        log_bytes = np.array([len(each.log) for each in self._files], np.int64)
        is_bad |= index_entries.points_past_log(position, log_bytes[segment])
        if self._joined.batches.count:
            batches = self._joined.batches
            at = self._joined.begin[segment] + position
            row = np.searchsorted(self._joined.joined_position, at, "right") - 1
            begin, end = batches.position[row], batches.next_position[row]
            before = np.where(row > self._first[segment], self._last_offset[row - 1], -1)
            is_bad |= index_entries.points_into_batch(position, begin, end)
            is_bad |= index_entries.points_past_offset(position, offset, begin, before)
            last = self._last_offset[self._end[segment] - 1]
            is_bad |= index_entries.is_above_log(offset, last)
        return segment[is_bad]

    def _entries_in_time(self) -> Column:
        """The segments whose time index violates an invariant."""
        entries, segment = self._entries(
            [each.time_index for each in self._files], time_index.ENTRY_DTYPE, "timestamp"
        )
        if not len(segment):
            return segment
        is_bad = np.zeros(len(segment), np.bool_)
        for check in index_files.OF_TIME_INDEX:
            is_bad |= check.find(entries)
        row = np.searchsorted(
            self._rising(self._last_offset, self._joined.log),
            self._rising(entries.offset, segment),
        )
        is_past_end = row >= self._end[segment]
        greatest = _greatest_before(self._joined, row, segment)
        is_bad |= is_past_end | index_entries.points_past_time(entries.value, greatest)
        return segment[is_bad]

    def _rising(self, offset: Column, segment: Column) -> Column:
        """Numbers that rise as offsets do within a segment, and from segment to segment.

        That holds for offsets that an index can have, and so for all segments that are not left.
        """
        relative = np.clip(offset - self._base_offset[segment], 0, (1 << _SHIFT) - 1)
        rising: Column = (segment << _SHIFT) + relative
        return rising

    def parts(self, *, with_statistics: bool) -> list[SegmentPart | None]:
        """The result of each segment; None for those that are left."""
        batches, last_offset = self._joined.batches, self._last_offset.tolist()
        records = np.append(0, np.cumsum(batches.records_count)).tolist()
        base_offset = batches.base_offset.tolist()
        latest = _latest_rows(batches, self._joined.log, len(self._scopes)).tolist()
        max_timestamp = batches.max_timestamp.tolist()
        epochs, epoch_ends = _epoch_runs(batches, self._first, self._end)
        runs, run_ends = self._runs()
        found: list[SegmentPart | None] = []
        epoch, run = 0, 0
        for number, (scope, files, is_left, first, end) in enumerate(
            zip(
                self._scopes,
                self._files,
                self._is_left.tolist(),
                self._first.tolist(),
                self._end.tolist(),
                strict=True,
            )
        ):
            own_epochs, epoch = tuple(epochs[epoch : epoch_ends[number]]), epoch_ends[number]
            own_runs, run = runs[run : run_ends[number]], run_ends[number]
            if is_left:
                found.append(None)
                continue
            has_batch = end > first
            index_bytes = len(files.offset_index) + len(files.time_index)
            has_time = has_batch and max_timestamp[latest[number]] > NO_TIMESTAMP
            found.append(
                SegmentPart(
                    path=scope.path,
                    start=0,
                    end=len(files.log),
                    account=ByteAccount(len(files.log)),
                    index_account=ByteAccount(index_bytes),
                    batches=end - first,
                    records=records[end] - records[first],
                    first_offset=base_offset[first] if has_batch else None,
                    first_position=0 if has_batch else None,
                    last_offset=last_offset[end - 1] if has_batch else None,
                    max_offset=last_offset[end - 1] if has_batch else None,
                    max_timestamp=max_timestamp[latest[number]] if has_time else NO_TIMESTAMP,
                    max_timestamp_offset=last_offset[latest[number]] if has_time else -1,
                    epochs=own_epochs,
                    events=_events(own_runs),
                    last_indexed_ms=_last_indexed_ms(files.time_index),
                    statistics=self._statistics(first, end) if with_statistics else None,
                )
            )
        return found

    def _statistics(self, first: int, end: int) -> PartStatistics:
        """Those of a segment, whose batches are rows of the columns."""
        # Imported here, because only a report asks for them.
        from kdump.check.part_statistics import PartStatisticsBuilder

        builder = PartStatisticsBuilder()
        if first < end:
            batches = self._joined.batches.rows(slice(first, end))
            builder.add(batches, batches)
        return builder.result()

    def _runs(self) -> tuple[list[BatchRun], list[int]]:
        """The runs of producers, each of one batch, and where those of each segment end."""
        batches = self._joined.batches
        rows = np.flatnonzero(batches.producer_id >= 0)
        ends = np.searchsorted(rows, self._end).tolist()
        return (single_runs(batches, rows) if rows.size else []), ends


def _events(runs: list[BatchRun]) -> tuple[ProducerEvent, ...]:
    if len(runs) < 2:
        return tuple(runs)
    builder = EventBuilder()
    builder.extend(runs)
    return builder.events()


def _greatest_before(joined: JoinedBatches, row: Column, segment: Column) -> Column:
    """The greatest timestamp of the batches of a segment before each row."""
    timestamp = joined.batches.max_timestamp
    least = np.iinfo(np.int64).min
    if not len(timestamp):
        return np.full(len(row), least)
    values, rank = np.unique(timestamp, return_inverse=True)
    # The ranks of a segment are above those of all segments before it.
    greatest = np.maximum.accumulate(joined.log * len(values) + rank)
    before = greatest[row - 1]
    is_own = (row > 0) & (joined.log[row - 1] == segment)
    return np.where(is_own, values[before % len(values)], least)


def _latest_rows(batches: BatchColumns, segment: Column, count: int) -> Column:
    """The first row with the maximum timestamp of each segment; 0 for one without batches."""
    greatest = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(greatest, segment, batches.max_timestamp)
    # Of several rows, the last assignment counts.
    rows = np.flatnonzero(batches.max_timestamp == greatest[segment])[::-1]
    latest = np.zeros(count, np.int64)
    latest[segment[rows]] = rows
    return latest


def _epoch_runs(
    batches: BatchColumns, first: Column, end: Column
) -> tuple[list[EpochRun], list[int]]:
    """The runs of leader epochs, and where those of each segment end."""
    epoch = batches.partition_leader_epoch
    begins = np.zeros(batches.count, np.bool_)
    begins[1:] = epoch[1:] != epoch[:-1]
    begins[first[first < end]] = True
    rows = np.flatnonzero(begins)
    runs = map(
        EpochRun,
        epoch[rows].tolist(),
        batches.base_offset[rows].tolist(),
        batches.position[rows].tolist(),
    )
    return list(runs), np.searchsorted(rows, end).tolist()


def _last_indexed_ms(time_entries: bytes) -> int:
    if not time_entries:
        return NO_TIMESTAMP
    last = time_entries[-time_index.ENTRY_BYTES :][:8]
    return int.from_bytes(last, "big", signed=True)
