"""Cutting large segments into splits of about one size, each of whole batches.

A cut has to be where a batch begins for a reader that comes from the front of the file, and a
batch may hold in its values what looks like one (a copied log, say). So a cut is where an entry
of the offset index and a sound batch agree, or where headers lead from the cut before.

A cut says nothing of the bytes before it. Where they are damaged, the walk of one split may end
short of the next, or claim to reach beyond it; what a broker would make of the batches behind is
then for those to find out who look at all splits of the file together.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from kdump.engine.job import Split
from kdump.formats import offset_index, record_batch
from kdump.formats.index_search import Column
from kdump.formats.names import FileKind
from kdump.log.headers import batch_span_at
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.scan.resync import is_valid_batch
from kdump.storage.byte_source import ByteSource
from kdump.storage.location import Location

SMALLEST_SPLIT_BYTES: Final = 8 << 20
"""Below this, what a split costs beside its bytes begins to count."""
LARGEST_SPLIT_BYTES: Final = 64 << 20
"""Above this, cores wait for the last one, and progress comes in leaps."""

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
    """The logs of all segments of a partition, in order, large ones in several splits.

    Args:
        partition: the partition; its directory's name is the label.
        target_bytes: about how large a split should be.

    Raises:
        OSError: a log cannot be read. (An index that cannot is done without.)
    """
    for segment in partition.segments:
        yield from segment_splits(partition, segment, target_bytes)


def segment_splits(
    partition: Partition, segment: Segment, target_bytes: int = LARGEST_SPLIT_BYTES
) -> list[Split]:
    """The log of one segment as one split, or as several of about ``target_bytes``.

    The splits lie end to end, the first begins at 0, the last goes on to the end of the file.
    A log of Kafka 0.7 is never cut.

    Raises:
        OSError: the log cannot be read.
    """
    path = partition.segment_path(segment, segment.log_kind)
    cuts: list[int] = []
    # Half as much again as the target is nothing to cut for, and most segments are not opened.
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
    # Where a hole is, it is mostly at the end.
    size_bytes = min(segment.log_bytes - start, segment.data_bytes)
    yield Split(path, start, None, max(0, size_bytes), label)


@dataclass(frozen=True, slots=True)
class IndexEntries:
    """The entries of an offset index that point somewhere, by rising position; shape (n,) each."""

    position: Column
    offset: Column


def _read_entries(path: Location, base_offset: int) -> IndexEntries | None:
    """The entries of an offset index; None where it is missing or cannot be read."""
    try:
        index = offset_index.decode(path.read(), base_offset)
    except OSError:
        return None
    points = np.flatnonzero(index.position > 0)
    order = points[np.argsort(index.position[points], kind="stable")]
    return IndexEntries(index.position[order], index.offset[order])


def cut_positions(log: ByteSource, index: IndexEntries | None, target_bytes: int) -> list[int]:
    """Where to cut a log into parts of equal size, about ``target_bytes`` each; rising, without 0.

    Where neither the index nor the headers lead to a place, that cut is left out.

    Raises:
        OSError: when reading fails.
    """
    parts = max(1, round(log.size_bytes / target_bytes))
    cuts: list[int] = []
    walked: int | None = 0
    for number in range(1, parts):
        wanted = log.size_bytes * number // parts
        last = cuts[-1] if cuts else 0
        # A part of less than half the size that was asked for is not worth a cut.
        least = max(last, wanted - log.size_bytes // parts // 2)
        cut = None if index is None else _indexed_batch(log, index, least, wanted)
        if cut is not None:
            walked = cut
        elif walked is not None:
            walked = cut = _first_batch_from(log, walked, wanted)
        if cut is not None and cut > last:
            cuts.append(cut)
    return cuts


def _indexed_batch(log: ByteSource, index: IndexEntries, least: int, wanted: int) -> int | None:
    """The last batch in ``least`` < position <= ``wanted`` to which an entry leads truly."""
    behind = int(np.searchsorted(index.position, wanted, "right"))
    for slot in range(behind - 1, max(-1, behind - 1 - _TRIED_ENTRIES), -1):
        position = int(index.position[slot])
        if position <= least:
            return None
        span = batch_span_at(log, position)
        # Before Kafka 4 an entry could stand for several batches: the last one's offset, and
        # the position of the first.
        if (
            span is not None
            and span.base_offset <= int(index.offset[slot])
            and is_valid_batch(log, position, log.size_bytes)
        ):
            return position
    return None


def _first_batch_from(log: ByteSource, position: int, wanted: int) -> int | None:
    """Where the first batch at or behind ``wanted`` begins, by the lengths of those before it.

    Nothing but lengths is looked at: damage of any other kind leads no reader astray.
    """
    buffer = memoryview(bytearray(_PAGE_BYTES))
    start = filled = 0
    size = _PAGE_BYTES
    while position < wanted:
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
        # Of large batches nothing but the length is read, of small ones many together.
        size = _PAGE_BYTES if length < _PAGE_BYTES // 2 else record_batch.LOG_OVERHEAD_BYTES
    return position if position < log.size_bytes else None
