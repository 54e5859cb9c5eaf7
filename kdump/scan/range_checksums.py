"""Checksums of any ranges of a file, in time that grows with the file and not with the ranges.

A header can claim any length, so a file can have a header every few bytes that each claim half of
it. The checksum of a range follows from those of two prefixes of the file: it is that of the longer
one, less that of the shorter one moved by the length of the range. Moving is a multiplication by a
power of x modulo the polynomial.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable
from typing import Final

from kdump.formats.checksum import crc32c
from kdump.formats.message_set import update_crc
from kdump.scan.source import read_at, shortened
from kdump.storage.byte_source import ByteSource

CRC32C_POLYNOMIAL: Final = 0x82F63B78
CRC32_POLYNOMIAL: Final = 0xEDB88320
"""Both with the lowest power in the highest bit."""

_STEP_BYTES: Final = 1 << 8
_READ_BYTES: Final = 1 << 20
_BYTES_OF_LENGTH: Final = 48

_Tables = tuple[tuple[int, ...], ...]


class RangeChecksums:
    """The checksums of ranges of one file; each byte is read once, and a few around the ends.

    Args:
        polynomial: of CRC-32C or CRC-32.
    """

    def __init__(self, source: ByteSource, polynomial: int) -> None:
        self._source = source
        self._polynomial = polynomial
        self._update: Callable[..., int] = crc32c if polynomial == CRC32C_POLYNOMIAL else update_crc
        self._prefixes = array("I", [0])

    def of(self, start: int, end: int) -> int:
        """Return the checksum of the bytes from ``start`` to ``end``.

        Raises:
            OSError: reading fails.
        """
        return self._prefix(end) ^ moved(self._prefix(start), end - start, self._polynomial)

    def _prefix(self, end: int) -> int:
        number, rest = divmod(end, _STEP_BYTES)
        while len(self._prefixes) <= number:
            data = memoryview(
                read_at(self._source, (len(self._prefixes) - 1) * _STEP_BYTES, _READ_BYTES)
            )
            whole = len(data) // _STEP_BYTES
            if not whole:
                raise shortened(end)
            for at in range(0, whole * _STEP_BYTES, _STEP_BYTES):
                self._prefixes.append(self._update(data[at : at + _STEP_BYTES], self._prefixes[-1]))
        if not rest:
            return self._prefixes[number]
        data = memoryview(read_at(self._source, number * _STEP_BYTES, rest))
        return self._update(data, self._prefixes[number])


def moved(checksum: int, by_bytes: int, polynomial: int) -> int:
    """Return what a checksum contributes once ``by_bytes`` bytes follow."""
    for power in range(_BYTES_OF_LENGTH):
        if by_bytes >> power & 1:
            low, second, third, high = _tables(power, polynomial)
            checksum = (
                low[checksum & 0xFF]
                ^ second[checksum >> 8 & 0xFF]
                ^ third[checksum >> 16 & 0xFF]
                ^ high[checksum >> 24]
            )
    return checksum


@functools.cache
def _tables(power: int, polynomial: int) -> _Tables:
    """What each value of each byte of a checksum becomes once 2 ** ``power`` bytes follow."""
    bits = [_bit_moved(bit, power, polynomial) for bit in range(32)]
    tables = []
    for byte in range(4):
        found = [0] * 256
        for value in range(1, 256):
            lowest = value & -value
            found[value] = found[value ^ lowest] ^ bits[8 * byte + lowest.bit_length() - 1]
        tables.append(tuple(found))
    return tuple(tables)


def _bit_moved(bit: int, power: int, polynomial: int) -> int:
    checksum = 1 << bit
    if power:
        half = 1 << power - 1
        return moved(moved(checksum, half, polynomial), half, polynomial)
    for _ in range(8):
        checksum = checksum >> 1 ^ (polynomial if checksum & 1 else 0)
    return checksum
