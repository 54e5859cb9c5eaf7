"""Locations: a path together with the storage that it belongs to.

A location is a value. It can be pickled, and opened in another process or on another machine
that reaches the same storage. Everything that reads log directories takes locations; only what
writes asks for :attr:`Location.local_path`.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol, Self

from msgspec import Struct

from kdump.errors import KdumpError
from kdump.storage.entries import Entry, EntryKind
from kdump.storage.place_names import TypedName, refusal_of

_NOTHING_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class NotLocalError(KdumpError):
    """Something needs a local disk, and a location is elsewhere."""


class Storage(Protocol):
    """One kind of storage: a local disk, an archive, an object store.

    A value too: equal storages hold the same files, and a pickled storage reads them elsewhere.
    Symbolic links are followed wherever there are any, except by ``entries``, which says what
    they lead to. Files that must never be opened (:data:`~kdump.storage.entries.SPECIAL_KINDS`)
    are refused here, for every reader.
    """

    def name_of(self, path: str) -> str:
        """How messages and tables name a file or directory: a path, or a URI."""
        ...

    def typed_name(self, path: str) -> TypedName:
        """How a command that a message advises names it: as it works, without credentials."""
        ...

    def entries(self, path: str) -> list[Entry]:
        """All entries of a directory, as the storage lists them.

        Raises:
            OSError: it is missing, no directory, or cannot be listed.
        """
        ...

    def status(self, path: str) -> Entry:
        """The entry for a file, a directory, or whatever else there is.

        Raises:
            OSError: there is nothing, or it cannot be looked at.
        """
        ...

    def open_file(self, location: Location) -> StoredFile:
        """Open a regular file of this storage for reading.

        Raises:
            OSError: it is missing, cannot be read, or is not a regular file.
        """
        ...

    def read(self, path: str) -> bytes:
        """All bytes of a small regular file.

        Raises:
            OSError: as ``open_file``.
        """
        ...

    def read_listed(self, path: str) -> bytes:
        """As ``read``, for what a listing of its directory has just called a regular file.

        A storage need not look at it again before it opens it.
        """
        ...

    def as_absolute(self, path: str) -> str:
        """The path from the root of the storage; links and ``..`` stay."""
        ...

    def resolved(self, path: str) -> str:
        """The path from the root of the storage, without links and ``..``.

        Raises:
            OSError: links lead in circles.
        """
        ...

    def is_same(self, path: str, other: str) -> bool:
        """Whether two paths name the same file or directory.

        Raises:
            OSError: there is nothing at one of them.
        """
        ...

    def local_path(self, path: str) -> Path | None:
        """The path for system calls of this machine; None where the storage is no local disk."""
        ...


class Location(Struct, frozen=True):
    """A file or directory in a storage, whether it exists or not.

    The path is text, because making a :class:`pathlib.Path` for each of 100,000 files takes a
    tenth of the time to list them. It is normalized: no ``//``, no ``/.``, no ``/`` at the end,
    and ``.`` for the current directory.

    Attributes:
        storage: where it is.
        path: within the storage.
    """

    storage: Storage
    path: str

    def __str__(self) -> str:
        return self.storage.name_of(self.path)

    def __truediv__(self, name: str) -> Location:
        if self.path == ".":
            return Location(self.storage, name)
        separator = "" if self.path.endswith("/") else "/"
        return Location(self.storage, f"{self.path}{separator}{name}")

    @property
    def typed(self) -> TypedName:
        """As :meth:`Storage.typed_name`."""
        return self.storage.typed_name(self.path)

    @property
    def name(self) -> str:
        """The last part of the path; empty for the root and for the current directory."""
        name = self.path.rpartition("/")[2]
        return "" if name == "." else name

    @property
    def parent(self) -> Location:
        """The directory around it, by the path alone."""
        head, separator, _ = self.path.rpartition("/")
        return Location(self.storage, head or separator or ".")

    @property
    def around(self) -> Location:
        """The directory that it is in, also for ``.`` and ``..``; relative if the path is."""
        if self.path == ".":
            return Location(self.storage, "..")
        return self / ".." if self.name == ".." else self.parent

    def with_name(self, name: str) -> Location:
        """Another name in the same directory."""
        return self.parent / name

    def entries(self) -> list[Entry]:
        """As :meth:`Storage.entries`."""
        return self.storage.entries(self.path)

    def status(self) -> Entry:
        """As :meth:`Storage.status`."""
        return self.storage.status(self.path)

    def is_directory(self) -> bool:
        """Whether a directory is there; raises as :meth:`kind` does."""
        return self.kind() is EntryKind.DIRECTORY

    def kind(self) -> EntryKind | None:
        """What is there; None for nothing, and for a link that leads nowhere.

        Raises:
            OSError: it cannot be looked at.
        """
        try:
            return self.storage.status(self.path).kind
        except ValueError:
            return None  # a null byte in the name
        except OSError as failure:
            if failure.errno in _NOTHING_THERE:
                return None
            raise

    def open_file(self) -> StoredFile:
        """As :meth:`Storage.open_file`."""
        return self.storage.open_file(self)

    def read(self) -> bytes:
        """As :meth:`Storage.read`."""
        return self.storage.read(self.path)

    def read_listed(self) -> bytes:
        """As :meth:`Storage.read_listed`."""
        return self.storage.read_listed(self.path)

    def as_absolute(self) -> Location:
        """As :meth:`Storage.as_absolute`."""
        return Location(self.storage, self.storage.as_absolute(self.path))

    def resolved(self) -> Location:
        """As :meth:`Storage.resolved`."""
        return Location(self.storage, self.storage.resolved(self.path))

    def is_same(self, other: Location) -> bool:
        """As :meth:`Storage.is_same`; never the same as a location in another storage."""
        return self.storage == other.storage and self.storage.is_same(self.path, other.path)

    @property
    def local_path(self) -> Path:
        """The path for what only a local disk can do, such as writing.

        Raises:
            NotLocalError: the storage is no local disk.
        """
        path = self.storage.local_path(self.path)
        if path is None:
            raise NotLocalError(refusal_of(str(self), self.typed))
        return path


class StoredFile(ABC):
    """A file that is open for reading; a context that closes it.

    Attributes:
        size_bytes: its size when it was opened.
        reached_bytes: where the last read ended.
        expected_end: up to where it will be read, if the reader knows; nothing more is read ahead.
    """

    expected_end: int | None = None

    def __init__(self, location: Location, size_bytes: int) -> None:
        self.location = location
        self.size_bytes = size_bytes
        self.reached_bytes = 0

    @abstractmethod
    def read_into(self, buffer: memoryview, position: int) -> int:
        """As :meth:`~kdump.storage.byte_source.ByteSource.read_into`.

        Raises:
            OSError: naming the file.
        """

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """As :meth:`~kdump.storage.byte_source.SparseSource.data_ranges`."""
        end = min(end, self.size_bytes)
        if start < end:
            yield start, end

    def identity(self) -> tuple[int | str, ...] | None:
        """Differs from that of any other file, and changes with the bytes; None if unknown.

        Raises:
            OSError: naming the file.
        """
        return None

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()


def each_once(paths: Iterable[Location]) -> list[Location]:
    """Leave out the paths that name the same directory as one before them, such as links to it."""
    found: list[Location] = []
    for path in paths:
        if not any(_is_same_directory(path, other) for other in found):
            found.append(path)
    return found


def _is_same_directory(path: Location, other: Location) -> bool:
    try:
        # Files with several hard links are different files, each with its own name.
        return path.is_same(other) and path.is_directory()
    except OSError:
        return False  # who reads them says why
