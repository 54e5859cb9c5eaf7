"""Taking back what was applied, and finishing what was interrupted.

The caller holds the lock of the log directory. Only the newest run can be taken back: the older
ones left the directory as that one found it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kdump.apply.apply import roll_back, roll_forward, tidy_up
from kdump.apply.files import DISK, FileRange, Files
from kdump.apply.fingerprints import kept_file_fingerprint
from kdump.apply.foreign_changes import (
    changed_during,
    changed_since,
    lost_content,
    summarized,
)
from kdump.apply.journal import BeforeImage, Fingerprint, Journal, RunState
from kdump.apply.journal_file import discard_command, read_journal, run_files_in, write_journal
from kdump.apply.journal_preview import Content, predict_names
from kdump.apply.journal_record import JournalRecord, RecordKind
from kdump.apply.journal_replay import restore
from kdump.apply.lock import drop_leftover
from kdump.apply.pinned_directory import identity_of, pinned, status_at, status_of
from kdump.apply.preconditions import misplaced, missing_undo_data
from kdump.errors import KdumpError
from kdump.formats.names import LOCK_FILE
from kdump.phases import during


@dataclass(frozen=True, slots=True)
class Undo:
    """What is kept to take back one run.

    Attributes:
        undo_id: its number, as text; later runs have greater ones.
        command: what was run; empty where the journal cannot be used.
        created_ms: when; 0 where the journal cannot be used.
        is_interrupted: whether the run, or the undoing of it, was stopped before its end.
        files: how many files it puts back or takes away.
        kept_bytes: space that giving it up sets free.
        problem: why its journal cannot be used, and what to do; empty where it can.
    """

    undo_id: str
    command: str
    created_ms: int
    is_interrupted: bool
    files: int
    kept_bytes: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Restored:
    """A file that an undo puts back, or takes away.

    Attributes:
        path: below the log directory.
        is_removed: whether it was not there before.
        size_bytes: of the file as it was; 0 where it was not there.
    """

    path: str
    is_removed: bool
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A run that was interrupted, or its undo, and what finishing it does.

    Attributes:
        run: which.
        files: the files that change.
    """

    run: Undo
    files: tuple[Restored, ...]


@during("listing the undo data")
def list_undos(log_dir: Path) -> list[Undo]:
    """What can be taken back in a log directory, the oldest first; only reads.

    Raises:
        OSError: the directory cannot be read.
    """
    with pinned(log_dir):
        return [_described_at_least(*run) for run in _runs(log_dir)]


@during("undoing")
def undo(log_dir: Path, undo_id: str | None = None, *, files: Files = DISK) -> Undo:
    """Take back the newest run, also one that was interrupted; gives what was taken back.

    Every file has its name, content, owner, group, mode and times again. Stopped anywhere, it is
    finished by being called again.

    Raises:
        KdumpError: there is none, or another one than ``undo_id`` is the newest; or the directory
            has been changed since, so that it cannot be as it was.
    """
    with pinned(log_dir):
        remove_remains(log_dir, files=files)
        state, journal, described = _examined(log_dir, undo_id)
        with _way_out(log_dir, journal, "undone"):
            if state is RunState.APPLIED:
                tidy_up(log_dir, journal, files)
                journal = _ready_to_go_back(log_dir, journal, files)
                write_journal(log_dir, journal, RunState.UNDOING, files)
                files.unlink(log_dir / journal.own_name(RunState.APPLIED.value))
            elif state is RunState.APPLYING:
                undoing = log_dir / journal.own_name(RunState.UNDOING.value)
                files.rename(log_dir / journal.own_name(state.value), undoing)
                files.sync([log_dir])
            roll_back(log_dir, journal, files)
    return described


@during("examining the undo data")
def preview_undo(log_dir: Path, undo_id: str | None = None) -> tuple[Undo, list[Restored]]:
    """Say what :func:`undo` would take back, and which files it would touch; only reads.

    Raises:
        KdumpError: it would refuse.
    """
    with pinned(log_dir):
        _, journal, described = _examined(log_dir, undo_id)
        return described, _changed_by_undo(log_dir, journal)


def _changed_by_undo(log_dir: Path, journal: Journal) -> list[Restored]:
    restored = _changed(log_dir, journal, journal.undo_records)
    if journal.lock is not None:
        restored.append(Restored(LOCK_FILE, is_removed=False, size_bytes=0))
    return sorted(restored, key=lambda each: each.path)


