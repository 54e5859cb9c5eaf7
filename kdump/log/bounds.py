"""Find where a log begins and ends, in offsets and in time.

Most bounds are in the checkpoints. The rest are in a few index entries and batch headers, so each
partition takes only a few small reads.
"""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass
from typing import Final, NamedTuple

from kdump.formats.names import FileKind, PartitionState
from kdump.formats.record_batch import NO_TIMESTAMP
from kdump.log.directory import Checkpoints, Offsets
from kdump.log.header_seek import HeaderSeekableLog
from kdump.log.headers import BatchSpan, batch_spans, end_after, spans_of_whole
from kdump.log.index_tail import last_time_entry
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.storage.location import Location, StoredFile

NO_CHECKPOINTS: Final = Checkpoints()
_LARGEST_SMALL_LOG_BYTES: Final = 16 << 10
"""Larger logs may have so many batches that their indexes are faster."""


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The bounds of a log; None for what is not known.

    Attributes:
        log_start_offset: the larger of the first segment's base offset and what
            ``log-start-offset-checkpoint`` says, which is how a broker decides it.
        log_end_offset: the next offset to be written: one above the last batch that is reached,
            header by header, from the last entry of the active segment's offset index, as a
            starting broker finds it. Checksums are not verified: a recovering broker may end the
            log sooner. Without a segment, what ``recovery-point-offset-checkpoint`` says after a
            clean shutdown. Kafka 0.7: the position after the last byte.
        gaps: how many segments begin after the end of the data before them, as far as batch
            headers tell.
        recovery_point: what ``recovery-point-offset-checkpoint`` says. For a partition that is
            not in it, a broker uses 0.
        high_watermark: what ``replication-offset-checkpoint`` says.
        earliest_timestamp_ms: of the first record of the first batch that reaches the log start
            offset, if the header of that batch says it.
        latest_timestamp_ms: the largest. Of each small segment: all headers. Of others: the last
            time index entry, if its batch has that time, and the headers after the last offset
            index entry; all headers if the time index is wrong.
    """

    log_start_offset: int | None
    log_end_offset: int | None
    gaps: int
    recovery_point: int | None
    high_watermark: int | None
    earliest_timestamp_ms: int | None
    latest_timestamp_ms: int | None


def read_bounds(
    partition: Partition, checkpoints: Checkpoints = NO_CHECKPOINTS, *, is_clean: bool = False
) -> LogBounds:
    """Find the bounds of a partition's log.

    Args:
        partition: the partition.
        checkpoints: of its log directory; none for a partition on its own.
        is_clean: whether that directory has a clean shutdown marker.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    recovery_point = checkpointed(checkpoints.recovery_points, partition)
    log_start_offset = find_log_start(
        partition, checkpointed(checkpoints.log_start_offsets, partition)
    )
    small = _SmallLogs(partition)
    ends = _find_ends(partition, recovery_point if is_clean else None, small)
    return LogBounds(
        log_start_offset=log_start_offset,
        log_end_offset=ends.log_end_offset,
        gaps=ends.gaps,
        recovery_point=recovery_point,
        high_watermark=checkpointed(checkpoints.high_watermarks, partition),
        earliest_timestamp_ms=_earliest_timestamp(partition, log_start_offset, small),
        latest_timestamp_ms=ends.latest_timestamp_ms,
    )


def checkpointed(offsets: Offsets | None, partition: Partition) -> int | None:
    """Return the offset of a partition in a checkpoint.

    A log that moves between directories is in it by the plain name of its partition. A deleted or
    stray log is not: its name may now be that of another log.
    """
    if offsets is None or partition.topic_partition is None:
        return None
    if partition.state in (PartitionState.DELETE, PartitionState.STRAY):
        return None
    return offsets.get(partition.topic_partition)


def find_log_start(partition: Partition, checkpointed_offset: int | None) -> int | None:
    """Return where a log begins: its first segment or the checkpoint, whichever is larger."""
    if not partition.segments:
        return checkpointed_offset
    return max(partition.segments[0].base_offset, checkpointed_offset or 0)


class _Ends(NamedTuple):
    """Where a log and its segments end."""

    log_end_offset: int | None
    latest_timestamp_ms: int | None
    gaps: int


