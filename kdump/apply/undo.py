"""Undo runs, and discard their undo data.

The caller holds the lock of the log directory. Only the newest run can be undone: it found the
directory as the older ones had left it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from kdump.apply.apply import roll_back, tidy_up
from kdump.apply.directory_places import place_of
from kdump.apply.files import DISK, Files
from kdump.apply.interrupted_runs import remove_remains
from kdump.apply.journal import Journal, RunState
from kdump.apply.journal_file import run_files_in, write_journal
from kdump.apply.journal_preview import Restored, changed_by_undo
from kdump.apply.overwriting import delete_run_files, mark_for_destruction
from kdump.apply.pinned_directory import opened, pinned, status_of
from kdump.apply.preconditions import require_undoable
from kdump.apply.recreated_files import recreate_files
from kdump.apply.runs import (
    FoundRun,
    Undo,
    explained,
    list_undos,
    newest_run,
    no_such_undo,
    runs_in,
)
from kdump.errors import KdumpError, reason_of
from kdump.phases import during
from kdump.words import discard_command


@during("undoing")
def undo(log_dir: Path, undo_id: str | None = None, *, files: Files = DISK) -> Undo:
    """Undo the newest run, even if it was interrupted.

    Every file gets its name, content, owner, group, mode and times back. If this is stopped
    anywhere, calling it again finishes it.

    Returns:
        The run that was undone.

    Raises:
        KdumpError: there is none, or ``undo_id`` is not the newest; or somebody has changed the
            directory since, so that it cannot be restored.
    """
    with pinned(log_dir):
        remove_remains(log_dir, files=files)
        run, journal = _undoable(log_dir, undo_id)
        described = run.describe(journal)
        with explained(log_dir, journal, "undone"):
            if run.state is RunState.APPLIED:
                journal = _begin(log_dir, journal, files)
            elif run.state is RunState.APPLYING:
                undoing = log_dir / journal.own_name(RunState.UNDOING.value)
                files.rename(log_dir / journal.own_name(run.state.value), undoing)
                files.sync([log_dir])
            roll_back(log_dir, journal, files)
    return described


def _begin(log_dir: Path, journal: Journal, files: Files) -> Journal:
    """Recreate all before-images of a complete run, and write its journal in state UNDOING.

    If that fails, the recreated files are removed again: they may have filled the disk.

    Raises:
        KdumpError: it failed; nothing has been changed.
    """
    tidy_up(log_dir, journal, files)
    try:
        undoing = recreate_files(log_dir, journal, files)
        write_journal(log_dir, undoing, RunState.UNDOING, files)
    except BaseException as failure:
        if status_of(log_dir / journal.own_name(RunState.UNDOING.value)) is not None:
            raise
        with suppress(OSError):
            tidy_up(log_dir, journal, files)
        if not isinstance(failure, OSError):
            raise
        raise KdumpError(
            f"{failure.filename or log_dir}: {reason_of(failure)}; nothing has been"
            " changed; remove the cause and run the command again"
        ) from failure
    files.unlink(log_dir / journal.own_name(RunState.APPLIED.value))
    return undoing


@during("examining the undo data")
def preview_undo(log_dir: Path, undo_id: str | None = None) -> tuple[Undo, list[Restored]]:
    """Preview :func:`undo`: the run, and the files that would change. Only reads.

    Raises:
        KdumpError: it would refuse.
    """
    with pinned(log_dir):
        run, journal = _undoable(log_dir, undo_id)
        return run.describe(journal), changed_by_undo(log_dir, journal)


def _undoable(log_dir: Path, undo_id: str | None) -> tuple[FoundRun, Journal]:
    """The newest run and its journal, after checking that it can be undone."""
    run = newest_run(log_dir, undo_id)
    journal = run.read()
    if not journal.can_undo:
        raise KdumpError(
            f"{log_dir}: run {run.number} ({journal.command}) keeps no undo; run it again to finish"
            f" it, or discard it with '{discard_command(log_dir, run.number)}'"
        )
    require_undoable(log_dir, journal, run.state)
    return run, journal


@during("listing the undo data")
def discardable(log_dir: Path, undo_id: str | None = None) -> list[Undo]:
    """Preview :func:`discard`: the runs whose undo data would be discarded. Only reads.

    Raises:
        KdumpError: there is no such undo; or all runs are interrupted, and none is named.
    """
    runs = list_undos(log_dir)
    if undo_id is not None:
        named = [run for run in runs if run.undo_id == undo_id]
        if not named:
            raise no_such_undo(log_dir, undo_id)
        return named
    complete = [run for run in runs if not run.is_interrupted]
    if runs and not complete:
        raise KdumpError(
            f"{log_dir}: run {runs[-1].undo_id} was interrupted; to discard it, give its ID:"
            f" '{discard_command(log_dir, int(runs[-1].undo_id))}'"
        )
    return complete


@during("discarding undo data")
def discard(
    log_dir: Path,
    undo_id: str | None = None,
    *,
    overwrites: bool = False,
    files: Files = DISK,
) -> list[Undo]:
    """Discard the undo data of one run, or of all complete runs, to free its space.

    An interrupted run is discarded only by its id: the directory then stays as it is, with some of
    the changes made.

    Args:
        undo_id: of the run; None for all complete runs.
        overwrites: whether to overwrite files before they are deleted. The journal is deleted
            first, so that nobody restores what is overwritten. If this is stopped then, the next
            run overwrites the others, too.

    Returns:
        The runs whose undo data was discarded.

    Raises:
        KdumpError: there is no such undo.
    """
    with pinned(log_dir):
        discarded = discardable(log_dir, undo_id)
        every = run_files_in(log_dir)
        runs = {run.number: run for run in runs_in(log_dir)}
        for run in discarded:
            found = every[int(run.undo_id)]
            going = _release_directories(log_dir, runs[int(run.undo_id)], files)
            if overwrites:
                mark_for_destruction(log_dir, int(run.undo_id), files)
            for state in RunState:
                if state.value in found:
                    files.unlink(found[state.value])
            files.sync([log_dir])
            delete_run_files(log_dir, run_files_in(log_dir).get(int(run.undo_id), {}), files)
            for directory in going:
                _delete_directory(directory, files)
            if going:
                files.sync([log_dir])
    return discarded


def _release_directories(log_dir: Path, run: FoundRun, files: Files) -> list[Path]:
    """Give the directories that a complete run keeps a name under which a broker deletes them.

    If this is stopped, the run can still be undone (its journal knows this name, too), or be
    discarded again.

    Returns:
        The directories, to be deleted once the journal is gone.
    """
    if run.state is not RunState.APPLIED:
        return []  # of an interrupted run, every directory stays as it is
    try:
        journal = run.read()
    except KdumpError:
        return []
    released = []
    for move in journal.moves:
        place = place_of(log_dir, move) if move.is_kept else None
        if place is None or place == move.before or move.released is None:
            continue
        if place != move.released:
            files.rename_directory(log_dir / place, log_dir / move.released)
        released.append(log_dir / move.released)
    if released:
        files.sync([log_dir])
    return released


def _delete_directory(path: Path, files: Files) -> None:
    flags = os.O_RDONLY | os.O_DIRECTORY
    with opened(path, flags) as descriptor, os.scandir(descriptor) as entries:
        names = sorted(entry.name for entry in entries)
    for name in names:
        files.unlink(path / name)
    files.remove_directory(path)
