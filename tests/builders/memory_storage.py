"""A storage in memory: code that works with it does not depend on a local disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kdump.storage.entries import Entry, EntryKind
from kdump.storage.location import Location
from kdump.storage.memory_file import MemoryFile
from kdump.storage.place_names import TypedName
from kdump.storage.rooted_storage import RootedStorage


@dataclass(frozen=True, slots=True)
class MemoryStorage(RootedStorage):
    """Files by path; two are equal if their names are.

    Attributes:
        name: identifies the storage.
        files: the content of each file.
        directories: all directories.
    """

    name: str
    files: Mapping[str, bytes] = field(compare=False, repr=False)
    directories: frozenset[str] = field(compare=False, repr=False)

    @classmethod
    def copied(cls, root: Path) -> Location:
        """Copy a directory of the local disk; its files keep their names."""
        below = list(root.rglob("*"))
        files = {str(path): path.read_bytes() for path in below if path.is_file()}
        directories = frozenset(str(path) for path in (root, *below) if path.is_dir())
        return Location(cls(str(root), files, directories), str(root))

    def name_of(self, path: str) -> str:
        return path

    def typed_name(self, path: str) -> TypedName:
        return TypedName(path)

    def entries(self, path: str) -> list[Entry]:
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return [
            self.status(each)
            for each in (*self.directories, *self.files)
            if str(Path(each).parent) == path
        ]

    def status(self, path: str) -> Entry:
        if path in self.directories:
            return Entry(Path(path).name, EntryKind.DIRECTORY)
        return Entry(Path(path).name, EntryKind.FILE, size_bytes=len(self.read(path)))

    def open_file(self, location: Location) -> MemoryFile:
        return MemoryFile(location, self.read(location.path))

    def read(self, path: str) -> bytes:
        if path in self.directories:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self.files[path]
