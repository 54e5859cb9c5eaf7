"""The tree of files in a tar archive, from its headers; whoever packed it may mean harm.

What would leave the archive or could wait forever is left out, as are names that no log directory
can have; each is a :class:`~kdump.storage.place_problem.PlaceProblem`.
"""

from __future__ import annotations

import tarfile
from typing import Final, NamedTuple

from msgspec import Struct, field

from kdump.storage.byte_source import ByteSource
from kdump.storage.entries import Entry, EntryKind
from kdump.storage.place_problem import NO_FILE_NAME, PlaceProblem, note_problem
from kdump.storage.rooted_storage import ROOT, normal_path
from kdump.storage.tar_headers import TarHeader, tar_headers
from kdump.storage.tar_sparse import StoredPart, TarDamageError
from kdump.words import counted

LARGEST_SPARSE_BYTES: Final = 1 << 31
"""No segment is larger: positions in its indexes have 31 bits."""
_LONGEST_PATH: Final = 4096
"""``PATH_MAX``."""
_MOST_LEVELS: Final = 64
_MOST_DIRECTORIES: Final = 1_000_000
"""A name of 512 bytes can stand for dozens of directories, and each takes as much memory."""
_MOST_MEMBERS: Final = 20_000_000
_LEAST_HOLE_BYTES: Final = 1 << 20
_SPECIAL: Final = {
    tarfile.FIFOTYPE: EntryKind.FIFO,
    tarfile.CHRTYPE: EntryKind.DEVICE,
    tarfile.BLKTYPE: EntryKind.DEVICE,
}


class Member(NamedTuple):
    """Anything that has a name in an archive.

    Attributes:
        pieces: where the bytes of a file are.
    """

    entry: Entry
    pieces: tuple[StoredPart, ...] = ()


class TarIndex(Struct):
    """All members of an archive.

    Attributes:
        directories: of each directory, what is in it, by name. Paths begin with ``/`` and are
            normalized.
        problems: what is left out or cut, each once, in the order of the archive.
    """

    directories: dict[str, dict[str, Member]] = field(default_factory=lambda: {ROOT: {}})
    problems: dict[str, PlaceProblem] = field(default_factory=dict)

    def member(self, path: str) -> Member | None:
        """What there is at a normalized path."""
        if path == ROOT:
            return Member(Entry("", EntryKind.DIRECTORY))
        parent, _, name = path.rpartition("/")
        return self.directories.get(parent or ROOT, {}).get(name)

    def note(self, what: str, *, is_failure: bool = True, is_cut: bool = False) -> None:
        """Note a problem; of very many, only that there are more."""
        note_problem(self.problems, what, is_failure=is_failure, is_cut=is_cut)


def read_tar_index(archive: ByteSource) -> TarIndex:
    """Read all headers of an archive, up to the first that is damaged.

    Raises:
        TarDamageError: there is no member before the damage.
        OSError: reading fails.
    """
    index = TarIndex()
    count = 0
    try:
        for header in tar_headers(archive):
            count += 1
            _take(index, header)
            if count > _MOST_MEMBERS or len(index.directories) > _MOST_DIRECTORIES:
                raise TarDamageError("too many members")
    except TarDamageError as damage:
        if not count:
            raise
        index.note(f"{damage}: members after it may be missing", is_cut=True)
    return index


def _take(index: TarIndex, header: TarHeader) -> None:
    name = header.name
    path = _path(index, name)
    if path is None:
        return
    member = _member(index, header)
    if member is None or (path == ROOT and member.entry.kind is EntryKind.DIRECTORY):
        return
    if header.missing_bytes:
        missing = counted(header.missing_bytes, "byte")
        index.note(f"{name}: the archive ends {missing} before the end of this member", is_cut=True)
    parent, _, last = path.rpartition("/")
    siblings = _directory(index, parent or ROOT)
    if siblings is None or not last:
        index.note(f"{name}: left out, because what should contain it is not a directory")
        return
    before = siblings.get(last)
    is_directory = member.entry.kind is EntryKind.DIRECTORY
    if before is not None:
        if before.entry.kind is EntryKind.DIRECTORY:
            if not is_directory:
                index.note(f"{name}: left out, because a directory has the same name")
            return
        index.note(f"{name}: is there several times; the last one counts", is_failure=False)
        if is_directory:
            index.note(f"{name}: left out, because a file has the same name")
            return
    if is_directory:
        index.directories[path] = {}
    siblings[last] = member._replace(entry=member.entry._replace(name=last))


