"""The files of runs in a log directory: finding them, writing and reading journals.

A journal is durable before the first change, and says how to finish the run from any point and how
to undo it. What kdump keeps is in the log directory itself, as plain files. A broker ignores plain
files there. (It would take a directory for a partition; :mod:`kdump.apply.directory_changes` says
what those of a run are called.) They are on the file system of the data, so keeping a deleted file
costs a hard link and no copy. Run ``7`` has these files::

    .kdump-7.applying    the journal while changes are being made
    .kdump-7.applied     the journal of a complete run, kept for an undo
    .kdump-7.undoing     the journal while the run is being undone
    .kdump-7-new-0 …     new content, which is renamed into place later
    .kdump-7-old-0 …     hard links to files as they were, or copies (``Files.link``)
    .kdump-7-cut         truncated and dropped bytes, concatenated
    .kdump-7-journal     a journal that is being written
    .kdump-7-put         a file that is being renamed back
    .kdump-7-destroyed   says that the others are overwritten before they are deleted

A journal appears complete and durable, or not at all. Files of a run without a journal are left
from a run that was stopped before it changed anything, or after it was complete.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from kdump.apply.files import Files, Metadata
from kdump.apply.journal import Journal, RunState, own_name
from kdump.apply.journal_json import decode_journal, encode_journal
from kdump.apply.journal_validation import RefusedJournalError, require_valid
from kdump.apply.pinned_directory import opened, pinned, status_at
from kdump.errors import KdumpError
from kdump.formats.checksum import crc32c
from kdump.words import discard_command

_TEMPORARY: Final = "-journal"
_FORMAT: Final = 3
_NAME: Final = re.compile(
    r"\.kdump-(0|[1-9][0-9]{0,17})"
    r"(\.applying|\.applied|\.undoing|-journal|-cut|-put|-destroyed|-(?:new|old)-[0-9]{1,18})"
)
_LARGEST_NUMBER: Final = 10**18 - 1
"""Of a run: :data:`_NAME` matches up to 18 digits."""
_MOST_BYTES: Final = 1 << 30
"""Largest journal; one for a million changes takes a third of this."""
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def run_files_in(log_dir: Path) -> dict[int, dict[str, Path]]:
    """Find the files of all runs: by number of the run, then by what follows it in their names."""
    found: dict[int, dict[str, Path]] = {}
    with pinned(log_dir), opened(log_dir) as descriptor, os.scandir(descriptor) as entries:
        for entry in entries:
            match = _NAME.fullmatch(entry.name)
            # A directory is a partition, whatever it is called.
            if match and not entry.is_dir(follow_symlinks=False):
                found.setdefault(int(match[1]), {})[match[2]] = log_dir / entry.name
    return dict(sorted(found.items()))


def next_run_number(log_dir: Path) -> int:
    """The number of the next run, greater than those of all runs that have files.

    Raises:
        KdumpError: there is no greater number. Files with a longer number would not be found again.
    """
    found = run_files_in(log_dir)
    newest = max(found, default=0)
    if newest >= _LARGEST_NUMBER:
        path = next(iter(found[newest].values()))
        raise KdumpError(
            f"{path}: has the largest number that a run can have; nothing has been changed; move"
            " this file out of the log directory and run the command again"
        )
    return newest + 1


def run_number_of(name: str) -> int:
    """The number of the run that the file ``name`` belongs to."""
    match = _NAME.fullmatch(name)
    assert match is not None, f"{name} is not a file of a run"
    return int(match[1])


def write_journal(log_dir: Path, journal: Journal, state: RunState, files: Files) -> None:
    """Write a journal and make it durable.

    If the machine stops after one of these steps:

    1. The journal has a temporary name and may be incomplete.
    2. It is complete and durable, still under the temporary name.
    3. It has its name. The names of all other files of the run are durable as well.

    Raises:
        KdumpError: :func:`read_journal` would refuse it.
        OSError: writing fails.
    """
    # Encoded twice, once for the head and once for the body: it may be a GiB.
    size_bytes = checksum = 0
    for piece in encode_journal(journal):
        size_bytes += len(piece)
        checksum = crc32c(piece, checksum)
    if size_bytes > _MOST_BYTES:
        raise KdumpError(
            f"{log_dir}: too many changes for one run; name fewer partitions at a time"
        )
    head = {"kdump": _FORMAT, "size_bytes": size_bytes, "crc32c": checksum}
    temporary = log_dir / journal.own_name(_TEMPORARY)
    # 1.
    files.unlink(temporary)
    body = encode_journal(journal)
    files.create(temporary, itertools.chain([json.dumps(head).encode() + b"\n"], body))
    if _is_all_of_owner(log_dir, journal):
        give_to_owner(temporary, files)
    _require_kept_from_others(log_dir, temporary)
    # 2.
    files.sync([temporary, log_dir])
    # 3.
    files.rename(temporary, log_dir / journal.own_name(state.value))
    files.sync([log_dir])


def _require_kept_from_others(log_dir: Path, path: Path) -> None:
    """Refuse a file system that does not keep owners and modes.

    Raises:
        KdumpError: other users could have written the file.
    """
    try:
        _require_permitted(status_at(path), status_at(log_dir))
    except RefusedJournalError as problem:
        raise KdumpError(
            f"{log_dir}: a file that kdump has created {problem}, because its file system does not"
            " keep owners and modes; nothing has been changed; work on a copy on another file"
            " system"
        ) from problem


def _is_all_of_owner(log_dir: Path, journal: Journal) -> bool:
    """Whether an undo recreates files for the owner of the log directory only."""
    owner = status_at(log_dir).st_uid
    return all(
        each.metadata.uid == owner
        for each in journal.before_images.values()
        if each.derived is not None and not each.derived.is_rename
    )


def give_to_owner(path: Path, files: Files) -> None:
    """Give one of the files of a run to the owner of the log directory, if permitted.

    So the broker's account can undo or discard a run of root.

    Raises:
        OSError: changing the owner fails for another reason than permission.
    """
    owner, status = status_at(path.parent), status_at(path)
    if (status.st_uid, status.st_gid) == (owner.st_uid, owner.st_gid):
        return
    metadata = replace(Metadata.of(status), uid=owner.st_uid, gid=owner.st_gid)
    with suppress(PermissionError):
        files.set_metadata(path, metadata)


def read_journal(path: Path) -> Journal:
    """Read a journal, and check that it is safe to execute.

    Raises:
        KdumpError: it is damaged, was written by another version of kdump, contains something that
            no journal may contain, or could have been written by an unauthorized user.
        OSError: it cannot be read.
    """
    number = run_number_of(path.name)
    state = RunState(path.name.removeprefix(own_name(number, "")))
    way_out = (
        f"nothing has been changed; '{discard_command(path.parent, number)}' removes it and leaves "
        "all other files unchanged"
    )
    try:
        with pinned(path.parent):
            owner = status_at(path.parent)
            # Checked before it is opened, because opening a device can have side effects; and
            # checked again once it is open.
            _require_permitted(status_at(path), owner)
            with opened(path) as descriptor:
                status = os.fstat(descriptor)
                _require_permitted(status, owner)
                journal = _read(descriptor, status.st_size)
        require_valid(journal, number, state)
    except RefusedJournalError as problem:
        raise KdumpError(f"{path}: {problem}; {way_out}") from problem
    except _DAMAGE as problem:
        raise KdumpError(
            f"{path}: is damaged: its run can be neither undone nor finished; {way_out}"
        ) from problem
    except PermissionError as failure:
        raise KdumpError(
            f"{path}: {failure.strerror}; run kdump as root, or as the user who owns the file"
        ) from failure
    if status.st_uid in (0, os.geteuid()):
        return journal
    lock = journal.lock and replace(journal.lock, uid=owner.st_uid, gid=owner.st_gid)
    moves = tuple(
        replace(each, metadata=replace(each.metadata, uid=owner.st_uid, gid=owner.st_gid))
        for each in journal.moves
    )
    return replace(journal, is_trusted=False, lock=lock, moves=moves)


_DAMAGE: Final = (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError)


def _require_permitted(status: os.stat_result, owner: os.stat_result) -> None:
    """Refuse a file that unauthorized users could have written.

    Raises:
        NotToBeObeyed: says why.
    """
    if stat.S_ISLNK(status.st_mode):
        raise RefusedJournalError("is a symbolic link")
    if not stat.S_ISREG(status.st_mode):
        raise RefusedJournalError("is not a regular file")
    if status.st_uid not in (0, os.geteuid(), owner.st_uid):
        raise RefusedJournalError(
            f"belongs to user {status.st_uid}, who is neither root, nor you, nor the owner of the"
            " log directory"
        )
    if status.st_mode & _WRITABLE_BY_OTHERS:
        raise RefusedJournalError("is writable by users other than its owner")
    if status.st_size > _MOST_BYTES:
        raise RefusedJournalError("is too large for a journal")


def _read(descriptor: int, size_bytes: int) -> Journal:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        head, _, body = file.read(size_bytes).partition(b"\n")
    header = json.loads(head)
    if (header["size_bytes"], header["crc32c"]) != (len(body), crc32c(body)):
        raise ValueError("checksum")
    if header["kdump"] != _FORMAT:
        raise RefusedJournalError(
            "was written by another version of kdump, which can undo or finish it"
        )
    value = json.loads(body)
    del body
    return decode_journal(value)
