"""The report of ``kdump retain`` and ``kdump delete-records``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from kdump.apply.disk_space import with_journal
from kdump.apply.plan import space_bytes
from kdump.broker.retention.retention import Reason
from kdump.cli.output.brief import MAX_LISTED, BriefList, Unchanged
from kdump.cli.output.events import Event
from kdump.cli.output.value_text import format_bytes, format_timestamp
from kdump.cli.output.write_report import (
    OperationNoun,
    Operations,
    count_changes,
    count_operations,
    counts_line,
    plan_lines,
    plan_row,
    preview_line,
)
from kdump.errors import ExitStatus
from kdump.jobs.problems.unreadable import Unreadable
from kdump.jobs.retain.old_segments import DirectoryDeletion, PartitionDeletion, SegmentDecision
from kdump.jobs.writing.execution import PlanResult
from kdump.repair.verdict.verdict import VerdictKind
from kdump.rows.common_rows import directory_values
from kdump.state.metadata.config_keys import (
    CLEANUP_POLICY,
    REMOTE_STORAGE_ENABLE,
    RETENTION_BYTES,
    RETENTION_MS,
)
from kdump.state.metadata.settings import Settings, TopicSettings, starting_kafkas
from kdump.words import counted, discard_command

if TYPE_CHECKING:
    from kdump.apply.operations import DirectoryPlan, Operation
    from kdump.apply.usual_deletion import UsualDeletion
    from kdump.cli.output.write_arguments import DeletionArguments
    from kdump.jobs.retain.preview import DirectoryPreview
    from kdump.storage.location import Location

_HOLDS: Final = {
    Reason.FUTURE_TIMESTAMP: "a timestamp in the future",
    Reason.HIGH_WATERMARK: "the high watermark: the log is not fully replicated",
    Reason.NO_HIGH_WATERMARK: (
        "an unknown high watermark: replication-offset-checkpoint has no line for the partition;"
        " if the log is fully replicated, use --high-watermark end"
    ),
    Reason.POLICY: "cleanup.policy, which does not include delete",
}
"""What keeps segments that would be deleted otherwise."""


class DeletionReport:
    """The report on log directories with deleted segments.

    Attributes:
        unchanged: partitions that cannot be changed; printed last.
    """

    def __init__(
        self, operations: Operations, deletion: DeletionArguments, *, explain: bool = False
    ) -> None:
        self._operations = operations
        self._deletion = deletion
        self._explain = explain
        self._listed = BriefList(verbose=deletion.verbose or explain)
        self.unchanged = Unchanged(verbose=deletion.verbose or explain)

    def events(self, result: DirectoryDeletion, done: PlanResult) -> Iterator[Event]:
        """Yield the events of a log directory, without what is refused."""
        for partition in result.partitions:
            path = partition.partition.path
            if why := _why_refused(partition):
                self.unchanged.take(path, why)
            lines = list(_partition_lines(partition, self._deletion, explain=self._explain))
            if self._deletion.dry_run:
                lines += self._operations.lines(path)
            row = partial(self._partition_row, partition)
            yield Event("partition", row, self._listed.take(lines))
        yield self._directory_event(result, done)

    def _partition_row(self, result: PartitionDeletion) -> dict[str, Any]:
        operations = self._operations.rows(result.partition.path)
        return partition_row(result) | {"operations": operations}

    def rest(self) -> Iterator[str]:
        """Yield the counts of what was not listed."""
        return self._listed.rest()

    def _directory_event(self, result: DirectoryDeletion, done: PlanResult) -> Event:
        path = result.directory.path
        lines = [
            *plan_lines(done),
            *self._operations.counts(done),
            *_freed_lines(result, done, self._deletion),
        ]
        if self._deletion.dry_run:
            lines += self._operations.lines(path)
        row = {
            "log_dir": str(path),
            "freed_bytes": _freed_bytes([result]),
            **plan_row(done),
            "operations": self._operations.rows(path),
        }
        return Event("directory", row, lines)


def _partition_lines(
    result: PartitionDeletion, deletion: DeletionArguments, *, explain: bool
) -> Iterator[str]:
    path = result.partition.path
    is_told = deletion.verbose or explain
    if _why_refused(result):
        pass  # printed last
    elif result.unchanged is not None:
        if is_told:
            yield f"{path}: left unchanged: {result.unchanged.value}"
    elif what := _deleted_words(result, deletion):
        yield f"{path}: {what}; the log begins at offset {result.log_start_offset}"
        yield from _below_start_lines(result)
    elif is_told or (deletion.dry_run and result.files):
        yield f"{path}: nothing to delete"
    if is_told or result.unchanged is None:
        yield from _unknown_lines(result)
    for reason in result.held_back:
        # Most compacted topics never delete: not worth a line.
        if is_told or reason is not Reason.POLICY:
            yield f"{path}: held back by {_HOLDS[reason]}"
    if explain:
        yield from _setting_lines(result.settings)
        yield from map(_decision_line, result.decisions)


def _below_start_lines(result: PartitionDeletion) -> Iterator[str]:
    """Name the segments that the log start offset deletes, which are not old or too many."""
    count = sum(each.why == Reason.BELOW_LOG_START.value for each in result.deleted)
    if count:
        assert result.log is not None
        start = result.log.log_start_offset
        segments = counted(count, "segment")
        yield f"{result.partition.path}: {segments} before the log start offset {start}"


def _unknown_lines(result: PartitionDeletion) -> Iterator[str]:
    """Yield the retention settings that are not known, if the other one is."""
    settings = result.settings
    if result.log is None or not settings.is_deleted or not settings.is_retention_known:
        return
    for name in (RETENTION_MS, RETENTION_BYTES):
        if name not in settings.origins:
            yield f"{result.partition.path}: {name} is not known, so it deletes nothing"


def _setting_lines(settings: TopicSettings) -> Iterator[str]:
    """Yield the settings that decide about segments, each with its origin."""
    values = {
        CLEANUP_POLICY: ",".join(_policies(settings)),
        RETENTION_MS: str(settings.retention_ms),
        RETENTION_BYTES: str(settings.retention_bytes),
        REMOTE_STORAGE_ENABLE: str(settings.remote_storage_enable).lower(),
    }
    for name, value in values.items():
        origin = settings.origins.get(name)
        yield f"  {name} is not known" if origin is None else f"  {name}={value} ({origin})"


def _policies(settings: TopicSettings) -> list[str]:
    return sorted(policy.value for policy in settings.cleanup_policy)


def _deleted_words(result: PartitionDeletion, deletion: DeletionArguments) -> str:
    """Say what is deleted; empty if no file is and the log start offset stays."""
    deleted = "to delete" if deletion.dry_run else "deleted"
    leftovers = counted(len(result.dropped_leftovers), "leftover file")
    if result.deleted:
        count = f"{len(result.deleted)} of {counted(len(result.decisions), 'segment')}"
        if result.dropped_leftovers:
            count += f" and {leftovers}"
        return f"{count} {deleted}, {format_bytes(result.freed_bytes)}"
    if result.dropped_leftovers:
        return f"{leftovers} {deleted}, {format_bytes(result.freed_bytes)}"
    assert result.log is not None
    is_moved = result.log_start_offset != result.log.log_start_offset
    return f"no segment {deleted}" if is_moved else ""


def _why_refused(result: PartitionDeletion) -> str:
    """Say why a partition cannot be changed; empty if it can."""
    if isinstance(result.problem, Unreadable):
        return f"{result.problem.path} cannot be read: {result.problem.what}"
    if result.problem is not None:
        refused = result.problem.kind is VerdictKind.REFUSED
        advice = "kdump verify" if refused else "kdump recover"
        return f"{result.problem.sentence}; run '{advice} {result.directory.path}' first"
    if result.unchanged is not None and result.unchanged.is_refusal:
        return str(result.unchanged.value)
    return ""


def _decision_line(fate: SegmentDecision) -> str:
    segment = fate.segment
    moment = format_timestamp(segment.timestamp_ms)
    if not segment.has_timestamp:
        moment += " (file time)"
    what = "delete" if fate.is_deleted else "keep"
    then = "" if fate.goes_at_ms is None else f"; expires at {format_timestamp(fate.goes_at_ms)}"
    size = format_bytes(segment.disk_bytes)
    return f"  {segment.base_offset:020d}.log  {size:>10}  {moment}  {what}: {fate.why}{then}"


def _freed_lines(
    result: DirectoryDeletion, done: PlanResult, deletion: DeletionArguments
) -> Iterator[str]:
    freed_bytes = _freed_bytes([result])
    if not freed_bytes:
        return
    path, size = result.directory.path, format_bytes(freed_bytes)
    if done.undo is not None:
        yield f"{path}: {size} freed only by '{discard_command(path, done.undo)}'"
    elif not deletion.dry_run:
        yield f"{path}: {size} freed"
    else:
        yield _would_free_line(path, freed_bytes, deletion)


def _would_free_line(path: Location, freed_bytes: int, deletion: DeletionArguments) -> str:
    when = " when the undo data is discarded" if deletion.keep_undo else ""
    return f"{path}: {format_bytes(freed_bytes)} would be freed{when}"


def _freed_bytes(results: Sequence[DirectoryDeletion]) -> int:
    return sum(each.freed_bytes for result in results for each in result.partitions)


def partition_row(result: PartitionDeletion) -> dict[str, Any]:
    """Return the row of a partition, for programs."""
    log, settings = result.log, result.settings
    return {
        **directory_values(
            result.directory.path, result.partition.path.name, result.topic_partition
        ),
        "left_because": _why_refused(result)
        or (result.unchanged.value if result.unchanged else None),
        "cleanup_policy": _policies(settings) if settings.is_policy_known else None,
        "retention_ms": settings.retention_ms if RETENTION_MS in settings.origins else None,
        "retention_bytes": (
            settings.retention_bytes if RETENTION_BYTES in settings.origins else None
        ),
        "origins": {
            name.replace(".", "_"): (
                str(settings.origins[name]) if name in settings.origins else None
            )
            for name in (CLEANUP_POLICY, RETENTION_MS, RETENTION_BYTES, REMOTE_STORAGE_ENABLE)
        },
        "old_log_start_offset": None if log is None else log.log_start_offset,
        "log_start_offset": result.log_start_offset,
        "log_end_offset": None if log is None else log.log_end_offset,
        "high_watermark": log.high_watermark if log and log.has_high_watermark else None,
        "deleted_segments": len(result.deleted),
        "deleted_leftovers": len(result.dropped_leftovers),
        "freed_bytes": result.freed_bytes,
        "held_back": [reason.name.lower() for reason in result.held_back],
        "segments": [_decision_row(each) for each in result.decisions],
    }


def _decision_row(fate: SegmentDecision) -> dict[str, Any]:
    segment = fate.segment
    return {
        "base_offset": segment.base_offset,
        "size_bytes": segment.size_bytes,
        "disk_bytes": segment.disk_bytes,
        "timestamp_ms": segment.timestamp_ms,
        "has_timestamp": segment.has_timestamp,
        "is_deleted": fate.is_deleted,
        "why": fate.why,
        "goes_at_ms": fate.goes_at_ms,
    }


def status_of(results: Sequence[DirectoryDeletion]) -> ExitStatus:
    """Return the exit status of the run."""
    status = ExitStatus.SOUND
    for result in results:
        for partition in result.partitions:
            status |= _status_of(partition)
    return status


def _status_of(result: PartitionDeletion) -> ExitStatus:
    if isinstance(result.problem, Unreadable):
        return ExitStatus.OPERATIONAL_ERROR
    return ExitStatus.DAMAGE_LEFT if _why_refused(result) else ExitStatus.SOUND


def summary(
    results: Sequence[DirectoryDeletion], deletion: DeletionArguments, seconds: float
) -> Event:
    """Return the totals."""
    partitions = [partition for result in results for partition in result.partitions]
    deleted = sum(len(partition.deleted) for partition in partitions)
    row = {
        "partitions": len(partitions),
        "deleted_segments": deleted,
        "freed_bytes": _freed_bytes(results),
        "is_dry_run": deletion.dry_run,
        "seconds": round(seconds, 3),
    }
    line = _summary_line(len(partitions), deleted, _freed_bytes(results), deletion)
    return Event("summary", row, [line])


def _summary_line(
    partitions: int, segments: int, freed_bytes: int, deletion: DeletionArguments
) -> str:
    deleted = "to delete" if deletion.dry_run else "deleted"
    return (
        f"{counted(partitions, 'partition')}: {counted(segments, 'segment')} {deleted},"
        f" {format_bytes(freed_bytes)}"
    )


def advice(results: Sequence[DirectoryDeletion]) -> Iterator[str]:
    """Yield which options would supply missing configuration."""
    partitions = [partition for result in results for partition in result.partitions]
    yield from _advice([each.missing for each in partitions])


def _advice(needed: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the same, from the configuration that each partition needs; empty for none."""
    configs = sorted({config for each in needed for config in each})
    if configs:
        count = counted(sum(map(bool, needed)), "partition")
        by_hand = " ".join(f"--config {config}" for config in configs)
        yield (
            f"the configuration of {count} is not fully known: give --server-properties FILE, all"
            " log directories of the broker, and --metadata DIR if none of them has the cluster's"
            f" metadata; or {by_hand}"
        )


