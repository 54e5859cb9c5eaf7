"""Find where a log begins and ends, in offsets and in time.

Most bounds are in the checkpoints. The rest are in a few index entries and batch headers, so each
partition takes only a few small reads.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from kdump.formats import names
from kdump.formats.names import FileKind, misnamed_base_offset
from kdump.formats.record_batch import NO_TIMESTAMP
from kdump.log.directory import Checkpoints, LogDirectory
from kdump.log.headers import BatchSpan, batch_span_at, batch_spans, spans_of_whole
from kdump.log.index_tail import TRANSACTION_ENTRY, last_slot, last_time_entry
from kdump.log.log_search import SegmentEnd, SegmentSearch, Trust, checkpointed, find_log_start
from kdump.log.partition import LeftoverKind, Partition
from kdump.log.segment import Segment

NO_CHECKPOINTS: Final = Checkpoints()
_SWAP: Final = LeftoverKind.SWAP
_LARGEST_SMALL_LOG_BYTES: Final = 16 << 10
"""Larger logs may have so many batches that their indexes are faster."""


class LogBounds(Struct, frozen=True):
    """The bounds of a log; None for what is not known.

    Attributes:
        log_start_offset: the larger of the first segment's base offset and what
            ``log-start-offset-checkpoint`` says, which is how a broker decides it.
        log_end_offset: the next offset to be written: one above the last batch that is reached,
            header by header, from the last entry of the active segment's offset index, as a
            starting broker finds it. Checksums are not verified: a recovering broker may end the
            log sooner. Without a segment, what ``recovery-point-offset-checkpoint`` says after a
            clean shutdown. Kafka 0.7: the position after the last byte.
        is_end_certain: whether a starting broker ends the log there, too. After an unclean shutdown
            that depends on checksums, which are not verified here; and so does the log of the
            cluster's metadata. Otherwise it depends on the active segment's offset index.
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
    is_end_certain: bool
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
        is_end_certain=is_clean and _is_end_of_clean_load(partition, ends, log_start_offset, small),
        gaps=ends.gaps,
        recovery_point=recovery_point,
        high_watermark=checkpointed(checkpoints.high_watermarks, partition),
        earliest_timestamp_ms=_earliest_timestamp(partition, log_start_offset, small),
        latest_timestamp_ms=ends.latest_timestamp_ms,
    )


def is_certain_end(
    partition: Partition, end_offset: int, log_start_offset: int | None, *, is_clean: bool
) -> bool:
    """Whether a starting broker ends a log at an offset that was found by other means.

    It is what :attr:`LogBounds.is_end_certain` is for the end that :func:`read_bounds` finds, and
    reads only the end of the active segment.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    if not is_clean or not partition.segments or partition.is_0_7:
        return False
    active = partition.segments[-1]
    # Without the index all headers would be read, for nothing.
    if active.offset_index_bytes is None:
        return False
    with SegmentSearch.of(partition, active, Trust.LENGTHS) as search:
        end = search.end()
    ends = _Ends(end.offset, None, 0, end)
    is_certain = _is_end_of_clean_load(partition, ends, log_start_offset, _SmallLogs(partition))
    return is_certain and end.offset == end_offset


def deleted_up_to(partition: Partition) -> int | None:
    """Find up to where records of a log were deleted by its leader epochs; None if they do not say.

    When records are deleted, a broker lets the first epoch begin at the new log start offset. So
    the first batch of the log is of an epoch that begins after it, or was forgotten.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    entries = partition.known_leader_epochs()
    segment = next((each for each in partition.segments if each.log_bytes), None)
    if not entries or segment is None or segment.is_0_7:
        return None
    with partition.segment_path(segment, FileKind.LOG).open_file() as log:
        first = batch_span_at(log, 0)
    start_offset = min(entry.start_offset for entry in entries)
    if first is None or not first.base_offset < start_offset:
        return None
    return start_offset if 0 <= first.leader_epoch <= entries[0].epoch else None


def has_lost_log_starts(directory: LogDirectory) -> bool:
    """Whether the log start offset checkpoint has no bytes: a broker writes at least a header.

    It creates the file without any, and reads it as one without lines.

    Raises:
        OSError: the file cannot be read.
    """
    offsets = directory.checkpoints.log_start_offsets
    path = directory.path / names.LOG_START_OFFSET_CHECKPOINT
    return offsets is not None and not offsets and not path.read()


class Extent(NamedTuple):
    """How much of a log is there, as far as few reads tell; the greater one has more.

    Attributes:
        less_in_gaps: the number of offsets between the end of a segment and the next one, negative.
        batch_bytes: up to the last batch of each segment.
    """

    less_in_gaps: int
    batch_bytes: int


