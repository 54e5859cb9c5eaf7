"""What becomes of log directories when old segments go, by retention or to free so much space.

Nothing is written: what comes out is the wanted state, for ``kdump retain`` to show and to apply.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kdump.broker.loader.checkpoints import is_loaded
from kdump.broker.retention.free_space import choose_to_free
from kdump.broker.retention.retention import Reason, RetainableLog
from kdump.engine.engine import Engine, run_all
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, open_engine
from kdump.engine.progress import SILENT, Progress
from kdump.errors import KdumpError
from kdump.jobs.retain.old_segments import (
    INTERNAL_TOPICS,
    DirectoryDeletion,
    NotDeleted,
    PartitionDeletion,
    SegmentDecision,
    directory_result,
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
from kdump.log.broker import partitions_twice
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.log.selection import PartitionSelection
from kdump.phases import during
from kdump.state.settings import Settings
from kdump.storage.location import Location
from kdump.words import counted


@dataclass(frozen=True, slots=True)
class RetainRequest:
    """What is to be given up.

    Attributes:
        directories: log directories, as they lie on disk.
        settings: of their topics, by the path of the directory.
        selection: which partitions.
        now_ms: what time it is.
        is_replicated: whether the operator says that all logs are replicated up to their ends.
        free_bytes: how much to free, whatever retention says; None to apply retention.
    """

    directories: Sequence[LogDirectory]
    settings: Mapping[Location, Settings]
    selection: PartitionSelection
    now_ms: int
    is_replicated: bool = False
    free_bytes: int | None = None

    def selected_in(self, directory: LogDirectory) -> list[Partition]:
        """The selected partitions of a log directory that a broker would load."""
        return [each for each in directory.partitions if is_loaded(each) and each in self.selection]


@during("finding out what to delete")
def retain(
    request: RetainRequest,
    options: EngineOptions = DEFAULT_OPTIONS,
    progress: Progress = SILENT,
) -> list[DirectoryDeletion]:
    """Say what becomes of log directories; those in which no topic is meant are left out.

    Raises:
        NotCleanError: one of them was not left by a clean stop.
        InvalidSettingError: a property of a topic has a value that Kafka does not take.
        KdumpError: not as much can be freed as was asked for, or the engine broke.
    """
    selected = [(directory, request.selected_in(directory)) for directory in request.directories]
    for directory, partitions in selected:
        if partitions:
            require_clean(directory)
    twice = partitions_twice(request.directories)
    asked = [
        _asked(request, directory, partition, twice)
        for directory, partitions in selected
        for partition in partitions
    ]
    splits = [_split(request, each) for each in asked if each.unchanged is None]
    total_bytes = sum(split.size_bytes for split in splits)
    with open_engine(options, total_bytes=total_bytes, progress=progress) as engine:
        decided = [_decided(each, result) for each, result in _run(engine, asked, splits)]
        if request.free_bytes is not None:
            decided = _freed(request.free_bytes, decided, splits, engine)
    return [
        directory_result(directory, [each for each in decided if each.directory is directory])
        for directory, partitions in selected
        if partitions
    ]


def _asked(
    request: RetainRequest,
    directory: LogDirectory,
    partition: Partition,
    twice: Collection[Location],
) -> PartitionDeletion:
    """A partition before anybody has looked at it."""
    assert partition.topic_partition is not None
    topic = request.settings[directory.path].topic(partition.topic_partition.topic)
    result = PartitionDeletion(directory, partition, topic)
    return replace(result, unchanged=_why_unchanged(request, result, twice))


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
    engine: Engine, asked: Sequence[PartitionDeletion], splits: Sequence[DeleteSegmentsSplit]
) -> Iterator[tuple[PartitionDeletion, DeleteSegmentsResult | None]]:
    """Give each of ``asked`` with what was found out; with nothing where it has no split."""
    results = run_all(engine, DeleteSegmentsJob(), splits)
    found = {split.path: result for split, result in zip(splits, results, strict=True)}
    for each in asked:
        yield each, found.get(each.partition.path)


def _decided(asked: PartitionDeletion, result: DeleteSegmentsResult | None) -> PartitionDeletion:
    if result is None:
        return asked
    if not isinstance(result, LogDeletion):
        return replace(asked, problem=result)
    fates = tuple(
        SegmentDecision(fate.segment, fate.is_deleted, fate.reason.value, fate.goes_at_ms)
        for fate in result.fates
    )
    return replace(
        asked, log=result.log, outcome=result.outcome, fates=fates, held_back=result.held_back
    )


def _why_unchanged(
    request: RetainRequest, result: PartitionDeletion, twice: Collection[Location]
) -> NotDeleted | None:
    name, topic = result.topic_partition.topic, result.settings
    is_named = request.selection.names(result.topic_partition)
    if name in INTERNAL_TOPICS and not is_named:
        return NotDeleted.INTERNAL
    why = why_not_deleted(result, is_policy_needed=not is_named, twice=twice)
    if why is not None:
        return why
    if not is_named and not topic.is_remote_storage_known:
        return NotDeleted.REMOTE_STORAGE_UNKNOWN
    if request.free_bytes is not None:
        return NotDeleted.COMPACTED if not topic.is_deleted and not is_named else None
    has_retention = topic.is_deleted or not topic.is_policy_known
    return NotDeleted.UNKNOWN if has_retention and not topic.is_retention_known else None


def _freed(
    wanted_bytes: int,
    results: Sequence[PartitionDeletion],
    splits: Sequence[DeleteSegmentsSplit],
    engine: Engine,
) -> list[PartitionDeletion]:
    """Give up the oldest segments until there is as much space as is wanted.

    Raises:
        KdumpError: there would not be, or the engine broke.
    """
    logs = {each.partition.path: each.log for each in results if each.log is not None}
    deleted_bytes = {
        each.partition.path: sum(leftover.size_bytes for leftover in each.partition.leftovers)
        for each in results
        if each.log is not None
    }
    begun_bytes = sum(deleted_bytes.values())
    choice = choose_to_free(list(logs.values()), max(0, wanted_bytes - begun_bytes))
    if not choice.is_enough:
        raise KdumpError(
            f"no more than {choice.freed_bytes + begun_bytes} bytes of the {wanted_bytes} wanted"
            f" can be freed in the selected topics: {_why_not_more(results)}; nothing has been"
            " changed; ask for less, or for more topics"
        )
    counts = dict(zip(logs, choice.counts, strict=True))
    shortened = [
        replace(split, rule=FirstSegments(counts[split.path]))
        for split in splits
        if counts.get(split.path) or deleted_bytes.get(split.path)
    ]
    return [_given_up(each, found, counts) for each, found in _run(engine, results, shortened)]


def _why_not_more(results: Sequence[PartitionDeletion]) -> str:
    """Why no more segments can go, with a partition for each reason for which it was left."""
    reasons = ["the rest is not replicated, not known to be, or empty"]
    left = {each.unchanged: each for each in reversed(results) if each.unchanged is not None}
    for why, example in left.items():
        count = sum(each.unchanged is why for each in results)
        name = example.topic_partition
        needed = f" (give --config {why.needed_config})" if why.needed_config else ""
        reasons.append(
            f"{counted(count, 'partition')} left unchanged, such as {name}: {why.value}{needed}"
        )
    return "; ".join(reasons)


def _given_up(
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
        fates=tuple(
            SegmentDecision(segment, at < count, _why_given_up(log, at, count))
            for at, segment in enumerate(log.segments)
        ),
        held_back=() if log.has_high_watermark else (Reason.NO_HIGH_WATERMARK,),
    )


def _why_given_up(log: RetainableLog, at: int, count: int) -> str:
    """Why a segment goes or stays where space is wanted."""
    if at < count:
        return "it is one of the oldest, and space is wanted"
    if log.is_deletable(at):
        return "enough is freed without it"
    if not log.has_next(at) and not log.segments[at].size_bytes:
        return Reason.EMPTY_ACTIVE.value
    kept = Reason.HIGH_WATERMARK if log.has_high_watermark else Reason.NO_HIGH_WATERMARK
    return str(kept.value)