def shortage(
    results: Sequence[DirectoryDeletion], wanted_bytes: int, deletion: DeletionArguments
) -> str:
    """Say how much less is freed than ``--free`` asked for, and why; empty if enough is."""
    freed_bytes = _freed_bytes(results)
    if freed_bytes >= wanted_bytes:
        return ""
    partitions = [partition for result in results for partition in result.partitions]
    reasons = ["the rest is empty or not known to be replicated"]
    left = {each.unchanged: each for each in reversed(partitions) if each.unchanged is not None}
    for why, example in left.items():
        count = sum(each.unchanged is why for each in partitions)
        reasons.append(
            f"{counted(count, 'partition')} left unchanged, such as {example.topic_partition}:"
            f" {why.value}{example.needed_options}"
        )
    freed = "can be freed" if deletion.dry_run else "were freed"
    return (
        f"only {freed_bytes} of {wanted_bytes} bytes {freed} in the selected partitions:"
        f" {'; '.join(reasons)}; select more partitions"
    )


class BriefPartition(NamedTuple):
    """A partition, as a preview for people shows it. A tuple, because 10,000 come from workers.

    Attributes:
        name: of its directory.
        lines: about its segments.
        refused: why it cannot be changed; empty if it can.
        missing: the configuration that it lacks.
        changes: how many there are of each kind.
        needed_bytes: the space that they need before any is freed.
    """

    name: str
    lines: tuple[str, ...]
    refused: str
    missing: tuple[str, ...]
    deleted_segments: int
    freed_bytes: int
    status: ExitStatus
    changes: Mapping[OperationNoun, int]
    needed_bytes: int


