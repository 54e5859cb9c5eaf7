"""Indexes of large tar archives, kept in the user's cache for the next run.

Reading the headers of 100,000 members takes longer than most commands need for the rest. An index
is kept for an archive as it is: its size, times, device and inode, or the ETag of an object. What
is read from the cache is checked as anything from outside: a file that others can write to, or that
does not describe a possible archive of this size, is ignored, and written again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kdump.storage.entries import Entry, EntryKind
from kdump.storage.location import StoredFile
from kdump.storage.place_problem import PlaceProblem
from kdump.storage.private_folder import cache_folder, is_private, make_private_folder
from kdump.storage.rooted_storage import ROOT, normal_path
from kdump.storage.tar_index import Member, TarIndex
from kdump.storage.tar_sparse import StoredPart
from kdump.storage.unfinished_file import UnfinishedFile

LEAST_MEMBERS: Final = 5_000
"""Archives with fewer are read in a tenth of a second."""
MOST_KEPT: Final = 16
UNUSED_DAYS: Final = 30
_VERSION: Final = 4
_LARGEST_BYTES: Final = 256 << 20
_DAY_SECONDS: Final = 86_400
_KINDS: Final = {kind.name: kind for kind in EntryKind}
_ONLY_INTEGERS: Final = {int}
_NO_NAMES: Final = frozenset({".", ".."})
_PREFIX: Final = "tar-"
_SUFFIX: Final = ".json"


def kept_index(archive: StoredFile, environment: Mapping[str, str]) -> TarIndex | None:
    """The index of an archive from the cache; None if there is none that can be used."""
    path = _path_for(archive, environment)
    if path is None or not is_private(path):
        return None
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            return None
        index = _decoded(json.loads(path.read_bytes()), archive.size_bytes)
        os.utime(path)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return index


def keep_index(archive: StoredFile, index: TarIndex, environment: Mapping[str, str]) -> None:
    """Keep the index of an archive, if it is large. Never fails."""
    if sum(map(len, index.directories.values())) < LEAST_MEMBERS:
        return
    path = _path_for(archive, environment)
    with contextlib.suppress(OSError):
        if path is None or not make_private_folder(path.parent):
            return
        with UnfinishedFile.beside(path, _PREFIX, mode=0o600) as file:
            file.stream.write(json.dumps(_encoded(index)).encode())
            file.finish()
            file.rename(path)
        _remove_unused(path.parent, time.time())


def _remove_unused(folder: Path, now_s: float) -> None:
    """Remove the indexes that were not used lately, and the oldest of too many."""
    files = sorted(
        ((each.stat().st_mtime, each) for each in folder.glob(f"{_PREFIX}*")), reverse=True
    )
    for number, (used_s, each) in enumerate(files):
        if number >= MOST_KEPT or now_s - used_s > UNUSED_DAYS * _DAY_SECONDS:
            with contextlib.suppress(OSError):
                each.unlink()


def _path_for(archive: StoredFile, environment: Mapping[str, str]) -> Path | None:
    """Where the index of an archive is; None if it cannot be told from another one."""
    folder, identity = cache_folder(environment), archive.identity()
    if folder is None or identity is None:
        return None
    described = repr((_VERSION, str(archive.location.as_absolute()), archive.size_bytes, identity))
    key = hashlib.sha256(described.encode(errors="surrogateescape")).hexdigest()
    return folder / f"{_PREFIX}{key[:32]}{_SUFFIX}"


def _encoded(index: TarIndex) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "problems": [list(each) for each in index.problems.values()],
        "directories": {
            path: [list(_row(member)) for member in members.values()]
            for path, members in index.directories.items()
        },
    }


def _row(member: Member) -> Iterator[Any]:
    entry = member.entry
    yield from (entry.name, entry.kind.name, entry.is_link)
    yield from (entry.size_bytes, entry.modified_ns, entry.hole_bytes)
    for piece in member.pieces:
        yield from piece


def _decoded(document: Any, archive_bytes: int) -> TarIndex:
    """The index of a document.

    Raises:
        ValueError, TypeError, KeyError: it describes no possible archive.
    """
    if document["version"] != _VERSION:
        raise ValueError(document["version"])
    index = TarIndex()
    for what, is_failure, is_cut in document["problems"]:
        index.problems[_text(what)] = PlaceProblem(what, bool(is_failure), bool(is_cut))
    directories = document["directories"]
    for path, rows in directories.items():
        if normal_path(path) != path or "\0" in path:
            raise ValueError(path)
        members = index.directories.setdefault(path, {})
        for row in rows:
            member = _decoded_member(row, archive_bytes)
            if member.entry.kind is EntryKind.DIRECTORY:
                inside = f"{path.rstrip('/')}/{member.entry.name}"
                if inside not in directories:
                    raise ValueError(inside)
            members[member.entry.name] = member
    if ROOT not in directories:
        raise ValueError(ROOT)
    return index


def _decoded_member(row: Any, archive_bytes: int) -> Member:
    name, kind, is_link, size_bytes, modified_ns, hole_bytes, *numbers = row
    if not _text(name) or "/" in name or "\0" in name or name in _NO_NAMES:
        raise ValueError(name)
    if set(map(type, row[3:])) != _ONLY_INTEGERS or size_bytes < 0 or hole_bytes < 0:
        raise ValueError(name)
    entry = Entry(name, _KINDS[kind], bool(is_link), size_bytes, modified_ns, hole_bytes)
    if not numbers:
        return Member(entry)
    pieces = [StoredPart(*numbers[at : at + 3]) for at in range(0, len(numbers), 3)]
    reached = 0
    for position, start, length in pieces:
        if position < reached or length < 0 or start < 0 or start + length > archive_bytes:
            raise ValueError(name)
        reached = position + length
    if reached > size_bytes:
        raise ValueError(name)
    return Member(entry, tuple(pieces))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value
