"""Offsets in a partition that are not written anywhere: that of a time, and the last stable one."""

from __future__ import annotations

import itertools
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from kdump.formats import names, producer_snapshot, record_batch, time_index
from kdump.formats.compression import Codec
from kdump.formats.errors import FormatError
from kdump.formats.names import FileKind, FileStage
from kdump.log.bounds import position_below
from kdump.log.directory import read_lone_partition
from kdump.log.index_tail import last_time_entry
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.pipeline.kafka_log.columns import (
    ABORTED,
    COMMITTED,
    OPEN,
    TRANSACTION_STATES,
    is_control,
)
from kdump.repair.starting import as_loaded
from kdump.scan.batches import BatchColumns, Column, Window
from kdump.scan.records import RecordColumns
from kdump.scan.selection import Selection
from kdump.scan.source import FileSource
from kdump.scan.walk import MessageSet, walk_segment, walk_windows

_ABORT: Final = 0
_COMMIT: Final = 1
_CONTROL_KEY_BYTES: Final = 4
"""Version and type, two bytes each (``ControlRecordType``)."""
_LARGEST_MARKER_BYTES: Final = 4096
"""A batch of one marker has less than a hundred bytes, and nobody compresses it."""


def with_following(partition: Partition) -> Iterator[tuple[Segment, Segment | None]]:
    """Each segment of a partition, with the one behind it."""
    segments = partition.segments
    return itertools.zip_longest(segments, segments[1:])


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
    for segment, following in with_following(partition):
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


# ---- Transactions ----


def _is_of_transaction(batches: BatchColumns) -> Column:
    """Rows of the batches of transactions, markers among them."""
    flags = batches.attributes & record_batch.TRANSACTIONAL_FLAG
    mask = (batches.magic >= 2) & (flags != 0) & (batches.producer_id >= 0)
    return np.flatnonzero(mask)


def _markers(window: Window) -> Iterator[tuple[int, int, int]]:
    """The ends of transactions in a window: producer, offset, and whether commit or abort."""
    batches = window.batches
    rows = _is_of_transaction(batches)
    for row in rows[is_control(batches)[rows]].tolist():
        header = batches.header(row)
        if header.size_bytes > _LARGEST_MARKER_BYTES or header.codec_id != Codec.NONE:
            continue
        batch = window.batch_bytes(row)
        if record_batch.compute_crc(batch) != header.crc:
            continue
        try:
            records = list(record_batch.decode_records(header, batch[record_batch.HEADER_BYTES :]))
        except FormatError:
            continue
        for record in records:
            key = record.key or b""
            kind = int.from_bytes(key[2:_CONTROL_KEY_BYTES], "big", signed=True)
            if len(key) >= _CONTROL_KEY_BYTES and kind in (_ABORT, _COMMIT):
                yield header.producer_id, record.offset, kind


class TransactionEnds:
    """Finds how the transactions end whose batches are met while a log is read front to back.

    The end of a transaction is the next marker of its producer. A second reading runs ahead of the
    first, over headers alone, as far as is needed to find it: mostly not far, and no further than
    to the end of the partition.
    """

    def __init__(self, log: Path, start: int, end: int | None) -> None:
        """Begin to look.

        Args:
            log: a segment.
            start: byte at which a batch begins.
            end: byte behind the last batch that will be asked about; None is the file's end.
        """
        self._ends: dict[int, deque[tuple[int, int]]] = defaultdict(deque)
        self._ended_behind: set[int] = set()
        self._windows = _windows_from(log, start, end)

    def states(self, batches: BatchColumns) -> Column:
        """For each batch its place in ``TRANSACTION_STATES``; batches come by rising offsets.

        Raises:
            OSError: a later segment cannot be read.
        """
        found = np.zeros(batches.count, np.int64)
        rows = _is_of_transaction(batches)
        for row in rows[~is_control(batches)[rows]].tolist():
            found[row] = self._state(int(batches.producer_id[row]), int(batches.base_offset[row]))
        return found

    def _state(self, producer_id: int, offset: int) -> int:
        ends = self._ends[producer_id]
        while True:
            while ends and ends[0][0] < offset:
                ends.popleft()
            if ends:
                return _STATE_OF_MARKER[ends[0][1]]
            window, is_behind = next(self._windows, (None, True))
            if window is None:
                return _OPEN_STATE
            for producer, at, kind in _markers(window):
                # Behind what is asked about, only a producer's first marker matters.
                if producer not in self._ended_behind:
                    self._ends[producer].append((at, kind))
                    if is_behind:
                        self._ended_behind.add(producer)


