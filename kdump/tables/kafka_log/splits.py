"""The splits of a query over ``kafka-log``: only bytes that can hold its records are read."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from kdump.engine.range_splits import RangeSplit, RecordRange, range_splits
from kdump.engine.splits import split_bytes
from kdump.errors import KdumpError
from kdump.formats.names import is_0_7_log
from kdump.formats.record_batch import NO_TIMESTAMP
from kdump.log.headers import batch_spans
from kdump.log.living import while_it_changes
from kdump.log.log_search import Trust, log_end, offset_of_time
from kdump.log.partition import Partition
from kdump.log.valid_windows import Damage, OnDamage
from kdump.processes.worker_pool import usable_cpus
from kdump.size_groups import size_groups
from kdump.state.transactions.open_transactions import last_stable_offset, usable_snapshots
from kdump.storage.location import Location
from kdump.storage.parallel_reads import each_read
from kdump.storage.places import concurrent_reads
from kdump.tables.kafka_log.damage import (
    DamagedLogError,
    status_of,
    unreadable_logged,
    with_status,
)
from kdump.tables.kafka_log.found_partitions import FoundPartition, find_partitions
from kdump.tables.kafka_log.options import Mode, SourceOptions
from kdump.tables.kafka_log.pushed_filters import PushedFilters
from kdump.tables.kafka_log.rows import RecordOrigin
from kdump.tables.kafka_log.selected_offsets import AtTime, Bound, Bounds, Edge
from kdump.tiered.missing_offsets import missing_offsets

_LOG: Final = logging.getLogger(__name__)
_SMALLEST_SPLIT_BYTES: Final = 64 << 10
"""Smallest split if ``minPartitions`` asks for more splits than usual."""


class SourceSplit(RangeSplit, frozen=True, kw_only=True):
    """Part of the log of a segment.

    Attributes:
        origin: topic, partition and segment.
        is_0_7: whether the log is of Kafka 0.7; it is whole then.
    """

    origin: RecordOrigin
    is_0_7: bool = False

    def small_files(self) -> tuple[Location, ...]:
        return (self.path,) if self.is_first and self.is_last else ()


def plan_splits(
    options: SourceOptions, filters: PushedFilters, *, skips_unreadable: bool = False
) -> list[SourceSplit]:
    """Plan the splits to read, by partition and offset.

    Args:
        skips_unreadable: log partitions that cannot be read, and leave them out.

    Raises:
        UsageProblem: a path is not Kafka's, or none of the paths has a topic or partition that an
            option names.
        KdumpError: a selected partition cannot be listed.
        OSError: a file cannot be read.
    """
    if filters.is_empty:
        return []
    found = find_partitions(options, filters, skips_unreadable=skips_unreadable)
    if options.fail_on_data_loss:
        _refuse_offsets_outside("startingOffsets", options.start, found)
        _refuse_offsets_outside("endingOffsets", options.end, found)
    return splits_of(found, options, filters, skips_unreadable=skips_unreadable)


def splits_of(
    found: Sequence[FoundPartition],
    options: SourceOptions,
    filters: PushedFilters,
    *,
    skips_unreadable: bool = False,
) -> list[SourceSplit]:
    """The same for partitions that were found.

    Raises:
        KdumpError: the mode is ``FAILFAST``, and there is damage.
        OSError: a file cannot be read.
    """
    total_bytes = sum(segment.data_bytes for each in found for segment in each.segments)
    size = split_bytes(total_bytes, usable_cpus())
    if options.min_partitions is not None:
        size = max(_SMALLEST_SPLIT_BYTES, min(size, total_bytes // options.min_partitions))

    def planned(each: FoundPartition) -> list[SourceSplit]:
        own: list[SourceSplit] = []

        def of(partition: Partition) -> list[SourceSplit]:
            return list(_Planner(each.of(partition), options, filters).splits(size))

        with unreadable_logged(is_skipped=skips_unreadable):
            own += while_it_changes(each.partition, of, gone=[])
        return own

    splits = list(itertools.chain.from_iterable(each_read(planned, found, concurrent_reads())))
    return _at_least(options.min_partitions or 0, splits)


def _refuse_offsets_outside(
    option: str, bounds: Bounds, partitions: Sequence[FoundPartition]
) -> None:
    """Let a query fail that names an offset that no log of its partition reaches."""
    for key, bound in bounds.by_partition.items():
        if not isinstance(bound, int):
            continue
        own = [each for each in partitions if each.topic_partition == key and each.segments]
        # By headers: an offset is refused here; damage at the end is for whoever reads the records.
        spans = [
            (each.segments[0].base_offset, log_end(each.partition, Trust.HEADERS).offset)
            for each in own
        ]
        if spans and not any(start <= bound <= end for start, end in spans):
            found = ", ".join(f"{start} to {end}" for start, end in spans)
            raise KdumpError(
                f"{key}: {option} is {bound}, outside of its log ({found});"
                " with failOnDataLoss=false kafka-log reads what is there"
            )


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
    if split.is_0_7:
        return [split.start]
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


def record_splits(
    found: FoundPartition, records: RecordRange, size_bytes: int
) -> Iterator[SourceSplit]:
    """Cut the logs of a partition into splits of about ``size_bytes``, in order.

    Raises:
        OSError: a file cannot be read.
    """
    for piece in range_splits(found.partition, found.segments, records, size_bytes):
        yield SourceSplit(
            path=piece.path,
            start=piece.start,
            end=piece.end,
            size_bytes=piece.size_bytes,
            label=piece.label,
            from_offset=piece.from_offset,
            to_offset=piece.to_offset,
            segment=piece.segment,
            origin=RecordOrigin.of(found.partition, piece.path),
            is_0_7=is_0_7_log(piece.path.name),
        )


def offset_of(found: FoundPartition, bound: Bound, on_damage: OnDamage) -> int | None:
    """The offset of a bound in a partition; None is the end of the log.

    Args:
        on_damage: takes the damage found on the way.

    Raises:
        OSError: a file cannot be read.
    """
    if isinstance(bound, AtTime) and found.partition.is_0_7:
        # Its records have no timestamps: they count as older than any time.
        is_any = bound.timestamp_ms <= NO_TIMESTAMP
        return found.log_start_offset if is_any else None
    if isinstance(bound, AtTime):
        return offset_of_time(
            found.partition, bound.timestamp_ms, found.log_start_offset, on_damage
        )
    if bound is Edge.LATEST:
        return None
    return found.log_start_offset if isinstance(bound, Edge) else bound


def stable_offset_of(found: FoundPartition, on_damage: OnDamage) -> int | None:
    """Where the first open transaction of a partition begins; None if none is open.

    Takes and raises what :func:`offset_of` does.
    """
    if found.partition.is_0_7:
        return None
    snapshots = usable_snapshots(found.partition, found.log_start_offset, found.flushed_offset)
    return last_stable_offset(found.partition, snapshots, on_damage)


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
        records = self._range()
        if not records.is_empty:
            for damage in missing_offsets(self.partition, records.from_offset, records.to_offset):
                self._damaged(damage)
            yield from self._reaching_into(records, size)

    def _reaching_into(self, records: RecordRange, size: int) -> Iterator[SourceSplit]:
        """The splits of a range, narrowed by conditions on the offsets of whole batches.

        A batch lies between its base offset and its last one, so a bound of either is one of both.
        A batch may reach from before the upper bound to after the lower one: the bounds may cross.
        """
        of_batches = (self.filters.base_offsets, self.filters.last_offsets)
        leasts = [each.least for each in of_batches if each.least is not None]
        ends = [each.most + 1 for each in of_batches if each.most is not None]
        from_offset = max([records.from_offset, *leasts])
        to_offset = min(
            [*ends, *([] if records.to_offset is None else [records.to_offset])], default=None
        )
        first = from_offset if to_offset is None else min(from_offset, to_offset - 1)
        narrowed = replace(records, from_offset=first, to_offset=to_offset)
        for split in record_splits(self.found, narrowed, size):
            yield replace(split, from_offset=from_offset)

    def _range(self) -> RecordRange:
        """The selected offsets and times."""
        key = self.found.topic_partition
        offsets = self.filters.offsets
        from_offset = offset_of(self.found, self.options.start.of(key), self._damaged)
        tos = [offset_of(self.found, self.options.end.of(key), self._damaged)]
        if self.options.is_committed:
            tos.append(stable_offset_of(self.found, self._damaged))
        if offsets.most is not None:
            tos.append(offsets.most + 1)
        froms = [each for each in (from_offset, offsets.least) if each is not None]
        if from_offset is None:
            return RecordRange(1, 0)
        return RecordRange(
            max(froms),
            min((each for each in tos if each is not None), default=None),
            self.filters.timestamps_ms.least,
        )

    def _damaged(self, damage: Damage) -> None:
        if self.options.mode is Mode.FAILFAST:
            raise DamagedLogError(damage)
        _LOG.warning("%s: skipped while planning", damage, extra=with_status(status_of(damage)))
