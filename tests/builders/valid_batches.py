"""Find valid batches by trying every byte, without kdump's own decoders."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping

import crc32c

_START = struct.Struct(">qi")
_UINT32 = struct.Struct(">I")
_INT32 = struct.Struct(">i")


def valid_batches(log: bytes) -> list[bytes]:
    """Return every batch with a valid checksum at any position, but none inside another."""
    found = []
    position = 0
    while position + 17 <= len(log):
        size = _size_of_valid(log, position)
        if size:
            found.append(log[position : position + size])
        position += size or 1
    return found


def valid_batches_of(files: Mapping[str, bytes]) -> list[bytes]:
    """Return the valid batches of all logs in use of a partition."""
    logs = [name for name in sorted(files) if name.endswith(".log") and name[:-4].isdigit()]
    return [batch for name in logs if len(name) == 24 for batch in valid_batches(files[name])]


def offsets_of(batch: bytes) -> tuple[int, int]:
    """Return the first and last offset from the header."""
    (base_offset, _) = _START.unpack_from(batch)
    delta = _INT32.unpack_from(batch, 23)[0] if batch[16] == 2 else 0
    return min(base_offset, base_offset + delta), max(base_offset, base_offset + delta)


def _size_of_valid(log: bytes, position: int) -> int:
    base_offset, length = _START.unpack_from(log, position)
    end = position + 12 + length
    if base_offset < 0 or length < 14 or end > len(log):
        return 0
    if log[position + 16] == 2:
        is_valid = length >= 49 and _UINT32.unpack_from(log, position + 17)[0] == crc32c.crc32c(
            log[position + 21 : end]
        )
    else:
        crc = _UINT32.unpack_from(log, position + 12)[0]
        is_valid = log[position + 16] < 2 and crc == zlib.crc32(log[position + 16 : end])
    return 12 + length if is_valid else 0
