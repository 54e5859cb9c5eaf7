"""Decode varints at many positions at once.

Positions that leave the data end at :func:`beyond`, in the padding after it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kdump.formats.cursor import MAX_VARINT_BYTES, MAX_VARLONG_BYTES
from kdump.scan.batches import PADDING_BYTES, Bytes, Column

_FEW: Final = 4
"""If fewer than one in this many values has more bytes, only those are picked out."""


def beyond(data: Bytes) -> int:
    """Return a position after the data, in the padding, where every byte is 0.

    Every position that leaves the data becomes this one, so it never equals a valid position.
    """
    return len(data) - PADDING_BYTES + 1


def advance(data: Bytes, position: Column, size: Column) -> Column:
    """Return the positions after ``size`` bytes; a negative size is a null and takes none."""
    return np.minimum(position + np.maximum(size, 0), beyond(data))


def varint(data: Bytes, position: Column) -> tuple[Column, Column]:
    """Return the 32-bit zig-zag integer at each ``position``, and the position after it."""
    raw, following = _unsigned(data, position, MAX_VARINT_BYTES)
    raw &= 0xFFFF_FFFF
    return (raw >> 1) ^ -(raw & 1), following


def varlong(data: Bytes, position: Column) -> tuple[Column, Column]:
    """Return the 64-bit zig-zag integer at each ``position``, and the position after it."""
    raw, following = _unsigned(data, position, MAX_VARLONG_BYTES)
    return ((raw >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(raw & 1), following


def unsigned_varint(data: Bytes, position: Column) -> tuple[Column, Column]:
    """Return the unsigned 32-bit integer at each ``position``, and the position after it."""
    raw, following = _unsigned(data, position, MAX_VARINT_BYTES)
    return raw & 0xFFFF_FFFF, following


def _unsigned(data: Bytes, position: Column, most_bytes: int) -> tuple[Column, Column]:
    byte = data[position]
    is_more = byte >= 0x80
    raw = (byte & 0x7F).astype(np.int64)
    following = position + 1
    shift = 7
    if np.count_nonzero(is_more) > len(position) // _FEW:
        # Reading the second byte of all is cheaper than picking those that have one.
        byte = data[following]
        raw |= ((byte & 0x7F) * is_more).astype(np.int64) << shift
        following += is_more
        is_more &= byte >= 0x80
        shift += 7
    more = np.flatnonzero(is_more)
    while more.size and shift < 7 * most_bytes:
        at = following[more]
        byte = data[at]
        raw[more] |= (byte & 0x7F).astype(np.int64) << shift
        following[more] = at + 1
        more = more[byte >= 0x80]
        shift += 7
    following[more] = beyond(data)
    return raw, np.minimum(following, beyond(data), out=following)
