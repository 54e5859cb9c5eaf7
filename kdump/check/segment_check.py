"""Check a part of a segment: its log byte by byte, and the index entries that point into it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from kdump.check import batches as batch_checks
from kdump.check.batches import SegmentScope, Surroundings
from kdump.check.collector import Collector
from kdump.check.index_entries import OffsetEntries, TimeEntryCheck
from kdump.check.index_files import check_offset_index, check_time_index, used_bytes
from kdump.check.part import ByteAccount, EpochRun, Level, SegmentPart
from kdump.check.records import BatchRecords, valid_control_batches
from kdump.formats import offset_index, record_batch, time_index
from kdump.formats.names import FileKind
from kdump.formats.offset_index import OffsetIndex
from kdump.formats.record_batch import LARGEST_RECORD_BYTES, NO_TIMESTAMP
from kdump.formats.time_index import TimeIndex
from kdump.scan.batches import (
    LARGEST_WINDOW_BYTES,
    WINDOW_BYTES,
    BatchColumns,
    Column,
    Flags,
    Stop,
    Window,
    new_buffer,
)
from kdump.scan.source import is_zero, read_at
from kdump.scan.walk import Skipped, walk_windows
from kdump.state.transactions.markers import NO_MARKERS, read_markers
from kdump.state.transactions.producer_events import EventBuilder
from kdump.storage.byte_source import ByteSource
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.check.part_statistics import PartStatisticsBuilder

_BEFORE_ALL: Final = -1
_WINDOW_BYTES: Final = LARGEST_WINDOW_BYTES
"""Larger than the windows of record readers, because there is less to do for each batch."""


def check_part(
    scope: SegmentScope,
    start: int,
    end: int | None,
    level: Level,
    now_ms: int,
    largest_record_bytes: int = LARGEST_RECORD_BYTES,
    *,
    with_statistics: bool = False,
) -> SegmentPart:
    """Check the batches of a segment that begin at or after byte ``start`` and before ``end``.

    Args:
        start: byte at which a batch begins.
        end: byte at which the next part begins; None for the last part.
        level: how far to go.
        with_statistics: whether the part has statistics.

    Raises:
        OSError: the log, or an index, cannot be read.
    """
    if scope.is_0_7:
        from kdump.check import log_0_7

        return log_0_7.check_segment(scope, level, with_statistics=with_statistics)
    with scope.log.open_file() as source:
        source.expected_end = source.size_bytes if end is None else end
        check = _PartCheck(scope, source, start, end, level, now_ms, largest_record_bytes)
        if with_statistics:
            # Imported here, because only a report asks for them.
            from kdump.check.part_statistics import PartStatisticsBuilder

            check.statistics = PartStatisticsBuilder()
        return check.run()


class _PartCheck:
    """The results of a part so far."""

    def __init__(
        self,
        scope: SegmentScope,
        source: ByteSource,
        start: int,
        end: int | None,
        level: Level,
        now_ms: int,
        largest_record_bytes: int,
    ) -> None:
        self.scope = scope
        self.source = source
        self.start = start
        self.limit = source.size_bytes if end is None else min(end, source.size_bytes)
        self.is_last = end is None
        self.level = level
        self.now_ms = now_ms
        self.findings = Collector()
        self.position = start
        self.valid_bytes = self.padding_bytes = self.damaged_bytes = 0
        self.batches = self.records = 0
        self.is_counted = True
        self.first_offset: int | None = None
        self.first_position: int | None = None
        self.last_offset: int | None = None
        self.valid_end = start
        self.max_offset = _BEFORE_ALL
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, -1
        self.epochs: list[EpochRun] = []
        self.events = EventBuilder()
        self.is_thinned = False
        self.starts_legacy = self.starts_damaged = self.is_after_damage = False
        self.has_legacy = self.has_untimed = self.has_transactions = False
        self.deep = BatchRecords(scope, self.findings, largest_record_bytes)
        self.offset_entries: OffsetEntries | None = None
        self.time_entries: TimeEntryCheck | None = None
        self.statistics: PartStatisticsBuilder | None = None

    def _take_indexes(self) -> ByteAccount:
        """Read the offset and time index; returns their account in the first part of a segment.

        Only the first part checks them as files; every part compares their entries with batches.
        """
        scope = self.scope
        offset_path = scope.file(FileKind.OFFSET_INDEX)
        time_path = scope.file(FileKind.TIME_INDEX)
        account = ByteAccount()
        offsets: OffsetIndex | None
        times: TimeIndex | None
        if self.start == 0:
            account, offsets = check_offset_index(offset_path, scope, self.findings)
            times_account, times = check_time_index(time_path, scope, self.findings)
            account += times_account
        else:
            used = scope.used_index_bytes or (
                used_bytes(offset_path, offset_index.ENTRY_BYTES),
                used_bytes(time_path, time_index.ENTRY_BYTES),
            )
            offsets = offset_index.decode(_read_first(offset_path, used[0]), scope.base_offset)
            times = time_index.decode(_read_first(time_path, used[1]), scope.base_offset)
        if offsets is not None and len(offsets.offset):
            self.offset_entries = OffsetEntries(
                str(offset_path), offsets, self.start, self.findings
            )
        if times is not None and len(times.offset):
            self.time_entries = TimeEntryCheck(str(time_path), times, self.findings)
        return account

    def run(self) -> SegmentPart:
        index_account = self._take_indexes()
        for step in self._steps():
            if isinstance(step, Window):
                self._take_window(step)
            else:
                self._take_skipped(step)
            if self.position >= self.limit:
                break
        self._finish_indexes()
        return SegmentPart(
            path=self.scope.path,
            start=self.start,
            end=self.position,
            findings=self.findings.findings(),
            account=ByteAccount(self.valid_bytes, self.padding_bytes, self.damaged_bytes),
            index_account=index_account,
            batches=self.batches,
            records=self.records if self.is_counted else None,
            not_decoded=self.deep.not_decoded,
            first_offset=self.first_offset,
            first_position=self.first_position,
            last_offset=self.last_offset,
            max_offset=None if self.max_offset == _BEFORE_ALL else self.max_offset,
            max_timestamp=self.max_timestamp,
            max_timestamp_offset=self.max_timestamp_offset,
            epochs=tuple(self.epochs),
            events=self.events.events(),
            is_thinned=self.is_thinned,
            starts_legacy=self.starts_legacy,
            has_legacy=self.has_legacy,
            has_untimed=self.has_untimed,
            has_transactions=self.has_transactions,
            starts_damaged=self.starts_damaged,
            ends_damaged=self.is_after_damage,
            statistics=None if self.statistics is None else self.statistics.result(),
        )

    def _finish_indexes(self) -> None:
        """Check the entries past the last batch of this part."""
        is_whole = not self.damaged_bytes
        if self.offset_entries is not None:
            if self.is_last:
                self.offset_entries.finish(self.source.size_bytes, is_whole=is_whole)
            else:
                self.offset_entries.finish_part()
        if self.time_entries is not None and (is_whole or not self.is_last):
            self.time_entries.finish(is_first=self.start == 0, is_last=self.is_last)

    def _steps(self) -> Iterator[Window | Skipped]:
        """Windows of batches, and the damaged bytes between them, up to the end of the part."""
        window_bytes = WINDOW_BYTES if self.level >= Level.DEEP else _WINDOW_BYTES
        size_bytes = min(window_bytes, self.source.size_bytes - self.start)
        steps = walk_windows(
            self.source,
            self.start,
            follow_bad=True,
            checksums=self.level > Level.QUICK,
            window_bytes=window_bytes,
            buffer=new_buffer(max(0, size_bytes)),
            # A batch may reach past it, and after damage there may be none that ends there.
            needed_end=self.limit,
        )
        return (step for step in steps if not isinstance(step, Stop))

    # ---- Batches ----

    def _take_window(self, window: Window) -> None:
        if int(window.batches.position[-1]) >= self.limit:
            window = window.rows(window.batches.position < self.limit)
        batches = good = window.batches
        if not batches.count:
            return
        end = int(batches.next_position[-1])
        last_offset = batches.last_offset
        is_usual = self._is_usual(batches)
        if not is_usual:
            window, good = self._check_each(window)
        if self.level >= Level.DEEP and good.count:
            window, good = self._check_records(window)
        if good.count:
            if good is not batches:
                last_offset = good.last_offset
            self._take_valid(window, last_offset, is_usual=is_usual)
        if self.offset_entries is not None:
            self.offset_entries.check(good, end)
        if self.statistics is not None:
            self.statistics.add(batches, good)
        self.is_after_damage = not good.count or int(good.next_position[-1]) != end
        self.position = end

    def _around(self, batches: BatchColumns) -> Surroundings:
        return Surroundings.in_segment(
            batches, self.scope, self.last_offset, self.valid_end, self.now_ms
        )

    def _is_usual(self, batches: BatchColumns) -> bool:
        """Whether all batches are of magic 2, without holes, and no check finds any of them."""
        if (batches.magic != 2).any():
            return False
        if (batches.records_count != batches.last_offset_delta + 1).any():
            return False
        around = self._around(batches)
        return not any(check.find(batches, around).any() for check in batch_checks.ALL)

    def _check_each(self, window: Window) -> tuple[Window, BatchColumns]:
        """Find batches that are damaged by themselves; returns the others."""
        window = batch_checks.more_records_than_offsets(window, self.scope, self.findings)
        good = window.batches
        for check in batch_checks.OF_ONE_BATCH:
            is_bad = check.report(good, self._around(good), self.scope, self.findings)
            if is_bad.any():
                window, good = self._set_aside(window, is_bad)
            if not good.count:
                break
        return window, good

    def _set_aside(self, window: Window, is_bad: Flags) -> tuple[Window, BatchColumns]:
        self.damaged_bytes += int(window.batches.size_bytes[is_bad].sum())
        window = window.rows(~is_bad)
        return window, window.batches

    def _check_records(self, window: Window) -> tuple[Window, BatchColumns]:
        """Decode all records; returns the batches without findings."""
        batches = window.batches
        is_legacy = batches.magic < 2
        is_bad = np.zeros(batches.count, np.bool_)
        new = np.flatnonzero(~is_legacy)
        if new.size:
            before = self.deep.records
            damaged = self.deep.check(
                window if new.size == batches.count else window.rows(~is_legacy)
            )
            is_bad[new[sorted(damaged)]] = True
            self.records += self.deep.records - before
            self.is_counted &= self.deep.not_decoded == 0
        for row in np.flatnonzero(is_legacy).tolist():
            count, is_damaged = self.deep.check_message_set(window, row)
            self.records += count or 0
            self.is_counted &= count is not None
            is_bad[row] = is_damaged
        if not is_bad.any():
            return window, batches
        return self._set_aside(window, is_bad)

    def _take_valid(self, window: Window, last_offset: Column, *, is_usual: bool) -> None:
        """Compare batches that are valid by themselves with each other and with the indexes."""
        batches = window.batches
        if self.first_offset is None:
            self.first_offset = int(batches.base_offset[0])
            self.first_position = int(batches.position[0])
            self.starts_damaged = self.first_position != self.start
            self.starts_legacy = bool(batches.magic[0] < 2)
        if not is_usual:
            self.has_legacy |= bool((batches.magic < 2).any())
            self.has_untimed |= bool((batches.magic < 1).any())
            self._check_offsets(batches)
        self.valid_bytes += int(batches.size_bytes.sum())
        self.batches += batches.count
        if self.level < Level.DEEP:
            self._count_records(batches)
        self.last_offset = int(last_offset[-1])
        self.valid_end = int(batches.next_position[-1])
        self.max_offset = max(
            self.max_offset, self.last_offset if is_usual else int(last_offset.max())
        )
        self._take_timestamps(batches)
        self._take_epochs(batches)
        self._take_producers(window, batches)
        if self.time_entries is not None:
            self.time_entries.check(batches, is_first=self.start == 0)

    def _count_records(self, batches: BatchColumns) -> None:
        """Count records by headers; that of a compressed message set does not have the number."""
        self.records += int(batches.counts.sum())
        self.is_counted &= not batches.is_compressed_set.any()

    def _check_offsets(self, batches: BatchColumns) -> None:
        around = self._around(batches)
        for check in batch_checks.AMONG_BATCHES:
            is_bad = check.report(batches, around, self.scope, self.findings)
            if check is batch_checks.OFFSET_ORDER and is_bad.any():
                # If offsets go back, lookups cannot work.
                self.time_entries = None
        has_holes = (batches.records_count != batches.last_offset_delta + 1) & (batches.magic >= 2)
        self.is_thinned |= bool(has_holes.any())

    def _take_timestamps(self, batches: BatchColumns) -> None:
        row = int(batches.max_timestamp.argmax())
        if int(batches.max_timestamp[row]) > self.max_timestamp:
            self.max_timestamp = int(batches.max_timestamp[row])
            self.max_timestamp_offset = int(batches.last_offset[row])

    def _take_epochs(self, batches: BatchColumns) -> None:
        epoch = batches.partition_leader_epoch
        before = self.epochs[-1].epoch if self.epochs else None
        if before is not None and (epoch == before).all():
            return
        changes = np.flatnonzero(epoch[1:] != epoch[:-1]) + 1
        rows = changes.tolist() if before == int(epoch[0]) else [0, *changes.tolist()]
        self.epochs.extend(
            EpochRun(int(epoch[row]), int(batches.base_offset[row]), int(batches.position[row]))
            for row in rows
            if batches.magic[row] >= 2
        )

    def _take_producers(self, window: Window, batches: BatchColumns) -> None:
        marked = batches.attributes & record_batch.OF_TRANSACTIONS
        markers = NO_MARKERS
        if marked.any():
            is_of_txn = marked.astype(np.bool_) & (batches.producer_id >= 0)
            self.has_transactions |= bool(is_of_txn.any())
            if self.level > Level.QUICK and not window.is_giant:
                rows = valid_control_batches(window, self.scope, self.findings)
                markers = read_markers(window, self.scope.path, rows)
        self.events.add(batches, markers)

    # ---- Bytes that are not a batch ----

    def _take_skipped(self, skipped: Skipped) -> None:
        if skipped.start >= self.limit:
            self.position = max(self.position, skipped.start)
            return
        head = read_at(self.source, skipped.start, record_batch.PREFIX_BYTES + 1)
        finding, is_padding = batch_checks.classify_bytes(
            head,
            skipped.start,
            skipped.end,
            self.source.size_bytes,
            is_zero=is_zero(self.source, skipped.start, skipped.end),
            scope=self.scope,
        )
        self.findings.add(finding)
        size = skipped.end - skipped.start
        if is_padding:
            self.padding_bytes += size
        else:
            self.damaged_bytes += size
            self.is_after_damage = True
        if self.statistics is not None:
            self.statistics.runs.add_bytes(skipped.start, skipped.end, is_padding=is_padding)
        self.position = skipped.end


def _read_first(path: Location, size_bytes: int) -> bytes:
    """The first bytes of an index; empty if it is missing."""
    try:
        with path.open_file() as file:
            return read_at(file, 0, size_bytes)
    except FileNotFoundError:
        return b""
