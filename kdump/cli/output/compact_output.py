"""The report of ``kdump compact``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

from kdump.cli.output.brief import BriefList, Unchanged
from kdump.cli.output.events import Event
from kdump.cli.output.recovery_rows import refusal_row
from kdump.cli.output.value_text import format_bytes
from kdump.cli.output.write_arguments import DeletionArguments
from kdump.errors import ExitStatus
from kdump.rows.common_rows import directory_values
from kdump.words import counted, undo_command

if TYPE_CHECKING:
    from kdump.broker.cleaner.cleaned_segment import RewrittenGroup
    from kdump.broker.cleaner.compaction_preview import Preview
    from kdump.jobs.compact.compact import DirectoryCompaction
    from kdump.jobs.compact.request import CompactionProblem, PartitionCompaction

WRITTEN_BYTES_PER_SECOND: Final = 150_000_000
"""The writing rate assumed when a preview predicts the duration of a run."""


class CompactReport:
    """The report on compacted log directories.

    Attributes:
        unchanged: what a rule leaves unchanged; printed near the end.
        problems: lines about partitions that cannot be compacted; printed last.
    """

    def __init__(self, deletion: DeletionArguments) -> None:
        self._deletion = deletion
        self._compacted = BriefList(verbose=deletion.verbose)
        self.unchanged = Unchanged(verbose=deletion.verbose)
        self.problems: list[str] = []

    def events(self, result: DirectoryCompaction) -> Iterator[Event]:
        """Yield the events of a log directory, without what is left unchanged."""
        for partition in result.partitions:
            path = partition.partition.path
            if partition.unchanged is not None:
                self.unchanged.take(path, partition.unchanged.value)
            if partition.problem is not None:
                self.problems.append(f"{path}: {_problem_sentence(partition)}")
            lines = self._compacted.take(_partition_lines(partition, self._deletion))
            yield Event("partition", _partition_row(partition), lines)
        yield self._directory_event(result)

    def rest(self) -> Iterator[str]:
        """Yield the counts of what was not listed."""
        return self._compacted.rest()

    def _directory_event(self, result: DirectoryCompaction) -> Event:
        path = result.directory.path
        row = {
            "log_dir": str(path),
            "left_because": None if result.unchanged is None else result.unchanged.value,
            "is_applied": result.unchanged is None and not self._deletion.dry_run,
            "undos": list(result.undos),
        }
        if result.unchanged is not None:
            self.unchanged.take(path, result.unchanged.value)
        undos = [undo_command(result.directory.path, each) for each in reversed(result.undos)]
        return Event("directory", row, [f"{path}: to undo: {', '.join(undos)}"] if undos else [])


def status_of(results: Sequence[DirectoryCompaction]) -> ExitStatus:
    """Return the exit status of the run."""
    from kdump.target.refusal import Refusal

    status = ExitStatus.SOUND
    for result in results:
        if result.unchanged is not None:
            status |= ExitStatus.DAMAGE_LEFT
        for partition in result.partitions:
            if partition.unchanged is not None or isinstance(partition.problem, Refusal):
                status |= ExitStatus.DAMAGE_LEFT
            elif partition.problem is not None:
                status |= ExitStatus.OPERATIONAL_ERROR
    return status


def summary(
    results: Sequence[DirectoryCompaction], deletion: DeletionArguments, seconds: float
) -> Event:
    """Return the totals; for a preview, with the expected duration of a run."""
    partitions = [partition for result in results for partition in result.partitions]
    previews = [each.preview for each in partitions if each.preview is not None]
    freed_bytes = sum(each.freed_bytes for each in previews)
    freed_bytes += sum(each.dropped_bytes for each in partitions)
    written_bytes = sum(_written_bytes(each) for each in partitions)
    expected = seconds + written_bytes / WRITTEN_BYTES_PER_SECOND if deletion.dry_run else None
    needed_bytes = _needed_bytes(partitions, deletion)
    row = {
        "partitions": len(partitions),
        "compacted": sum(_written_bytes(each) > 0 for each in partitions),
        "left": sum(each.unchanged is not None or each.problem is not None for each in partitions),
        "freed_bytes": freed_bytes,
        "written_bytes": written_bytes,
        "needed_bytes": needed_bytes,
        "is_dry_run": deletion.dry_run,
        "seconds": round(seconds, 3),
        "expected_seconds": None if expected is None else round(expected, 3),
    }
    if expected is not None:
        what = (
            f"{format_bytes(freed_bytes)} would be freed, {format_bytes(written_bytes)} written,"
            f" in about {max(1, round(expected))} s; needs up"
            f" to {format_bytes(needed_bytes)} of free space"
        )
    elif deletion.keep_undo and freed_bytes:
        what = (
            f"{format_bytes(freed_bytes)} will be freed when the undo data is discarded: kdump"
            " undo --discard"
        )
    else:
        what = f"{format_bytes(freed_bytes)} freed"
    return Event("summary", row, [f"{counted(len(partitions), 'partition')}: {what}"])


def _written_bytes(result: PartitionCompaction) -> int:
    """Return the size of the new segments."""
    if result.compacted is None:
        return 0
    return sum(
        group.after.size_bytes for group in result.compacted.groups if not group.is_unchanged
    )


def _needed_bytes(partitions: Sequence[PartitionCompaction], deletion: DeletionArguments) -> int:
    """Return the space that new logs need at a time; all of it if undo data is kept."""
    from kdump.jobs.compact.swap import SWAPPED_BYTES

    written = [
        group.after.size_bytes
        for partition in partitions
        if partition.compacted is not None
        for group in partition.compacted.groups
        if not group.is_unchanged
    ]
    if deletion.keep_undo:
        return sum(written)
    return min(sum(written), SWAPPED_BYTES + max(written, default=0))


def _partition_lines(result: PartitionCompaction, deletion: DeletionArguments) -> list[str]:
    path = result.partition.path
    lines: list[str] = []
    preview = result.preview
    if preview is not None and (_written_bytes(result) or deletion.verbose):
        lines += [f"{path}: {line}" for line in _preview_lines(preview)]
        lines += [
            f"{path}: {name} is not known; give --server-properties FILE, or --config {name}=..."
            for name in result.unknown
        ]
        if deletion.dry_run:
            assert result.compacted is not None
            lines += [f"  {_group_line(group)}" for group in result.compacted.groups]
    if result.dropped_files:
        count = counted(len(result.dropped_files), "unfinished file")
        deleted = "to delete" if deletion.dry_run else "deleted"
        size = format_bytes(result.dropped_bytes)
        lines.append(f"{path}: {count} (.cleaned) of an interrupted change {deleted}, {size}")
    return lines


def _preview_lines(preview: Preview) -> Iterator[str]:
    before, after = preview.before, preview.after
    if before.size_bytes or after.size_bytes:
        yield (
            f"{counted(before.records, 'record')} in"
            f" {counted(preview.segments_before, 'segment')} of"
            f" {format_bytes(before.size_bytes)} become {after.records} in"
            f" {preview.segments_after} of {format_bytes(after.size_bytes)};"
            f" {preview.keys_after} of {counted(preview.keys_before, 'key')} kept"
        )
    if preview.records_without_key:
        yield f"delete {counted(preview.records_without_key, 'record')} without a key"
    if preview.tombstones_dropped:
        keys = counted(preview.tombstones_dropped, "key")
        yield f"delete {keys} whose last record is a tombstone"
    held = preview.cleanable
    what = f"compact offsets {held.first_dirty_offset} to {held.end_offset}"
    if held.is_empty:
        what = f"nothing to compact after offset {held.first_dirty_offset}"
    yield f"{what}; limited by the {held.held_by.value} at offset {held.held_at}"


def _group_line(group: RewrittenGroup) -> str:
    if group.is_unchanged:
        return f"segment {group.base_offset}: unchanged"
    before, after = format_bytes(group.before.size_bytes), format_bytes(group.after.size_bytes)
    if len(group.replaced) == 1:
        return f"segment {group.base_offset}: rewrite {before} as {after}"
    return (
        f"segments {group.base_offset} to {group.replaced[-1]}: merge {len(group.replaced)} "
        f"segments,"
        f" {before}, into one of {after}"
    )


def _problem_sentence(result: PartitionCompaction) -> str:
    from kdump.jobs.compact.swap import NoSpace
    from kdump.jobs.problems.unreadable import Unreadable

    problem = result.problem
    if isinstance(problem, NoSpace):
        return (
            f"not enough space for the new segment {problem.base_offset}: it needs"
            f" {format_bytes(problem.needed_bytes)}, {format_bytes(problem.free_bytes)} are free;"
            " this and later segments are unchanged; free some space and run the command again"
        )
    if isinstance(problem, Unreadable):
        return f"left unchanged: {problem.path} cannot be read: {problem.what}"
    compacted = result.compacted
    if compacted is not None and compacted.groups:
        return f"left unchanged after a segment that cannot be compacted: {problem}"
    return f"left unchanged: {problem}; kdump verify says more"


def _partition_row(result: PartitionCompaction) -> dict[str, Any]:
    partition = result.partition
    path, key = partition.path, partition.topic_partition
    groups = () if result.compacted is None else result.compacted.groups
    return {
        **directory_values(path.parent, path.name, key),
        "left_because": None if result.unchanged is None else result.unchanged.value,
        "refusals": [] if result.problem is None else [_problem_row(result.problem)],
        "unknown_properties": list(result.unknown),
        "deleted_leftovers": len(result.dropped_files),
        "deleted_leftover_bytes": result.dropped_bytes,
        **_preview_row(result.preview),
        "cleaner_offset": None if result.compacted is None else result.compacted.cleaner_offset,
        "groups": [_group_row(group) for group in groups],
    }


def _problem_row(problem: CompactionProblem) -> dict[str, Any]:
    from kdump.jobs.compact.swap import NoSpace

    if isinstance(problem, NoSpace):
        why = f"needs {problem.needed_bytes} bytes of space, {problem.free_bytes} are free"
        return {"why": why, "file": None, "position": None, "exception": None}
    return refusal_row(problem)


_PREVIEW_FIELDS: Final = (
    "segments_before",
    "segments_after",
    "keys_before",
    "keys_after",
    "records_without_key",
    "tombstones_before",
    "tombstones_dropped",
    "freed_bytes",
)
_RANGE_FIELDS: Final = ("first_dirty_offset", "end_offset", "held_at")


def _preview_row(preview: Preview | None) -> dict[str, Any]:
    if preview is None:
        names = (*_RANGE_FIELDS, "held_by", "before", "after", *_PREVIEW_FIELDS)
        return dict.fromkeys(names)
    cleanable = preview.cleanable
    return {
        **{name: getattr(cleanable, name) for name in _RANGE_FIELDS},
        "held_by": cleanable.held_by.value,
        "before": asdict(preview.before),
        "after": asdict(preview.after),
        **{name: getattr(preview, name) for name in _PREVIEW_FIELDS},
    }


def _group_row(group: RewrittenGroup) -> dict[str, Any]:
    return {
        "base_offset": group.base_offset,
        "replaced": list(group.replaced),
        "is_unchanged": group.is_unchanged,
        "before": asdict(group.before),
        "after": asdict(group.after),
    }
