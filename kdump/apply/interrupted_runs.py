"""Finish runs, and undos of runs, that were interrupted.

The caller holds the lock of the log directory.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from kdump.apply.apply import roll_back, roll_forward, tidy_up
from kdump.apply.files import DISK, Files
from kdump.apply.journal import Journal, RunState
from kdump.apply.journal_file import run_files_in
from kdump.apply.journal_preview import Restored, changed_by_redo, changed_by_undo
from kdump.apply.lock import drop_leftover
from kdump.apply.overwriting import delete_run_files
from kdump.apply.pinned_directory import pinned
from kdump.apply.preconditions import require_finishable
from kdump.apply.runs import FoundRun, Undo, explained, list_undos, run_state, runs_in
from kdump.phases import during


class Unfinished(Struct, frozen=True):
    """An interrupted run, or an interrupted undo of one.

    Attributes:
        files: the files that finishing it changes.
    """

    run: Undo
    files: tuple[Restored, ...]


@during("examining the journals")
def finish_interrupted(log_dir: Path, *, files: Files = DISK) -> Undo | None:
    """Finish the run, or the undo of a run, that was interrupted.

    Also removes the files of runs that were stopped before they changed anything.

    Returns:
        The run that was finished; None if nothing was interrupted.

    Raises:
        KdumpError: somebody else has changed the directory since, or a record failed.
        OSError: the directory cannot be read.
    """
    finished = None
    with pinned(log_dir):
        # All journals are read before the first is executed.
        begun = [
            (run, run.read())
            for run in runs_in(log_dir)
            if run.state is not RunState.APPLIED or RunState.APPLYING.value in run.files
        ]
        remove_remains(log_dir, files=files)
        for run, journal in begun:
            if run.state is RunState.APPLIED:
                tidy_up(log_dir, journal, files)
                drop_leftover(log_dir)
            else:
                finished = run.describe(journal)
                _finish(log_dir, run.state, journal, files)
    return finished


def _finish(log_dir: Path, state: RunState, journal: Journal, files: Files) -> None:
    require_finishable(log_dir, journal, state)
    with explained(log_dir, journal, "undone" if state is RunState.UNDOING else "finished"):
        if state is RunState.UNDOING:
            roll_back(log_dir, journal, files)
        else:
            roll_forward(log_dir, journal, files)


@during("examining the journals")
def unfinished(log_dir: Path) -> list[Unfinished]:
    """Preview :func:`finish_interrupted`: the runs, and the files that would change.

    Raises:
        KdumpError: it would refuse.
        OSError: the directory cannot be read.
    """
    with pinned(log_dir):
        runs = [run for run in runs_in(log_dir) if run.state is not RunState.APPLIED]
        return [_previewed(log_dir, run) for run in runs]


def _previewed(log_dir: Path, run: FoundRun) -> Unfinished:
    journal = run.read()
    require_finishable(log_dir, journal, run.state)
    changed = changed_by_undo if run.state is RunState.UNDOING else changed_by_redo
    return Unfinished(run.describe(journal), tuple(changed(log_dir, journal)))


@during("examining the journals")
def remove_remains(log_dir: Path, *, files: Files = DISK) -> None:
    """Remove the files of runs without a journal: those changed nothing yet, or are complete.

    Removes nothing as long as the journal of any run cannot be used: a person has to look first.
    """
    with pinned(log_dir):
        remains = [found for found in run_files_in(log_dir).values() if run_state(found) is None]
        if remains and not any(run.problem for run in list_undos(log_dir)):
            for found in remains:
                delete_run_files(log_dir, found, files)