def _changed(log_dir: Path, journal: Journal, steps: tuple[JournalRecord, ...]) -> list[Restored]:
    """All files of the run, and whatever else its steps change."""
    then = predict_names(log_dir, journal, steps)
    is_going_on = steps is journal.redo_records
    found = []
    for path in sorted(then.keys() | journal.before_images.keys() | journal.after.keys()):
        content = then.get(path, Content(path))
        if path not in then and status_of(log_dir / path) is None:
            content = None
        if content is None:
            size_bytes = 0
        elif is_going_on and path in journal.after:
            size_bytes = journal.after[path].size_bytes
        else:
            size_bytes = _size_of(log_dir, journal, content)
        found.append(Restored(path, content is None, size_bytes))
    return found


def _size_of(log_dir: Path, journal: Journal, content: Content) -> int:
    before = journal.before_images.get(content.name)
    if before is not None and content.is_before:
        return before.size_bytes
    status = status_of(log_dir / content.name)
    return 0 if status is None else status.st_size


def _examined(log_dir: Path, undo_id: str | None) -> tuple[RunState, Journal, Undo]:
    """The run that can be taken back, after looking whether it can."""
    number, state, found = _newest(log_dir, undo_id)
    journal = read_journal(found[state.value])
    if not journal.can_undo:
        raise KdumpError(
            f"{log_dir}: run {number} ({journal.command}) keeps no undo; run it again to finish it,"
            f" or discard it with '{discard_command(log_dir, number)}'"
        )
    _require_undoable(log_dir, journal, state)
    return state, journal, _described(journal, state, found)


def _require_undoable(log_dir: Path, journal: Journal, state: RunState) -> None:
    """Make sure that no step of going back can fail, as far as that can be known.

    Raises:
        KdumpError: it would; says why, and what to do.
    """
    _refuse(log_dir, journal, misplaced(log_dir, journal))
    missing = missing_undo_data(log_dir, journal, state)
    if missing:
        number = journal.number
        left = (
            "" if state is RunState.APPLIED else "; the files are as the interrupted run left them"
        )
        raise KdumpError(
            f"{log_dir}: run {number} ({journal.command}) cannot be undone: {summarized(missing)}; "
            f"nothing has been changed{left}; '{discard_command(log_dir, number)}' discards its "
            "undo data"
        )
    examine = changed_since if state is RunState.APPLIED else changed_during
    _refuse(log_dir, journal, examine(log_dir, journal))


@contextmanager
def _way_out(log_dir: Path, journal: Journal, what: str) -> Iterator[None]:
    """Say of a step that fails how to go on, and how not to.

    Raises:
        KdumpError: a step failed.
    """
    try:
        yield
    except OSError as failure:
        number = journal.number
        raise KdumpError(
            f"{failure.filename or log_dir}: {failure.strerror or failure}; run {number}"
            f" ({journal.command}) is only partly {what}; remove the cause and run the command"
            f" again, or discard the run with '{discard_command(log_dir, number)}' and then run"
            f" 'kdump recover {shlex.quote(str(log_dir))}'"
        ) from failure


@during("listing the undo data")
def discardable(log_dir: Path, undo_id: str | None = None) -> list[Undo]:
    """What :func:`discard` would give up; only reads.

    Raises:
        KdumpError: there is no such undo; or there are only interrupted runs, and none is named.
    """
    runs = list_undos(log_dir)
    if undo_id is not None:
        named = [run for run in runs if run.undo_id == undo_id]
        if not named:
            raise _no_such(log_dir, undo_id)
        return named
    complete = [run for run in runs if not run.is_interrupted]
    if runs and not complete:
        raise KdumpError(
            f"{log_dir}: run {runs[-1].undo_id} was interrupted; to discard it, give its ID:"
            f" '{discard_command(log_dir, int(runs[-1].undo_id))}'"
        )
    return complete


@during("discarding undo data")
def discard(log_dir: Path, undo_id: str | None = None, *, files: Files = DISK) -> list[Undo]:
    """Give back the space of one undo, or of all that are complete; gives what that was.

    A run that was interrupted is given up only by its id: the directory then stays as it is, with
    a part of the changes made.

    Raises:
        KdumpError: there is no such undo.
    """
    with pinned(log_dir):
        discarded = discardable(log_dir, undo_id)
        every = run_files_in(log_dir)
        for run in discarded:
            found = every[int(run.undo_id)]
            for state in RunState:
                if state.value in found:
                    files.unlink(found.pop(state.value))
            files.sync([log_dir])
            for path in found.values():
                files.unlink(path)
    return discarded


