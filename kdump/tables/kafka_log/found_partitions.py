"""From the paths that a query over ``kafka-log`` names to the partitions that lie there."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from kdump.broker.loader.swapped_partition import UnfinishedSwapError, as_loaded
from kdump.errors import KdumpError, UsageProblem
from kdump.formats import names
from kdump.formats.names import FileKind, PartitionState, TopicPartition
from kdump.log import directory
from kdump.log.directory import DirectoryKind, LogDirectory
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.storage.entries import EntryKind
from kdump.storage.local_disk import local
from kdump.storage.location import Location
from kdump.tables.kafka_log.options import SourceOptions
from kdump.tables.kafka_log.pushed_filters import PushedFilters

FIRST_OFFSET: Final = 0
_LOG_KINDS: Final = (FileKind.LOG, FileKind.LOG_0_7)


@dataclass(frozen=True, slots=True)
class FoundPartition:
    """A partition to read from, or some of its segments.

    Attributes:
        partition: with all segments that a starting broker loads.
        log_start_offset: what the log directory says, 0 where it says nothing.
        flushed_offset: up to where a starting broker does not recover the log, by what the log
            directory says; None where it was stopped cleanly, and none of it is.
        segments: those to read.
        topic_partition: what it is taken for.
    """

    partition: Partition
    log_start_offset: int
    flushed_offset: int | None
    segments: tuple[Segment, ...]
    topic_partition: TopicPartition | None


def find_partitions(options: SourceOptions, filters: PushedFilters) -> list[FoundPartition]:
    """The partitions to read, in the order of the paths.

    Raises:
        UsageProblem: a path is nothing of Kafka's, or a topic or partition that an option names
            is in none of them.
        KdumpError: a partition that is to be read cannot be listed.
        OSError: a file cannot be read.
    """
    there = set[TopicPartition]()
    found = [
        each
        for path in options.paths
        for each in _found(local(path), options, filters, there)
        if options.topics.has(each.topic_partition)
    ]
    _refuse_missing(options, there)
    return found


def _refuse_missing(options: SourceOptions, there: AbstractSet[TopicPartition]) -> None:
    bounded = options.start.by_partition.keys() | options.end.by_partition.keys()
    missing = options.topics.missing(there) or sorted(map(str, bounded - there))
    if missing:
        raise UsageProblem(
            f"kafka-log finds no {', '.join(missing)} in {', '.join(options.paths)}:"
            " kdump ls shows what is there"
        )


def _found(
    path: Location, options: SourceOptions, filters: PushedFilters, there: set[TopicPartition]
) -> Iterator[FoundPartition]:
    """What is to be read of a path; all partitions that it has are added to ``there``."""
    entry_kind = path.kind()
    if entry_kind is None:
        raise UsageProblem(f"{path.as_absolute()} does not exist")
    if entry_kind is EntryKind.FILE:
        yield from _alone(_segment_alone(path), there)
        return
    kind = directory.directory_kind(path)
    if kind.is_log_directory:
        yield from _in_log_directory(path, kind, options, filters, there)
    elif kind.is_partition:
        yield from _alone(_partition_alone(path), there)
    elif inside := directory.log_directories_below(path):
        for each in inside:
            kind = directory.directory_kind(each)
            yield from _in_log_directory(each, kind, options, filters, there)
    else:
        raise UsageProblem(f"{path} is neither a log directory nor a partition of Kafka's")


def _alone(found: FoundPartition, there: set[TopicPartition]) -> Iterator[FoundPartition]:
    if found.topic_partition is not None:
        there.add(found.topic_partition)
    yield found


def _named(path: Location) -> Location:
    """The path with a name that can be read as Kafka gave it; links keep theirs."""
    named = path.as_absolute()
    return path.resolved() if named.name in ("", "..") else named


def _partition_alone(path: Location) -> FoundPartition:
    named = _named(path)
    partition = as_loaded(directory.read_lone_partition(path, named.name))
    key = partition.topic_partition
    return FoundPartition(partition, *_offsets_of(named.parent, key), partition.segments, key)


def _segment_alone(path: Location) -> FoundPartition:
    """A single log, whatever stage its name says that it is at."""
    named = _named(path)
    parsed = names.parse_offset_file_name(named.name)
    if parsed is None or parsed.kind not in _LOG_KINDS:
        raise UsageProblem(f"{path} is not a segment: its name is not that of a log")
    partition = directory.read_lone_partition(path.parent, named.parent.name)
    try:
        partition = as_loaded(partition)
    except UnfinishedSwapError:
        # The file can be read for itself.
        partition = replace(partition, segments=(), producer_snapshots=())
    segment = partition.segment_of(named.name)
    if segment is None:
        segment = Segment(
            base_offset=parsed.offset,
            log_bytes=path.status().size_bytes,
            offset_index_bytes=None,
            time_index_bytes=None,
            transaction_index_bytes=None,
            log_kind=parsed.kind,
            log_name=named.name,
        )
        partition = replace(partition, segments=(segment,), producer_snapshots=(), names_on_disk={})
    # What was named is read as a whole, whatever the log directory says of its start.
    _, flushed_offset = _offsets_of(named.parent.parent, partition.topic_partition)
    return FoundPartition(
        partition, FIRST_OFFSET, flushed_offset, (segment,), partition.topic_partition
    )


def _in_log_directory(
    path: Location,
    kind: DirectoryKind,
    options: SourceOptions,
    filters: PushedFilters,
    there: set[TopicPartition],
) -> Iterator[FoundPartition]:
    def select(name: str, key: TopicPartition) -> bool:
        if name == str(key):
            there.add(key)
        return (
            options.topics.has(key)
            and filters.has_topic(key.topic)
            and filters.has_partition(key.partition)
        )

    found = directory.read_log_directory(path, kind, select=select)
    if found.unreadable:
        unreadable = path / found.unreadable[0]
        reasons = [str(problem) for problem in found.problems if problem.path == unreadable]
        raise KdumpError("; ".join(reasons) or f"{unreadable} cannot be listed")
    for partition in found.partitions:
        # Others are copies of partitions that are there, or not meant to be any more: they are
        # read when they are named themselves.
        if partition.state is PartitionState.LIVE and partition.topic_partition is not None:
            key = partition.topic_partition
            loaded = as_loaded(partition)
            yield FoundPartition(loaded, *_checkpointed(found, key), loaded.segments, key)


def _offsets_of(log_dir: Location, key: TopicPartition | None) -> tuple[int, int | None]:
    """Where a partition's log begins and up to where it was flushed, by ``log_dir`` around it."""
    if key is None:
        return FIRST_OFFSET, FIRST_OFFSET
    try:
        around: LogDirectory = directory.read_log_directory(
            log_dir, DirectoryKind.LOG_DIRECTORY, select=lambda _name, _key: False
        )
    except OSError:
        return FIRST_OFFSET, FIRST_OFFSET
    return _checkpointed(around, key)


def _checkpointed(log_dir: LogDirectory, key: TopicPartition) -> tuple[int, int | None]:
    checkpoints = log_dir.checkpoints
    start = (checkpoints.log_start_offsets or {}).get(key, FIRST_OFFSET)
    if log_dir.is_clean:
        return start, None
    return start, (checkpoints.recovery_points or {}).get(key, FIRST_OFFSET)
