"""The one way in which the bytes of a file are read.

Files are read, never mapped: a disk that fails under a mapped page kills the process, while a
failed read is an :class:`OSError` that can be reported with its file and place.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self, runtime_checkable

from kdump.storage.regular_files import open_for_reading

_STEP_BYTES: Final = 1 << 20
"""How much is held at a time while looking for the end of data."""
_ZEROES: Final = bytes(1 << 16)


class ByteSource(Protocol):
    """Random access to bytes that do not change while they are read."""

    @property
    def size_bytes(self) -> int:
        """How many bytes there are."""
        ...

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill ``buffer`` from ``position`` on; gives how many bytes there were."""
        ...


@runtime_checkable
class SparseSource(Protocol):
    """A source that knows which of its bytes were never written."""

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The ranges from ``start`` to ``end`` outside of holes, in order."""
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

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """As :meth:`SparseSource.data_ranges`; one range where the file system does not say."""
        position = start
        while position < end:
            try:
                data = os.lseek(self._descriptor, position, os.SEEK_DATA)
                hole = os.lseek(self._descriptor, data, os.SEEK_HOLE)
            except OSError as failure:
                if failure.errno == errno.ENXIO:
                    return  # a hole up to the end of the file, or beyond it
                data, hole = position, end
            if data >= end:
                return
            yield data, min(hole, end)
            position = hole

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


def data_ranges(source: ByteSource, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The ranges from ``start`` to ``end`` that can hold another byte than zero, in order.

    What lies between them was never written, of which there may be a terabyte.
    """
    if isinstance(source, SparseSource):
        yield from source.data_ranges(start, end)
    elif start < end:
        yield start, end


def next_data(source: ByteSource, position: int) -> int:
    """Where the first byte is, from ``position`` on, that can be another than zero.

    The size where nothing but a hole follows.
    """
    first = next(data_ranges(source, position, source.size_bytes), None)
    return source.size_bytes if first is None else first[0]


def is_zero(source: ByteSource, start: int, end: int) -> bool:
    """Whether all bytes from ``start`` to ``end`` are zero, written or not.

    Raises:
        OSError: when reading fails.
    """
    for begin, stop in data_ranges(source, start, end):
        for at in range(begin, stop, _STEP_BYTES):
            data = read_at(source, at, min(_STEP_BYTES, stop - at))
            if data.count(0) != len(data):
                return False
    return True


def end_of_data(source: ByteSource, start: int, end: int) -> int:
    """Where, between ``start`` and ``end``, nothing but zeroes follows, written or not.

    Raises:
        OSError: when reading fails.
    """
    for begin, stop in reversed(list(data_ranges(source, start, end))):
        while stop > begin:
            at = max(begin, stop - _STEP_BYTES)
            data = without_padding(read_at(source, at, stop - at))
            if data:
                return at + len(data)
            stop = at
    return start


def without_padding(data: bytes) -> bytes:
    """``data`` without the zeroes at its end: a block at a time, as ``rstrip`` takes long."""
    end = len(data)
    while end:
        start = max(0, end - len(_ZEROES))
        block = data[start:end]
        if block != _ZEROES[: end - start]:
            return data[: start + len(block.rstrip(b"\0"))]
        end = start
    return b""


def read_at(source: ByteSource, position: int, size: int) -> bytes:
    """Up to ``size`` bytes from ``position`` on; fewer only where the source ends."""
    size = max(0, min(size, source.size_bytes - position))
    buffer = bytearray(size)
    view = memoryview(buffer)
    filled = source.read_into(view, position)
    return bytes(view[:filled])
