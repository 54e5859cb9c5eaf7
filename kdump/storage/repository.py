"""Read a repository: its snapshots, the documents of directories, and the bytes of files.

A repository is a directory with these names in it::

    kdump-repository.json    says that it is one, and its version
    data/AB/ABCDEF…          pieces, each under its SHA-256
    snapshots/ID.json        what was backed up, and the piece that is the document of each root
    unfinished/              what a run writes that has not ended

Nothing in ``data`` and ``snapshots`` changes once it has its name.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from kdump.errors import KdumpError, UsageProblem, reason_of
from kdump.formats.json_document import DocumentError, read_document
from kdump.storage.entries import Entry, EntryKind
from kdump.storage.location import Location, StoredFile
from kdump.storage.parallel_reads import each_read
from kdump.storage.repository_documents import (
    REPOSITORY_FORMAT,
    VERSION,
    BackedUpDirectory,
    Pieces,
    RepositoryPiece,
    Snapshot,
    stored_bytes,
)

if TYPE_CHECKING:
    from kdump.storage.document_cache import DocumentCache

REPOSITORY_FILE: Final = "kdump-repository.json"
DATA: Final = "data"
SNAPSHOTS: Final = "snapshots"
UNFINISHED: Final = "unfinished"

_ID: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}Z-([0-9a-f]{8}))\.json")
_MS_PER_S: Final = 1000
_MOST_NAMED: Final = 5
"""Snapshots that a message names."""
_CLOCKS_DIFFER_MS: Final = 5 * 60 * _MS_PER_S
"""How far apart the clocks of two machines that share a repository may be."""
_READ_BYTES: Final = 1 << 20


def piece_name(piece: RepositoryPiece) -> str:
    """The name of a piece, from the repository on."""
    return f"{DATA}/{piece.sha256[:2]}/{piece.sha256}"


class RepositoryError(KdumpError):
    """Something in a repository is missing, or is not what was stored."""


def snapshot_id(snapshot: Snapshot, document: bytes) -> str:
    """The name of a snapshot: when its run began, and the beginning of its SHA-256."""
    digest = hashlib.sha256(document).hexdigest()
    return f"{_time_of(snapshot.begun_ms)}-{digest[:8]}"


def _time_of(time_ms: int) -> str:
    """The beginning of the name of a snapshot."""
    seconds, ms = divmod(time_ms, _MS_PER_S)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H-%M-%S}.{ms:03}Z"


def sha256_of(source: StoredFile, start: int, size_bytes: int) -> str:
    """The SHA-256 of some bytes of a file; of fewer, if it is shorter.

    Raises:
        OSError: they cannot be read.
    """
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(min(_READ_BYTES, size_bytes)))
    for done in range(0, size_bytes, _READ_BYTES):
        part = buffer[: size_bytes - done]
        digest.update(part[: source.read_into(part, start + done)])
    return digest.hexdigest()


def later_snapshots(names: Iterable[str], now_ms: int) -> list[str]:
    """The snapshots with a time later than now, in the same order.

    A clock was wrong when they were made, or is wrong now, so that nobody knows which is the last.
    """
    now = _time_of(now_ms + _CLOCKS_DIFFER_MS)
    return [each for each in names if each > now]


def later_than_now(names: Sequence[str]) -> str:
    """Word that snapshots have a time later than now."""
    found = f"snapshot {names[0]} has"
    if len(names) > 1:
        found = f"{len(names)} snapshots, the last {names[-1]}, have"
    return f"{found} a later time than now, so a clock was or is wrong"


class Repository(Struct, frozen=True):
    """A repository, for reading."""

    path: Location

    @classmethod
    def opened(cls, path: Location) -> Repository:
        """The repository in a directory.

        Raises:
            KdumpError: there is none, or another version of kdump wrote it.
            OSError: it cannot be read.
        """
        file = path / REPOSITORY_FILE
        try:
            read_document(file.read(), REPOSITORY_FORMAT, VERSION)
        except (FileNotFoundError, NotADirectoryError):
            raise KdumpError(f"{path}: is not a repository of kdump backup") from None
        except DocumentError as error:
            raise KdumpError(f"{file}: {error}") from None
        return cls(path)

    @property
    def snapshots_folder(self) -> Location:
        """Where the snapshots are."""
        return self.path / SNAPSHOTS

    def snapshot_ids(self) -> list[str]:
        """The snapshots, the oldest first.

        Raises:
            OSError: they cannot be listed.
        """
        entries: list[Entry] = []
        try:
            entries = self.snapshots_folder.entries()
        except FileNotFoundError:
            # In a store, folders are only in the names of objects.
            if self.is_local:
                raise
        return sorted(
            match[1]
            for each in entries
            if each.kind is EntryKind.FILE and (match := _ID.fullmatch(each.name))
        )

    def snapshot_file(self, name: str) -> Location:
        """The file of a snapshot."""
        return self.snapshots_folder / f"{name}.json"

    def named_snapshot(self, text: str | None, now_ms: int) -> str:
        """The snapshot that people name by its beginning; the newest for None.

        Raises:
            UsageProblem: there is none, several begin so, or which is the newest is not certain.
            OSError: they cannot be listed.
        """
        found = self.snapshot_ids()
        if not found:
            raise UsageProblem(f"{self.path}: has no snapshots yet")
        if text is None:
            if later := later_snapshots(found, now_ms):
                raise UsageProblem(
                    f"{self.path}: {later_than_now(later)}: name a snapshot instead of the latest,"
                    " for restore with --snapshot: 'kdump backup list' shows them"
                )
            return found[-1]
        named = [each for each in found if each.startswith(text)]
        if len(named) == 1:
            return named[0]
        if text in found:
            return text
        what = f"{len(named)} snapshots begin" if named else "no snapshot begins"
        there = named or found
        more = f"{len(there) - _MOST_NAMED} older and " if len(there) > _MOST_NAMED else ""
        raise UsageProblem(
            f"{self.path}: {what} with {text!r}: there {'is' if len(there) == 1 else 'are'}"
            f" {more}{', '.join(there[-_MOST_NAMED:])}; 'kdump backup list' shows them"
        )

    def snapshot(self, name: str) -> Snapshot:
        """Read a snapshot.

        Raises:
            RepositoryError: it is damaged.
            OSError: it cannot be read.
        """
        file = self.snapshot_file(name)
        data = file.read()
        if hashlib.sha256(data).hexdigest()[:8] != name.rpartition("-")[2]:
            raise RepositoryError(f"{file}: damaged: its SHA-256 does not begin as its name ends")
        try:
            return Snapshot.decoded(data)
        except DocumentError as error:
            raise RepositoryError(f"{file}: {error}") from None

    def location(self, piece: RepositoryPiece) -> Location:
        """The file of a piece."""
        return self.path / piece_name(piece)

    def has(self, piece: RepositoryPiece) -> bool:
        """Whether a piece is there, with its size; its bytes are not looked at."""
        try:
            found = self.location(piece).status()
        except OSError:
            return False
        return found.kind is EntryKind.FILE and found.size_bytes == piece.size_bytes

    def directory(self, piece: RepositoryPiece) -> BackedUpDirectory:
        """Read the document of a directory.

        Raises:
            RepositoryError: it is missing or damaged.
            OSError: it cannot be read.
        """
        return self._read_directory(piece)[0]

    def _read_directory(self, piece: RepositoryPiece) -> tuple[BackedUpDirectory, bytes]:
        file = self.location(piece)
        try:
            data = file.read()
        except FileNotFoundError:
            raise RepositoryError(f"{file}: missing") from None
        if hashlib.sha256(data).hexdigest() != piece.sha256:
            raise RepositoryError(f"{file}: damaged: its SHA-256 is not its name")
        try:
            return BackedUpDirectory.decoded(data), data
        except DocumentError as error:
            raise RepositoryError(f"{file}: {error}") from None

    def directories(
        self,
        root: RepositoryPiece,
        read: set[RepositoryPiece] | None = None,
        *,
        threads: int,
    ) -> Iterator[DirectoryFound]:
        """Read the documents of a log directory, each before those of the directories in it.

        Those of a repository in an object store are kept in the user's cache.

        Args:
            root: the document of its root.
            read: those that need not be read again, and to which all others are added; None to
                read all: several directories of one log directory may have the same document.
            threads: how many are read at the same time:
                :func:`~kdump.storage.places.concurrent_reads`.

        Raises:
            OSError: an object store does not answer.
        """
        cache: DocumentCache | None = None
        if self.is_in_store:
            # It needs SQLite, which takes time to import.
            from kdump.storage.document_cache import DocumentCache

            cache = DocumentCache(os.environ)
        level = [("", root)]

        def found(each: tuple[str, RepositoryPiece]) -> DirectoryFound:
            try:
                return DirectoryFound(*each, self._cached_directory(each[1], cache))
            except (OSError, RepositoryError) as failure:
                if self.gave_no_answer(failure):
                    raise
                return DirectoryFound(*each, None, worded(failure))

        try:
            while level:
                wanted = [each for each in level if read is None or each[1] not in read]
                if read is not None:
                    wanted = list({piece: (path, piece) for path, piece in wanted}.values())
                    read.update(piece for _, piece in wanted)
                level = []
                for each in each_read(found, wanted, threads):
                    yield each
                    if each.directory is not None:
                        level += [
                            (f"{each.path}/{inner.name}".lstrip("/"), inner.document)
                            for inner in each.directory.directories
                        ]
        finally:
            if cache is not None:
                cache.close()

    def _cached_directory(
        self, piece: RepositoryPiece, cache: DocumentCache | None
    ) -> BackedUpDirectory:
        """As :meth:`directory`, but its document may come from the user's cache."""
        data = None if cache is None else cache.find(piece.sha256)
        if data is not None and hashlib.sha256(data).hexdigest() == piece.sha256:
            with contextlib.suppress(DocumentError):
                return BackedUpDirectory.decoded(data)
        found, data = self._read_directory(piece)
        if cache is not None:
            cache.keep(piece.sha256, data)
        return found

    def gave_no_answer(self, failure: Exception) -> bool:
        """Whether a failure to read says nothing of what is stored: it is that of a store."""
        is_answer = not isinstance(failure, OSError) or isinstance(failure, FileNotFoundError)
        return not (self.is_local or is_answer)

    @property
    def is_local(self) -> bool:
        """Whether it is on a disk of this machine."""
        return self.path.storage.local_path(self.path.path) is not None

    @property
    def is_in_store(self) -> bool:
        """Whether each read is a request: it is neither on a disk nor in an archive."""
        from kdump.storage.object_store import ObjectStore

        return isinstance(self.path.storage, ObjectStore)

    def file(self, pieces: Pieces) -> PiecedFile:
        """Open a file whose bytes are in pieces."""
        return PiecedFile(self, pieces)


