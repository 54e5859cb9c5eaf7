"""The splits of a partition that can hold records of a range of offsets and times.

Only segments and bytes that can hold such records are in a split. Indexes and headers count only
if the batches agree with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.engine.job import Split
from kdump.engine.splits import SMALLEST_SPLIT_BYTES, segment_splits
from kdump.log.batch_validity import LogPart
from kdump.log.headers import batch_span_at, batch_spans
from kdump.log.lock_holders import is_in_use_around
from kdump.log.log_search import SegmentSearch, Trust, is_older
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.log.valid_windows import segment_part
from kdump.storage.location import StoredFile

_SOUGHT_BYTES: Final = 64 << 10
"""How far after an index entry the end of a range is looked for."""


class RecordRange(Struct, frozen=True):
    """A range of records; None does not restrict.

    Attributes:
        from_offset: the first offset.
        to_offset: the end of the offsets, exclusive.
        from_time_ms: the earliest time. Only whole segments are skipped for it.
    """

    from_offset: int = 0
    to_offset: int | None = None
    from_time_ms: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no offset is in it."""
        return self.to_offset is not None and self.from_offset >= self.to_offset


class RangeSplit(Split, frozen=True):
    """Part of the log of a segment.

    Attributes:
        from_offset: the first selected one.
        to_offset: end of the selected offsets, exclusive; None is the end of the log.
        segment: which offsets its segment may hold, and whether it may be padded.
    """

    from_offset: int = 0
    to_offset: int | None = None
    segment: LogPart = field(default_factory=LogPart)

    @property
    def part(self) -> LogPart:
        """The part of the log to read."""
        return replace(self.segment, start=self.start, end=self.end)


def range_splits(
    partition: Partition, segments: Iterable[Segment], records: RecordRange, size_bytes: int
) -> Iterator[RangeSplit]:
    """Cut the logs of a partition into splits of about ``size_bytes``, in order.

    Args:
        partition: as a starting broker loads it.
        segments: which of its segments to read.
        size_bytes: the approximate size of a split.

    Raises:
        OSError: a file cannot be read.
    """
    if records.is_empty:
        return
    to_offset = records.to_offset
    # A broker may put another file into the place of a segment: offsets count, and not bytes.
    is_living = is_in_use_around(partition.path)
    chosen = {segment.base_offset for segment in segments}
    for segment, following in partition.with_following():
        if segment.base_offset not in chosen:
            continue
        if following is not None and following.base_offset <= records.from_offset:
            continue
        if to_offset is not None and segment.base_offset >= to_offset:
            return
        if records.from_time_ms is not None and is_older(
            partition, segment, following, records.from_time_ms
        ):
            continue
        ends_here = following is None or (
            to_offset is not None and to_offset < following.base_offset
        )
        pieces = (
            segment_splits(partition, segment, max(size_bytes, segment.data_bytes))
            if is_living
            else _pieces(partition, segment, records, size_bytes, ends_here=ends_here)
        )
        for piece in pieces:
            yield RangeSplit(
                path=piece.path,
                start=piece.start,
                end=piece.end,
                size_bytes=piece.size_bytes,
                label=piece.label,
                from_offset=records.from_offset,
                to_offset=to_offset,
                segment=segment_part(segment, following),
            )


def _pieces(
    partition: Partition,
    segment: Segment,
    records: RecordRange,
    size_bytes: int,
    *,
    ends_here: bool,
) -> Iterator[Split]:
    """The parts of a segment's log that can hold selected offsets; the range may end in it."""
    pieces = segment_splits(partition, segment, size_bytes)
    begins_before = segment.base_offset < records.from_offset
    if segment.is_0_7 or (len(pieces) == 1 and not begins_before):
        yield from pieces
        return
    # What is before the start is never read: a wrong one would lose records.
    with SegmentSearch.of(partition, segment, Trust.CHECKSUMS) as search:
        start = search.position_of(records.from_offset) if begins_before else 0
        end = None
        is_large = segment.log_bytes - start > SMALLEST_SPLIT_BYTES
        if ends_here and is_large and records.to_offset is not None:
            end = _end_of(search, records.to_offset)
        yield from _within(search.log, pieces, start, records.to_offset, end)


def _end_of(search: SegmentSearch, to_offset: int) -> int | None:
    """Where the batch ends that reaches ``to_offset``; None if that is not soon found."""
    position = search.indexed_position(to_offset)
    if position is None:
        return None
    for span in batch_spans(search.log, position, search.base_offset):
        if span.last_offset >= to_offset:
            return span.next_position
        if span.position > position + _SOUGHT_BYTES:
            return None
    return None


def _within(
    log: StoredFile, pieces: Iterable[Split], start: int, to_offset: int | None, end: int | None
) -> Iterator[Split]:
    """The pieces, or parts of them, from byte ``start`` until they pass ``to_offset``.

    Args:
        start: no selected record is before it.
        to_offset: end of the selected offsets, exclusive.
        end: where an undamaged log has the last selected record. What is read decides itself where
            it ends; this only says how much that is.
    """
    is_past = False
    for piece in pieces:
        if piece.end is not None and piece.end <= start:
            continue
        if is_past:
            return
        # The header of a message set has its last offset: the pieces after this one can go.
        span = batch_span_at(log, piece.start)
        is_past = to_offset is not None and span is not None and span.base_offset >= to_offset
        begin, stop = max(piece.start, start), piece.start + piece.size_bytes
        if end is not None:
            stop = min(stop, end)
        yield replace(piece, start=begin, size_bytes=max(0, stop - begin))
