"""What has to be read for a query over ``kafka-log``: only the bytes that can hold its records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from kdump.errors import KdumpError, UsageProblem
from kdump.formats import names
from kdump.formats.names import FileKind, PartitionState, TopicPartition
from kdump.log import directory
from kdump.log.bounds import position_below
from kdump.log.directory import DirectoryKind, LogDirectory
from kdump.log.headers import batch_span_at
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.pipeline.job import Split
from kdump.pipeline.kafka_log.bounds import (
    largest_timestamp,
    last_stable_offset,
    offset_of_time,
    with_following,
)
from kdump.pipeline.kafka_log.filters import Wanted
from kdump.pipeline.kafka_log.options import AtTime, Bound, Edge, SourceOptions
from kdump.pipeline.kafka_log.rows import Place
from kdump.pipeline.local import available_cores
from kdump.pipeline.splits import segment_splits, split_bytes
from kdump.scan.source import FileSource

_SMALLEST_SPLIT_BYTES: Final = 64 << 10
"""Of a split, when more of them are asked for than there would be."""
_LOG_KINDS: Final = (FileKind.LOG, FileKind.LOG_0_7)
_FIRST_OFFSET: Final = 0


@dataclass(frozen=True, slots=True)
class SourceSplit(Split):
    """Part of the log of a segment.

    Attributes:
        place: where that is, for the columns that say so.
        from_offset: the first that is wanted.
        to_offset: the first that is not wanted any more; None goes on to the end.
        may_be_padded: whether zeroes at its end are space set aside for what is written next.
    """

    place: Place = field(default_factory=lambda: Place(None, None, ""))
    from_offset: int = _FIRST_OFFSET
    to_offset: int | None = None
    may_be_padded: bool = False


@dataclass(frozen=True, slots=True)
class _Found:
    """A partition to read from, or some of its segments.

    Attributes:
        partition: with all of its segments.
        log_start_offset: what the log directory says, 0 where it says nothing.
        segments: those to read.
        topic_partition: what it is taken for.
    """

    partition: Partition
    log_start_offset: int
    segments: tuple[Segment, ...]
    topic_partition: TopicPartition | None


def plan_splits(options: SourceOptions, wanted: Wanted) -> list[SourceSplit]:
    """The splits to read, by partition and offset.

    Raises:
        UsageProblem: a path is nothing of Kafka's, or is of Kafka 0.7.
        KdumpError: a partition that is to be read cannot be listed.
        OSError: a file cannot be read.
    """
    if wanted.is_empty:
        return []
    found = [
        each
        for path in options.paths
        for each in _found(Path(path), options, wanted)
        if options.topics.has(each.topic_partition)
    ]
    for each in found:
        if each.partition.is_0_7:
            raise UsageProblem(
                f"{each.partition.path} is of Kafka 0.7, which kafka-log does not read:"
                " kdump dump-segment does"
            )
    total_bytes = sum(segment.log_bytes for each in found for segment in each.segments)
    size = split_bytes(total_bytes, available_cores())
    if options.min_partitions is not None:
        size = max(_SMALLEST_SPLIT_BYTES, min(size, total_bytes // options.min_partitions))
    return [split for each in found for split in _Planner(each, options, wanted).splits(size)]


def grouped(splits: Sequence[SourceSplit], options: SourceOptions) -> list[tuple[SourceSplit, ...]]:
    """Splits that make up a task together: a task costs more than a small split."""
    total_bytes = sum(split.size_bytes for split in splits)
    enough = split_bytes(total_bytes, available_cores())
    if options.min_partitions is not None:
        enough = min(enough, total_bytes // options.min_partitions)
    groups: list[tuple[SourceSplit, ...]] = []
    held: list[SourceSplit] = []
    held_bytes = 0
    for split in splits:
        if held and held_bytes + split.size_bytes > enough:
            groups.append(tuple(held))
            held, held_bytes = [], 0
        held.append(split)
        held_bytes += split.size_bytes
    return [*groups, tuple(held)] if held else groups


# ---- From paths to partitions ----


def _found(path: Path, options: SourceOptions, wanted: Wanted) -> Iterator[_Found]:
    if path.is_file():
        yield _segment_alone(path)
        return
    if not path.exists():
        raise UsageProblem(f"{path} does not exist")
    kind = directory.directory_kind(path)
    if kind.is_log_directory:
        yield from _in_log_directory(path, kind, options, wanted)
    elif kind.is_partition:
        named = _named(path)
        partition = directory.read_lone_partition(path, named.name)
        key = partition.topic_partition
        yield _Found(partition, _log_start_offset(named.parent, key), partition.segments, key)
    elif inside := directory.log_directories_below(path):
        for each in inside:
            yield from _in_log_directory(each, directory.directory_kind(each), options, wanted)
    else:
        raise UsageProblem(f"{path} is neither a log directory nor a partition of Kafka's")


def _named(path: Path) -> Path:
    """The path with a name that can be read as Kafka gave it; links keep theirs."""
    named = path.absolute()
    return path.resolve() if named.name in ("", "..") else named


def _segment_alone(path: Path) -> _Found:
    """A single log, whatever stage its name says that it is at."""
    named = _named(path)
    parsed = names.parse_offset_file_name(named.name)
    if parsed is None or parsed.kind not in _LOG_KINDS:
        raise UsageProblem(f"{path} is not a segment: its name is not that of a log")
    partition = directory.read_lone_partition(path.parent, named.parent.name)
    segment = next((s for s in partition.segments if s.log_name == named.name), None)
    if segment is None:
        segment = Segment(
            base_offset=parsed.offset,
            log_bytes=path.stat().st_size,
            offset_index_bytes=None,
            time_index_bytes=None,
            transaction_index_bytes=None,
            log_kind=parsed.kind,
            log_name=named.name,
        )
        partition = replace(partition, segments=(segment,))
    # What was named is read as a whole, whatever the log directory says of its start.
    return _Found(partition, _FIRST_OFFSET, (segment,), partition.topic_partition)


def _in_log_directory(
    path: Path, kind: DirectoryKind, options: SourceOptions, wanted: Wanted
) -> Iterator[_Found]:
    def select(_name: str, key: TopicPartition) -> bool:
        return (
            options.topics.has(key)
            and wanted.has_topic(key.topic)
            and wanted.has_partition(key.partition)
        )

    found = directory.read_log_directory(path, kind, select=select)
    if found.unreadable:
        unreadable = path / found.unreadable[0]
        reasons = [str(problem) for problem in found.problems if problem.path == unreadable]
        raise KdumpError("; ".join(reasons) or f"{unreadable} cannot be listed")
    starts = found.checkpoints.log_start_offsets or {}
    for partition in found.partitions:
        # Others are copies of partitions that are there, or not meant to be any more: they are
        # read when they are named themselves.
        if partition.state is PartitionState.LIVE and partition.topic_partition is not None:
            key = partition.topic_partition
            yield _Found(partition, starts.get(key, _FIRST_OFFSET), partition.segments, key)


def _log_start_offset(log_dir: Path, key: TopicPartition | None) -> int:
    if key is None:
        return _FIRST_OFFSET
    try:
        around: LogDirectory = directory.read_log_directory(
            log_dir, DirectoryKind.LOG_DIRECTORY, select=lambda _name, _key: False
        )
    except OSError:
        return _FIRST_OFFSET
    starts: Mapping[TopicPartition, int] = around.checkpoints.log_start_offsets or {}
    return starts.get(key, _FIRST_OFFSET)


# ---- From a partition to splits ----


class _Planner:
    """Cuts what is wanted of one partition."""

    def __init__(self, found: _Found, options: SourceOptions, wanted: Wanted) -> None:
        self.found = found
        self.partition = found.partition
        self.options = options
        self.wanted = wanted

    def splits(self, size: int) -> Iterator[SourceSplit]:
        key = self.found.topic_partition
        if not self.found.segments:
            return
        if not (
            self.wanted.has_topic(key.topic if key else None)
            and self.wanted.has_partition(key.partition if key else None)
        ):
            return
        from_offset, to_offset = self._range()
        if to_offset is not None and from_offset >= to_offset:
            return
        for segment, following in self._segments(from_offset, to_offset):
            pieces = segment_splits(self.partition, segment, size)
            yield from self._of_segment(segment, following, pieces, from_offset, to_offset)

    def _range(self) -> tuple[int, int | None]:
        """The offsets that are wanted, from one to before the other."""
        key = self.found.topic_partition
        offsets = self.wanted.offsets
        from_offset = self._offset(self.options.start.of(key))
        tos = [self._offset(self.options.end.of(key))]
        if self.options.is_committed:
            tos.append(last_stable_offset(self.partition))
        if offsets.most is not None:
            tos.append(offsets.most + 1)
        froms = [each for each in (from_offset, offsets.least) if each is not None]
        if from_offset is None:
            return 1, 0
        return max(froms), min((each for each in tos if each is not None), default=None)

    def _offset(self, bound: Bound) -> int | None:
        """The offset of a bound; None is the end of the log, wherever that is."""
        if isinstance(bound, AtTime):
            return offset_of_time(self.partition, bound.timestamp_ms, self.found.log_start_offset)
        if bound is Edge.LATEST:
            return None
        return self.found.log_start_offset if isinstance(bound, Edge) else bound

    def _segments(
        self, from_offset: int, to_offset: int | None
    ) -> Iterator[tuple[Segment, Segment | None]]:
        """The segments that can hold what is wanted, each with the one behind it."""
        chosen = {segment.base_offset for segment in self.found.segments}
        least_ms = self.wanted.timestamps_ms.least
        for segment, following in with_following(self.partition):
            if segment.base_offset not in chosen:
                continue
            if following is not None and following.base_offset <= from_offset:
                continue
            if to_offset is not None and segment.base_offset >= to_offset:
                return
            if least_ms is not None:
                largest = largest_timestamp(self.partition, segment, following)
                if largest is not None and largest < least_ms:
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
        place = Place(key.topic if key else None, key.partition if key else None, str(path))
        if len(pieces) > 1 or segment.base_offset < from_offset:
            with FileSource(path) as log:
                start = 0
                if segment.base_offset < from_offset:
                    start = position_below(self.partition, segment, log, from_offset)
                pieces = list(_within(log, pieces, start, to_offset))
        for piece in pieces:
            yield SourceSplit(
                path=piece.path,
                start=piece.start,
                end=piece.end,
                size_bytes=piece.size_bytes,
                label=piece.label,
                place=place,
                from_offset=from_offset,
                to_offset=to_offset,
                may_be_padded=following is None,
            )


def _within(
    log: FileSource, pieces: Iterable[Split], start: int, to_offset: int | None
) -> Iterator[Split]:
    """The pieces, or parts of them, from byte ``start`` to where ``to_offset`` is passed."""
    is_past = False
    for piece in pieces:
        if piece.end is not None and piece.end <= start:
            continue
        if is_past:
            return
        # A batch of magic 0 or 1 says its last offset: what is behind it may be left out.
        span = batch_span_at(log, piece.start)
        is_past = to_offset is not None and span is not None and span.base_offset >= to_offset
        if piece.start < start:
            piece = replace(
                piece, start=start, size_bytes=max(0, piece.size_bytes - start + piece.start)
            )
        yield piece