@during("examining the journals")
def finish_interrupted(log_dir: Path, *, files: Files = DISK) -> Undo | None:
    """Bring a run, or the undoing of one, that was interrupted to its end.

    Gives what that was; None where nothing was interrupted. Also removes what a run left that was
    stopped before it began.

    Raises:
        KdumpError: the directory has been changed since by somebody else.
        OSError: a step fails; it can be gone on with.
    """
    finished = None
    with pinned(log_dir):
        # All journals are read before the first is acted on.
        begun = [
            (state, read_journal(found[state.value]), found)
            for _, state, found in _runs(log_dir)
            if state is not RunState.APPLIED or RunState.APPLYING.value in found
        ]
        remove_remains(log_dir, files=files)
        for state, journal, found in begun:
            if state is RunState.APPLIED:
                tidy_up(log_dir, journal, files)
                drop_leftover(log_dir)
            else:
                finished = _described(journal, state, found)
                _finish(log_dir, state, journal, files)
    return finished


def _finish(log_dir: Path, state: RunState, journal: Journal, files: Files) -> None:
    _require_finishable(log_dir, journal, state)
    with _way_out(log_dir, journal, "undone" if state is RunState.UNDOING else "finished"):
        if state is RunState.UNDOING:
            roll_back(log_dir, journal, files)
        else:
            roll_forward(log_dir, journal, files)
            drop_leftover(log_dir)


def _require_finishable(log_dir: Path, journal: Journal, state: RunState) -> None:
    if state is RunState.UNDOING:
        _require_undoable(log_dir, journal, state)
        return
    _refuse(log_dir, journal, misplaced(log_dir, journal))
    changes = changed_during(log_dir, journal)
    _refuse(log_dir, journal, changes + lost_content(log_dir, journal))


@during("examining the journals")
def unfinished(log_dir: Path) -> list[Unfinished]:
    """Say what :func:`finish_interrupted` would finish, and which files it would change.

    Raises:
        KdumpError: it would refuse.
        OSError: the directory cannot be read.
    """
    with pinned(log_dir):
        return [
            _previewed(log_dir, state, found)
            for _, state, found in _runs(log_dir)
            if state is not RunState.APPLIED
        ]


def _previewed(log_dir: Path, state: RunState, found: Mapping[str, Path]) -> Unfinished:
    journal = read_journal(found[state.value])
    _require_finishable(log_dir, journal, state)
    if state is RunState.UNDOING:
        changed = _changed_by_undo(log_dir, journal)
    else:
        changed = _changed(log_dir, journal, journal.redo_records)
    return Unfinished(_described(journal, state, found), tuple(changed))


@during("examining the journals")
def remove_remains(log_dir: Path, *, files: Files = DISK) -> None:
    """Remove what runs left that have no journal: nothing was changed, or all was done.

    Where a journal cannot be used, somebody has to look first: nothing is removed.
    """
    with pinned(log_dir):
        remains = [found for found in run_files_in(log_dir).values() if _run_state(found) is None]
        if remains and not any(run.problem for run in list_undos(log_dir)):
            for found in remains:
                for path in found.values():
                    files.unlink(path)


def _runs(log_dir: Path) -> list[tuple[int, RunState, dict[str, Path]]]:
    """The runs that have a journal, the oldest first."""
    return [
        (number, state, found)
        for number, found in run_files_in(log_dir).items()
        if (state := _run_state(found)) is not None
    ]


def _run_state(found: Mapping[str, Path]) -> RunState | None:
    """How far a run is; the journal that was written last says so."""
    for state in (RunState.UNDOING, RunState.APPLIED, RunState.APPLYING):
        if state.value in found:
            return state
    return None


def _newest(log_dir: Path, undo_id: str | None) -> tuple[int, RunState, dict[str, Path]]:
    runs = _runs(log_dir)
    if undo_id is not None and undo_id not in (str(number) for number, _, _ in runs):
        raise _no_such(log_dir, undo_id)
    if not runs:
        raise KdumpError(f"{log_dir}: there is nothing to undo")
    if undo_id not in (None, str(runs[-1][0])):
        raise KdumpError(f"{log_dir}: run {runs[-1][0]} came after {undo_id}; undo that one first")
    return runs[-1]


def _no_such(log_dir: Path, undo_id: str) -> KdumpError:
    return KdumpError(
        f"{log_dir}: there is no undo {undo_id}; "
        f"'kdump undo --list {shlex.quote(str(log_dir))}' shows all"
    )


def _refuse(log_dir: Path, journal: Journal, changes: list[str]) -> None:
    if changes:
        raise KdumpError(
            f"{log_dir}: has been changed since run {journal.number} ({journal.command}): "
            f"{summarized(changes)}; '{discard_command(log_dir, journal.number)}' discards that"
            " run's undo data and leaves all other files unchanged"
        )


