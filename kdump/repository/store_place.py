"""A repository in a bucket of S3.

An object is complete or not there, and durable when the store has taken it: nothing is temporary,
and nothing is synced. A piece has its name as soon as it is written, so it is limited to what is
written again if a request fails.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final

from msgspec import Struct

from kdump.repository.repository_place import HeldLock, NamedFile
from kdump.repository.store_locks import (
    LOCKS,
    locked_store_to_read,
    locked_store_to_remove,
    locked_store_to_write,
)
from kdump.storage.location import Location
from kdump.storage.object_store import ObjectStore
from kdump.storage.object_writer import SCHEME, ObjectWriter
from kdump.storage.repository import UNFINISHED, piece_name
from kdump.storage.repository_documents import RepositoryPiece
from kdump.storage.sparse_writer import writing
from kdump.storage.unfinished_file import UnfinishedFile

MOST_PIECE_BYTES: Final = 32 << 20
LEAST_LOOKED_UP_BYTES: Final = 1 << 20
"""To send as much takes longer than to ask whether it is there."""


def is_writable_store(location: Location) -> bool:
    """Whether a location is in a store that kdump can write to."""
    return isinstance(location.storage, ObjectStore) and location.storage.scheme == SCHEME


class StorePlace(Struct, frozen=True):
    """What begins with a prefix, in a bucket."""

    location: Location

    @property
    def writer(self) -> ObjectWriter:
        """The connection of this process."""
        assert isinstance(self.location.storage, ObjectStore)
        return self.location.storage.writer

    @property
    def most_piece_bytes(self) -> int | None:
        return MOST_PIECE_BYTES

    @property
    def is_listed(self) -> bool:
        return True

    def make(self) -> None:
        """Do nothing: there are no directories."""

    def make_folders(self, names: Iterable[str]) -> None:
        """Do nothing: there are no directories."""

    def found(self) -> set[str]:
        listed = self.writer.listed(self.location.path, is_deep=False)
        return {each.path.rstrip("/").rpartition("/")[2] for each in listed} - {LOCKS}

    def free_bytes(self) -> int | None:
        return None

    def files(self, folder: str) -> Iterator[NamedFile]:
        root = self.location.path.rstrip("/")
        for each in self.writer.listed(f"{root}/{folder}"):
            yield NamedFile(each.path[len(root) + 1 :], each.size_bytes, each.age_s)

    def new_piece(self) -> UnfinishedFile:
        return UnfinishedFile.unnamed()

    def keep(self, new: Sequence[tuple[UnfinishedFile, RepositoryPiece]]) -> list[str]:
        def send(each: tuple[UnfinishedFile, RepositoryPiece]) -> None:
            file, piece = each
            path = self._path(piece_name(piece))
            # A run that was stopped may have sent it, or another host.
            is_large = piece.size_bytes >= LEAST_LOOKED_UP_BYTES
            if not (is_large and self.writer.size_of(path) == piece.size_bytes):
                file.stream.flush()
                file.stream.seek(0)
                self.writer.put(path, file.stream)
            file.drop()

        with writing():
            self.writer.each_at_once(send, new)
        return [piece_name(piece) for _, piece in new]

    def place(self, kept: Sequence[tuple[str, RepositoryPiece]]) -> None:
        """Do nothing: pieces have their names."""

    def settle(self, folders: Collection[str] | None) -> None:
        """Do nothing: they are durable."""

    def put(self, name: str, data: bytes) -> None:
        self.writer.put(self._path(name), data)

    def note(self, lines: Sequence[bytes]) -> str:
        name = f"{UNFINISHED}/progress-{secrets.token_hex(8)}.jsonl"
        self.put(name, b"".join(lines))
        return name

    def move(self, name: str, new_name: str) -> None:
        self.writer.copy(self._path(name), self._path(new_name))
        self.delete([name])

    def delete(self, names: Iterable[str], require: Callable[[], None] = lambda: None) -> None:
        self.writer.delete(map(self._path, names), require)

    def drop_unfinished(self) -> None:
        """Do nothing: there are no temporary objects."""

    def locked_to_write(self) -> AbstractContextManager[HeldLock]:
        return locked_store_to_write(self.location, self.writer)

    def locked_to_remove(self) -> AbstractContextManager[HeldLock]:
        return locked_store_to_remove(self.location, self.writer)

    def locked_to_read(self) -> AbstractContextManager[None]:
        return locked_store_to_read(self.location, self.writer)

    def _path(self, name: str) -> str:
        return (self.location / name).path
