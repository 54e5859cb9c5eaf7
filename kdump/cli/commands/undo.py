"""Undo a repair, byte for byte."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kdump.cli.options.conflicts import require_at_most_one
from kdump.cli.options.parameters import LocationParameter
from kdump.cli.output.brief import MAX_LISTED
from kdump.cli.output.events import write_line
from kdump.cli.output.rendering import OutputFormat, Row, open_output, output_option
from kdump.cli.output.value_text import format_bytes
from kdump.cli.output.write_report import noting
from kdump.errors import ExitStatus, KdumpError, UsageProblem
from kdump.phases import phase
from kdump.rows.row_type import COUNT, SIZE, TEXT, TIME, Field, JsonAnswer, RowType, one_of
from kdump.storage.location import Location
from kdump.words import counted

if TYPE_CHECKING:
    from kdump.apply.journal_preview import Restored
    from kdump.apply.runs import Undo

RUN: Final = RowType(
    "undo",
    "A run that can be undone, or was discarded.",
    (
        Field("undo", TEXT, "Its id.", "Id"),
        Field("created_ms", TIME.or_none, "When it began.", "When", dropped=3),
        Field("command", TEXT.or_none, "", "Command"),
        Field("state", one_of("complete", "interrupted", "unusable"), "", "State"),
        Field(
            "files",
            COUNT.or_none,
            "Files that undoing it changes; a directory that it renames, creates or removes counts"
            " as one.",
            "Files",
            dropped=1,
        ),
        Field("kept_bytes", SIZE, "Space that discarding it frees.", "Size", dropped=2),
    ),
)

RESTORED_FILE: Final = RowType(
    "file",
    "A file that is restored, or would be.",
    (
        Field("undo", TEXT, "Id of the run."),
        Field("action", one_of("restore", "remove"), "", "Action"),
        Field("size_bytes", SIZE.or_none, "Size after restoring; null for a removed file.", "Size"),
        Field(
            "file",
            TEXT,
            "The file, relative to the log directory; ends in a slash if it is a directory with"
            " everything in it.",
            "File",
        ),
    ),
)

ANSWERS: Final = (
    JsonAnswer(
        "undo",
        (
            RUN,
            RESTORED_FILE,
        ),
    ),
)


@click.command("undo")
@click.argument("location", metavar="LOG_DIR", type=LocationParameter(readable=False, written=True))
@click.argument("undo_id", metavar="[ID]", required=False)
@click.option("--list", "is_list", is_flag=True, help="List the runs that can be undone.")
@click.option(
    "--discard",
    "is_discard",
    is_flag=True,
    help="Delete the undo data of run ID, or of all runs, to free its space. Nothing is undone.",
)
@click.option("--dry-run", is_flag=True, help="Preview the changes and write nothing.")
@click.option("--verbose", "-v", is_flag=True, help="List every file (default: the first 20).")
@output_option
def command(
    location: Location,
    undo_id: str | None,
    is_list: bool,
    is_discard: bool,
    dry_run: bool,
    verbose: bool,
    output: OutputFormat,
) -> ExitStatus:
    """Undo the newest repair of LOG_DIR: restore every file, byte for byte.

    Only the newest run can be undone; give its ID to make sure that it is the right one. Undo is
    refused if the same partitions have changed since, because those changes would be lost.
    """
    require_at_most_one({"--list": is_list, "--discard": is_discard})
    if is_list and undo_id is not None:
        raise UsageProblem("--list and ID are mutually exclusive")
    if location.kind() is None:
        raise KdumpError(f"{location}: {os.strerror(errno.ENOENT)}")
    with phase(f"looking at {location}"):
        _require_log_directory(location)
    if is_list:
        _list(location.local_path, output)
    elif is_discard:
        _discard(location, undo_id, output, dry_run=dry_run)
    else:
        _undo(location, undo_id, output, dry_run=dry_run, verbose=verbose)
    return ExitStatus.SOUND


def _require_log_directory(path: Location) -> None:
    """Refuse a directory that has no undo data because the log directory is another.

    Raises:
        UsageProblem: it is a partition, or log directories are in it.
        OSError: it cannot be listed.
    """
    from kdump.apply.runs import list_undos
    from kdump.log.directory import directory_kind, log_directories_below, what_is_there_instead

    kind = directory_kind(path)
    if kind.is_log_directory or list_undos(path.local_path):
        return
    if kind.is_partition:
        raise UsageProblem(f"{path} is a partition: name its log directory, {path.around}")
    if log_directories_below(path):
        raise UsageProblem(f"{path} is not a Kafka log directory{what_is_there_instead(path)}")


def _list(log_dir: Path, output: OutputFormat) -> None:
    from kdump.apply.runs import list_undos

    _show_runs(list_undos(log_dir), output)


def _discard(
    location: Location, undo_id: str | None, output: OutputFormat, *, dry_run: bool
) -> None:
    from kdump.apply.lock import hold_locks, refusing_brokers
    from kdump.apply.undo import discard, discardable

    log_dir = location.local_path
    if dry_run:
        with refusing_brokers([location]):
            found = discardable(log_dir, undo_id)
        freed = "would be freed; nothing written"
    else:
        with hold_locks([log_dir]):
            found = discard(log_dir, undo_id)
        freed = "freed"
    _show_runs(found, output)
    if output.is_for_people:
        size = format_bytes(sum(run.kept_bytes for run in found))
        write_line(f"{location}: {counted(len(found), 'run')}, {size} {freed}")


def _undo(
    location: Location, undo_id: str | None, output: OutputFormat, *, dry_run: bool, verbose: bool
) -> None:
    from kdump.apply.interrupted_runs import remove_remains
    from kdump.apply.lock import hold_locks, refusing_brokers
    from kdump.apply.undo import preview_undo, undo

    log_dir = location.local_path
    if dry_run:
        with refusing_brokers([location]):
            run, restored = preview_undo(log_dir, undo_id)
    else:
        with hold_locks([log_dir]):
            remove_remains(log_dir)
            run, restored = preview_undo(log_dir, undo_id)
            try:
                undo(log_dir, run.undo_id)
            except KeyboardInterrupt as stop:
                stop.add_note(f"{location}: may be partly changed; run the command again to finish")
                raise
    is_brief = output.is_for_people and not verbose
    shown = restored[:MAX_LISTED] if is_brief else restored
    run_name = f"{location}: run {run.undo_id} ({run.command})"
    outcome = f"{run_name} is undone"
    with noting(() if dry_run else (outcome,)):
        with open_output(output, RESTORED_FILE.columns) as out:
            out.rows(_file_row(run, each) for each in shown)
        if more := len(restored) - len(shown):
            write_line(f"… and {counted(more, 'more file')} (--verbose lists all)")
        if output.is_for_people:
            write_line(f"{run_name} would be undone; nothing written" if dry_run else outcome)
        sys.stdout.flush()


def _show_runs(runs: Iterable[Undo], output: OutputFormat) -> None:
    with open_output(output, RUN.columns) as out:
        for run in runs:
            out.row(
                {
                    "type": "undo",
                    "undo": run.undo_id,
                    "created_ms": None if run.problem else run.created_ms,
                    "command": run.command or None,
                    "state": _state(run),
                    "files": None if run.problem else run.files,
                    "kept_bytes": run.kept_bytes,
                }
            )


def _state(run: Undo) -> str:
    if run.problem:
        return "unusable"
    return "interrupted" if run.is_interrupted else "complete"


def _file_row(run: Undo, restored: Restored) -> Row:
    return {
        "type": "file",
        "undo": run.undo_id,
        "action": "remove" if restored.is_removed else "restore",
        "size_bytes": None if restored.is_removed else restored.size_bytes,
        "file": restored.path,
    }