_STATE_OF_MARKER: Final = {
    _ABORT: TRANSACTION_STATES.index(ABORTED),
    _COMMIT: TRANSACTION_STATES.index(COMMITTED),
}
_OPEN_STATE: Final = TRANSACTION_STATES.index(OPEN)


def _windows_from(log: Path, start: int, end: int | None) -> Iterator[tuple[Window, bool]]:
    """Windows of a segment and of those behind it, without checksums.

    Each comes with whether all of it lies behind byte ``end`` of that segment.
    """
    with FileSource(log) as source:
        for window in _windows_in(source, start):
            yield window, end is not None and window.start >= end
    for path in _logs_behind(log):
        with FileSource(path) as source:
            for window in _windows_in(source, 0):
                yield window, True


def _logs_behind(log: Path) -> list[Path]:
    """The logs that follow in the partition as a starting broker loads it.

    Nothing follows on a leftover that is not loaded.
    """
    partition = as_loaded(read_lone_partition(log.parent, log.absolute().parent.name))
    segment = partition.segment_of(log.name)
    base_offset = None if segment is None else segment.base_offset
    if segment is None:
        parsed = names.parse_offset_file_name(log.name)
        if parsed is not None and parsed.stage is FileStage.LIVE:
            base_offset = parsed.offset
    return [
        partition.segment_path(each, FileKind.LOG)
        for each in partition.segments
        if base_offset is not None and each.base_offset > base_offset
    ]


def _windows_in(source: FileSource, start: int) -> Iterator[Window]:
    for step in walk_windows(source, start, follow_bad=True, checksums=False):
        if isinstance(step, Window):
            yield step


def last_stable_offset(partition: Partition) -> int | None:
    """Where the first transaction begins that is open at the end of a log; None where none is.

    By the newest producer snapshot that can be read, and the log behind it, as a broker finds it.

    Raises:
        OSError: a segment cannot be read.
    """
    snapshot_offset, begun = _newest_snapshot(partition)
    for segment, following in with_following(partition):
        if following is not None and following.base_offset <= snapshot_offset:
            continue
        with FileSource(partition.segment_path(segment, FileKind.LOG)) as log:
            start = position_below(partition, segment, log, snapshot_offset)
            for window in _windows_in(log, start):
                _follow(window, snapshot_offset, begun)
    return min(begun.values(), default=None)


def _newest_snapshot(partition: Partition) -> tuple[int, dict[int, int]]:
    """An offset, and where the transactions begin that are open there."""
    for snapshot in reversed(partition.producer_snapshots):
        name = names.OffsetFileName(snapshot.offset, FileKind.PRODUCER_SNAPSHOT)
        try:
            producers = producer_snapshot.read(partition.file_path(str(name)).read_bytes())
        except (FormatError, OSError):
            continue
        return snapshot.offset, {
            entry.producer_id: entry.current_txn_first_offset
            for entry in producers.entries
            if entry.current_txn_first_offset >= 0
        }
    return 0, {}


def _follow(window: Window, from_offset: int, begun: dict[int, int]) -> None:
    """Let transactions begin and end as the batches of a window say."""
    batches = window.batches
    rows = _is_of_transaction(batches)
    if not rows.size:
        return
    ends = {offset: producer_id for producer_id, offset, _ in _markers(window)}
    for row in rows.tolist():
        offset = int(batches.base_offset[row])
        if offset < from_offset:
            continue
        if offset in ends:
            begun.pop(ends[offset], None)
        elif not is_control(batches)[row]:
            begun.setdefault(int(batches.producer_id[row]), offset)
