"""Plain tar archives, read in place: ``backup.tar!/data/kafka``.

The archive is a file of another storage. Its headers are read once in each process, and those of a
large archive once for many runs (:mod:`kdump.storage.tar_index_cache`); the bytes of a member are
ranges of the archive. Links, devices and whatever else leads out of it are never followed, and what
is left out is in :attr:`TarArchive.problems`.
"""

from __future__ import annotations

import bisect
import errno
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from kdump.phases import phase
from kdump.storage.entries import SPECIAL_KINDS, Entry, EntryKind, special_file_error
from kdump.storage.local_disk import LOCAL_DISK
from kdump.storage.location import Location, StoredFile
from kdump.storage.place_names import TypedName, name_in_archive
from kdump.storage.place_problem import PlaceProblem
from kdump.storage.rooted_storage import RootedStorage, normal_path
from kdump.storage.tar_index import (
    Member,
    TarIndex,
    read_tar_index,
)
from kdump.storage.tar_index_cache import keep_index, kept_index
from kdump.storage.tar_sparse import StoredPart, TarDamageError

_MOST_HOLE_BYTES: Final = 256 << 20
_MOST_INDEXES: Final = 16
_indexes: Final[dict[TarArchive, _KnownIndex]] = {}
"""Of the archives that this process has read from."""
_problems: Final[dict[TarArchive, Sequence[PlaceProblem]]] = {}
"""Likewise, of all of them: an index may be dropped before its problems are said."""


class _KnownIndex(NamedTuple):
    """The members of an archive, and which file they were read from."""

    members: TarIndex
    identity: tuple[int | str, ...] | None


@dataclass(frozen=True, slots=True)
class TarArchive(RootedStorage):
    """One archive as it was when it was named; paths in it begin with ``/``.

    Attributes:
        archive: where the file is; absolute, for workers elsewhere.
        fingerprint: its size in bytes and its time in nanoseconds; None if it was not there.
        name: as it was given.
        typed: the same, as a command names it.
    """

    archive: Location
    fingerprint: tuple[int, int] | None
    name: str = field(compare=False)
    typed: TypedName = field(compare=False)

    @classmethod
    def named(cls, archive: Location, given: Location | None = None) -> TarArchive:
        """The archive at a location, which may not exist.

        Args:
            archive: where it is.
            given: where it was when it was named, if it is elsewhere now.
        """
        absolute = archive.as_absolute()
        try:
            found = _fingerprint(absolute)
        except (OSError, ValueError):
            found = None  # each access says why
        given = given or archive
        return cls(absolute, found, str(given), given.typed)

    @property
    def problems(self) -> Sequence[PlaceProblem]:
        """What this process found to be left out, or read in another way."""
        return _problems.get(self, ())

    def name_of(self, path: str) -> str:
        return f"{self.name}!{path}"

    def typed_name(self, path: str) -> TypedName:
        return self.typed._replace(text=name_in_archive(self.typed.text, path))

    def entries(self, path: str) -> list[Entry]:
        index, path = self._index(), normal_path(path)
        found = index.directories.get(path)
        if found is None:
            code = errno.ENOENT if index.member(path) is None else errno.ENOTDIR
            raise OSError(code, os.strerror(code), self.name_of(path))
        return [each.entry for each in found.values()]

    def status(self, path: str) -> Entry:
        return self._member(path).entry

    def open_file(self, location: Location) -> StoredFile:
        return self._opened(location, self._file(location.path))

    def _opened(self, location: Location, member: Member) -> _TarFile:
        file = self.archive.open_file()
        if self.fingerprint is not None and file.size_bytes != self.fingerprint[0]:
            file.close()
            raise self._changed()
        known = _indexes.get(self)
        if self.archive.storage == LOCAL_DISK and known and file.identity() != known.identity:
            # A file of the same size and time has taken its place.
            file.close()
            raise self._changed()
        return _TarFile(location, member, file)

    def read(self, path: str) -> bytes:
        member = self._file(path)
        if member.entry.hole_bytes > _MOST_HOLE_BYTES:
            what = f"{member.entry.hole_bytes} of its bytes are holes: too many to read it whole"
            raise OSError(errno.EFBIG, what, self.name_of(path))
        with self._opened(Location(self, path), member) as file:
            return file.read_all()

    def _index(self) -> TarIndex:
        """The members of the archive.

        Raises:
            OSError: it is missing, no archive, cannot be read, or was changed.
        """
        if self.fingerprint is None or _fingerprint(self.archive) != self.fingerprint:
            self._require_there()
            raise self._changed()
        known = _indexes.get(self)
        if known is None:
            with self.archive.open_file() as file, phase(f"listing {self.name}", reading=file):
                identity = file.identity()
                index = kept_index(file, os.environ) or self._read_index(file)
                known = _KnownIndex(index, identity)
            while len(_indexes) >= _MOST_INDEXES:
                del _indexes[next(iter(_indexes))]
            _indexes[self] = known
            _problems[self] = tuple(index.problems.values())
        return known.members

    def _read_index(self, file: StoredFile) -> TarIndex:
        try:
            index = read_tar_index(file)
        except TarDamageError as damage:
            what = f"not a tar archive that can be read: {damage}"
            raise OSError(errno.EINVAL, what, self.name) from None
        keep_index(file, index, os.environ)
        return index

    def _require_there(self) -> None:
        try:
            self.archive.open_file().close()
        except OSError as failure:
            raise OSError(failure.errno, failure.strerror, self.name) from failure

    def _changed(self) -> OSError:
        return OSError(errno.ESTALE, "it was changed while it was read; run kdump again", self.name)

    def _member(self, path: str) -> Member:
        found = self._index().member(normal_path(path))
        if found is None or found.entry.kind is EntryKind.BROKEN_LINK:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.name_of(path))
        return found

    def _file(self, path: str) -> Member:
        found = self._member(path)
        if found.entry.kind in SPECIAL_KINDS:
            raise special_file_error(self.name_of(path), found.entry.kind)
        if found.entry.kind is not EntryKind.FILE:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.name_of(path))
        return found


