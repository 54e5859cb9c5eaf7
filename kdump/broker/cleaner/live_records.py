"""The records of a log that stay because no later record has their key.

A log can have many millions of them, and whoever compacts it holds them all. They are compressed
bitmaps: two bytes for each record at most, and one bit for each offset where most records stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
from msgspec import Struct
from pyroaring import BitMap

from kdump.scan.batches import Column, Flags, is_among

_CHUNK_OFFSETS: Final = 1 << 32
"""How many offsets a bitmap holds."""


class OffsetSet(Struct, frozen=True):
    """Offsets of a log, which are not negative.

    Attributes:
        bitmaps: the lower 32 bits of the offsets, by the upper ones; none is empty.
    """

    bitmaps: Mapping[int, BitMap]

    @classmethod
    def of(cls, offset: Column) -> OffsetSet:
        """Make a set of ``offset``: int64 of shape (n,), rising."""
        if not len(offset):
            return cls({})
        chunk, first = np.unique(offset >> 32, return_index=True)
        lower = np.split(offset.astype(np.uint32), first[1:])
        return cls(
            {
                number: BitMap(memoryview(own))
                for number, own in zip(chunk.tolist(), lower, strict=True)
            }
        )

    @classmethod
    def joined(cls, parts: Iterable[OffsetSet]) -> OffsetSet:
        """The offsets that are in any of ``parts``, which are taken one after another."""
        found: dict[int, BitMap] = {}
        for part in parts:
            for chunk, bitmap in part.bitmaps.items():
                own = found.setdefault(chunk, BitMap())
                own |= bitmap  # in place
        return cls(found)

    def between(self, start: int, end: int) -> OffsetSet:
        """Only those at or above ``start`` and below ``end``."""
        found = {}
        for chunk, bitmap in self.bitmaps.items():
            low, high = _range_in(chunk, start, end)
            own = bitmap & BitMap(range(low, high))
            if own:
                found[chunk] = own
        return OffsetSet(found)

    def count_between(self, start: int, end: int) -> int:
        """How many there are at or above ``start`` and below ``end``."""
        return sum(
            bitmap.range_cardinality(*_range_in(chunk, start, end))
            for chunk, bitmap in self.bitmaps.items()
        )

    def column(self) -> Column:
        """All of them: int64 of shape (n,), rising."""
        found = [
            np.asarray(self.bitmaps[chunk].to_array()).astype(np.int64) + chunk * _CHUNK_OFFSETS
            for chunk in sorted(self.bitmaps)
        ]
        return np.concatenate([np.empty(0, np.int64), *found])


def _range_in(chunk: int, start: int, end: int) -> tuple[int, int]:
    """The range from ``start`` to ``end`` as numbers of the bitmap ``chunk``; it can be empty."""
    base = chunk * _CHUNK_OFFSETS
    low = min(max(start - base, 0), _CHUNK_OFFSETS)
    return low, max(low, min(end - base, _CHUNK_OFFSETS))


class LiveRecords(Struct, frozen=True):
    """The records with a key that no later record replaces.

    Attributes:
        offsets: of all of them.
        tombstones: of those without a value.
    """

    offsets: OffsetSet
    tombstones: OffsetSet

    @classmethod
    def of(cls, offset: Column, is_tombstone: Flags) -> LiveRecords:
        """The offsets ``offset``, rising; ``is_tombstone`` says which are those of tombstones."""
        return cls(OffsetSet.of(offset), OffsetSet.of(offset[is_tombstone]))

    @classmethod
    def joined(cls, parts: Iterable[LiveRecords]) -> LiveRecords:
        """Merge those of all ``parts``, whose offsets may overlap."""
        found = list(parts)
        return cls(
            OffsetSet.joined(each.offsets for each in found),
            OffsetSet.joined(each.tombstones for each in found),
        )

    def between(self, start: int, end: int) -> LiveRecords:
        """Only those at or above ``start`` and below ``end``."""
        return LiveRecords(self.offsets.between(start, end), self.tombstones.between(start, end))

    def columns_between(self, start: int, end: int) -> LiveColumns:
        """The same as columns, for a range of few records."""
        own = self.between(start, end)
        return LiveColumns(own.offsets.column(), own.tombstones.column())


class LiveColumns(Struct, frozen=True):
    """The live records of a small part of a log.

    Attributes:
        offset: of all of them; int64 of shape (n,), rising.
        tombstone: offset of those without a value; int64 of shape (t,), rising.
    """

    offset: Column
    tombstone: Column

    def count_between(self, start: Column, end: Column) -> tuple[Column, Column]:
        """Numbers of records and of tombstones from each ``start`` to its ``end``, exclusive."""
        return _count_between(self.offset, start, end), _count_between(self.tombstone, start, end)

    def has(self, offset: Column) -> Flags:
        """Whether each ``offset`` is that of a live record."""
        return is_among(offset, self.offset)


def _count_between(column: Column, start: Column, end: Column) -> Column:
    count: Column = np.searchsorted(column, end) - np.searchsorted(column, start)
    return count
