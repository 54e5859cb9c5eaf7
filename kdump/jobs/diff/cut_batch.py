"""The batch within which a truncation falls."""

from __future__ import annotations

from msgspec import Struct

from kdump.log.headers import batch_spans
from kdump.log.log_search import SegmentSearch, Trust
from kdump.log.partition import Partition


class CutBatch(Struct, frozen=True):
    """A batch that a truncation deletes although it begins before it.

    Attributes:
        position: the byte at which the batch begins, and the log ends afterwards.
    """

    path: str
    position: int
    base_offset: int


def find_cut_batch(partition: Partition, end_offset: int) -> CutBatch | None:
    """Find the batch that begins before ``end_offset`` and ends after it; None if there is none.

    Truncating to that offset deletes the whole batch (``LogSegment.truncateTo``).

    Raises:
        OSError: the log cannot be read.
    """
    for segment in reversed(partition.segments):
        if segment.base_offset < end_offset:
            break
    else:
        return None
    # By headers, because they alone say to a broker where it truncates.
    with SegmentSearch.of(partition, segment, Trust.HEADERS) as search:
        following = end_offset
        start = search.position_of(end_offset)
        for span in batch_spans(search.log, start, segment.base_offset):
            # The header of a compressed set of magic 0 and 1 has only its last offset.
            first = min(span.base_offset, following)
            if first < end_offset <= span.last_offset:
                return CutBatch(str(search.log.location), span.position, first)
            if span.last_offset >= end_offset:
                return None
            following = span.last_offset + 1
    return None
