"""Offsets in a partition that are not written anywhere: that of a time, and the last stable one."""

from __future__ import annotations

from typing import Final

from kdump.formats import time_index
from kdump.formats.names import FileKind
from kdump.log.bounds import position_below
from kdump.log.index_tail import last_time_entry
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.scan.records import RecordColumns
from kdump.scan.selection import Selection
from kdump.scan.source import FileSource
from kdump.scan.walk import MessageSet, walk_segment

_ABORT: Final = 0
_COMMIT: Final = 1
_CONTROL_KEY_BYTES: Final = 4
"""Version and type, two bytes each (``ControlRecordType``)."""
_LARGEST_MARKER_BYTES: Final = 4096
"""A batch of one marker has less than a hundred bytes, and nobody compresses it."""


def largest_timestamp(
    partition: Partition, segment: Segment, following: Segment | None
) -> int | None:
    """The largest timestamp of a segment, by its time index, if another one follows it.

    None where the index does not tell: it is not there, or empty, or its last entry is none of
    this segment's.

    Raises:
        OSError: the index cannot be read.
    """
    if not segment.time_index_bytes or following is None:
        return None
    with FileSource(partition.segment_path(segment, FileKind.TIME_INDEX)) as index:
        entry = last_time_entry(index)
    room = following.base_offset - segment.base_offset
    if entry is None or not 0 <= entry.relative_offset < room:
        return None
    return entry.timestamp


def offset_of_time(partition: Partition, timestamp_ms: int, start_offset: int) -> int | None:
    """The first offset from ``start_offset`` on whose record is not older than ``timestamp_ms``.

    Follows ``LogSegment.findOffsetByTimestamp``; None where there is none.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    selection = Selection(from_offset=start_offset, from_time_ms=timestamp_ms, limit=1)
    for segment, following in partition.with_following():
        if following is not None and following.base_offset <= start_offset:
            continue
        largest = largest_timestamp(partition, segment, following)
        if largest is not None and largest < timestamp_ms:
            continue
        with FileSource(partition.segment_path(segment, FileKind.LOG)) as log:
            offset = max(start_offset, _indexed_offset(partition, segment, timestamp_ms))
            start = position_below(partition, segment, log, offset)
            for step in walk_segment(
                log, start, with_records=True, selection=selection, follow_bad=True
            ):
                if isinstance(step, RecordColumns) and step.count:
                    return int(step.offset[0])
                if isinstance(step, MessageSet) and step.messages:
                    return step.messages[0].offset
    return None


def _indexed_offset(partition: Partition, segment: Segment, timestamp_ms: int) -> int:
    """An offset before which all records are older, by the time index."""
    if not segment.time_index_bytes:
        return segment.base_offset
    path = partition.segment_path(segment, FileKind.TIME_INDEX)
    index = time_index.decode(path.read_bytes(), segment.base_offset)
    # An entry's time may be that of several records, of which it names one.
    _, offset = time_index.lookup(index, timestamp_ms - 1)
    return max(offset, segment.base_offset)
