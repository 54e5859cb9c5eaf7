"""The log cleaner's queue: all compacted logs of each broker, in the order of cleaning."""

from __future__ import annotations

import enum
import math
from collections.abc import Container, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kdump.broker.cleaner.cleaning_order import cleaning_order
from kdump.broker.loader.checkpoints import is_loaded
from kdump.broker.loader.load_context import configured_context
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, run_job
from kdump.formats.names import PartitionState, TopicPartition
from kdump.jobs.compact.cleaner_view import (
    READ_BYTES,
    CleanerOutcome,
    CleanerSplit,
    CleanerView,
    CleanerViewJob,
    Uncleanable,
)
from kdump.jobs.loading.load_split import is_topic_compacted
from kdump.log.broker import Broker, by_broker, partitions_twice
from kdump.log.cleaner_lines import (
    MisplacedLine,
    cleanable_logs,
    cleaner_lines,
    misplaced_lines,
)
from kdump.log.directory import LogDirectory, read_log_directory
from kdump.log.partition import Partition
from kdump.log.selection import EVERYTHING, PartitionSelection
from kdump.phases import during
from kdump.state.metadata.settings import DirectorySettings, Settings, TopicSettings
from kdump.storage.location import Location


class QueueRequest(Struct, frozen=True):
    """What to explain.

    Attributes:
        directories: the log directories; those partitions need not be listed that
            :func:`may_be_compacted` rules out.
        selection: which partitions to explain; all logs of a broker have a place in its queue.
    """

    directories: Sequence[LogDirectory]
    settings: DirectorySettings
    selection: PartitionSelection = EVERYTHING
    is_replicated: bool = False
    now_ms: int = 0


class CleaningState(enum.Enum):
    """What the cleaner makes of a log; the value is the word in the output."""

    QUEUED = "queued"
    """It is cleaned when its turn comes."""
    BELOW_RATIO = "below ratio"
    """Its dirty ratio is not above ``min.cleanable.dirty.ratio``."""
    NOTHING_CLEANABLE = "nothing cleanable"
    """There is no segment between the first dirty and the first uncleanable offset."""
    EMPTY = "empty"
    """The cleaner ignores it: nothing is before the first uncleanable offset."""
    UNCLEANABLE = "uncleanable"
    """The cleaner fails on it, and ignores it from then on."""
    NOT_LOADED = "not loaded"
    """A broker does not load it, or it cannot be read."""


class CheckpointLine(enum.Enum):
    """Where the cleaner's checkpoint has the line of a partition."""

    OWN = "own directory"
    OTHER = "other directory"
    """The broker uses it, too: it looks for lines in all of its directories."""
    NONE = "none"


class QueuedPartition(Struct, frozen=True):
    """A compacted partition, as its broker's cleaner sees it.

    Attributes:
        cleaner_offset: from ``cleaner-offset-checkpoint``; None if it has no line.
        checkpoint_line: where that line is.
        has_high_watermark: whether ``replication-offset-checkpoint`` has a line, or the log is
            assumed to be replicated.
        outcome: what was found; None for a partition with two directories, which stop a broker
            from starting.
        position: its turn, from 1; None if it is not cleaned.
    """

    directory: LogDirectory
    partition: Partition
    topic: TopicSettings
    cleaner_offset: int | None
    checkpoint_line: CheckpointLine
    has_high_watermark: bool
    outcome: CleanerOutcome | None = None
    position: int | None = None

    @property
    def key(self) -> TopicPartition:
        return self.partition.key

    @property
    def view(self) -> CleanerView | None:
        """What the cleaner sees; None if it sees nothing."""
        return self.outcome if isinstance(self.outcome, CleanerView) else None

    @property
    def state(self) -> CleaningState:
        if isinstance(self.outcome, Uncleanable):
            return CleaningState.UNCLEANABLE
        if self.view is None:
            return CleaningState.NOT_LOADED
        log = self.view.log
        if log.is_chosen:
            return CleaningState.QUEUED
        if log.cleanable_ratio is None:
            return CleaningState.EMPTY
        return CleaningState.BELOW_RATIO if log.cleanable_bytes else CleaningState.NOTHING_CLEANABLE


class CleaningQueue(Struct, frozen=True):
    """The cleaner's view of a broker.

    Attributes:
        broker: whose cleaner; None if the directories do not say.
        directories: of the broker, as far as they were given.
        partitions: the selected ones of the compacted partitions: first those that are cleaned, in
            the order of cleaning, then the others, those with the most bytes first that are dirty,
            but not cleanable.
        queued: how many partitions are cleaned, the ones that are not selected included.
        compacted: how many partitions are compacted, likewise.
        unknown: topics that may be compacted: their cleanup policy is unknown.
        misplaced_lines: what ends the cleaner's thread.
    """

    broker: Broker | None
    directories: tuple[LogDirectory, ...]
    partitions: tuple[QueuedPartition, ...]
    queued: int
    compacted: int
    unknown: tuple[str, ...]
    misplaced_lines: tuple[MisplacedLine, ...]


@during("finding what the cleaner sees")
def cleaning_queues(
    request: QueueRequest,
    options: EngineOptions = DEFAULT_OPTIONS,
) -> list[CleaningQueue]:
    """Find the cleaning queue of each broker.

    Raises:
        InvalidSettingError: a property of a topic has a value that Kafka does not take.
        KdumpError: the engine failed.
    """
    candidates = [
        _candidates(request, broker, own) for broker, own in by_broker(request.directories).items()
    ]
    twice = partitions_twice(request.directories)
    splits = {
        each.partition.path: _split(request, each)
        for queue in candidates
        for each in queue.partitions
        if each.partition.path not in twice
    }
    results = run_job(CleanerViewJob(), list(splits.values()), options)
    outcomes = dict(zip(splits, results, strict=True))
    return [_ordered(request, queue, outcomes) for queue in candidates]


