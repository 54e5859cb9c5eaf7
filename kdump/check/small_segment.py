"""Check a small segment in plain Python, as long as everything in it is as usual.

A log directory has tens of thousands of segments with a few batches each. For so few, each of the
hundred NumPy calls of :mod:`kdump.check.segment_check` costs more than what it computes: there, a
segment of four batches takes 430 microseconds, here 100.

Nothing here makes a finding. Whatever is not as usual, or could matter to a transaction, leaves the
segment to the check by columns, which says what it is. So both give the same result for every
segment.
"""

from __future__ import annotations

from typing import Final

from kdump.check import batches as batch_checks
from kdump.check.batches import SegmentScope
from kdump.check.part import ByteAccount, EpochRun, Level, SegmentPart
from kdump.formats import record_batch
from kdump.formats.fixed_layout import layout
from kdump.formats.index_layouts import OFFSET_ENTRY_FIELDS, TIME_ENTRY_FIELDS
from kdump.formats.names import FileKind
from kdump.formats.record_batch import NO_TIMESTAMP
from kdump.scan.source import read_at
from kdump.scan.usual_batches import UnusualError, usual_batches
from kdump.state.transactions.producer_events import BatchRun, EventBuilder
from kdump.storage.byte_source import ByteSource
from kdump.storage.location import Location

_LARGEST_INDEX_BYTES: Final = 4096
"""More than the entries of a small log take: preallocated space, which may be any size."""
_OFFSET_ENTRY: Final = layout(OFFSET_ENTRY_FIELDS)
_TIME_ENTRY: Final = layout(TIME_ENTRY_FIELDS)
_BEFORE_ALL: Final = -(2**63)
_OF_TRANSACTIONS: Final = record_batch.CONTROL_FLAG | record_batch.TRANSACTIONAL_FLAG


def check_small(
    scope: SegmentScope, source: ByteSource, level: Level, now_ms: int
) -> SegmentPart | None:
    """Check a whole segment and its indexes; None if anything in it is not as usual.

    Args:
        scope: the segment.
        source: its log, of at most ``LARGEST_SMALL_LOG_BYTES``.
        level: below ``DEEP``.
        now_ms: what time it is.

    Raises:
        OSError: the log, or an index, cannot be read.
    """
    try:
        log = _SmallLog(scope, source, level, now_ms)
        offset_index = _read(scope.file(FileKind.OFFSET_INDEX))
        log.check_offset_index(offset_index)
        time_index = _read(scope.file(FileKind.TIME_INDEX))
        last_indexed_ms = log.check_time_index(time_index)
    except UnusualError:
        return None
    return SegmentPart(
        path=scope.path,
        start=0,
        end=log.size_bytes,
        account=ByteAccount(log.size_bytes),
        index_account=ByteAccount(len(offset_index) + len(time_index)),
        batches=len(log.starts),
        records=log.records,
        first_offset=log.first_offset,
        first_position=0 if log.starts else None,
        last_offset=log.last_offsets[-1] if log.starts else None,
        max_offset=log.last_offsets[-1] if log.starts else None,
        max_timestamp=log.max_timestamp,
        max_timestamp_offset=log.max_timestamp_offset,
        epochs=tuple(log.epochs),
        events=log.events.events(),
        last_indexed_ms=last_indexed_ms,
    )


