"""How commands that write report what they did, or would do."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kdump.cli.output.brief import MAX_LISTED, BriefFindings, finding_line
from kdump.cli.output.events import Event, EventFormat, Printer, open_printer, write_notice
from kdump.cli.output.value_text import format_bytes
from kdump.errors import ExitStatus
from kdump.formats.names import CLEAN_SHUTDOWN_MARKER
from kdump.words import counted

if TYPE_CHECKING:
    from kdump.apply.operations import Operation, OperationKind
    from kdump.check.findings import Finding
    from kdump.jobs.writing.execution import Interrupted, PlanResult
    from kdump.storage.location import Location


def preview_status(status: ExitStatus) -> ExitStatus:
    """Return the exit status of a preview, from that of the run it previews.

    1 means that there is something to do and no record is lost: it is never combined with 4.
    """
    return status & ~ExitStatus.REPAIRED if status & ExitStatus.DAMAGE_LEFT else status


def finding_events(findings: Iterable[Finding], brief: BriefFindings) -> Iterator[Event]:
    """Yield findings as events, as ``kdump verify`` reports them."""
    from kdump.jobs.verify.finding_row import finding_row

    for finding in findings:
        lines = [finding_line(finding)] if brief.takes(finding) else []
        yield Event("finding", finding_row(finding), lines)


def emit_findings(printer: Printer, findings: Iterable[Finding], *, verbose: bool) -> None:
    """Report findings that are not about what the command did, the first of each kind."""
    brief = BriefFindings(verbose=verbose)
    printer.emit_all(finding_events(findings, brief))
    printer.emit_text(brief.rest())


def interrupted_event(interrupted: Interrupted) -> Event:
    """Return the event about an earlier run that was interrupted."""
    row = {
        "log_dir": str(interrupted.log_dir),
        "command": interrupted.command,
        "is_finished": interrupted.is_finished,
        "files": [
            {
                "action": "remove" if each.is_removed else "write",
                "file": each.path,
                "size_bytes": each.size_bytes,
            }
            for each in interrupted.files
        ],
    }
    what = f"{interrupted.log_dir}: an earlier kdump {interrupted.command} was interrupted"
    if interrupted.is_finished:
        return Event("interrupted", row, [f"{what}; it was completed first"])
    line = f"{what}; a run completes it first, so its result may differ from this preview"
    changes = [
        f"  remove {each.path}"
        if each.is_removed
        else f"  write {each.path}: {format_bytes(each.size_bytes)}"
        for each in interrupted.files
    ]
    return Event("interrupted", row, [line, *changes])


class Operations:
    """The operations of plans, by directory.

    People see each one if there are few or with ``--verbose``, and counts otherwise.
    """

    def __init__(self, done: Sequence[PlanResult], *, verbose: bool = False) -> None:
        count = sum(len(each.plan.operations) for each in done)
        self._is_listed = verbose or count <= MAX_LISTED
        self._by_directory: dict[str, list[Operation]] = defaultdict(list)
        for each in done:
            for operation in each.plan.operations:
                self._by_directory[str(operation.directory)].append(operation)

    def rows(self, directory: Path | Location) -> list[dict[str, Any]]:
        """Return the operations in ``directory``, in order, for programs."""
        rows = [each.row() for each in self._by_directory.get(str(directory), ())]
        for row in rows:
            del row["directory"]
        return rows

    def lines(self, directory: Path | Location) -> list[str]:
        """Return them as indented lines for people; empty if they are only counted."""
        if not self._is_listed:
            return []
        return [f"  {each.describe()}" for each in self._by_directory.get(str(directory), ())]

    def counts(self, done: PlanResult) -> list[str]:
        """Return counts of the operations in a log directory; empty if they are listed."""
        if self._is_listed or done.is_applied or done.plan.is_empty:
            return []
        return [counts_line(count_operations(done.plan.operations))]


OperationNoun: TypeAlias = "tuple[OperationKind, tuple[str, str]]"
"""What an operation does, and the noun for its file."""


def count_operations(operations: Iterable[Operation]) -> Counter[OperationNoun]:
    """Count operations."""
    return count_changes((each.kind, each.name) for each in operations)


def count_changes(changes: Iterable[tuple[OperationKind, str]]) -> Counter[OperationNoun]:
    """Count operations by their kinds and the names of their files."""
    from kdump.apply.operations import WHOLE_DIRECTORY_KINDS

    return Counter(
        (kind, _DIRECTORY if kind in WHOLE_DIRECTORY_KINDS else _noun(name))
        for kind, name in changes
    )


def counts_line(counts: Counter[OperationNoun]) -> str:
    """Return the line with counts of operations."""
    parts = [
        f"{_verb(kind, noun)} {counted(count, *noun)}"
        for (kind, noun), count in counts.most_common()
    ]
    return f"  {', '.join(parts)} (--verbose lists each)"


def _verb(kind: OperationKind, noun: tuple[str, str]) -> str:
    """Return the verb for an operation on such a file."""
    from kdump.apply.operations import OperationKind

    is_log = noun == _NOUNS[".log"]
    return {
        OperationKind.REMOVE: "delete",
        OperationKind.CUT: "truncate" if is_log else "trim",
        OperationKind.RENAME: "rename",
        OperationKind.REPLACE: "rewrite",
        OperationKind.CREATE: "write",
        OperationKind.CREATE_DIRECTORY: "create",
        OperationKind.RENAME_DIRECTORY: "rename",
        OperationKind.REMOVE_DIRECTORY: "remove",
    }[kind]


_DIRECTORY: Final = ("directory", "directories")
_NOUNS: Final = {
    ".log": ("log", "logs"),
    ".index": ("index", "indexes"),
    ".timeindex": ("index", "indexes"),
    ".txnindex": ("index", "indexes"),
    ".snapshot": ("producer snapshot", "producer snapshots"),
    ".metadata": ("partition.metadata", "partition.metadata files"),
    **dict.fromkeys(
        (".deleted", ".cleaned", ".swap", ".tmp", ".part"), ("leftover file", "leftover files")
    ),
}
"""Nouns for files in counts, by suffix."""


@functools.lru_cache(maxsize=1024)
def _noun(name: str) -> tuple[str, str]:
    """Return the noun for a file, in singular and plural; partitions share many names."""
    if name.endswith("-checkpoint"):
        return "checkpoint", "checkpoints"
    if name == CLEAN_SHUTDOWN_MARKER:
        return "clean shutdown marker", "clean shutdown markers"
    stem, dot, suffix = name.rpartition(".")
    return _NOUNS.get(dot + suffix if stem else "", ("other file", "other files"))


@contextlib.contextmanager
def open_report(
    output_format: EventFormat, interrupted: Iterable[Interrupted], done: Iterable[PlanResult]
) -> Iterator[Printer]:
    """Open the report of a command that changes directories.

    It begins with what was interrupted. If printing fails, notes of the failure say what was done.
    """
    with outcome_notes(done), open_printer(output_format) as printer:
        printer.emit_all(map(interrupted_event, interrupted))
        yield printer
        sys.stdout.flush()  # inside, so that a failure gets the notes


@contextlib.contextmanager
def noting(lines: Iterable[str]) -> Iterator[None]:
    """Add lines to every exception, as notes: what was done before it."""
    try:
        yield
    except BaseException as failure:
        for line in lines:
            failure.add_note(line)
        raise


def outcome_notes(done: Iterable[PlanResult]) -> contextlib.AbstractContextManager[None]:
    """Add what was done to log directories to every exception, as notes.

    Args:
        done: looked at when there is an exception; more may have been added by then.
    """
    return noting(_outcomes(done))


def _outcomes(done: Iterable[PlanResult]) -> Iterator[str]:
    from kdump.jobs.writing.execution import outcome_line

    for each in done:
        if each.is_applied:
            yield str(outcome_line(each))
        elif each.failure is not None:
            yield f"kdump: {each.failure}"


def report_failures(done: Iterable[PlanResult]) -> ExitStatus:
    """Report the log directories that could not be changed; returns the exit status."""
    status = ExitStatus.SOUND
    for each in done:
        if each.failure is not None:
            sys.stdout.flush()
            write_notice(str(each.failure))
            status |= each.failure.exit_status
    return status


def failure_events(done: Iterable[PlanResult]) -> Iterator[Event]:
    """Yield events about log directories that could not be changed, for programs only."""
    for each in done:
        if each.failure is not None:
            yield Event("directory", {"log_dir": str(each.plan.path), **plan_row(each)})


def plan_row(done: PlanResult) -> dict[str, Any]:
    """Return the fields about the plan of a log directory."""
    return {
        "lost_bytes": done.plan.lost_bytes,
        "needed_bytes": done.needed_bytes,
        "is_applied": done.is_applied,
        "undos": [] if done.undo is None else [done.undo],
        "failure": None if done.failure is None else str(done.failure),
    }


def preview_line(path: Path | Location, count: int, needed_bytes: int) -> str:
    """Return the line about the plan of a log directory that is not applied."""
    if not count:
        return f"{path}: nothing to do"
    return (
        f"{path}: {counted(count, 'change')} to make, nothing written; needs up to"
        f" {format_bytes(needed_bytes)} of free space"
    )


def plan_lines(done: PlanResult) -> Iterator[str]:
    """Yield the outcome of the plan of a log directory, for people."""
    from kdump.jobs.writing.execution import outcome_line

    if done.is_applied and not done.plan.is_empty:
        yield str(outcome_line(done))
    else:
        yield preview_line(done.plan.path, len(done.plan.operations), done.needed_bytes)


def planned_event(done: PlanResult, operations: Operations) -> Event:
    """Return the event about the changes to a log directory, each of them listed."""
    path = done.plan.path
    row = {"log_dir": str(path), **plan_row(done), "operations": operations.rows(path)}
    lines = [*plan_lines(done), *operations.counts(done), *operations.lines(path)]
    return Event("directory", row, lines)