def read_extent(partition: Partition) -> Extent:
    """Find out how much of a log is there by the end of each segment.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    small = _SmallLogs(partition)
    segments = [each for each in partition.segments if each.log_bytes]
    tails = [_segment_end(partition, segment, small) for segment in segments]
    return Extent(-sum(_gaps(segments, tails)), sum(tail.position for tail in tails))


class _Ends(NamedTuple):
    """Where a log and its segments end."""

    log_end_offset: int | None
    latest_timestamp_ms: int | None
    gaps: int
    active: SegmentEnd | None = None


class _SmallLogs:
    """The batches of a partition's small logs; each is read once.

    One read has all headers of a small log. Finding the last ones by its indexes takes several, in
    three files.
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
    gaps = len(_gaps(segments, tails))
    latest = max(tail.timestamp for tail in tails)
    return _Ends(tails[-1].offset, None if latest == NO_TIMESTAMP else latest, gaps, tails[-1])


def _gaps(segments: Sequence[Segment], ends: Iterable[SegmentEnd]) -> list[int]:
    """How many offsets are in each gap between the end of a segment and the next one."""
    between = zip(ends, segments[1:], strict=False)
    sizes = (following.base_offset - end.offset for end, following in between)
    return [size for size in sizes if size > 0]


def _is_end_of_clean_load(
    partition: Partition, ends: _Ends, log_start_offset: int | None, small: _SmallLogs
) -> bool:
    """Whether a broker that does not recover the log ends it where its batches end.

    It reads from the last entry of the active segment's offset index, whatever that says, and
    recovers a segment whose index is missing (``LogSegment.sanityCheck``, ``readNextOffset``).
    """
    end = ends.active
    if end is None or partition.is_cluster_metadata or partition.leftover_counts.get(_SWAP):
        return False
    if any(misnamed_base_offset(name) is not None for name in partition.foreign):
        return False  # the broker begins a segment for it
    if log_start_offset is None or log_start_offset > end.offset:
        return False  # the broker deletes all segments
    active = partition.segments[-1]
    if end.position != active.log_bytes or active.offset_index_bytes is None:
        return False
    return _leads_to_end(partition, active, end, small) and _is_sane(partition, active)


def _leads_to_end(
    partition: Partition, active: Segment, end: SegmentEnd, small: _SmallLogs
) -> bool:
    """Whether the last entry of the offset index is in front of the end, or there is none."""
    size_bytes = active.offset_index_bytes or 0
    if not size_bytes or not active.log_bytes:
        return True
    with partition.segment_path(active, FileKind.OFFSET_INDEX).open_file() as index:
        entry = last_slot(index)
    if entry is None or active.base_offset + entry.relative_offset >= end.offset:
        return False
    spans = small.spans(active)
    if spans is None:
        return entry.position == end.start
    return any(each.position == entry.position for each in spans)


def _is_sane(partition: Partition, active: Segment) -> bool:
    """Whether no aborted transaction ends before the segment of the index that has it."""
    if not active.transaction_index_bytes:
        return True
    data = partition.segment_path(active, FileKind.TRANSACTION_INDEX).read_listed()
    return not len(data) % TRANSACTION_ENTRY.size and all(
        last_offset >= active.base_offset
        for _, _, _, last_offset, _ in TRANSACTION_ENTRY.iter_unpack(data)
    )


def read_segment_end(partition: Partition, segment: Segment) -> SegmentEnd:
    """Find the end of a segment by the last index entries and the headers after them.

    Its time is the largest of the segment. Of a small segment, all headers are read.

    Raises:
        OSError: a file of the segment cannot be read.
    """
    return _segment_end(partition, segment, _SmallLogs(partition))


def _segment_end(partition: Partition, segment: Segment, small: _SmallLogs) -> SegmentEnd:
    if segment.is_0_7 or not segment.log_bytes:
        return SegmentEnd(segment.base_offset + segment.log_bytes, 0, segment.log_bytes)
    spans = small.spans(segment)
    if spans:
        last, latest = spans[-1], max(span.largest_timestamp for span in spans)
        return SegmentEnd(last.last_offset + 1, 0, last.next_position, last.leader_epoch, latest)
    entry = None
    # Without an offset index all headers are read, which the time index adds nothing to.
    if segment.time_index_bytes and segment.offset_index_bytes:
        with partition.segment_path(segment, FileKind.TIME_INDEX).open_file() as index:
            entry = last_time_entry(index)
    with SegmentSearch.of(partition, segment, Trust.LENGTHS) as search:
        end = search.end()
        latest = end.timestamp
        if entry is not None and search.is_true(entry):
            latest = max(latest, entry.timestamp)
        elif end.start and (entry is not None or latest != NO_TIMESTAMP):
            spans_of_all = batch_spans(search.log, 0, segment.base_offset)
            latest = max((span.largest_timestamp for span in spans_of_all), default=latest)
    return end if latest == end.timestamp else end._replace(timestamp=latest)


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
            with SegmentSearch.of(partition, segment, Trust.HEADERS) as search:
                span = search.find_batch(log_start_offset)
        else:
            reaching = (span for span in spans if span.last_offset >= log_start_offset)
            span = next(reaching, None)
        if span is not None:
            return span.first_timestamp_ms
    return None
