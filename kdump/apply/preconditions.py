"""Check, before the first record of a journal is executed, that all of them can be."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kdump.apply.directory_places import Places, misplaced_directories
from kdump.apply.fingerprints import kept_file_fingerprint
from kdump.apply.foreign_changes import (
    changed_during,
    changed_since,
    lost_content,
    summarized,
)
from kdump.apply.journal import (
    CUT_SUFFIX,
    BeforeImage,
    Journal,
    RunState,
    names_while_cut,
)
from kdump.apply.journal_record import DIRECTORY_KINDS, ROOT, RecordKind
from kdump.apply.originals import require_originals, require_unchanged_copies
from kdump.apply.pinned_directory import is_on_mount_of, is_same, status_at, status_of
from kdump.errors import KdumpError
from kdump.formats.names import LOCK_FILE
from kdump.words import counted, discard_command

_OF_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def require_undoable(log_dir: Path, journal: Journal, state: RunState) -> None:
    """Check that no undo record will fail, as far as that can be known in advance.

    Raises:
        KdumpError: one would; says why, and what to do.
        OSError: a file cannot be examined.
    """
    _refuse(log_dir, journal, misplaced(log_dir, journal))
    if state is not RunState.UNDOING:
        require_originals(log_dir, journal)
        require_unchanged_copies(log_dir, journal)
    missing = missing_undo_data(log_dir, journal, state)
    if missing:
        number = journal.number
        left = "; the files are as the interrupted run left them"
        raise KdumpError(
            f"{log_dir}: run {number} ({journal.command}) cannot be undone: {summarized(missing)}; "
            f"nothing has been changed{'' if state is RunState.APPLIED else left}; "
            f"'{discard_command(log_dir, number)}' discards its undo data"
        )
    examine = changed_since if state is RunState.APPLIED else changed_during
    _refuse(log_dir, journal, examine(log_dir, journal))


def require_finishable(log_dir: Path, journal: Journal, state: RunState) -> None:
    """Check that an interrupted run, or its undo, can be finished.

    Raises:
        KdumpError: it cannot; says why, and what to do.
        OSError: a file cannot be examined.
    """
    if state is RunState.UNDOING:
        require_undoable(log_dir, journal, state)
        return
    _refuse(log_dir, journal, misplaced(log_dir, journal))
    changes = changed_during(log_dir, journal)
    _refuse(log_dir, journal, changes + lost_content(log_dir, journal))


def _refuse(log_dir: Path, journal: Journal, changes: list[str]) -> None:
    if changes:
        raise KdumpError(
            f"{log_dir}: has been changed since run {journal.number} ({journal.command}): "
            f"{summarized(changes)}; '{discard_command(log_dir, journal.number)}' discards that"
            " run's undo data and leaves all other files unchanged"
        )


def misplaced(log_dir: Path, journal: Journal) -> list[str]:
    """Find what is missing, or of the wrong kind, for the records of ``journal``.

    Returns:
        A phrase for each file or directory.

    Raises:
        OSError: the status of a file cannot be read.
    """
    found = []
    for name in journal.directories:
        status = status_of(log_dir / name) if name != ROOT else None
        if name != ROOT and status is None:
            found.append(f"{name} is gone")
        elif status is not None and stat.S_ISLNK(status.st_mode):
            found.append(f"{name} is a symbolic link")
        elif status is not None and not stat.S_ISDIR(status.st_mode):
            found.append(f"{name} is not a directory")
        elif status is not None and not is_on_mount_of(log_dir / name, log_dir):
            found.append(f"{name} is on another file system or mount")
    found += misplaced_directories(log_dir, journal.moves)
    if found:
        return found
    places = Places.of(log_dir, journal.moves)
    for path in changed_paths(journal):
        now = places.now(path)
        status = None if now is None else status_of(log_dir / now)
        if status is not None and stat.S_ISDIR(status.st_mode):
            found.append(f"{path} is a directory")
    return found


def changed_paths(journal: Journal) -> list[str]:
    """All files that the redo or undo records can change, without the run's own files."""
    own = journal.own_name("-")
    found = journal.before_images.keys() | journal.after.keys() | journal.interim.keys()
    for record in (*journal.redo_records, *journal.undo_records):
        if record.kind in DIRECTORY_KINDS:
            continue
        found |= {record.path, record.source} if record.kind is RecordKind.MOVE else {record.path}
    return sorted(path for path in found if path and not path.startswith(own))


