"""Doing what a plan says.

The two rules that hold wherever the machine may stop: running kdump again reaches the same end,
and a broker that is started instead loses nothing that it would have kept of the directory as it
was. What a reader finds behind each step:

1. New content and what is about to go lie in the log directory, durable, under names of kdump's
   own; nothing has changed. Without a journal the next run removes them.
2. The journal is there, durable. From here on the next run goes on, and ``kdump undo`` goes back.
3. The steps of the plan, as :mod:`kdump.apply.steps` says for each. All of them can be taken
   again.
4. All is done and durable, and what an undo needs is described in a journal of its own: the next
   run only tidies up.
5. What is not needed any more is gone. So is the first journal: done.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kdump.apply import evidence
from kdump.apply.files import DISK, Files, Metadata
from kdump.apply.journal import (
    CUT_SUFFIX,
    Before,
    Journal,
    Mark,
    State,
    found_in,
    write_journal,
)
from kdump.apply.lock import leave_behind, leftover_of
from kdump.apply.marks import marks_of
from kdump.apply.operations import OperationKind
from kdump.apply.plan import Plan
from kdump.apply.run import Runner
from kdump.apply.steps import ROOT, relative, steps_of, undo_steps_of
from kdump.errors import KdumpError
from kdump.formats.names import LOCK_FILE

_JOURNAL_BYTES_PER_OPERATION = 1024


def apply_plan(plan: Plan, *, keep_undo: bool, command: str, files: Files = DISK) -> str | None:
    """Do what ``plan`` says; its directory must be locked and as it was when that was made.

    Args:
        plan: what to do.
        keep_undo: whether to keep what is needed to take it back.
        command: what the user runs, for the list of what can be undone.
        files: through which everything is done.

    Returns:
        The id of the undo; None where none is kept.

    Raises:
        KdumpError: it cannot be done; says whether anything has changed.
    """
    if plan.is_empty:
        return None
    _require_space(plan)
    number = max(found_in(plan.path), default=0) + 1
    try:
        journal = _prepared(plan, number, command, files, keep_undo=keep_undo)
    except OSError as failure:
        _remove_files_of(plan.path, number, files)
        raise _not_begun(plan.path, failure, keep_undo=keep_undo) from failure
    except BaseException:
        _remove_files_of(plan.path, number, files)
        raise
    try:
        go_on(plan.path, journal, files)
    except OSError as failure:
        raise _went_wrong(plan.path, journal, failure, files) from failure
    return str(number) if keep_undo else None


def go_on(log_dir: Path, journal: Journal, files: Files) -> None:
    """Bring a run to its end, from wherever it is.

    Raises:
        OSError: a step fails; it can be gone on with.
    """
    # 3.
    Runner(log_dir, journal, files).forwards()
    # 4.
    if not journal.can_undo:
        tidy_up(log_dir, journal, files)
        return
    write_journal(log_dir, _completed(log_dir, journal), State.APPLIED, files)
    # 5.
    with suppress(OSError):  # else the next run does it
        tidy_up(log_dir, journal, files)


def go_back(log_dir: Path, journal: Journal, files: Files) -> None:
    """Take a run back whose journal says that it is being undone.

    1. All is as it was, durable: going back again changes nothing.
    2. The journal is gone: done.
    3. What was kept is gone as well.

    Raises:
        OSError: a step fails; it can be gone on with.
    """
    # 1.
    Runner(log_dir, journal, files).backwards()
    for path, metadata in journal.directories.items():
        if path != ROOT:
            files.set_metadata(log_dir / path, metadata)
    _leave_lock(log_dir, journal.lock, files)
    files.sync(log_dir / path for path in journal.directories)
    # 2.
    files.unlink(log_dir / journal.own_name(State.UNDOING.value))
    files.sync([log_dir])
    # 3.
    _remove_files_of(log_dir, journal.number, files)
    files.set_metadata(log_dir, journal.directories[ROOT])


def tidy_up(log_dir: Path, journal: Journal, files: Files) -> None:
    """Remove what a completed run needs no more, its first journal last."""
    kept = {CUT_SUFFIX, State.APPLIED.value}
    links = {each.link for each in _without_derived(journal).values()}
    for suffix, path in found_in(log_dir).get(journal.number, {}).items():
        is_needed = journal.can_undo and (suffix in kept or path.name in links)
        if not is_needed and suffix != State.APPLYING.value:
            files.unlink(path)
    files.unlink(log_dir / journal.own_name(State.APPLYING.value))
    files.sync([log_dir])


def _prepared(plan: Plan, number: int, command: str, files: Files, *, keep_undo: bool) -> Journal:
    created_ns = time.time_ns()
    directories = {
        each.path.name if each.path != plan.path else ROOT: Metadata.of(each.path.stat())
        for each in plan.directories
    }
    marks = marks_of(plan.path, directories, with_checksums=False)
    # 1.
    staged, described = evidence.stage(plan, number, files, created_ns=created_ns)
    before = evidence.kept_files(plan, number, files, keep_undo=keep_undo)
    names = {path: name for name, path in staged.items()}
    journal = Journal(
        number=number,
        command=command,
        created_ms=created_ns // 1_000_000,
        can_undo=keep_undo,
        lock=leftover_of(plan.path),
        directories=directories,
        before=before,
        staged=staged,
        steps=tuple(steps_of(plan, names)),
        undo_steps=tuple(undo_steps_of(plan)) if keep_undo else (),
        marks=marks,
        after=_after(plan, described),
    )
    # 2.
    write_journal(plan.path, journal, State.APPLYING, files)
    return journal


def _after(plan: Plan, described: dict[str, tuple[int, Metadata]]) -> dict[str, Mark]:
    """What tells the changed files, as they will be."""
    after: dict[str, Mark] = {}
    for directory in plan.directories:
        for each in directory.operations:
            path = relative(plan.path, directory.path, each.name)
            if each.kind is OperationKind.REMOVE:
                after.pop(path, None)
                continue
            if path in described and each.source is None and each.kind is not OperationKind.CUT:
                modified_ns = described[path][1].modified_ns
            else:
                modified_ns = directory.states[each.source or each.name].metadata.modified_ns
            after[path] = Mark(each.size_bytes, modified_ns)
    return after


def _completed(log_dir: Path, journal: Journal) -> Journal:
    """The journal of a run that is done: how to go back from there."""
    return replace(
        journal,
        before=_without_derived(journal),
        staged={},
        steps=(),
        marks=marks_of(log_dir, journal.directories, with_checksums=True),
    )


def _without_derived(journal: Journal) -> dict[str, Before]:
    """What was there before; what can be made from what is there now needs not be kept."""
    return {
        path: replace(each, link=None) if each.derived is not None else each
        for path, each in journal.before.items()
    }


def _leave_lock(log_dir: Path, lock: Metadata | None, files: Files) -> None:
    """Leave a lock file behind if there was one: what a broker left that did not stop."""
    if lock is None:
        return
    path = log_dir / LOCK_FILE
    if not leave_behind(log_dir) and not path.exists():
        files.create(path, [])
    files.set_metadata(path, lock)


def _remove_files_of(log_dir: Path, number: int, files: Files) -> None:
    for path in found_in(log_dir).get(number, {}).values():
        files.unlink(path)


def _require_space(plan: Plan) -> None:
    disk = os.statvfs(plan.path)
    is_root = os.geteuid() == 0
    free_bytes = (disk.f_bfree if is_root else disk.f_bavail) * disk.f_frsize
    needed_bytes = plan.needed_bytes + len(plan.operations) * _JOURNAL_BYTES_PER_OPERATION
    if needed_bytes > free_bytes:
        raise KdumpError(
            f"{plan.path}: needs {needed_bytes} bytes of free space, has {free_bytes}; nothing has "
            "been changed; make room, or repair fewer partitions at a time"
        )


def _not_begun(log_dir: Path, failure: OSError, *, keep_undo: bool) -> KdumpError:
    if isinstance(failure, PermissionError):
        advice = "run kdump as the user that the broker runs as, or as root"
    else:
        advice = "remove the cause and run the command again"
    where = failure.filename or log_dir
    return KdumpError(f"{where}: {failure.strerror or failure}; nothing has been changed; {advice}")


def _went_wrong(log_dir: Path, journal: Journal, failure: OSError, files: Files) -> KdumpError:
    """Say so, after going back if that can be done."""
    what = f"{failure.filename or log_dir}: {failure.strerror or failure}"
    if journal.can_undo:
        with suppress(OSError):
            files.rename(
                log_dir / journal.own_name(State.APPLYING.value),
                log_dir / journal.own_name(State.UNDOING.value),
            )
            files.sync([log_dir])
            go_back(log_dir, journal, files)
            return KdumpError(
                f"{what}; the directory is as it was; remove the cause and run the command again"
            )
    return KdumpError(
        f"{what}; the directory is changed in part; remove the cause and run the command again, "
        "which goes on where this one stopped"
    )
