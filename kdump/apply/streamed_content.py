"""Write what a stream produces, and check that it is on the disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kdump.apply.directory_changes import ByteStream
from kdump.apply.pinned_directory import opened
from kdump.formats.checksum import crc32c

_CHUNK_BYTES: Final = 1 << 20


class StreamedContent:
    """The pieces of a stream, as the content of a new file. It can be iterated once."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._size_bytes = 0
        self._checksum = 0

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._stream.pieces():
            self._size_bytes += len(piece)
            self._checksum = crc32c(piece, self._checksum)
            yield piece
        if self._size_bytes != self._stream.size_bytes:
            what = f"the copy has {self._size_bytes} bytes, not {self._stream.size_bytes}"
            raise OSError(errno.EIO, what)

    def require_written(self, path: Path) -> None:
        """Read the file back after it was synced: its original may be removed soon.

        Raises:
            OSError: it does not have the content of the stream.
        """
        checksum = size_bytes = 0
        with opened(path) as descriptor:
            if hasattr(os, "posix_fadvise"):
                # Not from memory, but from the disk.
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            while data := os.read(descriptor, _CHUNK_BYTES):
                size_bytes += len(data)
                checksum = crc32c(data, checksum)
        if (size_bytes, checksum) != (self._size_bytes, self._checksum):
            raise OSError(errno.EIO, "the disk returns other data than was written", str(path))
