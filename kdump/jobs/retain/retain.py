"""Delete old segments of log directories, by retention or to free space.

Nothing is written: the result is a target state, for ``kdump retain`` to show and to apply.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kdump.broker.loader.checkpoints import is_loaded
from kdump.broker.retention.free_space import choose_to_free
from kdump.broker.retention.retention import Reason, RetainableLog
from kdump.check.scope import becomes_log
from kdump.engine.engine import Engine, run_all
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, open_engine
from kdump.formats.names import COORDINATOR_TOPICS
from kdump.jobs.retain.old_segments import (
    DirectoryDeletion,
    NotDeleted,
    PartitionDeletion,
    SegmentDecision,
    missing_policy,
    require_clean,
    why_not_deleted,
)
from kdump.jobs.retain.segment_deletion import (
    ByRetention,
    DecideLater,
    DeleteSegmentsJob,
    DeleteSegmentsResult,
    DeleteSegmentsSplit,
    FirstSegments,
    LogDeletion,
    delete_segments_split,
)
from kdump.log.broker import partitions_twice, unfinished_moves
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.log.selection import PartitionSelection
from kdump.phases import during
from kdump.state.metadata.settings import DirectorySettings, TopicSettings
from kdump.storage.location import Location


class RetainRequest(Struct, frozen=True):
    """What to delete.

    Attributes:
        free_bytes: how much to free, whatever retention says; None to apply retention.
    """

    directories: Sequence[LogDirectory]
    settings: DirectorySettings
    selection: PartitionSelection
    now_ms: int
    is_replicated: bool = False
    free_bytes: int | None = None

    def selected_in(self, directory: LogDirectory) -> list[Partition]:
        """The selected partitions of a log directory that a broker would load."""
        return [each for each in directory.partitions if self.is_selected(each)]

    def is_selected(self, partition: Partition) -> bool:
        """Whether a partition is selected, and a broker would load it."""
        return is_loaded(partition) and partition in self.selection


@during("finding out what to delete")
def retain(
    request: RetainRequest,
    options: EngineOptions = DEFAULT_OPTIONS,
) -> list[DirectoryDeletion]:
    """Compute the target state of log directories; those without selected partitions are left out.

    Raises:
        NotCleanError: a directory needs recovery first.
        InvalidSettingError: a property of a topic has a value that Kafka does not take.
        KdumpError: the engine failed.
    """
    selected = [(directory, request.selected_in(directory)) for directory in request.directories]
    for directory, partitions in selected:
        if partitions:
            require_clean(directory)
    twice, moving = partitions_twice(request.directories), _moving(request)
    undecided = [
        _undecided(request, directory, partition, twice, moving)
        for directory, partitions in selected
        for partition in partitions
    ]
    splits = [_split(request, each) for each in undecided if each.unchanged is None]
    total_bytes = sum(split.size_bytes for split in splits)
    with open_engine(options, total_bytes=total_bytes) as engine:
        decided = [_decided(each, result) for each, result in _run(engine, undecided, splits)]
        if request.free_bytes is not None:
            decided = _freed(request.free_bytes, decided, splits, engine)
    return [
        DirectoryDeletion(directory, tuple(each for each in decided if each.directory is directory))
        for directory, partitions in selected
        if partitions
    ]


def decide_partition(
    request: RetainRequest, directory: LogDirectory, partition: Partition
) -> PartitionDeletion:
    """Apply retention to one partition, which has no other directory and was listed with entries.

    Raises:
        InvalidSettingError: a property of its topic has a value that Kafka does not take.
    """
    result = _undecided(request, directory, partition, (), ())
    if result.unchanged is not None:
        return result
    return _decided(result, DeleteSegmentsJob().run(_split(request, result), partition.entries))


def _moving(request: RetainRequest) -> set[Location]:
    """The copies on their way from other log directories.

    A copy replaces its log when it is complete: that would lose what only the copy has lost. One
    without a log, or that a starting broker makes the log, is not among them.
    """
    return {
        each.copy.path
        for each in unfinished_moves(request.directories)
        if each.log is not None
        and not becomes_log(
            each.copy, each.directory, request.settings[each.directory.path].cluster
        )
    }


def _undecided(
    request: RetainRequest,
    directory: LogDirectory,
    partition: Partition,
    twice: Collection[Location],
    moving: Collection[Location],
) -> PartitionDeletion:
    """A partition before its log was read."""
    topic = request.settings[directory.path].topic(partition.key.topic)
    result = PartitionDeletion(directory, partition, topic)
    unchanged = _why_unchanged(request, result, twice, moving)
    if unchanged is None or not unchanged.is_unknown:
        return replace(result, unchanged=unchanged)
    return replace(result, unchanged=unchanged, missing=_missing(request, result, unchanged))


def _split(request: RetainRequest, result: PartitionDeletion) -> DeleteSegmentsSplit:
    is_freeing = request.free_bytes is not None
    return delete_segments_split(
        result.partition,
        result.directory,
        request.settings[result.directory.path],
        DecideLater() if is_freeing else ByRetention(result.settings, request.now_ms),
        now_ms=request.now_ms,
        is_replicated=request.is_replicated,
    )


def _run(
    engine: Engine, partitions: Sequence[PartitionDeletion], splits: Sequence[DeleteSegmentsSplit]
) -> Iterator[tuple[PartitionDeletion, DeleteSegmentsResult | None]]:
    """Yield each partition with the result of its split; None if it has none."""
    results = run_all(engine, DeleteSegmentsJob(), splits)
    found = {split.path: result for split, result in zip(splits, results, strict=True)}
    for each in partitions:
        yield each, found.get(each.partition.path)


def _decided(
    partition: PartitionDeletion, result: DeleteSegmentsResult | None
) -> PartitionDeletion:
    if result is None:
        return partition
    if not isinstance(result, LogDeletion):
        return replace(partition, problem=result)
    decisions = tuple(
        SegmentDecision(each.segment, each.is_deleted, each.reason.value, each.goes_at_ms)
        for each in result.decisions
    )
    return replace(
        partition,
        log=result.log,
        outcome=result.outcome,
        decisions=decisions,
        held_back=result.held_back,
    )


def _why_unchanged(
    request: RetainRequest,
    result: PartitionDeletion,
    twice: Collection[Location],
    moving: Collection[Location],
) -> NotDeleted | None:
    name, topic = result.topic_partition.topic, result.settings
    is_named = request.selection.names(result.topic_partition)
    if name in COORDINATOR_TOPICS and not is_named:
        return NotDeleted.INTERNAL
    why = why_not_deleted(result, is_policy_needed=not is_named, twice=twice)
    if why is not None:
        return why
    if not is_named and not topic.is_remote_storage_known:
        return NotDeleted.REMOTE_STORAGE_UNKNOWN
    if request.free_bytes is not None:
        if result.partition.path in moving:
            return NotDeleted.MOVING
        return NotDeleted.COMPACTED if not topic.is_deleted and not is_named else None
    return NotDeleted.UNKNOWN if _lacks_retention(topic) else None


def _missing(request: RetainRequest, result: PartitionDeletion, why: NotDeleted) -> tuple[str, ...]:
    """All settings that have to be given before the log can be shortened."""
    topic = result.settings
    is_named = request.selection.names(result.topic_partition)
    missing = missing_policy(why)
    if not is_named and not topic.is_remote_storage_known:
        missing += ("remote.storage.enable=false",)
    if request.free_bytes is None and _lacks_retention(topic):
        missing += ("retention.ms=...",)
    return missing


def _lacks_retention(topic: TopicSettings) -> bool:
    has_retention = topic.is_deleted or not topic.is_policy_known
    return has_retention and not topic.is_retention_known


def _freed(
    needed_bytes: int,
    results: Sequence[PartitionDeletion],
    splits: Sequence[DeleteSegmentsSplit],
    engine: Engine,
) -> list[PartitionDeletion]:
    """Delete the oldest segments until ``needed_bytes`` are free, or as many as may be deleted.

    Raises:
        KdumpError: the engine failed.
    """
    logs = {each.partition.path: each.log for each in results if each.log is not None}
    deleted_bytes = {
        each.partition.path: sum(leftover.size_bytes for leftover in each.partition.leftovers)
        for each in results
        if each.log is not None
    }
    begun_bytes = sum(deleted_bytes.values())
    chosen = choose_to_free(list(logs.values()), max(0, needed_bytes - begun_bytes))
    counts = dict(zip(logs, chosen, strict=True))
    shortened = [
        replace(split, rule=FirstSegments(counts[split.path]))
        for split in splits
        if counts.get(split.path) or deleted_bytes.get(split.path)
    ]
    return [_without_first(each, found, counts) for each, found in _run(engine, results, shortened)]


def _without_first(
    result: PartitionDeletion, found: DeleteSegmentsResult | None, counts: Mapping[Location, int]
) -> PartitionDeletion:
    if result.log is None:
        return result
    if found is not None and not isinstance(found, LogDeletion):
        return replace(result, problem=found, log=None)
    log, count = result.log, counts[result.partition.path]
    return replace(
        result,
        outcome=None if found is None else found.outcome,
        decisions=tuple(
            SegmentDecision(segment, at < count, _why_deleted(log, at, count))
            for at, segment in enumerate(log.segments)
        ),
        held_back=() if log.has_high_watermark else (Reason.NO_HIGH_WATERMARK,),
    )


def _why_deleted(log: RetainableLog, at: int, count: int) -> str:
    """Why a segment is deleted or kept to free space."""
    if at < count:
        return "it is one of the oldest, and space is needed"
    if log.is_deletable(at):
        return "enough is freed without it"
    if not log.has_next(at) and not log.segments[at].size_bytes:
        return Reason.EMPTY_ACTIVE.value
    kept = Reason.HIGH_WATERMARK if log.has_high_watermark else Reason.NO_HIGH_WATERMARK
    return str(kept.value)
