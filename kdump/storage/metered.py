"""A storage that counts the bytes that are read from another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kdump.storage.entries import Entry
from kdump.storage.location import Location, Storage, StoredFile
from kdump.storage.place_names import TypedName


class MeteredStorage:
    """The files of another storage, and how many of their bytes were read.

    Equal only to itself, because each counts on its own.

    Attributes:
        read_bytes: read from files so far; listings are not counted.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.read_bytes = 0

    def name_of(self, path: str) -> str:
        return self._storage.name_of(path)

    def typed_name(self, path: str) -> TypedName:
        return self._storage.typed_name(path)

    def entries(self, path: str) -> list[Entry]:
        return self._storage.entries(path)

    def status(self, path: str) -> Entry:
        return self._storage.status(path)

    def open_file(self, location: Location) -> StoredFile:
        return _MeteredFile(self, self._storage.open_file(Location(self._storage, location.path)))

    def read(self, path: str) -> bytes:
        data = self._storage.read(path)
        self.read_bytes += len(data)
        return data

    def read_listed(self, path: str) -> bytes:
        return self.read(path)

    def as_absolute(self, path: str) -> str:
        return self._storage.as_absolute(path)

    def resolved(self, path: str) -> str:
        return self._storage.resolved(path)

    def is_same(self, path: str, other: str) -> bool:
        return self._storage.is_same(path, other)

    def local_path(self, path: str) -> Path | None:
        return self._storage.local_path(path)


class _MeteredFile(StoredFile):
    """An open file that adds what is read from it to the count of its storage."""

    def __init__(self, meter: MeteredStorage, file: StoredFile) -> None:
        super().__init__(Location(meter, file.location.path), file.size_bytes)
        self._meter = meter
        self._file = file

    def read_into(self, buffer: memoryview, position: int) -> int:
        filled = self._file.read_into(buffer, position)
        self.reached_bytes = self._file.reached_bytes
        self._meter.read_bytes += filled
        return filled

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        return self._file.data_ranges(start, end)

    def close(self) -> None:
        self._file.close()