class _SmallLog:
    """The batches of a small log, each the usual successor of the one before.

    Raises:
        UnusualError: from the constructor and the checks.
    """

    def __init__(self, scope: SegmentScope, source: ByteSource, level: Level, now_ms: int) -> None:
        self.base_offset = scope.base_offset
        self.size_bytes = source.size_bytes
        self.starts: list[int] = []
        self.last_offsets: list[int] = []
        self.timestamps: list[int] = []
        """The maximum timestamp of each batch."""
        self.records = 0
        self.first_offset: int | None = None
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, -1
        self.epochs: list[EpochRun] = []
        self.events = EventBuilder()
        data = read_at(source, 0, self.size_bytes)
        if len(data) != self.size_bytes:
            raise UnusualError
        self._walk(data, with_checksums=level > Level.QUICK)
        self._check_limits(scope, now_ms)

    def _walk(self, data: bytes, *, with_checksums: bool) -> None:
        """Take all batches; there is nothing between and after them."""
        following_offset = self.base_offset
        for at, _, header in usual_batches(data, checksums=with_checksums):
            # fmt: off
            (
                base_offset, _, epoch, _, _, attributes, offset_delta,
                _, timestamp, producer_id, _, _, count,
            ) = header
            # fmt: on
            if (
                attributes & _OF_TRANSACTIONS
                or attributes & record_batch.CODEC_MASK > batch_checks.HIGHEST_CODEC
                or count <= 0
                or count != offset_delta + 1
                or (base_offset != following_offset if at else base_offset < following_offset)
            ):
                raise UnusualError
            last_offset = base_offset + offset_delta
            if not self.epochs or self.epochs[-1].epoch != epoch:
                self.epochs.append(EpochRun(epoch, base_offset, at))
            if producer_id >= 0:
                self.events.extend((BatchRun.of_batch(header, at),))
            if timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = timestamp, last_offset
            self.starts.append(at)
            self.last_offsets.append(last_offset)
            self.timestamps.append(timestamp)
            self.records += count
            if not at:
                self.first_offset = base_offset
            following_offset = last_offset + 1

    def _check_limits(self, scope: SegmentScope, now_ms: int) -> None:
        """Check the greatest offset and timestamp."""
        if not self.starts:
            return
        last_offset = self.last_offsets[-1]
        if (
            last_offset > batch_checks.GREATEST_OFFSET
            or last_offset - scope.base_offset > batch_checks.MOST_RELATIVE_OFFSET
            or (scope.next_base_offset is not None and last_offset >= scope.next_base_offset)
            or max(self.timestamps) > now_ms + batch_checks.CLOCK_SKEW_MS
        ):
            raise UnusualError

    def check_offset_index(self, data: bytes) -> None:
        """Check that each entry leads to the first batch that ends at or above its offset."""
        if len(data) % _OFFSET_ENTRY.size or _may_be_padded(data, _OFFSET_ENTRY.size):
            raise UnusualError
        rows = {start: row for row, start in enumerate(self.starts)} if data else {}
        offset_before = position_before = -1
        for relative_offset, position in _OFFSET_ENTRY.iter_unpack(data):
            offset = self.base_offset + relative_offset
            row = rows.get(position)
            if (
                row is None
                or relative_offset <= offset_before
                or position <= position_before
                or (row and offset <= self.last_offsets[row - 1])
                or offset > self.last_offsets[-1]
            ):
                raise UnusualError
            offset_before, position_before = relative_offset, position

    def check_time_index(self, data: bytes) -> int:
        """Check that no batch before an entry's offset is as late; returns the last timestamp."""
        if len(data) % _TIME_ENTRY.size or _may_be_padded(data, _TIME_ENTRY.size):
            raise UnusualError
        row, greatest = 0, _BEFORE_ALL
        offset_before, timestamp_before = 0, _BEFORE_ALL
        for timestamp, relative_offset in _TIME_ENTRY.iter_unpack(data):
            offset = self.base_offset + relative_offset
            if (
                relative_offset < offset_before
                or timestamp <= timestamp_before
                or not self.starts
                or offset > self.last_offsets[-1]
            ):
                raise UnusualError
            while self.last_offsets[row] < offset:
                greatest = max(greatest, self.timestamps[row])
                row += 1
            if timestamp <= greatest:
                raise UnusualError
            offset_before, timestamp_before = relative_offset, timestamp
        return timestamp_before if data else NO_TIMESTAMP


def _may_be_padded(data: bytes, entry_bytes: int) -> bool:
    """Whether an index ends in an entry of zeroes, as preallocated space does."""
    return bool(data) and not any(data[-entry_bytes:])


def _read(path: Location) -> bytes:
    """Read an index; empty if it is missing, which the check of the partition reports."""
    try:
        with path.open_file() as source:
            if source.size_bytes > _LARGEST_INDEX_BYTES:
                raise UnusualError
            return read_at(source, 0, source.size_bytes)
    except FileNotFoundError:
        return b""
