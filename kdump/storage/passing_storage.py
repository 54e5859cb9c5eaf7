"""Copy a file while something else reads it, so that its bytes are asked for once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from kdump.storage.entries import Entry
from kdump.storage.local_disk import LOCAL_DISK
from kdump.storage.location import Location, StoredFile
from kdump.storage.place_names import TypedName
from kdump.storage.sparse_writer import SparseWriter


class PassingStorage(Struct, frozen=True):
    """Files under the names that they will have on this machine, some of them while they come.

    Attributes:
        path: of the file that comes.
        source: it, open for reading.
        writer: takes each of its bytes once, when it is first read.
        arrived: files that are complete under another name, by path.
    """

    path: str
    source: StoredFile
    writer: SparseWriter
    arrived: Mapping[str, str]

    def name_of(self, path: str) -> str:
        return path

    def typed_name(self, path: str) -> TypedName:
        return TypedName(path)

    def entries(self, path: str) -> list[Entry]:
        return LOCAL_DISK.entries(path)

    def status(self, path: str) -> Entry:
        if path == self.path:
            return self.source.location.status()
        return LOCAL_DISK.status(self.arrived.get(path, path))

    def open_file(self, location: Location) -> StoredFile:
        if location.path == self.path:
            return _PassingFile(location, self.source, self.writer)
        arrived = self.arrived.get(location.path, location.path)
        return LOCAL_DISK.open_file(Location(LOCAL_DISK, arrived))

    def read(self, path: str) -> bytes:
        return LOCAL_DISK.read(self.arrived.get(path, path))

    def read_listed(self, path: str) -> bytes:
        return self.read(path)

    def as_absolute(self, path: str) -> str:
        return LOCAL_DISK.as_absolute(path)

    def resolved(self, path: str) -> str:
        return LOCAL_DISK.resolved(path)

    def is_same(self, path: str, other: str) -> bool:
        return path == other

    def local_path(self, path: str) -> Path | None:
        return None


class _PassingFile(StoredFile):
    """A file that is written elsewhere as it is read."""

    def __init__(self, location: Location, source: StoredFile, writer: SparseWriter) -> None:
        super().__init__(location, source.size_bytes)
        self._source = source
        self._writer = writer

    def read_into(self, buffer: memoryview, position: int) -> int:
        if position > self._writer.position:
            self._writer.append(self._source, position)
        filled = self._source.read_into(buffer, position)
        self.reached_bytes = position + filled
        if self.reached_bytes > self._writer.position:
            self._writer.write(buffer[self._writer.position - position : filled])
        return filled

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        return self._source.data_ranges(start, end)

    def close(self) -> None:
        """Do nothing: whoever opened the source closes it, after its last byte."""
