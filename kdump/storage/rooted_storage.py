"""What storages have in common whose paths are their own: archives, object stores.

Their paths begin with ``/`` and have no links that are followed, so that most questions about a
path are answered by the path alone.
"""

from __future__ import annotations

import errno
import posixpath
from abc import ABC, abstractmethod
from typing import Final

from kdump.storage.entries import Entry
from kdump.storage.location import Location, StoredFile
from kdump.storage.place_names import TypedName

ROOT: Final = "/"


def normal_path(path: str) -> str:
    """The path from the root, without ``.``, ``..`` and repeated slashes."""
    return posixpath.normpath(f"/{path.lstrip('/')}")


class RootedStorage(ABC):
    """A storage that is no local disk and has paths of its own; see ``Storage``."""

    __slots__ = ()

    @abstractmethod
    def name_of(self, path: str) -> str: ...

    def typed_name(self, path: str) -> TypedName:
        return TypedName(self.name_of(path))

    @abstractmethod
    def entries(self, path: str) -> list[Entry]: ...

    @abstractmethod
    def status(self, path: str) -> Entry: ...

    @abstractmethod
    def open_file(self, location: Location) -> StoredFile: ...

    def read(self, path: str) -> bytes:
        with self.open_file(Location(self, path)) as file:
            try:
                data = bytearray(file.size_bytes)
            except (MemoryError, OverflowError):
                # Sizes are what an archive or a store claims.
                what = f"has {file.size_bytes} bytes, too many to read at once"
                raise OSError(errno.ENOMEM, what, self.name_of(path)) from None
            count = file.read_into(memoryview(data), 0)
            return bytes(data[:count])

    def read_listed(self, path: str) -> bytes:
        return self.read(path)

    def as_absolute(self, path: str) -> str:
        return path if path.startswith(ROOT) else f"{ROOT}{path}"

    def resolved(self, path: str) -> str:
        return normal_path(path)

    def is_same(self, path: str, other: str) -> bool:
        self.status(path)
        self.status(other)
        return normal_path(path) == normal_path(other)

    def local_path(self, path: str) -> None:
        return None