def _fingerprint(archive: Location) -> tuple[int, int]:
    if archive.storage == LOCAL_DISK:
        # It is looked at for each file that is read: half of a listing's questions to the system.
        status = Path(archive.path).stat()
        return status.st_size, status.st_mtime_ns
    entry = archive.status()
    return entry.size_bytes, entry.modified_ns


class _TarFile(StoredFile):
    """A member that is open for reading: ranges of its archive, and zeros for holes."""

    def __init__(self, location: Location, member: Member, archive: StoredFile) -> None:
        super().__init__(location, member.entry.size_bytes)
        self._archive = archive
        self._pieces = member.pieces
        is_whole = [each.length for each in member.pieces] == [self.size_bytes]
        self._whole_start = member.pieces[0].start if is_whole else None

    def read_into(self, buffer: memoryview, position: int) -> int:
        buffer = buffer[: max(0, self.size_bytes - position)]
        end = position + len(buffer)
        if self._whole_start is not None:
            # Most reads are small, and most members in one piece.
            self._require_filled(buffer, self._whole_start + position, position)
            self.reached_bytes = end
            return len(buffer)
        at = position
        for piece in self._pieces_from(position):
            if piece.position >= end:
                break
            if piece.position > at:
                self._fill_hole(buffer[at - position : piece.position - position])
                at = piece.position
            until = min(end, piece.position + piece.length)
            wanted = buffer[at - position : until - position]
            self._require_filled(wanted, piece.start + at - piece.position, at)
            at = until
        self._fill_hole(buffer[at - position :])
        self.reached_bytes = end
        return len(buffer)

    def read_all(self) -> bytes:
        """All bytes of the member."""
        data = bytearray(self.size_bytes)
        self.read_into(memoryview(data), 0)
        return bytes(data)

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        for piece in self._pieces_from(start):
            first, last = max(start, piece.position), min(end, piece.position + piece.length)
            if first < last:
                yield first, last

    def close(self) -> None:
        self._archive.close()

    def _require_filled(self, buffer: memoryview, start: int, position: int) -> None:
        """Fill ``buffer`` from ``start`` of the archive on, which is ``position`` of the member."""
        if self._archive.read_into(buffer, start) < len(buffer):
            what = f"the archive ends inside it (at byte {position})"
            raise OSError(errno.EIO, what, str(self.location))

    def _pieces_from(self, position: int) -> Iterator[StoredPart]:
        """The pieces that have bytes from a position on."""
        first = bisect.bisect_right(self._pieces, position, key=lambda each: each.position)
        for index in range(max(0, first - 1), len(self._pieces)):
            if self._pieces[index].position + self._pieces[index].length > position:
                yield self._pieces[index]

    @staticmethod
    def _fill_hole(buffer: memoryview) -> None:
        buffer[:] = bytes(len(buffer))
