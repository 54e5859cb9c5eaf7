"""List the runs of a log directory that have a journal, and describe them for people."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from kdump.apply.journal import CUT_SUFFIX, Journal, RunState
from kdump.apply.journal_file import read_journal, run_files_in
from kdump.apply.pinned_directory import pinned, status_of
from kdump.errors import KdumpError, reason_of
from kdump.phases import during
from kdump.words import discard_command, shell_command


class Undo(Struct, frozen=True):
    """The undo data of one run.

    Attributes:
        undo_id: number of the run, as text; later runs have greater numbers.
        command: the command that was run; empty if the journal cannot be used.
        created_ms: when; 0 if the journal cannot be used.
        is_interrupted: whether the run, or its undo, was stopped before its end.
        files: how many files the undo changes; a directory that it moves counts as one.
        kept_bytes: space that discarding it frees.
        problem: why its journal cannot be used, and what to do; empty if it can.
    """

    undo_id: str
    command: str
    created_ms: int
    is_interrupted: bool
    files: int
    kept_bytes: int
    problem: str = ""


def kept_directory_bytes(journal: Journal) -> int:
    """Size of the directories that a complete run keeps for an undo."""
    kept = {each.key for each in journal.moves if each.is_kept}
    return sum(
        each.size_bytes
        for path, each in journal.fingerprints.items()
        if path.partition("/")[0] in kept
    )


class FoundRun(Struct, frozen=True):
    """A run that has a journal.

    Attributes:
        files: its own files, by suffix.
    """

    number: int
    state: RunState
    files: Mapping[str, Path]

    def read(self) -> Journal:
        """Read its journal.

        Raises:
            KdumpError: the journal is not safe to execute.
            OSError: it cannot be read.
        """
        return read_journal(self.files[self.state.value])

    def describe(self, journal: Journal) -> Undo:
        """Describe the run, whose journal is ``journal``."""
        keys = {each.key for each in journal.moves}
        paths = journal.before_images.keys() | journal.after.keys()
        changed = [path for path in paths if path.partition("/")[0] not in keys]
        return Undo(
            str(journal.number),
            journal.command,
            journal.created_ms,
            self.state is not RunState.APPLIED,
            len(changed) + len(keys),
            self._kept_bytes() + kept_directory_bytes(journal),
        )

    def describe_anyway(self) -> Undo:
        """Describe the run, even if its journal is damaged."""
        try:
            return self.describe(self.read())
        except KdumpError as problem:
            is_interrupted = self.state is not RunState.APPLIED
            kept_bytes = self._kept_bytes()
            return Undo(str(self.number), "", 0, is_interrupted, 0, kept_bytes, str(problem))

    def _kept_bytes(self) -> int:
        """Disk space that only the undo data uses."""
        statuses = [status_of(path) for path in self.files.values()]
        return sum(each.st_blocks * 512 for each in statuses if each and each.st_nlink == 1)


@during("listing the undo data")
def list_undos(log_dir: Path) -> list[Undo]:
    """List the undo data of a log directory, the oldest first. Only reads.

    Raises:
        OSError: the directory cannot be read.
    """
    with pinned(log_dir):
        return [run.describe_anyway() for run in runs_in(log_dir)]


def runs_in(log_dir: Path) -> list[FoundRun]:
    """The runs that have a journal, the oldest first."""
    return [
        FoundRun(number, state, found)
        for number, found in run_files_in(log_dir).items()
        if (state := run_state(found)) is not None
    ]


def paths_before(log_dir: Path) -> dict[str, set[str]]:
    """Where the files were whose bytes runs have put aside, by the names of files of runs.

    The paths are in the log directory. Runs whose journals cannot be used are left out.

    Raises:
        OSError: the directory cannot be read.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    with pinned(log_dir):
        for run in runs_in(log_dir):
            try:
                journal = run.read()
            except KdumpError:
                continue
            for path, before in journal.before_images.items():
                if before.link is not None:
                    found[before.link].add(path)
                if (before.cut or before.derived) is not None:
                    found[journal.own_name(CUT_SUFFIX)].add(path)
    return dict(found)


def run_state(found: Mapping[str, Path]) -> RunState | None:
    """How far a run is, by the journal that was written last; None if it has no journal."""
    for state in (RunState.UNDOING, RunState.APPLIED, RunState.APPLYING):
        if state.value in found:
            return state
    return None


def newest_run(log_dir: Path, undo_id: str | None) -> FoundRun:
    """The newest run.

    Raises:
        KdumpError: there is none, or the run ``undo_id`` is not the newest.
    """
    runs = runs_in(log_dir)
    if undo_id is not None and undo_id not in (str(run.number) for run in runs):
        raise no_such_undo(log_dir, undo_id)
    if not runs:
        raise KdumpError(f"{log_dir}: there is nothing to undo")
    newest = runs[-1]
    if undo_id not in (None, str(newest.number)):
        raise KdumpError(
            f"{log_dir}: run {newest.number} came after {undo_id}; undo that one first"
        )
    return newest


def no_such_undo(log_dir: Path, undo_id: str) -> KdumpError:
    """The error for an unknown undo ID."""
    return KdumpError(
        f"{log_dir}: there is no undo {undo_id}; "
        f"'{shell_command('undo --list', [log_dir])}' shows all"
    )


@contextmanager
def explained(log_dir: Path, journal: Journal, what: str) -> Iterator[None]:
    """Turn the error of a failed record into advice on how to continue.

    Args:
        journal: whose records are executed.
        what: "undone" or "finished".

    Raises:
        KdumpError: a record failed.
    """
    try:
        yield
    except OSError as failure:
        number = journal.number
        raise KdumpError(
            f"{failure.filename or log_dir}: {reason_of(failure)}; run {number}"
            f" ({journal.command}) is only partly {what}; remove the cause and run the command"
            f" again, or discard the run with '{discard_command(log_dir, number)}' and then run"
            f" 'kdump recover {shlex.quote(str(log_dir))}'"
        ) from failure
