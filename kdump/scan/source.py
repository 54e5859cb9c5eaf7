"""Pieces, holes and zeroes of a source of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kdump.storage.byte_source import ByteSource, SparseSource
from kdump.storage.local_disk import LocalFile

_STEP_BYTES: Final = 1 << 18
"""How much is held in memory while searching for the end of data. New memory for a megabyte costs
more time than reading it does."""
_ZEROES: Final = bytes(1 << 16)


class ShortenedFileError(OSError):
    """A file became shorter while it was read, as where a follower truncates its log."""


def shortened(position: int) -> ShortenedFileError:
    """The error of a file that ends at a byte before those that are to be read."""
    return ShortenedFileError(f"the file became shorter while it was read (at byte {position})")


def data_ranges(source: ByteSource, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges between ``start`` and ``end`` that may hold anything but zeroes, in order.

    The holes between them were never written, and can be a terabyte long.
    """
    if isinstance(source, SparseSource):
        yield from source.data_ranges(start, end)
    elif start < end:
        yield start, end


def next_data(source: ByteSource, position: int) -> int:
    """Return the first position from ``position`` on that may hold anything but zeroes.

    Returns the size of the source if only a hole follows.
    """
    first = next(data_ranges(source, position, source.size_bytes), None)
    return source.size_bytes if first is None else first[0]


def is_zero(source: ByteSource, start: int, end: int) -> bool:
    """Whether all bytes from ``start`` to ``end`` are zero, written or not.

    Raises:
        OSError: reading fails.
    """
    for begin, stop in data_ranges(source, start, end):
        for at in range(begin, stop, _STEP_BYTES):
            data = read_at(source, at, min(_STEP_BYTES, stop - at))
            if without_padding(data):
                return False
    return True


def end_of_data(source: ByteSource, start: int, end: int) -> int:
    """Return the position between ``start`` and ``end`` after which there are only zeroes.

    Raises:
        OSError: reading fails.
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
    """Return ``data`` without the zeroes at its end; empty if it is all zeroes.

    Block by block, because ``rstrip`` and ``count`` are slow: they look at byte after byte.
    """
    end = len(data)
    while end:
        start = max(0, end - len(_ZEROES))
        block = data[start:end]
        if block != _ZEROES[: end - start]:
            return data[: start + len(block.rstrip(b"\0"))]
        end = start
    return b""


def read_at(source: ByteSource, position: int, size: int) -> bytes:
    """Read up to ``size`` bytes from ``position`` on; fewer only where the source ends."""
    size = max(0, min(size, source.size_bytes - position))
    if isinstance(source, LocalFile):
        return source.read_at(position, size)
    buffer = bytearray(size)
    view = memoryview(buffer)
    filled = source.read_into(view, position)
    return bytes(view[:filled])
