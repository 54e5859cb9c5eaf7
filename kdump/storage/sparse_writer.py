"""Write a file with holes: what the source never wrote, and blocks of zeroes, take no space."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import IO, Final

from kdump.errors import reason_of
from kdump.storage.byte_source import ByteSource
from kdump.storage.location import StoredFile
from kdump.storage.unfinished_file import UnfinishedFile

_PIECE_BYTES: Final = 1 << 20
_BLOCK_BYTES: Final = 64 << 10
_ZEROES: Final = bytes(_BLOCK_BYTES)
_SYNCED_ALONE_BYTES: Final = 1 << 20


class WriteFailedError(Exception):
    """The file that is written cannot be written, as opposed to what is read for it."""

    def __init__(self, failure: OSError) -> None:
        super().__init__(reason_of(failure))
        self.failure = failure


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Raise a :class:`WriteFailedError` where the file that is written cannot be written."""
    try:
        yield
    except OSError as failure:
        raise WriteFailedError(failure) from failure


class SparseWriter:
    """Writes the bytes of a file in order; blocks of zeroes become holes.

    Attributes:
        position: up to where the file is written.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self.position = 0
        self._stream = stream

    def write(self, data: memoryview) -> None:
        """Append bytes.

        Raises:
            WriteFailedError: the disk is full, or fails.
        """
        with writing():
            for start in range(0, len(data), _BLOCK_BYTES):
                block = data[start : start + _BLOCK_BYTES]
                # The first byte is looked at alone, because few blocks begin with a zero.
                if block[0] or block != _ZEROES[: len(block)]:
                    self._stream.seek(self.position)
                    self._stream.write(block)
                self.position += len(block)

    def append(self, source: ByteSource, end: int) -> None:
        """Append the bytes of ``source`` from the current position up to ``end``.

        Raises:
            EOFError: the source ends before.
            OSError: it cannot be read.
            WriteFailedError: the disk is full, or fails.
        """
        start = self.position
        if start == end:
            return
        # Most files are small, and fresh memory costs more than reading them.
        buffer = memoryview(bytearray(min(_PIECE_BYTES, end - start)))
        ranges = (
            source.data_ranges(start, end)
            if isinstance(source, StoredFile)
            else iter([(start, end)])
        )
        for begin, stop in ranges:
            self.position = begin
            while self.position < stop:
                piece = buffer[: min(len(buffer), stop - self.position)]
                filled = source.read_into(piece, self.position)
                self.write(piece[:filled])
                if filled < len(piece):
                    raise EOFError(f"ends at byte {self.position}, not {end}")
        self.position = end

    def finish(self, size_bytes: int) -> None:
        """Set the size, for a hole at the end.

        Raises:
            WriteFailedError: the disk is full, or fails.
        """
        with writing():
            self._stream.truncate(size_bytes)


def close_written(file: UnfinishedFile) -> None:
    """Close a file; what is large is synced here, while other workers go on.

    Raises:
        WriteFailedError: it cannot be written.
    """
    with writing():
        if file.stream.tell() >= _SYNCED_ALONE_BYTES:
            file.finish()
        else:
            file.close()