def may_be_compacted(
    settings: Settings,
    key: TopicPartition,
    cleaned: Container[str],
    selection: PartitionSelection,
) -> bool | None:
    """Whether the cleaner has a partition; None if that is unknown.

    If its ``cleanup.policy`` is unknown, it counts as compacted if the cleaner has cleaned its
    topic, or if it is given by its exact name.

    Args:
        cleaned: topics with a line in the cleaner's checkpoint: they have been compacted.

    Raises:
        InvalidSettingError: a property of the topic has a value that Kafka does not take.
    """
    if settings.topic(key.topic).is_policy_known or not (
        key.topic in cleaned or selection.names(key)
    ):
        return is_topic_compacted(settings, key.topic)
    return True


def list_compacted(
    roots: Sequence[LogDirectory],
    settings: DirectorySettings,
    selection: PartitionSelection,
) -> list[LogDirectory]:
    """List the partitions of log directories that the cleaner has; of the others only names.

    Args:
        roots: the directories, whose partitions need not be listed.

    Raises:
        InvalidSettingError: a property of a topic has a value that Kafka does not take.
        OSError: a directory cannot be listed.
    """
    cleaned = {key.topic for key in cleaner_lines(roots)}

    def listed(root: LogDirectory) -> LogDirectory:
        own = settings[root.path]

        def is_needed(_: str, key: TopicPartition) -> bool:
            return bool(may_be_compacted(own, key, cleaned, selection))

        return read_log_directory(root.path, root.kind, select=is_needed)

    return [listed(root) for root in roots]


def _candidates(
    request: QueueRequest, broker: Broker | None, directories: Sequence[LogDirectory]
) -> CleaningQueue:
    """The compacted partitions of a broker, before they are looked at."""
    lines = cleaner_lines(directories)
    cleaned = {key.topic for key in lines}
    partitions, unknown = [], dict[str, None]()
    for directory in directories:
        settings = request.settings[directory.path]
        for key in cleanable_logs(directory):
            if may_be_compacted(settings, key, cleaned, request.selection) is None:
                unknown[key.topic] = None
        for partition in directory.partitions:
            of = partition.topic_partition
            is_log = is_loaded(partition) and partition.state is PartitionState.LIVE
            if of and is_log and may_be_compacted(settings, of, cleaned, request.selection):
                topic = settings.topic(of.topic)
                partitions.append(
                    _candidate(request, directory, partition, topic, lines.get(of, {}))
                )
    compacted = {each.key for each in partitions}
    return CleaningQueue(
        broker=broker,
        directories=tuple(directories),
        partitions=tuple(partitions),
        queued=0,
        compacted=len(partitions),
        unknown=tuple(unknown),
        misplaced_lines=tuple(
            each
            for each in misplaced_lines(directories)
            if each.is_repeated or each.key in compacted
        ),
    )


def _candidate(
    request: QueueRequest,
    directory: LogDirectory,
    partition: Partition,
    topic: TopicSettings,
    lines: Mapping[Location, int],
) -> QueuedPartition:
    line, offset = CheckpointLine.NONE, None
    if directory.path in lines:
        line, offset = CheckpointLine.OWN, lines[directory.path]
    elif lines:
        line, offset = CheckpointLine.OTHER, next(iter(lines.values()))
    marks = directory.checkpoints.high_watermarks or {}
    return QueuedPartition(
        directory=directory,
        partition=partition,
        topic=topic,
        cleaner_offset=offset,
        checkpoint_line=line,
        has_high_watermark=request.is_replicated or partition.topic_partition in marks,
    )


def _split(request: QueueRequest, each: QueuedPartition) -> CleanerSplit:
    directory, partition = each.directory, each.partition
    context = configured_context(
        directory,
        each.key,
        request.settings[directory.path],
        now_ms=request.now_ms,
        is_compacted=True,
        is_replicated=request.is_replicated,
    )
    size_bytes = len(partition.segments) * READ_BYTES
    if not directory.is_clean and partition.segments:
        size_bytes += partition.segments[-1].data_bytes
    return CleanerSplit(
        partition.path,
        size_bytes=size_bytes,
        label=partition.path.name,
        context=context,
        topic=each.topic,
        cleaner_offset=each.cleaner_offset,
    )


def _ordered(
    request: QueueRequest, queue: CleaningQueue, outcomes: Mapping[Location, CleanerOutcome]
) -> CleaningQueue:
    """The queue after its partitions were looked at."""
    found = [replace(each, outcome=outcomes.get(each.partition.path)) for each in queue.partitions]
    logs = {each.key: each.view.log for each in found if each.view is not None}
    order = cleaning_order(logs, sum(len(list(cleanable_logs(each))) for each in queue.directories))
    positions = {key: position for position, key in enumerate(order, start=1)}
    placed = [
        replace(each, position=positions.get(each.key)) if each.view is not None else each
        for each in found
        if each.partition in request.selection
    ]
    return replace(queue, partitions=tuple(sorted(placed, key=_rank)), queued=len(order))


def _rank(each: QueuedPartition) -> tuple[float, int, TopicPartition]:
    position = math.inf if each.position is None else each.position
    held_bytes = 0 if each.view is None else each.view.log.held_bytes
    return position, -held_bytes, each.key
