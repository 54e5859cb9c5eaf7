"""What kdump move has moved, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kdump.apply.directory_changes import run_directory
from kdump.cli.output.brief import MAX_LISTED
from kdump.cli.output.events import Event
from kdump.cli.output.value_text import format_bytes
from kdump.cli.output.write_report import Operations
from kdump.errors import ExitStatus
from kdump.formats.names import PartitionState, parse_partition_directory_name
from kdump.rows.common_rows import INTERRUPTED, PLANNED_DIRECTORY, directory_values
from kdump.rows.row_type import COUNT, FLAG, INT, SIZE, TEXT, Field, JsonAnswer, RowType, list_of
from kdump.words import counted, undo_command

if TYPE_CHECKING:
    from kdump.jobs.move.move import MoveResult
    from kdump.jobs.move.selected_moves import PlannedMove
    from kdump.jobs.writing.execution import PlanResult
    from kdump.log.directory import LogDirectory
    from kdump.log.partition import Partition

MOVED_PARTITION: Final = RowType(
    "partition",
    "A partition that was moved, would be moved, or is left.",
    (
        Field("log_dir", TEXT, "The log directory that it leaves."),
        Field("directory", TEXT, "The name of its directory."),
        Field("topic", TEXT.or_null, "The topic; null if the name is not that of a partition."),
        Field("partition", INT.or_null, "Its number, likewise."),
        Field("target", TEXT, "The log directory that it enters."),
        Field("size_bytes", SIZE, "Of all its files."),
        Field(
            "is_copied",
            FLAG,
            "Whether an earlier run had copied it, so that only the original was left to remove.",
        ),
        Field("futures", list_of(TEXT), "Copies that the broker had begun, which are deleted."),
        Field(
            "failure",
            TEXT.or_null,
            "Why it is left where it is; null if it was moved, or would be.",
        ),
    ),
)

SUMMARY: Final = RowType(
    "summary",
    "All partitions together.",
    (
        Field("partitions", COUNT, "How many were moved, or would be."),
        Field("moved_bytes", SIZE, "Of all their files."),
        Field("left", COUNT, "How many are left."),
        Field("is_dry_run", FLAG, "Whether nothing was written."),
    ),
)

ANSWERS: Final = (
    JsonAnswer(
        "move",
        (
            INTERRUPTED,
            MOVED_PARTITION,
            PLANNED_DIRECTORY,
            SUMMARY,
        ),
    ),
)


class MoveReport:
    """The report of a run.

    Attributes:
        directories: as they were before.
        is_drain: whether nothing should be left in the first of them.
    """

    def __init__(
        self,
        result: MoveResult,
        directories: Sequence[LogDirectory],
        *,
        is_drain: bool,
        verbose: bool,
    ) -> None:
        self.result = result
        self.directories = directories
        self.is_drain = is_drain
        self._verbose = verbose
        self._operations = Operations(result.plans, verbose=verbose)

    @property
    def status(self) -> ExitStatus:
        """The exit status: whether a partition is left, because of damage or a failure."""
        status = ExitStatus.SOUND
        for planned, _ in self.result.left:
            is_refused = planned.refusal is not None
            status |= ExitStatus.DAMAGE_LEFT if is_refused else ExitStatus.OPERATIONAL_ERROR
        return status

    def events(self) -> Iterator[Event]:
        """Yield an event for each partition and each directory."""
        for at, planned in enumerate(self.result.moved):
            is_listed = self._verbose or at < MAX_LISTED
            yield Event("partition", _row(planned, None), [_line(planned)] if is_listed else [])
        if (more := len(self.result.moved) - MAX_LISTED) > 0 and not self._verbose:
            lines = [f"… and {counted(more, 'more partition')} (--verbose lists all)"]
        else:
            lines = []
        for directory in self.directories:
            path = directory.path.local_path
            own = [each for each in self.result.plans if each.plan.path == path]
            yield Event("directory", self._directory_row(path, own), lines)
            lines = []
        for planned, why in self.result.left:
            line = f"{planned.move.partition.path}: left where it is: {why}"
            yield Event("partition", _row(planned, why), [line])

    def _directory_row(self, path: Path, plans: Sequence[PlanResult]) -> dict[str, Any]:
        return {
            "log_dir": str(path),
            "lost_bytes": sum(each.plan.lost_bytes for each in plans),
            "needed_bytes": max((each.needed_bytes for each in plans), default=0),
            "is_applied": any(each.is_applied for each in plans),
            "undos": [each.undo for each in plans if each.undo is not None],
            "failure": None,
            "operations": self._operations.rows(path),
        }

    def summary(self, *, is_dry_run: bool) -> Event:
        """Return the event about all partitions."""
        moved = self.result.moved
        size_bytes = sum(each.move.partition.total_bytes for each in moved)
        row = {
            "partitions": len(moved),
            "moved_bytes": size_bytes,
            "left": len(self.result.left),
            "is_dry_run": is_dry_run,
        }
        if not moved:
            return Event(
                "summary", row, ["nothing to move" if not self.result.left else "nothing moved"]
            )
        what = f"{counted(len(moved), 'partition')}, {format_bytes(size_bytes)}"
        line = f"{what}: {'to be moved; nothing was written' if is_dry_run else 'moved'}"
        return Event("summary", row, [line])

    def advice(self, remaining: Sequence[LogDirectory], *, is_dry_run: bool) -> Iterator[str]:
        """Yield what is left in a drained directory, and what to do next, for people."""
        undos = [each for each in self.result.plans if each.undo is not None]
        if undos:
            words = [undo_command(each.plan.path, each.undo or "") for each in reversed(undos)]
            yield "no space is freed until the undo data is discarded"
            yield f"to undo, in this order: {' && '.join(words)}"
        if is_dry_run:
            return
        if self.is_drain:
            for directory in remaining:
                yield from _left_in(directory)
        if self.is_drain and self.result.moved:
            yield (
                f"leave {self.directories[0].path} in log.dirs for one start of the broker, which"
                " then reports the new directories to the controllers; without it, partitions"
                " without another replica get a leader only at the second start"
            )
        elif self.result.moved:
            yield (
                "the broker needs no recovery when it starts, and reports the new directories to"
                " the controllers"
            )


def _line(planned: PlannedMove) -> str:
    move = planned.move
    line = (
        f"{move.partition.path} -> {move.target.path}: {format_bytes(move.partition.total_bytes)}"
    )
    if planned.is_copied:
        line += ", was copied before"
    for directory, name in planned.futures:
        line += f"; {directory.path / name}, which the broker began to copy, is deleted"
    return line


def _row(planned: PlannedMove, why: str | None) -> dict[str, Any]:
    move = planned.move
    return {
        **directory_values(move.source.path, move.name, move.partition.topic_partition),
        "target": str(move.target.path),
        "size_bytes": move.partition.total_bytes,
        "is_copied": planned.is_copied,
        "futures": [str(directory.path / name) for directory, name in planned.futures],
        "failure": why,
    }


def _left_in(directory: LogDirectory) -> Iterator[str]:
    """Yield what is left in a drained directory."""
    for each in directory.partitions:
        if each.is_cluster_metadata and each.state is PartitionState.LIVE:
            yield (
                f"{each.path} is left: the cluster's metadata; a broker fetches it again, so give"
                " it another metadata.log.dir; a controller is removed and added again"
            )
        elif each.state is PartitionState.FUTURE:
            yield f"{each.path} is left: a copy that the broker began, of a log elsewhere"
    states = Counter(each.state for each in directory.partitions)
    undos = sum(_is_undo_data(each) for each in directory.partitions)
    counts = {
        "a broker deletes": states[PartitionState.DELETE],
        "are kept for kdump undo": undos,
        "a broker leaves alone": states[PartitionState.STRAY] - undos,
    }
    for what, count in counts.items():
        if count:
            found = counted(count, "directory", "directories")
            yield f"{directory.path}: {found} left that {what}"
    for name in (*directory.refused, *directory.unreadable):
        yield f"{directory.path / name} is left: no partition, or unreadable"


def _is_undo_data(partition: Partition) -> bool:
    if partition.state is not PartitionState.STRAY:
        return False
    run = run_directory(parse_partition_directory_name(partition.path.name))
    return run is not None and run.is_complete
