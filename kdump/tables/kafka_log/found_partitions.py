"""The partitions at the paths that a query over ``kafka-log`` names."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.broker.loader.swapped_partition import UnfinishedSwapError, as_loaded
from kdump.errors import ExitStatus, KdumpError, UsageProblem
from kdump.formats import names
from kdump.formats.names import PartitionState, TopicPartition
from kdump.log import directory
from kdump.log.broker import require_one_cluster
from kdump.log.directory import DirectoryKind, LogDirectory
from kdump.log.lock_holders import note_holder_around
from kdump.log.partition import Partition
from kdump.log.problems import FileProblem
from kdump.log.replicas import ChosenReplicas, choose_replicas, left_in_copies
from kdump.log.segment import Segment
from kdump.storage.entries import EntryKind
from kdump.storage.location import Location
from kdump.storage.places import missing_in_archives, parse_location
from kdump.tables.kafka_log.damage import CheckpointError, unreadable_logged, with_status
from kdump.tables.kafka_log.options import Mode, Replicas, SourceOptions
from kdump.tables.kafka_log.path_patterns import LOG_KINDS
from kdump.tables.kafka_log.pushed_filters import PushedFilters
from kdump.tiered.left_in_tier import left_in_tier
from kdump.tiered.named_places import named_locations

FIRST_OFFSET: Final = 0
_LOG: Final = logging.getLogger(__name__)


class FoundPartition(Struct, frozen=True):
    """A partition to read from, or some of its segments.

    Attributes:
        partition: with all segments that a starting broker loads.
        log_start_offset: from the log directory's checkpoint; 0 without one.
        flushed_offset: a starting broker recovers the log from there on (the recovery point); None
            after a clean shutdown, which needs no recovery.
        segments: those to read.
        topic_partition: from the name of the directory.
        is_whole: whether these are all segments; a segment that was named itself is not.
        offset_problems: checkpoints that should have the offsets, and cannot be read or are
            malformed.
        cluster_id: of the log directory; None if it does not say, or the partition is not in one.
    """

    partition: Partition
    log_start_offset: int
    flushed_offset: int | None
    segments: tuple[Segment, ...]
    topic_partition: TopicPartition | None
    is_whole: bool = True
    offset_problems: tuple[FileProblem, ...] = ()
    cluster_id: str | None = None

    @classmethod
    def in_directory(
        cls, partition: Partition, key: TopicPartition, around: LogDirectory
    ) -> FoundPartition:
        """A whole partition, with its offsets from the log directory around it."""
        return cls(
            partition,
            *around.load_offsets(key),
            partition.segments,
            key,
            offset_problems=around.offset_problems(),
            cluster_id=around.cluster_id,
        )

    def of(self, partition: Partition) -> FoundPartition:
        """The same, as it was listed again."""
        if partition is self.partition:
            return self
        chosen = {each.base_offset for each in self.segments}
        segments = tuple(
            each for each in partition.segments if self.is_whole or each.base_offset in chosen
        )
        return replace(self, partition=partition, segments=segments)

    @property
    def is_replica(self) -> bool:
        """Whether it is the log that a broker has of a partition, and not a part or a copy."""
        is_live = self.partition.state is PartitionState.LIVE
        return self.is_whole and is_live and self.topic_partition is not None


def choose_found(
    found: Iterable[FoundPartition], on_failure: Callable[[FoundPartition, OSError], None]
) -> ChosenReplicas[FoundPartition]:
    """Choose the most advanced replica of each partition, as :func:`choose_replicas` does.

    Raises:
        UsageProblem: they belong to several clusters.
    """
    replicas = list(found)
    require_one_cluster((each.partition.path.parent, each.cluster_id) for each in replicas)
    return choose_replicas(replicas, on_failure)


def find_partitions(
    options: SourceOptions, filters: PushedFilters, *, skips_unreadable: bool = False
) -> list[FoundPartition]:
    """Find the partitions to read, in the order of the paths: as the options say, each once.

    Segments, and copies that are deleted, stray or moving, are found where they are named
    themselves, whatever else is.

    Args:
        filters: that rows have to match.
        skips_unreadable: log partitions that cannot be listed, and leave them out.

    Raises:
        UsageProblem: a path is not Kafka's, or none of the paths has a topic or partition that an
            option names; or replicas to choose from belong to several clusters.
        KdumpError: a selected partition cannot be listed; or the mode is ``FAILFAST``, and a
            checkpoint that should have its offsets cannot be read or is malformed.
        OSError: a file cannot be read.
    """
    search = _Search(options, filters, skips_unreadable)
    found: list[FoundPartition] = []
    for path in locations(options):
        with unreadable_logged(is_skipped=skips_unreadable):
            for each in search.found(path):
                # One by one, so that those before a failure are kept.
                found += [each] if options.topics.has(each.topic_partition) else []
    _refuse_missing(options, search.present)
    if (said := left_in_copies(search.copies, search.present, "read")) is not None:
        _LOG.warning("%s; name the directory to read it", said, extra=with_status(ExitStatus.SOUND))
    if not skips_unreadable:
        _refuse_incomplete_archives(options)
    _refuse_uncertain_offsets(found, options)
    if options.replicas is Replicas.ALL:
        return found

    def failed(_replica: FoundPartition, failure: OSError) -> None:
        with unreadable_logged(is_skipped=skips_unreadable):
            raise failure

    replicas = choose_found((each for each in found if each.is_replica), failed)
    return replicas.without_others(found)


def leaves_out_replicas(options: SourceOptions) -> bool:
    """Whether a query reads one replica of a partition, and not the others at its paths.

    Raises:
        KdumpError: as :func:`find_partitions` does, but not for a partition that cannot be listed.
        OSError: a directory cannot be read.
    """
    if options.replicas is Replicas.ALL:
        return False
    search = _Search(options, PushedFilters(), skips_unreadable=True)
    present = [
        each.topic_partition
        for path in locations(options)
        for each in search.found(path)
        if each.is_replica
    ]
    return len(set(present)) < len(present)


def _refuse_incomplete_archives(options: SourceOptions) -> None:
    """Let the query fail if an archive is not whole; log it where damage is to be skipped."""
    for what in missing_in_archives(options.paths):
        with unreadable_logged(is_skipped=options.mode is Mode.DROPMALFORMED):
            raise KdumpError(f"{what} (mode DROPMALFORMED reads the rest)")


def _refuse_uncertain_offsets(found: Iterable[FoundPartition], options: SourceOptions) -> None:
    """Let the query fail without the checkpoints; log that where damage does not end it."""
    problems = {problem.path: problem for each in found for problem in each.offset_problems}
    for problem in problems.values():
        failure = CheckpointError(problem)
        if options.mode is Mode.FAILFAST:
            raise failure
        _LOG.warning("%s", problem, extra=with_status(failure.exit_status))


def locations(options: SourceOptions) -> list[Location]:
    """The paths, with the remote segments of their partitions if the options name any.

    Raises:
        KdumpError: there are no remote segments at the place that is named.
    """
    return named_locations(options.paths, options.remote, options.private_key)


def _refuse_missing(options: SourceOptions, present: AbstractSet[TopicPartition]) -> None:
    bounded = options.start.by_partition.keys() | options.end.by_partition.keys()
    missing = options.topics.missing(present) or sorted(map(str, bounded - present))
    refuse_absent(missing, options.paths)


def refuse_absent(absent: Sequence[str], paths: Iterable[str]) -> None:
    """Refuse topics and partitions that an option names and that are not there.

    Raises:
        UsageProblem: there are some.
    """
    if absent:
        places = ", ".join(str(parse_location(path)) for path in paths)
        raise UsageProblem(
            f"kafka-log finds no {', '.join(absent)} in {places};"
            " run kdump ls to see the partitions"
        )


class _Search(Struct):
    """Finds the selected partitions of paths, and notes what else they have.

    Attributes:
        present: the partitions whose logs they have.
        copies: selected directories that are deleted, stray or moving.
    """

    options: SourceOptions
    filters: PushedFilters
    skips_unreadable: bool
    present: set[TopicPartition] = field(default_factory=set)
    copies: list[Partition] = field(default_factory=list)

    def found(self, path: Location) -> Iterator[FoundPartition]:
        """The selected partitions of a path."""
        entry_kind = path.kind()
        if entry_kind is None:
            raise UsageProblem(f"Path does not exist: {path.as_absolute()}")
        if entry_kind is EntryKind.FILE:
            yield self._noted(lone_segment(path))
            return
        kind = directory.directory_kind(path)
        if kind.is_log_directory:
            yield from self._in_log_directory(path, kind)
        elif kind.is_partition:
            yield self._noted(lone_partition(path))
        elif inside := directory.log_directories_below(path):
            for each in inside:
                yield from self._in_log_directory(each, directory.directory_kind(each))
        else:
            raise UsageProblem(f"{path} is neither a Kafka log directory nor a partition")

    def _noted(self, found: FoundPartition) -> FoundPartition:
        if found.topic_partition is not None:
            self.present.add(found.topic_partition)
        return found

    def _is_selected(self, name: str, key: TopicPartition) -> bool:
        if name == str(key):
            self.present.add(key)
        return (
            self.options.topics.has(key)
            and self.filters.has_topic(key.topic)
            and self.filters.has_partition(key.partition)
        )

    def _in_log_directory(self, path: Location, kind: DirectoryKind) -> Iterator[FoundPartition]:
        found = directory.read_log_directory(path, kind, select=self._is_selected)
        for name in (*found.unreadable, *found.absent):
            unreadable = path / name
            reasons = [str(problem) for problem in found.problems if problem.path == unreadable]
            with unreadable_logged(is_skipped=self.skips_unreadable):
                raise KdumpError("; ".join(reasons) or f"{unreadable} cannot be listed")
        if (said := left_in_tier(found, found.partitions)) is not None:
            _LOG.warning("%s", said, extra=with_status(ExitStatus.SOUND))
        for partition in found.partitions:
            # Future, deleted and stray partitions are read only if their own path is given.
            if partition.state is not PartitionState.LIVE:
                self.copies.append(partition)
            elif partition.topic_partition is not None:
                key = partition.topic_partition
                with unreadable_logged(is_skipped=self.skips_unreadable):
                    loaded = as_loaded(partition)
                    yield FoundPartition.in_directory(loaded, key, found)


def _named(path: Location) -> Location:
    """The path in a form that ends with the name of a file; the names of links stay."""
    named = path.as_absolute()
    return path.resolved() if named.name in ("", "..") else named


def lone_partition(path: Location) -> FoundPartition:
    """A partition by the path of its directory.

    Raises:
        KdumpError: an interrupted swap cannot be finished.
        OSError: the directory cannot be listed.
    """
    named = _named(path)
    note_holder_around(path)
    partition = as_loaded(directory.read_lone_partition(path, named.name))
    key = partition.topic_partition
    around = _root_of(path.around)
    if key is None or around is None:
        return FoundPartition(partition, FIRST_OFFSET, FIRST_OFFSET, partition.segments, key)
    return FoundPartition.in_directory(partition, key, around)


def lone_segment(path: Location) -> FoundPartition:
    """A single log, with any file suffix such as ``.swap``.

    Raises:
        UsageProblem: the file does not have the name of a log.
        OSError: it does not exist, or its directory cannot be listed.
    """
    named = _named(path)
    parsed = names.parse_offset_file_name(named.name)
    if parsed is None or parsed.kind not in LOG_KINDS:
        raise UsageProblem(f"{path} is not a segment: it does not have the name of a log")
    note_holder_around(path)
    partition = directory.read_lone_partition(path.parent, named.parent.name)
    try:
        partition = as_loaded(partition)
    except UnfinishedSwapError:
        # The file can still be read alone.
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
    # A file that was named is read from its beginning, even below the log start offset.
    key, around = partition.topic_partition, _root_of(path.parent.around)
    flushed_offset: int | None = FIRST_OFFSET
    if key is not None and around is not None:
        _, flushed_offset = around.load_offsets(key)
    return FoundPartition(partition, FIRST_OFFSET, flushed_offset, (segment,), key, is_whole=False)


def _root_of(log_dir: Location) -> LogDirectory | None:
    """The files in the root of the log directory of a partition; None if it cannot be listed."""
    try:
        return directory.read_root(
            log_dir, DirectoryKind.LOG_DIRECTORY, select=lambda _name, _key: False
        )[0]
    except OSError:
        return None
