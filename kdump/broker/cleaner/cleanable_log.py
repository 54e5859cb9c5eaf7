"""A loaded log, as compaction sees it: its segments, offsets and settings."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from kdump.broker.loader.loader import Recovered
from kdump.formats import offset_index, time_index
from kdump.formats.names import FileKind
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.log.index_tail import last_time_entry
from kdump.log.partition import Partition
from kdump.state.settings import TopicSettings
from kdump.storage.location import Location
from kdump.target.virtual_directory import file_name


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """One segment of a log, by sizes and times of its files.

    Attributes:
        base_offset: from the name of its log.
        size_bytes: of the log.
        offset_index_bytes: of the whole entries of the offset index; 0 if there is none.
        time_index_bytes: of the whole entries of the time index; 0 if there is none.
        modified_ms: modification time of the log, as Java returns it.
    """

    base_offset: int
    size_bytes: int
    offset_index_bytes: int
    time_index_bytes: int
    modified_ms: int

    @property
    def log_name(self) -> str:
        return file_name(self.base_offset, FileKind.LOG)


@dataclass(frozen=True, slots=True)
class CompactedLog:
    """A log as the cleaner finds it after the broker has loaded it.

    Attributes:
        path: the partition's directory.
        segments: by base offset; the last one is active.
        log_start_offset: first offset of the log.
        log_end_offset: end of the log, exclusive.
        high_watermark: between those two.
        first_unstable_offset: first offset of the first open transaction; None if there is none.
        producers: the active producers, whose last batches must stay.
        settings: of the topic.
        now_ms: the clock.
        with_aborted_txns: the segments whose transaction index is not empty.
    """

    path: Location
    segments: tuple[SegmentFiles, ...]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    first_unstable_offset: int | None
    producers: tuple[ProducerEntry, ...]
    settings: TopicSettings
    now_ms: int
    with_aborted_txns: tuple[SegmentFiles, ...] = ()

    @property
    def active_base_offset(self) -> int:
        return self.segments[-1].base_offset

    @property
    def last_stable_offset(self) -> int:
        """Start of the first open transaction, at most the high watermark."""
        unstable = self.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return min(self.high_watermark, max(unstable, self.log_start_offset))

    def between(self, start: int, end: int) -> tuple[SegmentFiles, ...]:
        """From the segment that contains ``start`` to the last with a base offset below ``end``.

        Follows ``LogSegments.values``; ``end`` is not below ``start``.
        """
        if start == end:
            return ()
        first = max(0, bisect_right(self.segments, start, key=_base_offset) - 1)
        return self.segments[first : bisect_left(self.segments, end, key=_base_offset)]

    def largest_timestamp_ms(self, segment: SegmentFiles) -> int:
        """Largest timestamp of a segment that is not active, from its time index.

        If the index has no timestamp, the modification time of the log counts
        (``LogSegment.largestTimestamp``).

        Raises:
            OSError: the index cannot be read.
        """
        if segment.time_index_bytes:
            path = self.path / file_name(segment.base_offset, FileKind.TIME_INDEX)
            with path.open_file() as source:
                last = last_time_entry(source)
            if last is not None and last.timestamp >= 0:
                return last.timestamp
        return segment.modified_ms


def loaded_log(
    partition: Partition,
    loaded: Recovered,
    high_watermark: int,
    settings: TopicSettings,
    now_ms: int,
) -> CompactedLog:
    """The log of ``partition`` after a broker has loaded it.

    Raises:
        OSError: the log of a segment has disappeared.
    """
    segments = []
    with_aborted_txns = []
    for segment in partition.segments:
        path = partition.segment_path(segment, FileKind.LOG)
        files = SegmentFiles(
            base_offset=segment.base_offset,
            size_bytes=segment.log_bytes,
            offset_index_bytes=_whole(segment.offset_index_bytes, offset_index.ENTRY_BYTES),
            time_index_bytes=_whole(segment.time_index_bytes, time_index.ENTRY_BYTES),
            modified_ms=path.status().modified_ms,
        )
        segments.append(files)
        if segment.transaction_index_bytes:
            with_aborted_txns.append(files)
    mark = max(min(high_watermark, loaded.log_end_offset), loaded.log_start_offset)
    return CompactedLog(
        path=partition.path,
        segments=tuple(segments),
        log_start_offset=loaded.log_start_offset,
        log_end_offset=loaded.log_end_offset,
        high_watermark=mark,
        first_unstable_offset=loaded.first_unstable_offset,
        producers=loaded.producers,
        settings=settings,
        now_ms=now_ms,
        with_aborted_txns=tuple(with_aborted_txns),
    )


def _base_offset(segment: SegmentFiles) -> int:
    return segment.base_offset


def _whole(size_bytes: int | None, entry_bytes: int) -> int:
    return (size_bytes or 0) // entry_bytes * entry_bytes


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last record of a producer in a log (``LastRecord``).

    Attributes:
        last_data_offset: last offset of its last data batch; None if only a marker is left.
        epoch: its latest epoch.
    """

    last_data_offset: int | None
    epoch: int


def last_records(producers: tuple[ProducerEntry, ...]) -> Mapping[int, LastRecord]:
    """By producer id (``UnifiedLog.lastRecordsOfActiveProducers``)."""
    return {
        each.producer_id: LastRecord(
            each.last_offset if each.last_offset >= 0 else None, each.epoch
        )
        for each in producers
    }
