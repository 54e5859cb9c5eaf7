"""A local disk that is read beside somebody who needs it more.

What is read does not push out of memory what others read: pages that were not in memory before are
given back. And so many bytes are read in a second, if there is a limit.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import Final

from kdump.storage.local_disk import LOCAL_DISK, LocalDisk, LocalFile
from kdump.storage.location import Location
from kdump.storage.page_cache import PAGE_BYTES, pages_in_memory

_PIECE_BYTES: Final = 1 << 20
"""So many bytes at most are read at a time with a limit."""
_NOT_IN_MEMORY: Final = re.compile(rb"\0+")


class Bandwidth:
    """A limit of bytes in a second, for one process."""

    def __init__(
        self,
        bytes_per_second: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    def wait_for(self, size_bytes: int) -> None:
        """Wait until so many bytes may be read: until those before them have had their time."""
        wait = self._free_at - self._clock()
        if wait > 0:
            self._sleep(wait)
        # Time in which nothing was read is not made up for.
        self._free_at = max(self._free_at, self._clock()) + size_bytes / self._bytes_per_second


class GentleDisk(LocalDisk, frozen=True):
    """The file systems of this machine, for reading beside somebody else.

    Attributes:
        bandwidth: the limit; None without one.
    """

    bandwidth: Bandwidth | None = None

    def open_file(self, location: Location) -> LocalFile:
        return _GentleFile(location, self.bandwidth)

    def read(self, path: str) -> bytes:
        with self.open_file(Location(self, path)) as file:
            return file.read_at(0, file.size_bytes)

    def read_listed(self, path: str) -> bytes:
        return self.read(path)


def gently(location: Location, bandwidth: Bandwidth | None = None) -> Location:
    """The same place, to be read beside somebody else; itself if it is not on a local disk."""
    if location.storage != LOCAL_DISK:
        return location
    return Location(GentleDisk(bandwidth), location.path)


class _GentleFile(LocalFile):
    """A file that is given back to the disk as it is read."""

    def __init__(self, location: Location, bandwidth: Bandwidth | None) -> None:
        super().__init__(location)
        self._bandwidth = bandwidth
        self._was_read = False
        # Asked once, before the first read: the system reads ahead.
        self._in_memory = None
        if hasattr(os, "posix_fadvise"):
            self._in_memory = pages_in_memory(self._descriptor, self.size_bytes)

    def read_into(self, buffer: memoryview, position: int) -> int:
        self._was_read = True
        filled = 0
        piece_bytes = len(buffer) if self._bandwidth is None else _PIECE_BYTES
        while filled < len(buffer):
            piece = buffer[filled : filled + piece_bytes]
            if self._bandwidth is not None:
                self._bandwidth.wait_for(len(piece))
            count = super().read_into(piece, position + filled)
            filled += count
            if count < len(piece):
                break
        self._give_back(position, position + filled)
        return filled

    def read_at(self, position: int, size: int) -> bytes:
        buffer = bytearray(size)
        with memoryview(buffer) as view:
            filled = self.read_into(view, position)
        return bytes(buffer[:filled])

    def close(self) -> None:
        if self._was_read and self._descriptor >= 0:
            self._give_back(0, self.size_bytes)  # also what was read ahead
        super().close()

    def _give_back(self, start: int, end: int) -> None:
        """Give back the pages of a range that were not in memory before; not the last if cut."""
        if self._in_memory is None:
            return
        first = start // PAGE_BYTES
        after = -(-end // PAGE_BYTES) if end >= self.size_bytes else end // PAGE_BYTES
        for run in _NOT_IN_MEMORY.finditer(self._in_memory, first, max(first, after)):
            size_bytes = (run.end() - run.start()) * PAGE_BYTES
            os.posix_fadvise(
                self._descriptor, run.start() * PAGE_BYTES, size_bytes, os.POSIX_FADV_DONTNEED
            )
