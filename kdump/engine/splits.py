"""Cut large segments into splits of about the same size, each of whole batches.

A cut must be where a reader from the start of the file finds a batch, but the values of a batch may
contain bytes that look like one (a copied log, say). So cuts are where an entry of the offset index
points to a valid batch, or where the batch headers after the previous cut lead.

A cut says nothing about the bytes before it. If they are damaged, the batches of one split may end
before the next split, or claim to end after its start. Whoever merges the results of a file has to
notice that.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
import numpy as np

from kdump.engine.job import Split
from kdump.formats import offset_index, record_batch
from kdump.formats.index_search import Column
from kdump.formats.names import FileKind
from kdump.log.headers import batch_span_at
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.scan.resync import is_valid_batch
from kdump.scan.source import read_at
from kdump.storage.byte_source import ByteSource
from kdump.storage.location import Location

SMALLEST_SPLIT_BYTES: Final = 8 << 20
"""In smaller splits, the fixed cost of a split would show."""
LARGEST_SPLIT_BYTES: Final = 64 << 20
"""With larger splits, CPUs would wait for the last one, and progress would jump."""

_SPLITS_PER_CORE: Final = 4
_TRIED_ENTRIES: Final = 3
_PAGE_BYTES: Final = 64 << 10
_LENGTH: Final = struct.Struct(">i")


def split_bytes(total_bytes: int, cores: int, most_bytes: int = LARGEST_SPLIT_BYTES) -> int:
    """How large splits should be, for ``cores`` to share work over ``total_bytes``."""
    even_bytes = total_bytes // max(1, cores * _SPLITS_PER_CORE)
    return min(max(even_bytes, SMALLEST_SPLIT_BYTES), most_bytes)


def partition_splits(
    partition: Partition, target_bytes: int = LARGEST_SPLIT_BYTES
) -> Iterator[Split]:
    """Split the logs of all segments of a partition, in order; large ones several times.

    Args:
        partition: the partition; the name of its directory is the label.
        target_bytes: the approximate size of a split.

    Raises:
        OSError: a log cannot be read. (Indexes that cannot be read are not used.)
    """
    for segment in partition.segments:
        yield from segment_splits(partition, segment, target_bytes)


def segment_splits(
    partition: Partition, segment: Segment, target_bytes: int = LARGEST_SPLIT_BYTES
) -> list[Split]:
    """Split the log of one segment into one or several splits of about ``target_bytes``.

    The splits are adjacent, from byte 0 to the end of the file. A log of Kafka 0.7 is never cut.

    Raises:
        OSError: the log cannot be read.
    """
    path = partition.segment_path(segment, segment.log_kind)
    cuts: list[int] = []
    # Segments up to one and a half times the target stay whole, so that most are not opened.
    if not segment.is_0_7 and segment.data_bytes >= target_bytes * 3 // 2:
        with path.open_file() as log:
            index = _read_entries(
                partition.segment_path(segment, FileKind.OFFSET_INDEX), segment.base_offset
            )
            cuts = cut_positions(log, index, target_bytes)
    label = partition.path.name
    return list(_between(path, cuts, segment, label))


def _between(path: Location, cuts: Iterable[int], segment: Segment, label: str) -> Iterator[Split]:
    start = 0
    for cut in cuts:
        yield Split(path, start, cut, cut - start, label)
        start = cut
    # A sparse file usually has its hole at the end.
    size_bytes = min(segment.log_bytes - start, segment.data_bytes)
    yield Split(path, start, None, max(0, size_bytes), label)


class IndexEntries(msgspec.Struct, frozen=True):
    """The entries of an offset index past position 0, sorted by position; shape (n,) each."""

    position: Column
    offset: Column


def _read_entries(path: Location, base_offset: int) -> IndexEntries | None:
    """Read the entries of an offset index up to its padding; None if it is missing or unreadable.

    Only a damaged index has entries after padding. Without them, headers lead to the cuts.
    """
    data = bytearray()
    try:
        with path.open_file() as file:
            for start in range(0, file.size_bytes, _PAGE_BYTES):
                page = read_at(file, start, _PAGE_BYTES)
                data += page
                if not any(page[-offset_index.ENTRY_BYTES :]):
                    break
    except OSError:
        return None
    index = offset_index.decode(data, base_offset)
    points = np.flatnonzero(index.position > 0)
    order = points[np.argsort(index.position[points], kind="stable")]
    return IndexEntries(index.position[order], index.offset[order])


def cut_positions(log: ByteSource, index: IndexEntries | None, target_bytes: int) -> list[int]:
    """Where to cut a log into equal parts of about ``target_bytes``; rising, without 0.

    A cut that neither the index nor the headers lead to is left out.

    Raises:
        OSError: when reading fails.
    """
    parts = max(1, round(log.size_bytes / target_bytes))
    cuts: list[int] = []
    walked: int | None = 0
    for number in range(1, parts):
        ideal = log.size_bytes * number // parts
        last = cuts[-1] if cuts else 0
        # Parts of less than half the target size are not worth a cut.
        least = max(last, ideal - log.size_bytes // parts // 2)
        cut = None if index is None else _indexed_batch(log, index, least, ideal)
        if cut is not None:
            walked = cut
        elif walked is not None:
            walked = cut = _first_batch_from(log, walked, ideal)
        if cut is not None and cut > last:
            cuts.append(cut)
    return cuts


def _indexed_batch(log: ByteSource, index: IndexEntries, least: int, most: int) -> int | None:
    """The last valid batch with ``least`` < position <= ``most`` that an index entry points to."""
    after = int(np.searchsorted(index.position, most, "right"))
    for slot in range(after - 1, max(-1, after - 1 - _TRIED_ENTRIES), -1):
        position = int(index.position[slot])
        if position <= least:
            return None
        span = batch_span_at(log, position)
        # Before Kafka 4, an entry could cover several batches: with the offset of the last and
        # the position of the first.
        if (
            span is not None
            and span.base_offset <= int(index.offset[slot])
            and is_valid_batch(log, position, log.size_bytes)
        ):
            return position
    return None


def _first_batch_from(log: ByteSource, position: int, least: int) -> int | None:
    """The position of the first batch at or after ``least``, by the lengths of those before it.

    Only lengths are read: other damage does not move the start of a batch.
    """
    buffer = memoryview(bytearray(_PAGE_BYTES))
    start = filled = 0
    size = _PAGE_BYTES
    while position < least:
        at = position - start
        if not 0 <= at <= filled - record_batch.LOG_OVERHEAD_BYTES:
            start, at = position, 0
            filled = log.read_into(buffer[:size], position)
            if filled < record_batch.LOG_OVERHEAD_BYTES:
                return None
        (length,) = _LENGTH.unpack_from(buffer, at + record_batch.LENGTH_START)
        if length < record_batch.MIN_LENGTH_BYTES:
            return None
        position += record_batch.LOG_OVERHEAD_BYTES + length
        # Read only the length of a large batch, and many small batches at once.
        size = _PAGE_BYTES if length < _PAGE_BYTES // 2 else record_batch.LOG_OVERHEAD_BYTES
    return position if position < log.size_bytes else None
