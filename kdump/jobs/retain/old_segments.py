"""Delete the first segments of logs: when that is refused, and the target state of directories.

Nothing is written: the result is a target state, for a command to show and to apply.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from kdump.apply.plan import TargetDirectory, TargetPartition
from kdump.broker.retention.retention import Reason, RetainableLog, RetainableSegment
from kdump.broker.retention.retention_outcome import (
    RetainedPartition,
    interim_log_starts,
    retained_root,
)
from kdump.errors import ExitStatus, KdumpError
from kdump.formats import names
from kdump.formats.names import TopicPartition
from kdump.jobs.loading.verdict_words import REMOTE_STORAGE, TWICE
from kdump.jobs.problems.unreadable import Unreadable
from kdump.log.directory import LogDirectory
from kdump.log.lock_holders import how_to_clean
from kdump.log.partition import Leftover, LeftoverKind, Partition
from kdump.repair.verdict.verdict import Verdict
from kdump.state.metadata.settings import TopicSettings
from kdump.storage.location import Location
from kdump.target.target_file import Gone, TargetFile
from kdump.target.virtual_directory import segment_file_names

_SET_BY_HAND: Final = (
    "remove it, because a broker reads it as empty, and set the known lines with"
    " 'kdump checkpoint set LOG_DIR {} ...'"
)
_NOT_RECOVERED: Final = {
    names.REPLICATION_OFFSET_CHECKPOINT: _SET_BY_HAND.format("replication-offset"),
    names.CLEANER_OFFSET_CHECKPOINT: _SET_BY_HAND.format("cleaner-offset")
    + "; without them, only the cluster's metadata shows which topics are compacted",
}
"""What to do about checkpoints that neither loading nor recovery writes."""


class NotCleanError(KdumpError):
    """A directory must be recovered before anything in it can be deleted."""

    exit_status = ExitStatus.DAMAGE_LEFT


class NotDeleted(enum.Enum):
    """Why no segment of a partition is deleted, whatever its age; the value says it."""

    INTERNAL = "its topic is internal; select it by its exact name"
    COMPACTED = "its topic is only compacted; select it by its exact name"
    REMOTE_STORAGE = REMOTE_STORAGE
    REMOTE_STORAGE_UNKNOWN = "it is not known whether its topic has remote.storage.enable"
    UNKNOWN = "neither retention.ms nor retention.bytes of its topic is known"
    POLICY_UNKNOWN = "cleanup.policy of its topic is not known"
    WAS_COMPACTED = (
        "its cleanup.policy is not known, but a line in cleaner-offset-checkpoint shows that it was"
        " compacted"
    )
    TWICE = TWICE
    MOVING = "it is a copy on its way from another log directory, whose log it will replace"
    LEFTOVERS = (
        "it has leftover files of an interrupted swap or write; run kdump recover first, which"
        " finishes it"
    )

    @property
    def is_refusal(self) -> bool:
        """Whether the partition was selected, but cannot be changed."""
        return self not in (NotDeleted.INTERNAL, NotDeleted.COMPACTED, NotDeleted.MOVING)

    @property
    def is_unknown(self) -> bool:
        """Whether it lacks only the configuration of its topic."""
        return self in _UNKNOWN


_UNKNOWN: Final = frozenset(
    {
        NotDeleted.REMOTE_STORAGE_UNKNOWN,
        NotDeleted.UNKNOWN,
        NotDeleted.POLICY_UNKNOWN,
        NotDeleted.WAS_COMPACTED,
    }
)


class SegmentDecision(Struct, frozen=True):
    """Whether to delete a segment, and why.

    Attributes:
        why: the reason, in words.
        goes_at_ms: when it will be old enough; None if it is deleted now, or age alone is not
            enough.
    """

    segment: RetainableSegment
    is_deleted: bool
    why: str
    goes_at_ms: int | None = None


class PartitionDeletion(Struct, frozen=True):
    """The result for a partition.

    Attributes:
        unchanged: why no segment is deleted; None if its log was read.
        missing: all settings that are not known and needed, as ``--config`` takes them.
        problem: why its log cannot be read or changed; None if it can.
        log: the log as retention reads it; None if it was not read.
        outcome: the log afterwards; None if nothing changes.
        decisions: about each segment.
        held_back: why segments stay that are old enough.
    """

    directory: LogDirectory
    partition: Partition
    settings: TopicSettings
    unchanged: NotDeleted | None = None
    missing: tuple[str, ...] = ()
    problem: Verdict | Unreadable | None = None
    log: RetainableLog | None = None
    outcome: RetainedPartition | None = None
    decisions: tuple[SegmentDecision, ...] = ()
    held_back: tuple[Reason, ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        return self.partition.key

    @property
    def needed_options(self) -> str:
        """The options that would let it be changed, in parentheses; empty if none would."""
        options = " ".join(f"--config {each}" for each in self.missing)
        return options and f" (give {options})"

    @property
    def deleted(self) -> tuple[SegmentDecision, ...]:
        return tuple(each for each in self.decisions if each.is_deleted)

    @property
    def dropped_leftovers(self) -> tuple[Leftover, ...]:
        """The files that a broker was deleting, and that are deleted now."""
        return tuple(
            each for each in self.partition.leftovers if isinstance(self.files.get(each.name), Gone)
        )

    @property
    def freed_bytes(self) -> int:
        """The space on disk that deleting the logs, indexes and leftover files frees."""
        leftover_bytes = sum(each.size_bytes for each in self.dropped_leftovers)
        return sum(each.segment.disk_bytes for each in self.deleted) + leftover_bytes

    @property
    def log_start_offset(self) -> int | None:
        """The log start offset afterwards; None if the log was not read."""
        if self.outcome is not None:
            return self.outcome.log_start_offset
        return None if self.log is None else self.log.log_start_offset

    @property
    def files(self) -> dict[str, TargetFile]:
        """The target state of the files that change."""
        return {} if self.outcome is None else self.outcome.files


class DirectoryDeletion(Struct, frozen=True):
    """What a log directory becomes.

    Attributes:
        directory: the directory as it is.
        partitions: the selected partitions.
    """

    directory: LogDirectory
    partitions: tuple[PartitionDeletion, ...]

    @property
    def target(self) -> TargetDirectory:
        """Its target state.

        Raises:
            NotLocalError: it cannot be changed, because it is not on a local disk.
        """
        return _target(self.directory, self.partitions)


def require_clean(directory: LogDirectory) -> None:
    """Refuse a directory that a broker would recover or repair first.

    Raises:
        NotCleanError: the clean shutdown marker is missing, or a checkpoint is malformed.
        OSError: a checkpoint cannot be read.
    """
    advice = how_to_clean(directory.path)
    if not directory.is_clean:
        raise NotCleanError(f"{directory.path}: was not shut down cleanly; {advice}")
    for problem in directory.problems:
        if problem.path.name in directory.checkpoints.by_file_name():
            if isinstance(problem.error, OSError):
                raise problem.error
            instead = _NOT_RECOVERED.get(problem.path.name, advice)
            raise NotCleanError(f"{problem.path}: {problem.error}; {instead}")


def _is_harmless(leftover: Leftover, partition: Partition) -> bool:
    """Whether it is a deleted file, one that a compaction has not finished, or an orphaned index.

    Without a ``.swap`` file, which is never harmless, a broker deletes all ``.cleaned`` ones. The
    index of a segment deleted from the start of the log is left if freeing space on a full disk is
    interrupted; the next run deletes it.
    """
    offset = names.leading_offset(leftover.name)
    return leftover.kind in (LeftoverKind.DELETED, LeftoverKind.CLEANED) or (
        leftover.kind is LeftoverKind.ORPHAN
        and offset is not None
        and bool(partition.segments)
        and offset < partition.segments[0].base_offset
    )


def missing_policy(why: NotDeleted | None) -> tuple[str, ...]:
    """The setting that a log is left unchanged for, if that is the policy of its topic."""
    is_policy = why in (NotDeleted.POLICY_UNKNOWN, NotDeleted.WAS_COMPACTED)
    return ("cleanup.policy=...",) if is_policy else ()


def why_not_deleted(
    result: PartitionDeletion, *, is_policy_needed: bool, twice: Collection[Location]
) -> NotDeleted | None:
    """Why no segment of a log may be deleted; None if they may.

    Args:
        is_policy_needed: whether an unknown cleanup.policy is a reason. It is not if the topic was
            given by its exact name: then its name and Kafka's defaults count.
        twice: the partitions that are in two directories of a broker.
    """
    if result.partition.path in twice:
        return NotDeleted.TWICE
    topic = result.settings
    cleaner_offsets = result.directory.checkpoints.cleaner_offsets or {}
    if topic.remote_storage_enable:
        return NotDeleted.REMOTE_STORAGE
    if not topic.is_policy_known and result.topic_partition in cleaner_offsets:
        return NotDeleted.WAS_COMPACTED
    if is_policy_needed and not topic.is_policy_known:
        return NotDeleted.POLICY_UNKNOWN
    if not all(_is_harmless(each, result.partition) for each in result.partition.leftovers):
        return NotDeleted.LEFTOVERS
    return None


def _target(directory: LogDirectory, results: Sequence[PartitionDeletion]) -> TargetDirectory:
    """The target state of a log directory, by those of its partitions."""
    changed = [each for each in results if each.outcome is not None]
    outcomes = {each.topic_partition: each.outcome for each in changed if each.outcome is not None}
    stale = frozenset(each.topic_partition for each in results if has_stale_log_start(each))
    first, root = target_of_root(directory, outcomes, stale)
    return TargetDirectory(
        directory.path.local_path,
        tuple(
            TargetPartition(each.partition.path.local_path, each.files)
            for each in changed
            if each.files
        ),
        root,
        first,
        tuple(itertools.chain.from_iterable(map(_may_go_early, changed))),
    )


def _may_go_early(result: PartitionDeletion) -> Iterator[tuple[Path, ...]]:
    """The files of the deleted segments, but for the last of a log, which gives its end offset."""
    assert result.log is not None
    directory, files = result.partition.path.local_path, result.files
    for leftover in result.dropped_leftovers:
        yield (directory / leftover.name,)
    for segment in result.log.segments[:-1]:
        file_names = segment_file_names(segment.base_offset)
        if not isinstance(files.get(file_names[0]), Gone):
            return
        yield tuple(directory / name for name in file_names if isinstance(files.get(name), Gone))


def has_stale_log_start(result: PartitionDeletion) -> bool:
    """Whether a partition has a line about the log start that is not past its first segment.

    A broker leaves that line out whenever it writes the checkpoint
    (``LogManager.checkpointLogStartOffsetsInDir``).
    """
    lines = result.directory.checkpoints.log_start_offsets or {}
    return (
        result.topic_partition in lines
        and result.outcome is None
        and result.log is not None
        and result.log.log_start_offset <= result.log.segments[0].base_offset
    )


def target_of_root(
    directory: LogDirectory,
    outcomes: Mapping[TopicPartition, RetainedPartition],
    stale: frozenset[TopicPartition],
) -> tuple[dict[str, TargetFile], dict[str, TargetFile]]:
    """The target state of the files in the root, before anything is deleted and at the end.

    Args:
        outcomes: of the partitions that change.
        stale: the partitions whose line about the log start has no effect.
    """
    if not outcomes and not stale:
        return {}, {}
    root = retained_root(directory, outcomes, stale)
    if not outcomes:
        return {}, root
    return {names.LOG_START_OFFSET_CHECKPOINT: interim_log_starts(directory, outcomes)}, root
