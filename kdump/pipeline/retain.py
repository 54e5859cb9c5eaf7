"""What becomes of log directories when old segments go, by retention or to free so much space.

Nothing is written: what comes out is the wanted state, for ``kdump retain`` to show and to apply.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from kdump.clean.retention import Reason
from kdump.clean.retention_free import choose_to_free
from kdump.clean.retention_outcome import LoadedLog, retained
from kdump.errors import KdumpError
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.log.settings import Settings, TopicSettings
from kdump.pipeline.giving_up import (
    INTERNAL_TOPICS,
    DirectoryResult,
    Fate,
    Left,
    PartitionResult,
    directory_result,
    has_doubtful_policy,
    load,
    require_clean,
)
from kdump.repair.checkpoints import is_loaded
from kdump.repair.wanted import Kept
from kdump.repair.workspace import SNAPSHOT_SUFFIX

_RETENTION_NAMES: Final = frozenset(
    {
        "retention.bytes",
        "retention.ms",
        "log.retention.bytes",
        "log.retention.hours",
        "log.retention.minutes",
        "log.retention.ms",
    }
)
"""Properties by which somebody says when something is to go."""


@dataclass(frozen=True, slots=True)
class Topics:
    """Which topics are meant.

    Attributes:
        globs: patterns for their names.
    """

    globs: tuple[str, ...]

    def __contains__(self, partition: Partition) -> bool:
        """Whether a partition is meant: a log of one of the topics, and in use."""
        key = partition.topic_partition
        return (
            key is not None
            and is_loaded(partition)
            and any(fnmatch.fnmatchcase(key.topic, glob) for glob in self.globs)
        )

    def names(self, topic: str) -> bool:
        """Whether a topic is meant by its very name, not by a pattern."""
        return topic in self.globs


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be given up.

    Attributes:
        directories: log directories, as they lie on disk.
        settings: of their topics.
        topics: which of them.
        now_ms: what time it is.
        is_replicated: whether the operator says that all logs are replicated up to their ends.
        free_bytes: how much to free, whatever retention says; None to apply retention.
    """

    directories: Sequence[LogDirectory]
    settings: Settings
    topics: Topics
    now_ms: int
    is_replicated: bool = False
    free_bytes: int | None = None


def retain(request: Request) -> list[DirectoryResult]:
    """Say what becomes of log directories; those in which no topic is meant are left out.

    Raises:
        NotCleanError: one of them was not left by a clean stop, or something lies about in it.
        InvalidSettingError: a property of a topic has a value that Kafka does not take.
        KdumpError: not as much can be freed as was asked for.
    """
    selected = [
        (directory, [each for each in directory.partitions if each in request.topics])
        for directory in request.directories
    ]
    for directory, partitions in selected:
        if partitions:
            require_clean(directory, partitions)
    looked_at = [
        _looked_at(request, directory, partition)
        for directory, partitions in selected
        for partition in partitions
    ]
    if request.free_bytes is None:
        decided = [_retained(request, each) for each in looked_at]
    else:
        decided = _freed(request.free_bytes, looked_at)
    return [
        directory_result(directory, [each for each in decided if each.directory is directory])
        for directory, partitions in selected
        if partitions
    ]


def _looked_at(request: Request, directory: LogDirectory, partition: Partition) -> PartitionResult:
    assert partition.topic_partition is not None
    topic = request.settings.topic(partition.topic_partition.topic)
    result = PartitionResult(directory, partition, topic)
    left = _why_left(request, result)
    if left is not None:
        return replace(result, left=left)
    return load(result, request.settings, request.now_ms, is_replicated=request.is_replicated)


def _why_left(request: Request, result: PartitionResult) -> Left | None:
    name, topic = result.topic_partition.topic, result.settings
    is_named = request.topics.names(name)
    if name in INTERNAL_TOPICS and not is_named:
        return Left.INTERNAL
    if topic.remote_storage_enable:
        return Left.REMOTE_STORAGE
    if has_doubtful_policy(result):
        return Left.POLICY_UNKNOWN
    if request.free_bytes is None:
        is_known = _is_retention_known(request.settings, name, topic)
        return None if is_known else Left.UNKNOWN
    return Left.COMPACTED if not topic.is_deleted and not is_named else None


def _is_retention_known(settings: Settings, name: str, topic: TopicSettings) -> bool:
    """Whether anybody said anything about it: Kafka's defaults are no reason to delete."""
    if topic.is_policy_known and not topic.is_deleted:
        return True  # it has none
    topics = {} if settings.cluster is None else settings.cluster.topics
    said = settings.given.keys() | settings.broker.keys()
    return name in topics or not _RETENTION_NAMES.isdisjoint(said)


def _retained(request: Request, result: PartitionResult) -> PartitionResult:
    """Apply the retention of its topic to a log."""
    if result.loaded is None:
        return result
    found = retained(result.loaded, result.settings, request.now_ms)
    fates = tuple(
        Fate(fate.segment, fate.is_deleted, fate.reason.value, fate.goes_at_ms)
        for fate in found.fates
    )
    is_settled = not found.deleted and _is_as_left(result.loaded)
    outcome = None if is_settled else found.outcome
    return replace(result, outcome=outcome, fates=fates, held_back=found.held_back)


def _is_as_left(loaded: LoadedLog) -> bool:
    """Whether loading a log changes nothing but what it changes at one start or another anyway.

    At its first start after segments went a broker drops a producer snapshot that they leave
    behind; of an empty log it drops and makes one by turns, and forgets the leader epoch. Nobody
    has asked for that here, and a second run would not find the directory as the first one left it.
    """
    changed = {name for name, each in loaded.loaded.files.items() if not isinstance(each, Kept)}
    is_empty = loaded.log.log_start_offset == loaded.log.log_end_offset
    return is_empty or all(name.endswith(SNAPSHOT_SUFFIX) for name in changed)


def _freed(wanted_bytes: int, results: Sequence[PartitionResult]) -> list[PartitionResult]:
    """Give up the oldest segments until there is as much space as is wanted.

    Raises:
        KdumpError: there would not be.
    """
    logs = [result.loaded.log for result in results if result.loaded is not None]
    choice = choose_to_free(logs, wanted_bytes)
    if not choice.is_enough:
        raise KdumpError(
            f"no more than {choice.freed_bytes} bytes of the {wanted_bytes} wanted can be freed in"
            " the topics that are meant, as the rest is not replicated, not known to be, or empty;"
            " nothing has been changed; ask for less, or for more topics"
        )
    counts = iter(choice.counts)
    return [
        result if result.loaded is None else _without_first(result, result.loaded, next(counts))
        for result in results
    ]


def _without_first(result: PartitionResult, loaded: LoadedLog, count: int) -> PartitionResult:
    log = loaded.log
    return replace(
        result,
        outcome=loaded.without_first(count) if count else None,
        fates=tuple(
            Fate(segment, at < count, _why_given_up(loaded, at, count))
            for at, segment in enumerate(log.segments)
        ),
        held_back=() if log.has_high_watermark else (Reason.NO_HIGH_WATERMARK,),
    )


def _why_given_up(loaded: LoadedLog, at: int, count: int) -> str:
    """Why a segment goes or stays where space is wanted."""
    log = loaded.log
    if at < count:
        return "it is one of the oldest, and space is wanted"
    if log.may_go(at):
        return "enough is freed without it"
    if not log.has_next(at) and not log.segments[at].size_bytes:
        return Reason.EMPTY_ACTIVE.value
    kept = Reason.HIGH_WATERMARK if log.has_high_watermark else Reason.NO_HIGH_WATERMARK
    return str(kept.value)