@during("restoring files")
def _ready_to_go_back(log_dir: Path, journal: Journal, files: Files) -> Journal:
    """Give every file that was taken from its name another one, as when the run began.

    What was only renamed gets it at once, what was written anew is put together.
    """
    links = sum(each.link is not None for each in journal.before_images.values())
    free = max(
        (int(suffix.removeprefix("-old-")) for suffix in _old_suffixes(log_dir, journal)),
        default=links,
    )
    before = {}
    kept = dict(journal.undo_files)
    undo_records = journal.undo_records
    for path, each in journal.before_images.items():
        if each.link is None and (each.derived is not None or _is_shared(log_dir, path, each)):
            free += 1
            name = journal.own_name(f"-old-{free}")
            is_whole = _make_again(log_dir, name, path, each, journal, files)
            if is_whole and each.cut is not None:
                undo_records = tuple(_put_instead(step, path) for step in undo_records)
            each = replace(each, link=name)
            kept[name] = kept_file_fingerprint(log_dir / name)
        before[path] = each
    files.sync([log_dir])
    fingerprints = {
        path: Fingerprint(mark.size_bytes, mark.modified_ns)
        for path, mark in journal.fingerprints.items()
    }
    after = {path: fingerprints[path] for path in journal.after}
    return replace(
        journal,
        before_images=before,
        undo_files=kept,
        undo_records=undo_records,
        fingerprints=fingerprints,
        after=after,
    )


def _put_instead(step: JournalRecord, path: str) -> JournalRecord:
    """A file that was made again as a whole needs not be filled, but put where it was."""
    is_meant = step.kind is RecordKind.FILL and step.source == path
    return JournalRecord(RecordKind.PUT, path, path) if is_meant else step


def _old_suffixes(log_dir: Path, journal: Journal) -> list[str]:
    return [
        suffix
        for suffix in run_files_in(log_dir).get(journal.number, {})
        if suffix.startswith("-old-")
    ]


def _is_shared(log_dir: Path, path: str, before: BeforeImage) -> bool:
    """Whether what was cut has got other hard links since; those are not written through."""
    return before.cut is not None and status_at(log_dir / path).st_nlink > 1


def _make_again(
    log_dir: Path, name: str, path: str, before: BeforeImage, journal: Journal, files: Files
) -> bool:
    """Make a file again under ``name``; gives whether it is a file of its own, and whole."""
    kept = log_dir / name
    derived = before.derived
    if derived is not None and derived.is_rename:
        renamed = log_dir / derived.pieces[0].path
        if before.cut is None or status_at(renamed).st_nlink == 1:
            files.link(renamed, kept)
            return False
    if derived is None or derived.is_rename:
        assert before.cut is not None, f"{path} was not kept"
        there = log_dir / (path if derived is None else derived.pieces[0].path)
        files.create(kept, [_range(there, 0, before.cut.position)])
        restore(kept, before, before.cut.kept_ranges, log_dir, journal, files)
        files.sync([kept])
        return True
    files.create(kept, [])
    files.truncate(kept, before.size_bytes)
    for piece in derived.pieces:
        content = [_range(log_dir / piece.path, piece.start, piece.end)]
        files.write_at(kept, piece.position, content)
    restore(kept, before, derived.kept_ranges, log_dir, journal, files)
    files.sync([kept])
    return True


def _range(path: Path, start: int, end: int) -> FileRange:
    """A range of a file itself, and never of one that a link leads to."""
    return FileRange(path, start, end, identity_of(status_at(path)))


def _described(journal: Journal, state: RunState, found: Mapping[str, Path]) -> Undo:
    paths = journal.before_images.keys() | journal.after.keys()
    return Undo(
        str(journal.number),
        journal.command,
        journal.created_ms,
        state is not RunState.APPLIED,
        len(paths),
        _kept_bytes(found),
    )


def _described_at_least(number: int, state: RunState, found: Mapping[str, Path]) -> Undo:
    """The same, also where the journal is damaged."""
    try:
        return _described(read_journal(found[state.value]), state, found)
    except KdumpError as problem:
        is_interrupted = state is not RunState.APPLIED
        return Undo(str(number), "", 0, is_interrupted, 0, _kept_bytes(found), str(problem))


def _kept_bytes(found: Mapping[str, Path]) -> int:
    """What is on disk for the undo alone."""
    statuses = [status_of(path) for path in found.values()]
    return sum(each.st_blocks * 512 for each in statuses if each and each.st_nlink == 1)