class DirectoryFound(NamedTuple):
    """A directory of a snapshot, as far as its document can be read.

    Attributes:
        path: in its log directory; "" for the root.
        document: the piece that describes it.
        directory: what that says; None if it cannot be read, or is damaged.
        failure: why.
    """

    path: str
    document: RepositoryPiece
    directory: BackedUpDirectory | None
    failure: str = ""


def worded(failure: Exception) -> str:
    """Why something in a repository cannot be read, and which file that is."""
    where = f"{failure.filename}: " if isinstance(failure, OSError) else ""
    return where + reason_of(failure)


class PiecedFile(StoredFile):
    """The bytes of several pieces as one file, open for reading; one piece is open at a time.

    Raises:
        RepositoryError: from reads: a piece is missing, or has another size.
        OSError: from reads, naming the piece.
    """

    def __init__(self, repository: Repository, pieces: Pieces) -> None:
        super().__init__(repository.path, stored_bytes(pieces))
        self._repository = repository
        self._pieces: list[tuple[int, int, RepositoryPiece]] = []
        start = 0
        for each in pieces:
            self._pieces.append((start, start + each.size_bytes, each))
            start += each.size_bytes
        self._number = -1
        self._opened: StoredFile | None = None

    def read_into(self, buffer: memoryview, position: int) -> int:
        filled = 0
        for number, start, end in self._parts(position, position + len(buffer)):
            part = buffer[start - position : end - position]
            begin = self._pieces[number][0]
            count = self._open(number).read_into(part, start - begin)
            if count < len(part):
                file = self._repository.location(self._pieces[number][2])
                raise RepositoryError(f"{file}: damaged: ends before byte {end - begin}")
            filled += count
        self.reached_bytes = position + filled
        return filled

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        for number, first, last in self._parts(start, end):
            begin = self._pieces[number][0]
            for data, hole in self._open(number).data_ranges(first - begin, last - begin):
                yield begin + data, begin + hole

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
        self._opened = None
        self._number = -1

    def _parts(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """The pieces between two bytes: the number of each, and which bytes of the file."""
        for number, (begin, stop, _) in enumerate(self._pieces):
            if begin < end and stop > start:
                yield number, max(begin, start), min(stop, end)

    def _open(self, number: int) -> StoredFile:
        if self._number != number or self._opened is None:
            self.close()
            piece = self._pieces[number][2]
            file = self._repository.location(piece)
            try:
                opened = file.open_file()
            except FileNotFoundError:
                raise RepositoryError(f"{file}: missing") from None
            self._opened, self._number = opened, number
            if opened.size_bytes != piece.size_bytes:
                what = f"has {opened.size_bytes} bytes, not {piece.size_bytes}"
                raise RepositoryError(f"{file}: damaged: {what}")
        return self._opened
