"""The one way in which the bytes of a file are read.

Files are read, never mapped: a disk that fails under a mapped page kills the process, while a
failed read is an :class:`OSError` that can be reported with its file and place.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from kdump.storage.regular_files import open_for_reading


class ByteSource(Protocol):
    """Random access to bytes that do not change while they are read."""

    @property
    def size_bytes(self) -> int:
        """How many bytes there are."""
        ...

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill ``buffer`` from ``position`` on; gives how many bytes there were."""
        ...


class FileSource:
    """A file opened for reading; its size is taken once, when it is opened.

    Attributes:
        path: of the file.
        size_bytes: how many bytes there are.
        reached_bytes: where the last read ended.

    Raises:
        OSError: from the constructor and from reads, naming the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = open_for_reading(path)
        self.size_bytes = os.fstat(self._descriptor).st_size
        self.reached_bytes = 0

    def read_into(self, buffer: memoryview, position: int) -> int:
        filled = 0
        try:
            while filled < len(buffer):
                count = os.preadv(self._descriptor, [buffer[filled:]], position + filled)
                if not count:
                    break
                filled += count
            self.reached_bytes = position + filled
        except OSError as failure:
            raise OSError(
                failure.errno,
                f"{failure.strerror} (reading at byte {position + filled})",
                str(self.path),
            ) from failure
        return filled

    def next_data(self, position: int) -> int:
        """Where the first byte is, from ``position`` on, that can be another than zero.

        The size where nothing but a hole follows; ``position`` where the file system does not say.
        """
        if position >= self.size_bytes:
            return self.size_bytes
        try:
            return os.lseek(self._descriptor, position, os.SEEK_DATA)
        except OSError as failure:
            return self.size_bytes if failure.errno == errno.ENXIO else position

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def next_data(source: ByteSource, position: int) -> int:
    """Where the first byte is that can be another than zero, as far as ``source`` knows."""
    return source.next_data(position) if isinstance(source, FileSource) else position


def read_at(source: ByteSource, position: int, size: int) -> bytes:
    """Up to ``size`` bytes from ``position`` on; fewer only where the source ends."""
    size = max(0, min(size, source.size_bytes - position))
    buffer = bytearray(size)
    view = memoryview(buffer)
    filled = source.read_into(view, position)
    return bytes(view[:filled])