class ShowBriefly(Struct, frozen=True):
    """Describes partitions for :func:`brief_preview`, in workers."""

    deletion: DeletionArguments

    def __call__(
        self, result: PartitionDeletion, plan: DirectoryPlan | UsualDeletion | None, /
    ) -> BriefPartition:
        from kdump.apply.usual_deletion import UsualDeletion

        if isinstance(plan, UsualDeletion):
            changes, needed_bytes = count_changes(plan.changes), plan.needed_bytes
        else:
            operations = () if plan is None else plan.operations
            changes = count_operations(operations)
            needed_bytes = space_bytes(operations, keep_undo=self.deletion.keep_undo)
        return BriefPartition(
            result.partition.path.name,
            tuple(_partition_lines(result, self.deletion, explain=False)),
            _why_refused(result),
            result.missing,
            len(result.deleted),
            result.freed_bytes,
            _status_of(result),
            dict(changes),  # to send a Counter takes ten times as long
            needed_bytes,
        )


def brief_preview(
    previews: Sequence[DirectoryPreview[BriefPartition]],
    deletion: DeletionArguments,
    settings: Iterable[Settings],
) -> Iterator[str]:
    """Yield what :class:`DeletionReport` shows to people of a preview, without ``--verbose``."""
    every = [partition for each in previews for partition in each.partitions]
    changes = sum(sum(each.changes.values()) for each in every)
    is_listed = changes + sum(len(each.root.operations) for each in previews) <= MAX_LISTED
    listed, unchanged = BriefList(verbose=False), Unchanged(verbose=False)
    for preview in previews:
        path = preview.directory.path
        # In the order of the plan, which is that of kinds with equal counts.
        first, last = preview.root_operations
        counts, freed_bytes = count_operations(first), 0
        needed_bytes = space_bytes(preview.root.operations, keep_undo=deletion.keep_undo)
        for each in preview.partitions:
            if each.refused:
                unchanged.take(path / each.name, each.refused)
            lines = list(each.lines)
            if is_listed and each.changes:
                lines += _operation_lines(preview.operations_in(each.name))
            yield from listed.take(lines)
            counts.update(each.changes)
            needed_bytes += each.needed_bytes
            freed_bytes += each.freed_bytes
        counts.update(count_operations(last))
        yield preview_line(path, counts.total(), with_journal(needed_bytes, counts.total()))
        if counts and not is_listed:
            yield counts_line(counts)
        if freed_bytes:
            yield _would_free_line(path, freed_bytes, deletion)
        if is_listed:
            yield from _operation_lines(preview.root.operations)
    yield from listed.rest()
    yield _summary_line(
        len(every),
        sum(each.deleted_segments for each in every),
        sum(each.freed_bytes for each in every),
        deletion,
    )
    yield from map(str, starting_kafkas(settings))
    yield from unchanged.lines()
    yield from _advice([each.missing for each in every])


def _operation_lines(operations: Iterable[Operation]) -> list[str]:
    return [f"  {each.describe()}" for each in operations]
