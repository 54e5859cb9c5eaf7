"""Bytes in memory in place of a file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BytesSource:
    """A :class:`kdump.storage.byte_source.ByteSource` over bytes."""

    data: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.data)

    def read_into(self, buffer: memoryview, position: int) -> int:
        part = self.data[position : position + len(buffer)]
        buffer[: len(part)] = part
        return len(part)
