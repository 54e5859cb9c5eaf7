"""The time index (``.timeindex``): the offset after which a segment has later timestamps.

A sequence of entries, each a timestamp and the last offset of its batch, counted from the segment's
base offset: no record at or before that offset is later. While its segment is the active one,
zeroes follow the entries, as in the offset index.

Follows ``org.apache.kafka.storage.internals.log.TimeIndex`` and ``AbstractIndex``.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec import Struct

from kdump.formats.errors import FormatError
from kdump.formats.index_layouts import TIME_ENTRY_FIELDS
from kdump.formats.index_search import Column, largest_lower_bounds
from kdump.formats.offset_index import partial_entry, relative_offsets

ENTRY_DTYPE: Final[np.dtype[np.void]] = np.dtype(
    [(name, f">{code}") for name, code in TIME_ENTRY_FIELDS]
)
ENTRY_BYTES: Final = ENTRY_DTYPE.itemsize

NO_TIMESTAMP: Final = -1


class TimeIndex(Struct, frozen=True, eq=False):
    """The entries of a time index, padding included, as columns of shape (n,) and type int64.

    Attributes:
        base_offset: first offset of the segment.
        timestamp: of each entry, in milliseconds since 1970.
        offset: of each entry, absolute.
        trailing_bytes: number of bytes after the last complete entry.

    """

    base_offset: int
    timestamp: Column
    offset: Column
    trailing_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        return len(self.offset) * ENTRY_BYTES + self.trailing_bytes


def decode(data: bytes | bytearray | memoryview, base_offset: int) -> TimeIndex:
    """Read an index; any bytes can be read as one.

    Args:
        data: the whole file.
        base_offset: of the segment (signed, 64 bits), from the file's name.

    """
    count, trailing_bytes = divmod(len(data), ENTRY_BYTES)
    entries = np.frombuffer(data, ENTRY_DTYPE, count)
    timestamp = entries["timestamp"].astype(np.int64)
    offset = entries["relative_offset"] + np.int64(base_offset)
    return TimeIndex(base_offset, timestamp, offset, trailing_bytes)


def encode(index: TimeIndex) -> bytes:
    """Give the bytes of the entries (not of a partial one after them).

    Raises:
        FormatError: when an offset is further than 32 bits from the base offset.

    """
    entries = np.zeros(len(index.offset), ENTRY_DTYPE)
    entries["timestamp"] = index.timestamp
    entries["relative_offset"] = relative_offsets(index.offset, index.base_offset, ENTRY_BYTES)
    return entries.tobytes()


def sanity_problem(index: TimeIndex) -> FormatError | None:
    """Give what ``TimeIndex.sanityCheck`` fails on, as a value, or None if it passes."""
    if len(index.offset):
        last_entry = (len(index.offset) - 1) * ENTRY_BYTES
        if index.timestamp[-1] < index.timestamp[0]:
            return FormatError(
                "last entry of the time index is earlier than the first",
                position=last_entry,
                expected=f"timestamp {index.timestamp[0]} or later",
                found=int(index.timestamp[-1]),
            )
        if index.offset[-1] < index.base_offset:
            return FormatError(
                "last entry of the time index is below the base offset",
                position=last_entry,
                expected=f"{index.base_offset} or more",
                found=int(index.offset[-1]),
            )
    return partial_entry(index.size_bytes, ENTRY_BYTES)


def lookup(index: TimeIndex, target_timestamp: int) -> tuple[int, int]:
    """Give timestamp and offset of the latest entry at or before ``target_timestamp``.

    Where there is none, -1 and the base offset (``TimeIndex.lookup``).
    """
    target = np.array([target_timestamp], np.int64)
    slot = int(largest_lower_bounds(index.timestamp, target, ENTRY_BYTES)[0])
    if slot < 0:
        return NO_TIMESTAMP, index.base_offset
    return int(index.timestamp[slot]), int(index.offset[slot])