def _path(index: TarIndex, name: str) -> str | None:
    """The normalized path of a member; None for one that is left out."""
    if len(name) > _LONGEST_PATH or "\0" in name:
        index.note(f"{name[:64]}…: {NO_FILE_NAME}")
        return None
    if name.count("/") > _MOST_LEVELS:
        index.note(f"{name[:64]}…: left out, because it is in more than {_MOST_LEVELS} directories")
        return None
    if ".." in name.split("/"):
        index.note(f"{name}: left out, because .. in it leads elsewhere")
        return None
    if name.startswith("/"):
        index.note("absolute names are read as relative to the archive", is_failure=False)
    return normal_path(name)


def _member(index: TarIndex, header: TarHeader) -> Member | None:
    """The member of a header; its entry gets its name later."""
    if header.type == tarfile.DIRTYPE:
        return Member(Entry("", EntryKind.DIRECTORY))
    if header.type == tarfile.REGTYPE:
        return (
            _named_as_directory(index, header)
            if header.name.endswith("/")
            else _file(index, header)
        )
    if header.type == tarfile.LNKTYPE:
        target = normal_path(header.link_name)
        found = index.member(target)
        if found is not None and found.entry.kind is EntryKind.FILE:
            return found
        index.note(f"{header.name}: left out, a hard link to something that is no earlier file")
        return None
    if header.type == tarfile.SYMTYPE:
        index.note(f"{header.name}: a symbolic link, which is not followed")
        return Member(Entry("", EntryKind.BROKEN_LINK, is_link=True))
    if header.type in _SPECIAL:
        return Member(Entry("", _SPECIAL[header.type]))
    index.note(f"{header.name}: left out, a member of an unknown type")
    return None


def _named_as_directory(index: TarIndex, header: TarHeader) -> Member | None:
    """A directory, for ``tar`` too: the oldest format has no other mark of one."""
    if not header.size_bytes:
        return Member(Entry("", EntryKind.DIRECTORY))
    index.note(f"{header.name}: left out, because it has content and the name of a directory")
    return None


def _file(index: TarIndex, header: TarHeader) -> Member | None:
    if header.is_sparse:
        if header.size_bytes > LARGEST_SPARSE_BYTES:
            claimed = counted(header.size_bytes, "byte")
            index.note(f"{header.name}: left out, a sparse file that claims to have {claimed}")
            return None
        if header.missing_bytes:
            # Its end would look like a hole.
            index.note(f"{header.name}: left out, because the archive ends inside it", is_cut=True)
            return None
    size_bytes, pieces = header.size_bytes, header.pieces
    hole_bytes = size_bytes - sum(each.length for each in pieces)
    if header.missing_bytes:
        size_bytes -= header.missing_bytes
        pieces = (pieces[0]._replace(length=size_bytes),)
    entry = Entry(
        "",
        EntryKind.FILE,
        False,
        size_bytes,
        header.modified_ns,
        hole_bytes if hole_bytes >= _LEAST_HOLE_BYTES else 0,
    )
    return Member(entry, pieces)


def _directory(index: TarIndex, path: str) -> dict[str, Member] | None:
    """The members of a directory, which may be named only by them; None if it is no directory."""
    missing: list[str] = []
    while path not in index.directories:
        if index.member(path) is not None:
            return None
        missing.append(path)
        path = path.rpartition("/")[0] or ROOT
    found = index.directories[path]
    for each in reversed(missing):
        name = each.rpartition("/")[2]
        found[name] = Member(Entry(name, EntryKind.DIRECTORY))
        index.directories[each] = found = {}
    return found