class _SmallLogs:
    """The batches of a partition's small logs; each is read once.

    One read has all headers of a small log. Finding the last ones by its indexes takes several, in
    three files.

    Args:
        partition: the partition.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._first: tuple[Segment, list[BatchSpan] | None] | None = None

    def spans(self, segment: Segment) -> list[BatchSpan] | None:
        """Return the batches of a log; None if it is not small, or has anything else.

        Raises:
            OSError: it cannot be read.
        """
        if segment.is_0_7 or not 0 < segment.log_bytes <= _LARGEST_SMALL_LOG_BYTES:
            return None
        if self._first is not None and self._first[0] is segment:
            return self._first[1]
        data = self._partition.segment_path(segment, FileKind.LOG).read_listed()
        found = spans_of_whole(data, segment.base_offset)
        if self._first is None:
            # Only that of the first segment is asked for again, for the earliest timestamp.
            self._first = segment, found
        return found


def _find_ends(partition: Partition, known_end: int | None, small: _SmallLogs) -> _Ends:
    if not partition.segments:
        return _Ends(known_end, None, 0)
    active = partition.segments[-1]
    if active.is_0_7:
        gaps = sum(
            following.base_offset > segment.base_offset + segment.log_bytes
            for segment, following in itertools.pairwise(partition.segments)
        )
        return _Ends(active.base_offset + active.log_bytes, None, gaps)
    segments = [each for each in partition.segments if each.log_bytes or each is active]
    tails = [_segment_end(partition, segment, small) for segment in segments]
    gaps = sum(
        following.base_offset > tail.end_offset
        for tail, following in zip(tails, segments[1:], strict=False)
    )
    latest = max(tail.latest_timestamp_ms for tail in tails)
    return _Ends(
        tails[-1].end_offset,
        None if latest == NO_TIMESTAMP else latest,
        gaps,
    )


class SegmentEnd(NamedTuple):
    """The end of one segment.

    Attributes:
        end_offset: after its last batch; its base offset if it is empty.
        latest_timestamp_ms: the largest; ``NO_TIMESTAMP`` for none.
    """

    end_offset: int
    latest_timestamp_ms: int


def read_segment_end(partition: Partition, segment: Segment) -> SegmentEnd:
    """Find the end of a segment by the last index entries and the headers after them.

    Of a small segment, all headers are read.

    Raises:
        OSError: a file of the segment cannot be read.
    """
    return _segment_end(partition, segment, _SmallLogs(partition))


def _segment_end(partition: Partition, segment: Segment, small: _SmallLogs) -> SegmentEnd:
    if segment.is_0_7:
        return SegmentEnd(segment.base_offset + segment.log_bytes, NO_TIMESTAMP)
    end, latest = segment.base_offset, NO_TIMESTAMP
    if not segment.log_bytes:
        return SegmentEnd(end, latest)
    spans = small.spans(segment)
    if spans:
        return SegmentEnd(spans[-1].last_offset + 1, max(map(_time_of, spans)))
    entry = None
    index_path = partition.segment_path(segment, FileKind.OFFSET_INDEX)
    time_path = partition.segment_path(segment, FileKind.TIME_INDEX)
    # Without an offset index all headers are read, which the time index adds nothing to.
    if segment.time_index_bytes and segment.offset_index_bytes:
        with time_path.open_file() as index:
            entry = last_time_entry(index)
    with (
        partition.segment_path(segment, FileKind.LOG).open_file() as log,
        _opened(index_path if segment.offset_index_bytes else None) as offset_index,
    ):
        seekable = HeaderSeekableLog(log, segment.base_offset, index_path, time_path, offset_index)
        start = seekable.last_indexed_position() if segment.offset_index_bytes else 0
        reached = start
        for span in batch_spans(log, start, segment.base_offset):
            end, reached = span.last_offset + 1, span.next_position
            latest = max(latest, _time_of(span))
        end = end_after(log, reached, end)
        if entry is not None and seekable.is_true(entry):
            latest = max(latest, entry.timestamp)
        elif start and (entry is not None or latest != NO_TIMESTAMP):
            latest = max(map(_time_of, batch_spans(log, 0, segment.base_offset)), default=latest)
    return SegmentEnd(end, latest)


def _opened(path: Location | None) -> contextlib.AbstractContextManager[StoredFile | None]:
    """The offset index, open for two lookups; None for an empty one, and if that fails."""
    if path is not None:
        with contextlib.suppress(OSError):
            return path.open_file()
    return contextlib.nullcontext()


def _time_of(span: BatchSpan) -> int:
    return NO_TIMESTAMP if span.max_timestamp_ms is None else span.max_timestamp_ms


def _earliest_timestamp(
    partition: Partition, log_start_offset: int | None, small: _SmallLogs
) -> int | None:
    """Return the timestamp of the first record in the first batch that reaches the log start."""
    if log_start_offset is None:
        return None
    segments = partition.segments
    first = max(
        (i for i, segment in enumerate(segments) if segment.base_offset <= log_start_offset),
        default=0,
    )
    for segment in segments[first:]:
        if segment.is_0_7:
            return None
        if not segment.log_bytes:
            continue
        spans = small.spans(segment)
        if spans is None:
            with partition.segment_path(segment, FileKind.LOG).open_file() as log:
                seekable = HeaderSeekableLog.of_segment(partition, segment, log)
                span = seekable.find_batch(log_start_offset)
        else:
            reaching = (span for span in spans if span.last_offset >= log_start_offset)
            span = next(reaching, None)
        if span is not None:
            return span.first_timestamp_ms
    return None