def missing_undo_data(log_dir: Path, journal: Journal, state: RunState) -> list[str]:
    """Find what is missing, or has changed, of the undo data of ``journal``.

    Returns:
        A phrase for each file.

    Raises:
        OSError: the status of a file cannot be read, or its content.
    """
    changing = {
        each.link: (each.cut.position, each.size_bytes)
        for each in journal.before_images.values()
        if state is not RunState.APPLIED and each.link is not None and each.cut is not None
    }
    cut = journal.own_name(CUT_SUFFIX)
    found = []
    for name, mark in journal.undo_files.items():
        sizes = changing.get(name, (mark.size_bytes, mark.size_bytes))
        what = _wrong_size(log_dir / name, *sizes)
        # A file that may be truncated or written back just now is checked by its size alone.
        if not what and name not in changing:
            is_same = kept_file_fingerprint(log_dir / name, is_whole=name == cut) == mark
            what = "" if is_same else "has changed"
        if what:
            found.append(f"{name} {what}")
    if found:
        return found
    return [
        *_foreign_links(log_dir, journal, state),
        *(f"{path} {what}" for path, what in _not_to_be_copied(log_dir, journal, state)),
    ]


def _wrong_size(path: Path, least_bytes: int, most_bytes: int) -> str:
    status = status_of(path)
    if status is None:
        return "is gone"
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
        return "is not a file"
    if not least_bytes <= status.st_size <= most_bytes:
        return f"has {counted(status.st_size, 'byte')}, not {most_bytes}"
    return ""


def _foreign_links(log_dir: Path, journal: Journal, state: RunState) -> Iterator[str]:
    """Find files that would be changed in place, but have hard links elsewhere."""
    lock = status_of(log_dir / LOCK_FILE)
    if journal.lock is not None and lock is not None and lock.st_nlink > 1:
        yield f"{LOCK_FILE} has another hard link"
    if state is RunState.APPLIED:
        return  # then such files are copied
    for path, before in journal.before_images.items():
        if before.cut is None:
            continue
        place = log_dir / (before.link or path)
        status = status_of(place)
        if status is None:
            yield f"{path} is gone"
            continue
        names = {log_dir / name for name in names_while_cut(path, before, journal)} - {place}
        if status.st_nlink > 1 + sum(is_same(place, name) for name in names):
            yield f"{path} has another hard link"


def _not_to_be_copied(
    log_dir: Path, journal: Journal, state: RunState
) -> Iterator[tuple[str, str]]:
    """Find files whose content must not be copied for another user.

    A file of another user that was linked or moved into this directory would be copied, and the
    copy given to the user and group that the journal names.
    """
    owner = status_at(log_dir)
    cut = log_dir / journal.own_name(CUT_SUFFIX)
    if cut.name in journal.undo_files:
        kept = status_at(cut)
        if kept.st_nlink > 1 and kept.st_uid != owner.st_uid:
            yield cut.name, "has another hard link"
    for path, before in journal.before_images.items():
        sources = _sources(path, before, state)
        for source in sources:
            status = status_of(log_dir / source)
            if status is None:
                yield source, "is gone"
            elif not stat.S_ISREG(status.st_mode):
                yield source, "is not a file"
            elif not _may_be_copied(status, before, owner):
                yield source, "belongs to another user"
        made_for = before.metadata.uid
        if sources and not journal.is_trusted and made_for != owner.st_uid:
            there = status_of(log_dir / (before.link or path))
            is_made = before.derived is not None and not before.derived.is_rename
            if is_made or there is None or there.st_uid != made_for:
                yield path, f"would be given to user {made_for} by the journal of another user"


def _sources(path: str, before: BeforeImage, state: RunState) -> list[str]:
    """The files that an original file is recreated from."""
    if before.derived is not None:
        return [piece.path for piece in before.derived.pieces] if state is RunState.APPLIED else []
    if before.cut is not None:
        return [before.link or path]
    return []


def _may_be_copied(status: os.stat_result, before: BeforeImage, owner: os.stat_result) -> bool:
    if status.st_uid == owner.st_uid:
        return True
    metadata = before.metadata
    is_same_owner = (status.st_uid, status.st_gid) == (metadata.uid, metadata.gid)
    return is_same_owner and not metadata.mode & ~status.st_mode & _OF_OTHERS
