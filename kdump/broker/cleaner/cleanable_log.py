"""A loaded log, as compaction sees it: its segments, offsets and settings."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from msgspec import Struct

from kdump.broker.loader.recovered_partition import Recovered
from kdump.broker.loader.segment_times import last_timestamp_ms, modified_ms
from kdump.formats import offset_index, time_index
from kdump.formats.names import FileKind
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.log.log_search import within_log
from kdump.state.metadata.settings import TopicSettings
from kdump.storage.location import Location
from kdump.target.virtual_directory import VirtualDirectory, file_name


class SegmentFiles(Struct, frozen=True):
    """One segment of a log, by sizes and times of its files.

    Attributes:
        base_offset: from the name of its log.
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


class CompactedLog(Struct, frozen=True):
    """A log as the cleaner finds it after the broker has loaded it.

    Attributes:
        directory: the partition's directory after loading.
        segments: by base offset; the last one is active.
        log_start_offset: first offset of the log.
        log_end_offset: end of the log, exclusive.
        high_watermark: between those two.
        unstable_batch_offset: base offset of the batch at the start of the first open transaction;
            None if there is none.
        producers: the active producers, whose last batches must stay.
        with_aborted_txns: the segments whose transaction index is not empty.
    """

    directory: VirtualDirectory
    segments: tuple[SegmentFiles, ...]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    unstable_batch_offset: int | None
    producers: tuple[ProducerEntry, ...]
    settings: TopicSettings
    now_ms: int
    with_aborted_txns: tuple[SegmentFiles, ...] = ()

    @property
    def path(self) -> Location:
        """The partition's directory."""
        return self.directory.path

    @property
    def active_base_offset(self) -> int:
        return self.segments[-1].base_offset

    @property
    def last_stable_offset(self) -> int:
        """Start of the first open transaction, at most the high watermark."""
        unstable = self.unstable_batch_offset
        return self.high_watermark if unstable is None else min(self.high_watermark, unstable)

    def between(self, start: int, end: int) -> tuple[SegmentFiles, ...]:
        """From the segment that contains ``start`` to the last with a base offset below ``end``.

        Follows ``LogSegments.values``; ``end`` is not below ``start``.
        """
        if start == end:
            return ()
        first = max(0, bisect_right(self.segments, start, key=_base_offset) - 1)
        return self.segments[first : bisect_left(self.segments, end, key=_base_offset)]

    def closed_from(self, offset: int) -> tuple[SegmentFiles, ...]:
        """From the segment that contains ``offset`` to the last one that is not active.

        Follows ``LogSegments.nonActiveLogSegmentsFrom``.
        """
        active = self.active_base_offset
        return () if offset > active else self.between(offset, active)

    def largest_timestamp_ms(self, segment: SegmentFiles) -> int:
        """Largest timestamp of a segment that is not active, from its time index.

        If the index has no timestamp, the modification time of the log counts
        (``LogSegment.largestTimestamp``).

        Raises:
            OSError: the index cannot be read.
        """
        timestamp_ms = last_timestamp_ms(self.directory, segment.base_offset)
        return segment.modified_ms if timestamp_ms is None else timestamp_ms


def loaded_log(
    directory: VirtualDirectory,
    loaded: Recovered,
    high_watermark: int,
    settings: TopicSettings,
    now_ms: int,
) -> CompactedLog:
    """The log of a partition after a broker has loaded it.

    Args:
        directory: the partition's directory after loading.
        loaded: the partition.
        high_watermark: from ``replication-offset-checkpoint``.

    Raises:
        OSError: the log of a segment has disappeared.
    """
    segments = []
    with_aborted_txns = []
    for base_offset in directory.base_offsets():
        files = SegmentFiles(
            base_offset=base_offset,
            size_bytes=directory.size_bytes(file_name(base_offset, FileKind.LOG)),
            offset_index_bytes=_whole(
                directory, base_offset, FileKind.OFFSET_INDEX, offset_index.ENTRY_BYTES
            ),
            time_index_bytes=_whole(
                directory, base_offset, FileKind.TIME_INDEX, time_index.ENTRY_BYTES
            ),
            modified_ms=modified_ms(directory, base_offset, now_ms),
        )
        segments.append(files)
        if _whole(directory, base_offset, FileKind.TRANSACTION_INDEX, 1):
            with_aborted_txns.append(files)
    mark = within_log(high_watermark, loaded.log_start_offset, loaded.log_end_offset)
    return CompactedLog(
        directory=directory,
        segments=tuple(segments),
        log_start_offset=loaded.log_start_offset,
        log_end_offset=loaded.log_end_offset,
        high_watermark=mark,
        unstable_batch_offset=loaded.unstable_batch_offset,
        producers=loaded.producers,
        settings=settings,
        now_ms=now_ms,
        with_aborted_txns=tuple(with_aborted_txns),
    )


def _base_offset(segment: SegmentFiles) -> int:
    return segment.base_offset


def _whole(directory: VirtualDirectory, base_offset: int, kind: FileKind, entry_bytes: int) -> int:
    """Size of the whole entries of an index; 0 if there is none."""
    name = file_name(base_offset, kind)
    size_bytes = directory.size_bytes(name) if name in directory else 0
    return size_bytes // entry_bytes * entry_bytes
