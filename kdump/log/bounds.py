"""Where each partition's log begins and ends, in offsets and in time, as far as that is on disk.

Checkpoints say most of it. The rest is in a few entries of the indexes and in batch headers, so
that a directory of any size is looked over by a handful of small reads a partition.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from kdump.formats.names import FileKind, PartitionState
from kdump.formats.record_batch import NO_TIMESTAMP
from kdump.log.directory import Checkpoints, Offsets
from kdump.log.headers import BatchSpan, batch_span_at, batch_spans
from kdump.log.index_tail import (
    OffsetIndexEntry,
    TimeIndexEntry,
    last_offset_entry,
    last_time_entry,
    offset_entry_at_or_below,
)
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.storage.byte_source import ByteSource
from kdump.storage.local_disk import local

Found = TypeVar("Found")

NO_CHECKPOINTS: Final = Checkpoints()


@dataclass(frozen=True, slots=True)
class LogBounds:
    """What is known offline of a log; None for what is not.

    Attributes:
        log_start_offset: the larger of the first segment's base offset and what
            ``log-start-offset-checkpoint`` says, which is how a broker decides it.
        log_end_offset: the next offset to be written: one above the last batch that follows,
            header by header, from the last entry of the active segment's offset index, as a
            starting broker finds it. Checksums are not looked at: a recovering broker may end
            the log sooner. Without a segment, what ``recovery-point-offset-checkpoint`` says
            after a clean stop. Kafka 0.7: the position behind the last byte.
        gaps: how many segments begin after the end of the data before them, as far as batch
            headers tell.
        recovery_point: what ``recovery-point-offset-checkpoint`` says. A broker takes a
            partition that is not in it to have 0.
        high_watermark: what ``replication-offset-checkpoint`` says.
        earliest_timestamp_ms: of the first record of the first batch that reaches the log start
            offset, if that batch's header tells it.
        latest_timestamp_ms: the largest: of each segment by its time index's last entry, if the
            batch that it names has that time, and by the headers from the offset index's last
            entry on; by all of its headers where the time index does not hold.
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
        checkpoints: of the log directory that it is in; none for a partition on its own.
        is_clean: whether that directory was left by a clean stop.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    recovery_point = _checkpointed(checkpoints.recovery_points, partition)
    log_start_offset = _log_start_offset(
        partition, _checkpointed(checkpoints.log_start_offsets, partition)
    )
    ends = _find_ends(partition, recovery_point if is_clean else None)
    return LogBounds(
        log_start_offset=log_start_offset,
        log_end_offset=ends.log_end_offset,
        gaps=ends.gaps,
        recovery_point=recovery_point,
        high_watermark=_checkpointed(checkpoints.high_watermarks, partition),
        earliest_timestamp_ms=_earliest_timestamp(partition, log_start_offset),
        latest_timestamp_ms=ends.latest_timestamp_ms,
    )


def _checkpointed(offsets: Offsets | None, partition: Partition) -> int | None:
    """What a checkpoint says of a partition.

    A log on its way between directories stands in it under the partition's plain name; what is
    to be deleted, or was set aside, does not, and the name may by now be that of another log.
    """
    if offsets is None or partition.topic_partition is None:
        return None
    if partition.state in (PartitionState.DELETE, PartitionState.STRAY):
        return None
    return offsets.get(partition.topic_partition)


def _log_start_offset(partition: Partition, checkpointed: int | None) -> int | None:
    if not partition.segments:
        return checkpointed
    return max(partition.segments[0].base_offset, checkpointed or 0)


class _Ends(NamedTuple):
    """Where a log ends, and its segments do."""

    log_end_offset: int | None
    latest_timestamp_ms: int | None
    gaps: int


def _find_ends(partition: Partition, known_end: int | None) -> _Ends:
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
    tails = [_read_tail(partition, segment) for segment in segments]
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


class _Tail(NamedTuple):
    """The end of one segment."""

    end_offset: int
    latest_timestamp_ms: int


def _read_tail(partition: Partition, segment: Segment) -> _Tail:
    """The end of a segment: by its indexes' last entries, and the headers they lead to."""
    end, latest = segment.base_offset, NO_TIMESTAMP
    if not segment.log_bytes:
        return _Tail(end, latest)
    entry = None
    if segment.time_index_bytes:
        entry = _in_file(partition.segment_path(segment, FileKind.TIME_INDEX), last_time_entry)
    with local(partition.segment_path(segment, FileKind.LOG)).open_file() as log:
        start = _last_indexed_position(partition, segment, log)
        for span in batch_spans(log, start, segment.base_offset):
            end = span.last_offset + 1
            latest = max(latest, _time_of(span))
        if entry is not None and _is_named(partition, segment, log, entry):
            latest = max(latest, entry.timestamp)
        elif start and (entry is not None or latest != NO_TIMESTAMP):
            latest = max(map(_time_of, batch_spans(log, 0, segment.base_offset)), default=latest)
    return _Tail(end, latest)


def _time_of(span: BatchSpan) -> int:
    return NO_TIMESTAMP if span.max_timestamp_ms is None else span.max_timestamp_ms


def _is_named(
    partition: Partition, segment: Segment, log: ByteSource, entry: TimeIndexEntry
) -> bool:
    """Whether an entry of the time index has the offset and the largest time of one batch."""
    offset = segment.base_offset + entry.relative_offset
    start = _position_of(partition, segment, log, offset)
    for span in batch_spans(log, start, segment.base_offset):
        if span.last_offset >= offset:
            return _time_of(span) == entry.timestamp
    return False


def _last_indexed_position(partition: Partition, segment: Segment, log: ByteSource) -> int:
    """Where the batch of the offset index's last entry begins; 0 where that does not hold."""
    return _indexed_position(partition, segment, log, last_offset_entry)


def _position_of(partition: Partition, segment: Segment, log: ByteSource, offset: int) -> int:
    """Where to begin looking for ``offset``; 0 where no entry of the offset index holds."""
    relative_offset = offset - segment.base_offset
    return _indexed_position(
        partition, segment, log, lambda index: offset_entry_at_or_below(index, relative_offset)
    )


def _indexed_position(
    partition: Partition,
    segment: Segment,
    log: ByteSource,
    find: Callable[[ByteSource], OffsetIndexEntry | None],
) -> int:
    """Where the batch of an entry of the offset index begins, if that batch is there; else 0."""
    if not segment.offset_index_bytes:
        return 0
    entry = _in_file(partition.segment_path(segment, FileKind.OFFSET_INDEX), find)
    if entry is None or entry.position <= 0:
        return 0
    span = batch_span_at(log, entry.position)
    # Before Kafka 4 an entry could stand for several batches that were appended together: its
    # offset is then the last one's, its position the first one's.
    is_there = span is not None and (
        segment.base_offset <= span.base_offset <= segment.base_offset + entry.relative_offset
    )
    return entry.position if is_there else 0


def _earliest_timestamp(partition: Partition, log_start_offset: int | None) -> int | None:
    """Of the first record of the first batch that is not wholly below the log start offset."""
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
        with local(partition.segment_path(segment, FileKind.LOG)).open_file() as log:
            start = 0
            if segment.base_offset < log_start_offset:
                start = _position_of(partition, segment, log, log_start_offset)
            for span in batch_spans(log, start, segment.base_offset):
                if span.last_offset >= log_start_offset:
                    return span.first_timestamp_ms
    return None


def _in_file(path: Path, find: Callable[[ByteSource], Found]) -> Found:
    with local(path).open_file() as source:
        return find(source)
