"""What the log cleaner knows of a log when it chooses the next one to clean.

Follows ``LogToClean``, and ``maxCompactionDelay`` and ``calculateCleanableBytes`` of
``LogCleanerManager``.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from kdump.broker.cleaner.cleanable_log import CompactedLog, SegmentFiles
from kdump.broker.cleaner.cleanable_range import CleanableRange, cleanable_range
from kdump.formats import message_set, record_batch
from kdump.formats.errors import FormatError
from kdump.scan.source import read_at
from kdump.target.refusal import Refused


class LogToClean(Struct, frozen=True):
    """The sizes and times by which the cleaner chooses (``LogToClean``).

    Attributes:
        cleanable: the range that a round would process, and what limits it.
        clean_bytes: of the segments that begin before the first dirty offset.
        cleanable_bytes: of the segments in the range; the one with the first dirty offset counts
            in both.
        held_bytes: of the later segments, without the active one: dirty, but not cleanable.
        active_bytes: of the active segment.
        earliest_dirty_timestamp_ms: the smallest of the largest timestamps of the first batches of
            the dirty segments; None without one above 0.
        compaction_delay_ms: since when ``max.compaction.lag.ms`` is exceeded; 0 if it is not.
        min_cleanable_ratio: ``min.cleanable.dirty.ratio``.
    """

    cleanable: CleanableRange
    clean_bytes: int
    cleanable_bytes: int
    held_bytes: int
    active_bytes: int
    earliest_dirty_timestamp_ms: int | None
    compaction_delay_ms: int
    min_cleanable_ratio: float

    @property
    def total_bytes(self) -> int:
        """What the ratio refers to: the cleaner ignores held segments and the active one."""
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float | None:
        """The dirty ratio; None if the cleaner ignores the log because it has no bytes."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else None

    @property
    def is_forced(self) -> bool:
        """Whether ``max.compaction.lag.ms`` is exceeded and there is something to clean."""
        return self.compaction_delay_ms > 0 and self.cleanable_bytes > 0

    @property
    def is_chosen(self) -> bool:
        """Whether the cleaner takes the log, in its turn."""
        ratio = self.cleanable_ratio
        return ratio is not None and (self.is_forced or ratio > self.min_cleanable_ratio)


def log_to_clean(log: CompactedLog, cleaner_offset: int | None) -> LogToClean:
    """Find what the cleaner knows of ``log``.

    Args:
        cleaner_offset: from ``cleaner-offset-checkpoint``; None if it has no line.

    Raises:
        Refused: Kafka fails on a damaged batch, and marks the partition as uncleanable.
        OSError: a file cannot be read.
    """
    cleanable = cleanable_range(log, cleaner_offset)
    first_dirty, end = cleanable.first_dirty_offset, cleanable.end_offset
    earliest_ms = _earliest_dirty_timestamp_ms(log, first_dirty)
    clean_until_ms = log.now_ms - max(log.settings.max_compaction_lag_ms, 0)
    is_late = earliest_ms is not None and earliest_ms < clean_until_ms
    return LogToClean(
        cleanable=cleanable,
        clean_bytes=_bytes(log.between(-1, first_dirty)),
        cleanable_bytes=_bytes(log.between(min(first_dirty, end), end)),
        held_bytes=_bytes(log.closed_from(end)),
        active_bytes=log.segments[-1].size_bytes,
        earliest_dirty_timestamp_ms=earliest_ms,
        compaction_delay_ms=clean_until_ms - earliest_ms if earliest_ms and is_late else 0,
        min_cleanable_ratio=log.settings.min_cleanable_dirty_ratio,
    )


def _bytes(segments: Sequence[SegmentFiles]) -> int:
    return sum(segment.size_bytes for segment in segments)


def _earliest_dirty_timestamp_ms(log: CompactedLog, first_dirty_offset: int) -> int | None:
    timestamps = (
        _first_batch_timestamp_ms(log, segment) for segment in log.closed_from(first_dirty_offset)
    )
    return min((each for each in timestamps if each is not None and each > 0), default=None)


def _first_batch_timestamp_ms(log: CompactedLog, segment: SegmentFiles) -> int | None:
    """Largest timestamp of the first batch; None if there is no batch, or it has no timestamp.

    Follows ``LogSegment.getFirstBatchTimestamp``, and the reader behind it
    (``FileLogInputStream.nextBatch``): only the header is read, and not verified.

    Raises:
        Refused: that reader fails.
        OSError: the log cannot be read.
    """
    name = segment.log_name
    with log.directory.open(name) as source:
        data = read_at(source, 0, record_batch.HEADER_BYTES)
        file_bytes = source.size_bytes
    if file_bytes <= record_batch.PREFIX_BYTES:
        return None
    length_bytes = data[record_batch.LENGTH_START : record_batch.LOG_OVERHEAD_BYTES]
    length = int.from_bytes(length_bytes, signed=True)
    if length < record_batch.MIN_LENGTH_BYTES:
        what = f"the first batch has the impossible length {length}"
        raise Refused(what, name, "CorruptRecordException", 0)
    if length > file_bytes - record_batch.LOG_OVERHEAD_BYTES:
        return None
    try:
        timestamp_ms = _header_timestamp_ms(data)
    except FormatError as problem:
        raise Refused(f"the first batch: {problem}", name, "KafkaException", 0) from None
    return None if timestamp_ms < 0 else timestamp_ms


def _header_timestamp_ms(data: bytes) -> int:
    """Timestamp in the header of a batch or message; a negative magic is one of a message.

    Raises:
        FormatError: the header is cut short, or Kafka does not read the magic.
    """
    magic = int.from_bytes(data[record_batch.MAGIC_START :][:1], signed=True)
    if magic < 2:
        return message_set.decode_header(data).timestamp
    return record_batch.decode_header(data).max_timestamp
