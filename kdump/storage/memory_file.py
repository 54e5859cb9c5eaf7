"""Small files that are read whole when they are opened."""

from __future__ import annotations

from kdump.storage.location import Location, StoredFile


class MemoryFile(StoredFile):
    """A file whose bytes are in memory, open for reading."""

    def __init__(self, location: Location, data: bytes) -> None:
        super().__init__(location, len(data))
        self._data = memoryview(data)

    def read_into(self, buffer: memoryview, position: int) -> int:
        piece = self._data[position : position + len(buffer)]
        buffer[: len(piece)] = piece
        self.reached_bytes = position + len(piece)
        return len(piece)

    def close(self) -> None:
        self._data = memoryview(b"")
