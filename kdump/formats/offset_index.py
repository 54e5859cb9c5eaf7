"""The offset index (``.index``): where in a segment's log to start reading for an offset.

A sequence of entries, each the last offset of a batch, counted from the segment's base offset, and
the byte at which that batch begins. While its segment is the active one, the file has the largest
size of an index, and zeroes follow the entries.

Follows ``org.apache.kafka.storage.internals.log.OffsetIndex`` and ``AbstractIndex``.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from kdump.formats.errors import FormatError
from kdump.formats.index_layouts import OFFSET_ENTRY_FIELDS
from kdump.formats.index_search import NO_SLOT, Column, largest_lower_bounds
from kdump.formats.kafka_versions import KAFKA_4_4, ChangedRule

ENTRY_DTYPE: Final[np.dtype[np.void]] = np.dtype(
    [(name, f">{code}") for name, code in OFFSET_ENTRY_FIELDS]
)
ENTRY_BYTES: Final = ENTRY_DTYPE.itemsize

METADATA_INDEXES_IN_FULL: Final = ChangedRule(
    KAFKA_4_4,
    "",
    "a controller that stops leaves both indexes of the active segment of the metadata log with the"
    " size that it allocated; before, it trimmed them",
)
_STEP_BYTES: Final = 64 << 10


class OffsetIndex(Struct, frozen=True, eq=False):
    """The entries of an offset index, padding included, as columns of shape (n,) and type int64.

    Attributes:
        base_offset: first offset of the segment.
        offset: of each entry, absolute.
        position: of each entry, in bytes from the start of the segment's log.
        trailing_bytes: number of bytes after the last complete entry.

    """

    base_offset: int
    offset: Column
    position: Column
    trailing_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        return len(self.offset) * ENTRY_BYTES + self.trailing_bytes


def decode(data: bytes | bytearray | memoryview, base_offset: int) -> OffsetIndex:
    """Read an index; any bytes can be read as one.

    Args:
        data: the whole file.
        base_offset: of the segment (signed, 64 bits), from the file's name.

    """
    count, trailing_bytes = divmod(len(data), ENTRY_BYTES)
    entries = np.frombuffer(data, ENTRY_DTYPE, count)
    offset = entries["relative_offset"] + np.int64(base_offset)
    position = entries["position"].astype(np.int64)
    return OffsetIndex(base_offset, offset, position, trailing_bytes)


def encode(index: OffsetIndex) -> bytes:
    """Give the bytes of the entries (not of a partial one after them).

    Raises:
        FormatError: when an offset is further than 32 bits from the base offset, or a position
            does not fit 32 bits.

    """
    entries = np.zeros(len(index.offset), ENTRY_DTYPE)
    entries["relative_offset"] = relative_offsets(index.offset, index.base_offset, ENTRY_BYTES)
    entries["position"] = index.position
    _refuse_first(entries["position"] != index.position, index.position, "a position of 32 bits")
    return entries.tobytes()


def relative_offsets(offset: Column, base_offset: int, entry_bytes: int) -> Column:
    """Count offsets from the base offset, as the indexes store them.

    Raises:
        FormatError: at the first entry where the outcome does not fit 32 bits.

    """
    relative = offset - np.int64(base_offset)
    _refuse_first(
        relative != relative.astype(np.int32),
        offset,
        f"an offset within 32 bits of {base_offset}",
        entry_bytes,
    )
    return relative


def _refuse_first(
    is_wrong: npt.NDArray[np.bool_], column: Column, expected: str, entry_bytes: int = ENTRY_BYTES
) -> None:
    if is_wrong.any():
        slot = int(is_wrong.argmax())
        raise FormatError(
            "index entry cannot be stored",
            position=slot * entry_bytes,
            expected=expected,
            found=int(column[slot]),
        )


def count_before_restart(offset: Column, base_offset: int) -> int:
    """Count the entries before the first one, except slot 0, that has the base offset itself.

    There ``DumpLogSegments`` assumes that padding begins.
    """
    restarts = offset[1:] == base_offset
    return 1 + int(restarts.argmax()) if restarts.any() else len(offset)


def count_padding(data: bytes | bytearray | memoryview, entry_bytes: int) -> int:
    """Count the entries at the end of an index that are all zeroes.

    An index with a single zero entry has none: its segment may begin at time 0.
    """
    count = len(data) // entry_bytes
    whole = np.frombuffer(data, np.uint8, count * entry_bytes)
    end = len(whole)
    # From the end: most indexes have no padding, and are done at once.
    while end and not whole[max(0, end - _STEP_BYTES) : end].any():
        end = max(0, end - _STEP_BYTES)
    written = np.flatnonzero(whole[max(0, end - _STEP_BYTES) : end])
    if len(written):
        end = max(0, end - _STEP_BYTES) + int(written[-1]) + 1
    return 0 if count == 1 else count + (-end // entry_bytes)


def sanity_problem(index: OffsetIndex) -> FormatError | None:
    """Give what ``OffsetIndex.sanityCheck`` fails on, as a value, or None if it passes."""
    if len(index.offset) and index.offset[-1] < index.base_offset:
        return FormatError(
            "last entry of the offset index is below the base offset",
            position=(len(index.offset) - 1) * ENTRY_BYTES,
            expected=f"{index.base_offset} or more",
            found=int(index.offset[-1]),
        )
    return partial_entry(index.size_bytes, ENTRY_BYTES)


def partial_entry(size_bytes: int, entry_bytes: int) -> FormatError | None:
    """Give the partial entry at the end of an index of that size, as a value, or None."""
    trailing_bytes = size_bytes % entry_bytes
    if not trailing_bytes:
        return None
    return FormatError(
        "index ends in a partial entry",
        position=size_bytes - trailing_bytes,
        expected=f"entries of {entry_bytes} bytes",
        found=f"{trailing_bytes} bytes more",
    )


def lookup(index: OffsetIndex, target_offset: int) -> tuple[int, int]:
    """Give offset and position of the largest entry at or below ``target_offset``.

    Where there is none, the base offset and position 0 (``OffsetIndex.lookup``).
    """
    offset, position = lookup_all(index, np.array([target_offset], np.int64))
    return int(offset[0]), int(position[0])


def lookup_all(index: OffsetIndex, target_offsets: Column) -> tuple[Column, Column]:
    """Do :func:`lookup` for many offsets; gives a column of offsets and one of positions."""
    slots = largest_lower_bounds(index.offset, target_offsets, ENTRY_BYTES)
    if not len(index.offset):
        return np.full(len(slots), index.base_offset), np.zeros(len(slots), np.int64)
    has_none = slots == NO_SLOT
    offset = np.where(has_none, index.base_offset, index.offset[slots])
    position = np.where(has_none, 0, index.position[slots])
    return offset, position
