"""The splits of a query over ``kafka-log``: only bytes that can hold its records are read."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kdump.engine.job import Split
from kdump.engine.splits import segment_splits, split_bytes
from kdump.errors import UsageProblem
from kdump.formats.names import FileKind
from kdump.log.headers import batch_span_at, batch_spans
from kdump.log.seek import SeekableLog
from kdump.log.segment import Segment
from kdump.log.time_search import is_older, offset_of_time
from kdump.log.valid_windows import Damage, LogPart, segment_part
from kdump.processes.worker_pool import usable_cpus
from kdump.size_groups import size_groups
from kdump.state.open_transactions import last_stable_offset, usable_snapshots
from kdump.storage.location import StoredFile
from kdump.tables.kafka_log.damage import DamagedLogError
from kdump.tables.kafka_log.found_partitions import FIRST_OFFSET, FoundPartition, find_partitions
from kdump.tables.kafka_log.options import Mode, SourceOptions
from kdump.tables.kafka_log.pushed_filters import PushedFilters
from kdump.tables.kafka_log.rows import RecordOrigin
from kdump.tables.kafka_log.selected_offsets import AtTime, Bound, Edge

_LOG: Final = logging.getLogger(__name__)
_SMALLEST_SPLIT_BYTES: Final = 64 << 10
"""Smallest split if ``minPartitions`` asks for more splits than usual."""


@dataclass(frozen=True, slots=True)
class SourceSplit(Split):
    """Part of the log of a segment.

    Attributes:
        origin: topic, partition and segment.
        from_offset: the first selected one.
        to_offset: end of the selected offsets, exclusive; None is the end of the log.
        segment: which offsets its segment may hold, and whether it may be padded.
    """

    origin: RecordOrigin = field(default_factory=lambda: RecordOrigin(None, None, ""))
    from_offset: int = FIRST_OFFSET
    to_offset: int | None = None
    segment: LogPart = field(default_factory=LogPart)

    @property
    def part(self) -> LogPart:
        """The part of the log to read."""
        return replace(self.segment, start=self.start, end=self.end)


def plan_splits(options: SourceOptions, filters: PushedFilters) -> list[SourceSplit]:
    """Plan the splits to read, by partition and offset.

    Raises:
        UsageProblem: a path is not Kafka's, or is of Kafka 0.7; or none of the paths has a topic or
            partition that an option names.
        KdumpError: a selected partition cannot be listed.
        OSError: a file cannot be read.
    """
    if filters.is_empty:
        return []
    found = find_partitions(options, filters)
    for each in found:
        if each.partition.is_0_7:
            raise UsageProblem(
                f"{each.partition.path} is of Kafka 0.7, which kafka-log does not read;"
                " use kdump dump-segment"
            )
    total_bytes = sum(segment.data_bytes for each in found for segment in each.segments)
    size = split_bytes(total_bytes, usable_cpus())
    if options.min_partitions is not None:
        size = max(_SMALLEST_SPLIT_BYTES, min(size, total_bytes // options.min_partitions))
    splits = [split for each in found for split in _Planner(each, options, filters).splits(size)]
    return _at_least(options.min_partitions or 0, splits)


def _at_least(count: int, splits: list[SourceSplit]) -> list[SourceSplit]:
    """Cut splits further if there are fewer than ``count``: at most into single batches."""
    if len(splits) >= count:
        return splits
    positions = [_batch_positions(split) for split in splits]
    batches = sum(map(len, positions))
    return [
        piece
        for split, own in zip(splits, positions, strict=True)
        for piece in _cut(split, own, -(-len(own) * count // max(1, batches)))
    ]


def _batch_positions(split: SourceSplit) -> list[int]:
    """Where the selected batches of a split begin, by their headers."""
    positions: list[int] = []
    with split.path.open_file() as log:
        for span in batch_spans(log, split.start):
            is_past = split.end is not None and span.position >= split.end
            if is_past or (split.to_offset is not None and span.base_offset >= split.to_offset):
                break
            positions.append(span.position)
    return positions


def _cut(split: SourceSplit, positions: Sequence[int], parts: int) -> Iterator[SourceSplit]:
    """Cut a split into ``parts`` of about the same number of batches, or into single batches."""
    parts = max(1, min(parts, len(positions)))
    starts = [split.start] + [positions[len(positions) * n // parts] for n in range(1, parts)]
    end_of_split = split.start + split.size_bytes
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        size_bytes = max(0, (end_of_split if end is None else end) - start)
        yield replace(split, start=start, end=end or split.end, size_bytes=size_bytes)


def grouped(splits: Sequence[SourceSplit], options: SourceOptions) -> list[tuple[SourceSplit, ...]]:
    """Splits that make up a task together: a task costs more than a small split."""
    total_bytes = sum(split.size_bytes for split in splits)
    enough = split_bytes(total_bytes, usable_cpus())
    if options.min_partitions is not None:
        enough = min(enough, total_bytes // options.min_partitions)
    groups = size_groups(
        splits,
        lambda split: split.size_bytes,
        enough,
        least_groups=options.min_partitions or 0,
    )
    return list(map(tuple, groups))


class _Planner:
    """Plans the splits of one partition."""

    def __init__(
        self, found: FoundPartition, options: SourceOptions, filters: PushedFilters
    ) -> None:
        self.found = found
        self.partition = found.partition
        self.options = options
        self.filters = filters

    def splits(self, size: int) -> Iterator[SourceSplit]:
        key = self.found.topic_partition
        if not self.found.segments:
            return
        if not (
            self.filters.has_topic(key.topic if key else None)
            and self.filters.has_partition(key.partition if key else None)
        ):
            return
        from_offset, to_offset = self._range()
        if to_offset is not None and from_offset >= to_offset:
            return
        for segment, following in self._segments(from_offset, to_offset):
            pieces = segment_splits(self.partition, segment, size)
            yield from self._of_segment(segment, following, pieces, from_offset, to_offset)

    def _range(self) -> tuple[int, int | None]:
        """The selected offsets: the first one, and the end, exclusive."""
        key = self.found.topic_partition
        offsets = self.filters.offsets
        from_offset = self._offset(self.options.start.of(key))
        tos = [self._offset(self.options.end.of(key))]
        if self.options.is_committed:
            snapshots = usable_snapshots(
                self.partition, self.found.log_start_offset, self.found.flushed_offset
            )
            tos.append(last_stable_offset(self.partition, snapshots, self._damaged))
        if offsets.most is not None:
            tos.append(offsets.most + 1)
        froms = [each for each in (from_offset, offsets.least) if each is not None]
        if from_offset is None:
            return 1, 0
        return max(froms), min((each for each in tos if each is not None), default=None)

    def _offset(self, bound: Bound) -> int | None:
        """The offset of a bound; None is the end of the log."""
        if isinstance(bound, AtTime):
            return offset_of_time(
                self.partition, bound.timestamp_ms, self.found.log_start_offset, self._damaged
            )
        if bound is Edge.LATEST:
            return None
        return self.found.log_start_offset if isinstance(bound, Edge) else bound

    def _damaged(self, damage: Damage) -> None:
        if self.options.mode is Mode.FAILFAST:
            raise DamagedLogError(damage)
        _LOG.warning("%s: skipped while planning", damage)

    def _segments(
        self, from_offset: int, to_offset: int | None
    ) -> Iterator[tuple[Segment, Segment | None]]:
        """The segments that can hold selected records, each with the one after it."""
        chosen = {segment.base_offset for segment in self.found.segments}
        least_ms = self.filters.timestamps_ms.least
        for segment, following in self.partition.with_following():
            if segment.base_offset not in chosen:
                continue
            if following is not None and following.base_offset <= from_offset:
                continue
            if to_offset is not None and segment.base_offset >= to_offset:
                return
            if least_ms is not None and is_older(self.partition, segment, following, least_ms):
                continue
            yield segment, following

    def _of_segment(
        self,
        segment: Segment,
        following: Segment | None,
        pieces: Sequence[Split],
        from_offset: int,
        to_offset: int | None,
    ) -> Iterator[SourceSplit]:
        path = self.partition.segment_path(segment, FileKind.LOG)
        key = self.found.topic_partition
        origin = RecordOrigin(key.topic if key else None, key.partition if key else None, str(path))
        if len(pieces) > 1 or segment.base_offset < from_offset:
            with path.open_file() as log:
                start = 0
                if segment.base_offset < from_offset:
                    start = SeekableLog.of_segment(self.partition, segment, log).position_of(
                        from_offset
                    )
                pieces = list(_within(log, pieces, start, to_offset))
        for piece in pieces:
            yield SourceSplit(
                path=piece.path,
                start=piece.start,
                end=piece.end,
                size_bytes=piece.size_bytes,
                label=piece.label,
                origin=origin,
                from_offset=from_offset,
                to_offset=to_offset,
                segment=segment_part(segment, following),
            )


def _within(
    log: StoredFile, pieces: Iterable[Split], start: int, to_offset: int | None
) -> Iterator[Split]:
    """The pieces, or parts of them, from byte ``start`` until they pass ``to_offset``."""
    is_past = False
    for piece in pieces:
        if piece.end is not None and piece.end <= start:
            continue
        if is_past:
            return
        # The header of a message set has its last offset: the pieces after this one can go.
        span = batch_span_at(log, piece.start)
        is_past = to_offset is not None and span is not None and span.base_offset >= to_offset
        if piece.start < start:
            piece = replace(
                piece, start=start, size_bytes=max(0, piece.size_bytes - start + piece.start)
            )
        yield piece
