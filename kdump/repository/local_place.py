"""A repository in a directory of this machine."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from msgspec import Struct

from kdump.apply.files import DISK, free_bytes_at
from kdump.errors import UsageProblem
from kdump.repository.repository_locks import locked_to_read, locked_to_remove, locked_to_write
from kdump.repository.repository_place import HeldLock, NamedFile
from kdump.storage.entries import EntryKind
from kdump.storage.location import Location
from kdump.storage.repository import DATA, UNFINISHED, piece_name
from kdump.storage.repository_documents import RepositoryPiece
from kdump.storage.sparse_writer import close_written
from kdump.storage.unfinished_file import UnfinishedFile, is_unfinished

TEMPORARY_PREFIX: Final = "file-"
PROGRESS: Final = "progress.jsonl"
_NS_PER_S: Final = 1_000_000_000


class LocalPlace(Struct, frozen=True):
    """A directory, absolute and without links."""

    location: Location

    @property
    def path(self) -> Path:
        """The path of the directory."""
        return self.location.local_path

    @property
    def most_piece_bytes(self) -> int | None:
        return None

    @property
    def is_listed(self) -> bool:
        return False

    def make(self) -> None:
        try:
            self.path.mkdir(mode=0o700)
        except FileExistsError:
            return
        DISK.sync([self.path.parent])

    def make_folders(self, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(FileExistsError):
                (self.path / name).mkdir(mode=0o700)
        DISK.sync([self.path])

    def found(self) -> set[str]:
        try:
            return {each.name for each in self.path.iterdir()}
        except NotADirectoryError:
            raise UsageProblem(f"{self.path}: is not a directory: name a new one") from None

    def free_bytes(self) -> int | None:
        return free_bytes_at(self.path)

    def files(self, folder: str) -> Iterator[NamedFile]:
        for each in (self.location / folder).entries():
            name = f"{folder}/{each.name}"
            if each.kind is EntryKind.DIRECTORY and not each.is_link:
                yield from self.files(name)
            elif each.kind is EntryKind.FILE:
                yield NamedFile(name, each.size_bytes, time.time() - each.modified_ns / _NS_PER_S)

    def new_piece(self) -> UnfinishedFile:
        return UnfinishedFile.beside(self.path / UNFINISHED / "file", TEMPORARY_PREFIX, mode=0o600)

    def keep(self, new: Sequence[tuple[UnfinishedFile, RepositoryPiece]]) -> list[str]:
        for each, _ in new:
            close_written(each)
        return [each.keep() for each, _ in new]

    def place(self, kept: Sequence[tuple[str, RepositoryPiece]]) -> None:
        DISK.sync([Path(temporary) for temporary, _ in kept])
        for temporary, piece in kept:
            path = self.path / piece_name(piece)
            if not path.parent.is_dir():
                path.parent.mkdir(mode=0o700, exist_ok=True)
            DISK.rename(Path(temporary), path)

    def settle(self, folders: Collection[str] | None) -> None:
        if folders is None:
            inside = (self.path / DATA).iterdir()
            folders = [DATA, *(f"{DATA}/{each.name}" for each in inside if each.is_dir())]
        DISK.sync([self.path / each for each in sorted(folders)])

    def put(self, name: str, data: bytes) -> None:
        with self.new_piece() as new:
            new.stream.write(data)
            new.finish()
            DISK.rename(new.path, self.path / name)
            new.keep()
        DISK.sync([(self.path / name).parent])

    def note(self, lines: Sequence[bytes]) -> str:
        name = f"{UNFINISHED}/{PROGRESS}"
        # Not synced, because the next run looks whether the pieces are there.
        with (self.path / name).open("ab", buffering=0) as stream:
            stream.write(b"".join(lines))
        return name

    def move(self, name: str, new_name: str) -> None:
        DISK.rename(self.path / name, self.path / new_name)

    def delete(self, names: Iterable[str], require: Callable[[], None] = lambda: None) -> None:
        for each in names:
            require()
            DISK.unlink(self.path / each)

    def drop_unfinished(self) -> None:
        for each in list((self.path / UNFINISHED).iterdir()):
            if is_unfinished(each.name, TEMPORARY_PREFIX):
                DISK.unlink(each)

    def locked_to_write(self) -> AbstractContextManager[HeldLock]:
        return locked_to_write(self.path)

    def locked_to_remove(self) -> AbstractContextManager[HeldLock]:
        return locked_to_remove(self.path)

    def locked_to_read(self) -> AbstractContextManager[None]:
        return locked_to_read(self.path)
