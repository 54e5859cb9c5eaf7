"""Snapshots in repositories of ``kdump backup``, read in place: ``REPOSITORY!SNAPSHOT/PATH``.

A path in a snapshot is where the file was when it was backed up, such as ``/data/kafka/orders-0``.
The documents of directories are read as they are needed, and the bytes of a file are ranges of its
pieces. What is missing or damaged is an :class:`OSError` of the file that needs it, and names the
piece. A repository may be in any storage: nothing in it changes once it has its name.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kdump.clock import current_time_ms
from kdump.phases import phase
from kdump.storage.entries import Entry, EntryKind
from kdump.storage.location import Location, StoredFile
from kdump.storage.memory_file import MemoryFile
from kdump.storage.place_names import IN_SNAPSHOT, TypedName, name_in_archive
from kdump.storage.repository import (
    REPOSITORY_FILE,
    SNAPSHOTS,
    PiecedFile,
    Repository,
    RepositoryError,
    worded,
)
from kdump.storage.repository_documents import (
    BackedUpFile,
    BackedUpLogDirectory,
    RepositoryPiece,
    StoredDirectory,
)
from kdump.storage.rooted_storage import ROOT, RootedStorage, normal_path

LATEST: Final = "latest"
_MOST_DIRECTORIES: Final = 2048
"""How many documents of directories a process keeps."""


_REMOVED: Final = "the snapshot was removed while it was read"


@dataclass(frozen=True, slots=True)
class SnapshotPlace(RootedStorage):
    """The log directories of one snapshot; paths in it begin with ``/``.

    Attributes:
        repository: where it is; absolute, for workers elsewhere.
        snapshot: its whole name.
        name: of both, with the repository as it was given.
        typed: the same, as a command names it.
    """

    repository: Location
    snapshot: str
    name: str = field(compare=False)
    typed: TypedName = field(compare=False)

    @property
    def log_directories(self) -> list[Location]:
        """Its log directories, in the order in which they were named.

        Raises:
            RepositoryError: the file of the snapshot is damaged.
            OSError: it cannot be read.
        """
        return [Location(self, path) for path in _contents(self).log_dirs]

    def name_of(self, path: str) -> str:
        return f"{self.name}{path}"

    def typed_name(self, path: str) -> TypedName:
        return self.typed._replace(text=name_in_archive(self.typed.text, path, separator=""))

    def entries(self, path: str) -> list[Entry]:
        path = normal_path(path)
        found = self._found(path)
        if isinstance(found, BackedUpFile):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.name_of(path))
        if isinstance(found, RepositoryPiece):
            return [_entry_of(each) for each in self._directory(found, path).values()]
        return [Entry(name, EntryKind.DIRECTORY) for name in found]

    def status(self, path: str) -> Entry:
        path = normal_path(path)
        found = self._found(path)
        if isinstance(found, BackedUpFile):
            return _entry_of(found)
        return Entry(path.rpartition("/")[2], EntryKind.DIRECTORY)

    def open_file(self, location: Location) -> StoredFile:
        path = normal_path(location.path)
        found = self._found(path)
        if not isinstance(found, BackedUpFile):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.name_of(path))
        if found.content is not None:
            return MemoryFile(location, found.content)
        return _PiecesOfFile(self, location, found)

    def failure(self, path: str, problem: RepositoryError | OSError) -> OSError:
        """What a reader is told of a file whose bytes, or a directory whose document has a problem.

        It names what was wanted; the message says where in the repository the problem is.
        """
        what = worded(problem)
        with contextlib.suppress(OSError):
            if Repository(self.repository).snapshot_file(self.snapshot).kind() is None:
                what = f"{_REMOVED} ({what})"
        return OSError(errno.EIO, what, self.name_of(path))

    def _found(self, path: str) -> BackedUpFile | RepositoryPiece | Mapping[str, None]:
        """What is at a normal path: a file, the document of a directory, or names around them."""
        contents = _contents(self)
        root = contents.root_around(path)
        if root is None:
            around = contents.around.get(path)
            if around is not None:
                return around
            there = ", ".join(contents.log_dirs) or "nothing"
            what = f"{os.strerror(errno.ENOENT)}: the snapshot has {there}"
            raise FileNotFoundError(errno.ENOENT, what, self.name_of(path))
        found: BackedUpFile | RepositoryPiece = contents.log_dirs[root].root
        at = root
        for name in filter(None, path[len(root) :].split("/")):
            below = None
            if isinstance(found, RepositoryPiece):
                below = self._directory(found, at).get(name)
            if below is None:
                code = errno.ENOENT if isinstance(found, RepositoryPiece) else errno.ENOTDIR
                raise OSError(code, os.strerror(code), self.name_of(path))
            found = below.document if isinstance(below, StoredDirectory) else below
            at = f"{at.rstrip(ROOT)}/{name}"
        return found

    def _directory(self, document: RepositoryPiece, path: str) -> _Listed:
        try:
            return _listed(self.repository, document)
        except (OSError, RepositoryError) as problem:
            raise self.failure(path, problem) from problem


_Listed = Mapping[str, BackedUpFile | StoredDirectory]


class _Contents(NamedTuple):
    """What a snapshot has.

    Attributes:
        log_dirs: its log directories, by normal path.
        around: the names in each directory that is around them.
    """

    log_dirs: Mapping[str, BackedUpLogDirectory]
    around: Mapping[str, Mapping[str, None]]

    def root_around(self, path: str) -> str | None:
        """The log directory that a normal path is in; None if it is in none."""
        while path not in self.log_dirs:
            if path == ROOT:
                return None
            path = path.rpartition("/")[0] or ROOT
        return path


@functools.lru_cache(maxsize=64)
def _contents(place: SnapshotPlace) -> _Contents:
    with phase(f"reading {place.name}"):
        try:
            found = Repository(place.repository).snapshot(place.snapshot).log_dirs
        except FileNotFoundError:
            raise OSError(errno.EIO, _REMOVED, place.name) from None
    log_dirs = {normal_path(each.path): each for each in found}
    around: dict[str, dict[str, None]] = {ROOT: {}}
    for path in log_dirs:
        while path != ROOT:
            above, _, name = path.rpartition("/")
            path = above or ROOT
            around.setdefault(path, {})[name] = None
    return _Contents(log_dirs, around)


@functools.lru_cache(maxsize=_MOST_DIRECTORIES)
def _listed(repository: Location, document: RepositoryPiece) -> _Listed:
    found = Repository(repository).directory(document)
    listed: dict[str, BackedUpFile | StoredDirectory] = {}
    listed |= {each.name: each for each in found.files}
    return listed | {each.name: each for each in found.directories}


def forget_snapshots() -> None:
    """Read the documents of snapshots again when they are next needed."""
    _contents.cache_clear()
    _listed.cache_clear()


def _entry_of(found: BackedUpFile | StoredDirectory) -> Entry:
    if isinstance(found, StoredDirectory):
        return Entry(found.name, EntryKind.DIRECTORY)
    modified_ns = found.attributes.modified_ns
    return Entry(found.name, EntryKind.FILE, False, found.size_bytes, modified_ns)


def snapshot_around(location: Location) -> tuple[Location, str, str] | None:
    """Take a path in a snapshot apart: the repository, the snapshot as named, the path in it.

    Returns:
        None if it is in no snapshot: there is something with its very name, or no repository.

    Raises:
        OSError: it cannot be looked at.
    """
    for found in IN_SNAPSHOT.finditer(location.path):
        head = location.path[: found.start()]
        if not head:
            continue
        repository = Location(location.storage, head.rstrip("/") or ROOT)
        if all((repository / name).kind() is None for name in (REPOSITORY_FILE, SNAPSHOTS)):
            continue
        if Location(location.storage, location.path[: found.end()]).kind() is None:
            return repository, found["snapshot"], normal_path(location.path[found.end() :])
    return None


def in_snapshot(location: Location) -> Location:
    """The location in a snapshot that a path names; the same location if it names none.

    A snapshot with one log directory, named without a path in it, is that log directory.

    Raises:
        KdumpError: there is no such snapshot, or its repository is damaged.
        OSError: it cannot be read.
    """
    found = snapshot_around(location)
    if found is None:
        _refuse_no_snapshot(location)
        return location
    path, text, inner = found
    with phase(f"looking at {path}"):
        repository = Repository.opened(path)
        name = repository.named_snapshot(None if text == LATEST else text, current_time_ms())
    typed = path.typed
    typed = typed._replace(text=name_in_archive(typed.text, name))
    place = SnapshotPlace(path.as_absolute(), name, f"{path}!{name}", typed)
    log_dirs = place.log_directories if inner == ROOT else []
    return log_dirs[0] if len(log_dirs) == 1 else Location(place, inner)


def _refuse_no_snapshot(location: Location) -> None:
    """Name the snapshots of a repository, if what follows it is like no name of one.

    Raises:
        UsageProblem: it is.
    """
    head, mark, rest = location.path.partition("!")
    repository = Location(location.storage, head.rstrip("/") or ROOT)
    if (
        not (head and mark)
        or location.kind() is not None
        or (repository / REPOSITORY_FILE).kind() is None
    ):
        return
    text = rest.partition("/")[0]
    with phase(f"looking at {repository}"):
        Repository.opened(repository).named_snapshot(text, current_time_ms())


def snapshot_named_whole(location: Location) -> SnapshotPlace | None:
    """The snapshot that a location is the root of, if several log directories may be in it."""
    place = location.storage
    if isinstance(place, SnapshotPlace) and location.path == ROOT:
        return None if ROOT in _contents(place).log_dirs else place
    return None


class _PiecesOfFile(PiecedFile):
    """A file of a snapshot that is open for reading.

    A piece is compared with its SHA-256 if it is read from its beginning to its end.
    """

    def __init__(self, place: SnapshotPlace, location: Location, file: BackedUpFile) -> None:
        super().__init__(Repository(place.repository), file.pieces)
        self.location = location
        self._place = place
        self._compared = -1
        self._compared_bytes = 0
        self._digest = hashlib.sha256()

    def read_into(self, buffer: memoryview, position: int) -> int:
        try:
            filled = super().read_into(buffer, position)
            self._compare(buffer[:filled], position)
        except (OSError, RepositoryError) as problem:
            raise self._place.failure(self.location.path, problem) from problem
        return filled

    def _compare(self, buffer: memoryview, position: int) -> None:
        for number, start, end in self._parts(position, position + len(buffer)):
            begin, _, piece = self._pieces[number]
            at = start - begin
            if number != self._compared:
                if at:
                    continue
                self._compared, self._compared_bytes = number, 0
                self._digest = hashlib.sha256()
            # Windows of a scan overlap.
            if at <= self._compared_bytes < end - begin:
                new = begin + self._compared_bytes - position
                self._digest.update(buffer[new : end - position])
                self._compared_bytes = end - begin
                if self._compared_bytes == piece.size_bytes:
                    self._require_same(piece)

    def _require_same(self, piece: RepositoryPiece) -> None:
        if self._digest.hexdigest() != piece.sha256:
            self._compared = -1
            file = self._repository.location(piece)
            raise RepositoryError(f"{file}: damaged: its SHA-256 is not its name")

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        try:
            yield from super().data_ranges(start, end)
        except (OSError, RepositoryError) as problem:
            raise self._place.failure(self.location.path, problem) from problem
