"""A source that keeps the block that was read last: around damage, bytes are read several times.

The window in which damage is found, the search for the next batch, the check of that batch and the
window that begins with it all have bytes in common. Where every third batch is damaged, they would
be read from the file up to 25 times.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kdump.formats.checksum import crc32c
from kdump.formats.message_set import update_crc
from kdump.scan.range_checksums import CRC32_POLYNOMIAL, CRC32C_POLYNOMIAL, RangeChecksums
from kdump.scan.source import data_ranges, read_at
from kdump.storage.byte_source import ByteSource

_BLOCK_BYTES: Final = 128 << 10
_LARGEST_READ_BYTES: Final = 64 << 10
_LEAST_READ_BYTES: Final = 1 << 10
"""Larger reads go to the source itself, and smaller ones if they are outside of the block: those
look for the end of what may be a batch, which can be anywhere."""
_KEPT_BYTES: Final = 16 << 10
"""How much of the block before a new one stays: a search looks ahead at what may be a batch."""
_FREE_BYTES: Final = 16 << 20
_CHECKS_OF_EACH_BYTE: Final = 4
"""Checksums of more bytes than this are computed from those of the whole file."""
_CHUNK_BYTES: Final = 1 << 20


class LastBlock:
    """The bytes of another source up to ``end``, which keeps the last block of them."""

    def __init__(self, source: ByteSource, end: int) -> None:
        self._source = source
        self._end = end
        self._start = 0
        self._block = memoryview(b"")
        self._checked_bytes = 0
        self._checksums: dict[int, RangeChecksums] = {}

    @property
    def size_bytes(self) -> int:
        """As that of the source."""
        return self._source.size_bytes

    def read_into(self, buffer: memoryview, position: int) -> int:
        """As :meth:`~kdump.storage.byte_source.ByteSource.read_into`."""
        known = self._from_block(buffer, position)
        if known == len(buffer):
            return known
        is_small = len(buffer) < _LEAST_READ_BYTES and not self._has(position)
        is_large = len(buffer) > _LARGEST_READ_BYTES or position + len(buffer) > self._end
        if is_small or is_large:
            return known + self._source.read_into(buffer[known:], position + known)
        self._read_block(position)
        return self._from_block(buffer, position)

    def crc32c(self, start: int, end: int) -> int:
        """The CRC-32C of a range; see :meth:`_checksum`."""
        return self._checksum(start, end, CRC32C_POLYNOMIAL)

    def crc32(self, start: int, end: int) -> int:
        """The CRC-32 of a range; see :meth:`_checksum`."""
        return self._checksum(start, end, CRC32_POLYNOMIAL)

    def _checksum(self, start: int, end: int, polynomial: int) -> int:
        """Read a range for its checksum, unless so many were read that it would not be linear.

        Raises:
            OSError: reading fails.
        """
        self._checked_bytes += end - start
        if self._checked_bytes <= _FREE_BYTES + _CHECKS_OF_EACH_BYTE * start:
            checksum = 0
            update = crc32c if polynomial == CRC32C_POLYNOMIAL else update_crc
            for at in range(start, end, _CHUNK_BYTES):
                checksum = update(read_at(self, at, min(_CHUNK_BYTES, end - at)), checksum)
            return checksum
        if polynomial not in self._checksums:
            self._checksums[polynomial] = RangeChecksums(self._source, polynomial)
        return self._checksums[polynomial].of(start, end)

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """As :meth:`~kdump.storage.byte_source.SparseSource.data_ranges`."""
        return data_ranges(self._source, start, end)

    def _from_block(self, buffer: memoryview, position: int) -> int:
        """Fill the first part of ``buffer``, as far as the block has it; returns its size."""
        if not self._has(position):
            return 0
        part = self._block[position - self._start :][: len(buffer)]
        buffer[: len(part)] = part
        return len(part)

    def _has(self, position: int) -> bool:
        return self._start <= position <= self._start + len(self._block)

    def _read_block(self, position: int) -> None:
        """Read the block around ``position``, but what is known of it."""
        start, known = position, b""
        if self._has(position):
            start = max(self._start, position - _KEPT_BYTES)
            known = bytes(self._block[start - self._start :])
        block = memoryview(bytearray(min(_BLOCK_BYTES, self._end - start)))
        block[: len(known)] = known
        filled = self._source.read_into(block[len(known) :], start + len(known))
        self._start, self._block = start, block[: len(known) + filled]
