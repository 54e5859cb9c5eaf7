"""Apply a plan, and roll it back.

Two rules hold wherever the machine may stop: running kdump again reaches the same end, and a broker
that is started instead loses nothing that it would have kept of the original directory. The state
of the directory after each step:

0. Only if the disk is too full for anything else, and no undo data is kept: leftover files that a
   broker deletes anyway are gone, then the first segments of logs that lose them. A broker starts
   such a log at the next segment, as it would in the end. (If kdump is stopped between the files of
   one segment, indexes without a log remain before the first segment. A broker deletes them, and so
   does the next run.)
1. New content and before-images are in the log directory, durable, under names of the run. (Large
   content may have been written before the plan was made: :mod:`kdump.apply.early_content`.)
   Nothing else has changed. Without a journal, the next run removes these files.
2. The journal exists, durable. From here on the next run finishes this one, and ``kdump undo``
   undoes it.
3. The redo records have been executed. :mod:`kdump.apply.redo_records` gives the state after each
   of them. Each can be executed again.
4. All changes are durable, and a second journal says how to undo the complete run: the next run
   only tidies up.
5. Files that are no longer needed are gone, and so is the first journal: done.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Container, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from kdump.apply.before_images import keep_before_images
from kdump.apply.disk_space import DISK_FULL, DiskSpace
from kdump.apply.files import DISK, Files, Metadata
from kdump.apply.fingerprints import fingerprints_of
from kdump.apply.foreign_changes import fingerprints_now
from kdump.apply.journal import CUT_SUFFIX, BeforeImage, Fingerprint, Journal, RunState
from kdump.apply.journal_file import (
    next_run_number,
    run_files_in,
    run_number_of,
    write_journal,
)
from kdump.apply.journal_record import ROOT, cut_file, relative
from kdump.apply.journal_replay import Replay
from kdump.apply.journal_validation import RefusedJournalError, require_valid
from kdump.apply.lock import drop_leftover, leave_behind, leftover_of
from kdump.apply.moved_directories import moves_of_run
from kdump.apply.new_content import Staged, stage_new_content
from kdump.apply.operations import Operation, OperationKind, OperationPhase
from kdump.apply.pinned_directory import opened, pinned, status_at, status_of
from kdump.apply.plan import Plan
from kdump.apply.redo_records import redo_records_of
from kdump.apply.undo_records import undo_records_of
from kdump.errors import AS_WHOM, KdumpError, reason_of
from kdump.formats.names import LOCK_FILE
from kdump.phases import during


@during("changing files")
def apply_plan(
    plan: Plan, *, keep_undo: bool, command: str, files: Files = DISK, is_first: bool = True
) -> str | None:
    """Apply ``plan``. Its directory must be locked, and unchanged since the plan was made.

    Args:
        command: the command that the user runs, for the list of undo data.
        is_first: whether the command has changed nothing before, for messages.

    Returns:
        The ID of the undo data; None if none is kept.

    Raises:
        KdumpError: the plan cannot be applied; says whether anything has changed.
    """
    if plan.is_empty:
        return None
    with pinned(plan.path):
        return _applied(DiskSpace(plan, files, keep_undo, is_first), command)


def _applied(space: DiskSpace, command: str) -> str | None:
    plan, files, keep_undo = space.plan, space.files, space.keep_undo
    early = plan.early_content
    while True:
        number = run_number_of(min(early)) if early else next_run_number(plan.path)
        try:
            # 0.
            space.require()
            rest = space.rest
            if rest.is_empty:
                return None
            journal = _prepared(rest, number, command, files, keep_undo=keep_undo)
        except OSError as failure:
            _remove_files_of(plan.path, number, files, but=early)
            if failure.errno in DISK_FULL and space.free_some():
                continue
            _remove_written(plan, number, files)
            raise _not_begun(space, failure) from failure
        except BaseException as stop:
            _remove_written(plan, number, files)
            if not isinstance(stop, KdumpError):  # its message says that already
                stop.add_note(f"{plan.path}: {space.changed}")
            raise
        break
    try:
        roll_forward(plan.path, journal, files)
    except OSError as failure:
        raise _went_wrong(space, journal, failure, files) from failure
    except BaseException as stop:
        stop.add_note(_stopped_at(plan.path, journal))
        raise
    return str(number) if keep_undo else None


def roll_forward(log_dir: Path, journal: Journal, files: Files) -> None:
    """Finish a run, wherever it was stopped.

    Raises:
        OSError: a record failed; calling this again continues.
    """
    # 3.
    Replay(log_dir, journal, files).forwards()
    drop_leftover(log_dir)
    # 4.
    if not journal.can_undo:
        tidy_up(log_dir, journal, files)
        return
    journal.fingerprints.clear()  # not needed to undo it, and as large as those of now
    write_journal(log_dir, _completed(log_dir, journal), RunState.APPLIED, files)
    # 5.
    with suppress(OSError):  # the next run tidies up then
        tidy_up(log_dir, journal, files)


def roll_back(log_dir: Path, journal: Journal, files: Files) -> None:
    """Undo a run whose journal is in state UNDOING.

    1. The directory is as before the run, durable: executing the undo records again changes
       nothing.
    2. The journal is gone: done.
    3. The other files of the run are gone as well.

    Raises:
        OSError: a record failed; calling this again continues.
    """
    # 1.
    Replay(log_dir, journal, files).backwards()
    for path, metadata in journal.directories.items():
        if path != ROOT:
            files.set_metadata(log_dir / path, metadata)
    _leave_lock(log_dir, journal.lock, files)
    files.sync(log_dir / path for path in journal.directories)
    # 2.
    files.unlink(log_dir / journal.own_name(RunState.UNDOING.value))
    files.sync([log_dir])
    # 3.
    _remove_files_of(log_dir, journal.number, files)
    files.set_metadata(log_dir, journal.directories[ROOT])


def tidy_up(log_dir: Path, journal: Journal, files: Files) -> None:
    """Remove the files that a complete run no longer needs, its first journal last."""
    kept = {CUT_SUFFIX, RunState.APPLIED.value}
    links = {each.link for each in _without_derived(journal).values()}
    for suffix, path in run_files_in(log_dir).get(journal.number, {}).items():
        is_needed = journal.can_undo and (suffix in kept or path.name in links)
        if not is_needed and suffix != RunState.APPLYING.value:
            files.unlink(path)
    files.unlink(log_dir / journal.own_name(RunState.APPLYING.value))
    files.sync([log_dir])


def _prepared(plan: Plan, number: int, command: str, files: Files, *, keep_undo: bool) -> Journal:
    _require_writable(plan)
    created_ns = time.time_ns()
    run = moves_of_run(plan, number, keep_undo=keep_undo)
    changes = replace(plan.changes, created=run.created)
    plan = Plan(
        plan.path, plan.partitions, plan.root, plan.early_removals, changes, plan.needs_undo
    )
    directories = {
        each.path.name if each.path != plan.path else ROOT: Metadata.of(each.path.stat())
        for each in plan.directories
    }
    fingerprints = fingerprints_of(
        plan.path, directories, run.moves, touched=_root_files(plan), with_checksums=False
    )
    # 1.
    staged = stage_new_content(plan, number, files, created_ns=created_ns)
    kept = keep_before_images(plan, number, files, keep_undo=keep_undo)
    journal = Journal(
        number=number,
        command=command,
        created_ms=created_ns // 1_000_000,
        can_undo=keep_undo,
        lock=leftover_of(plan.path),
        directories=directories,
        before_images=kept.before_images,
        staged={each.name: each.path for each in staged.values()},
        redo_records=tuple(
            redo_records_of(plan, {each: ready.name for each, ready in staged.items()}, run)
        ),
        undo_records=tuple(undo_records_of(plan, run)) if keep_undo else (),
        fingerprints=fingerprints,
        interim={
            ready.path: Fingerprint(each.size_bytes, ready.metadata.modified_ns)
            for each, ready in staged.items()
            if each.phase is OperationPhase.INTERIM
        },
        after=_after(plan, staged),
        undo_files=kept.fingerprints,
        moves=run.moves,
    )
    _require_obeyed(plan.path, journal)
    # 2.
    write_journal(plan.path, journal, RunState.APPLYING, files)
    return journal


def _root_files(plan: Plan) -> set[str]:
    """The files beside the partitions that a plan changes."""
    return {
        name
        for directory in plan.directories
        if directory.path == plan.path
        for each in directory.operations
        for name in (each.name, each.source)
        if name is not None
    }


def _require_obeyed(log_dir: Path, journal: Journal) -> None:
    """Refuse a run that could not be finished after a crash, or undone.

    Raises:
        KdumpError: kdump would not obey this journal if it read it.
    """
    try:
        require_valid(journal, journal.number, RunState.APPLYING)
    except RefusedJournalError as refused:
        raise KdumpError(
            f"{log_dir}: nothing has been changed: the journal of this run {refused}, so it could"
            " not be undone; this is a defect of kdump: please report it"
        ) from refused


def _require_writable(plan: Plan) -> None:
    """Find out before the first change that a directory or a file may not be written.

    Raises:
        OSError: one may not.
    """
    changing = [each.path for each in plan.directories if each.operations]
    changing += [plan.path / name for name in plan.changes.removed]
    if plan.changes.operations:
        changing.append(plan.path)
    for path in changing:
        _require_writable_directory(path)
    for directory in plan.directories:
        for operation in directory.operations:
            name = cut_file(directory, operation)
            if name is not None:
                with opened(directory.path / name, os.O_WRONLY):
                    pass


def _require_writable_directory(path: Path) -> None:
    with opened(path) as descriptor:
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=descriptor, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def _after(plan: Plan, staged: Mapping[Operation, Staged]) -> dict[str, Fingerprint]:
    """Fingerprints of the changed files, as they will be."""
    after: dict[str, Fingerprint] = {}
    for directory in plan.with_new_files:
        for each in directory.operations:
            path = relative(plan.path, directory.path, each.name)
            if each.kind is OperationKind.REMOVE:
                after.pop(path, None)
                continue
            if each.source is not None:
                after.pop(relative(plan.path, directory.path, each.source), None)
            if each in staged:
                modified_ns = staged[each].metadata.modified_ns
            else:
                modified_ns = directory.states[each.source or each.name].metadata.modified_ns
            after[path] = Fingerprint(each.size_bytes, modified_ns)
    return after


def _completed(log_dir: Path, journal: Journal) -> Journal:
    """The journal of the complete run: how to undo it from there."""
    before = _without_derived(journal)
    needed = {journal.own_name(CUT_SUFFIX), *(each.link for each in before.values())}
    return replace(
        journal,
        before_images=before,
        undo_files={name: mark for name, mark in journal.undo_files.items() if name in needed},
        staged={},
        redo_records=(),
        interim={},
        fingerprints=fingerprints_now(log_dir, journal, with_checksums=True),
    )


def _without_derived(journal: Journal) -> dict[str, BeforeImage]:
    """The before-images, without links to files that can be recreated."""
    return {
        path: replace(each, link=None) if each.derived is not None else each
        for path, each in journal.before_images.items()
    }


def _leave_lock(log_dir: Path, lock: Metadata | None, files: Files) -> None:
    """Leave a ``.lock`` file in place if there was one, which a crashed broker had left."""
    if lock is None:
        drop_leftover(log_dir)
        return
    path = log_dir / LOCK_FILE
    if not leave_behind(log_dir) and status_of(path) is None:
        files.create(path, [])
    files.set_metadata(path, lock)


def _remove_files_of(log_dir: Path, number: int, files: Files, *, but: Container[str] = ()) -> None:
    for path in run_files_in(log_dir).get(number, {}).values():
        if path.name not in but:
            files.unlink(path)


def _remove_written(plan: Plan, number: int, files: Files) -> None:
    """Remove what was written for a run that has not begun; what is left, the next run removes."""
    with suppress(OSError):
        _remove_files_of(plan.path, number, files)
    for path in plan.staged_files:
        with suppress(OSError):
            around = Metadata.of(status_at(path.parent))
            files.unlink(path)
            files.set_metadata(path.parent, around)


def _not_begun(space: DiskSpace, failure: OSError) -> KdumpError:
    where = failure.filename or space.plan.path
    what = f"{where}: {reason_of(failure)}"
    return KdumpError(f"{what}; {space.changed}; {_advice(space, failure)}")


def _advice(space: DiskSpace, failure: OSError) -> str:
    if isinstance(failure, PermissionError):
        advice = AS_WHOM
        if os.geteuid() == 0:
            advice += "; root needs that the files are not immutable (see lsattr)"
        return advice
    if failure.errno in DISK_FULL:
        return space.advice(failure)
    return "remove the cause and run the command again"


def _stopped_at(log_dir: Path, journal: Journal) -> str:
    """The state in which a signal leaves the directory, once the journal exists."""
    if status_of(log_dir / journal.own_name(RunState.APPLYING.value)) is not None:
        return f"{log_dir}: partly changed; run the command again to finish"
    return f"{log_dir}: all changes made"


def _went_wrong(space: DiskSpace, journal: Journal, failure: OSError, files: Files) -> KdumpError:
    """Roll back if possible, and make the error that says so."""
    log_dir = space.plan.path
    advice = _advice(space, failure)
    what = f"{failure.filename or log_dir}: {reason_of(failure)}"
    if journal.can_undo:
        with suppress(OSError):
            files.rename(
                log_dir / journal.own_name(RunState.APPLYING.value),
                log_dir / journal.own_name(RunState.UNDOING.value),
            )
            files.sync([log_dir])
            roll_back(log_dir, journal, files)
            before = "" if space.is_first else " before this step"
            return KdumpError(f"{what}; the directory is as it was{before}; {advice}")
    return KdumpError(
        f"{what}; the directory is partly changed; {advice}, which continues where this run stopped"
    )
