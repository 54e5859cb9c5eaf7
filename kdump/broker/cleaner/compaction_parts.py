"""Find the parts of a log that must be read again to be rewritten.

A scan yields :class:`Extents` of about two megabytes. Extents without a record that stays are
skipped: most of a log that was not compacted for a long time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
from msgspec import Struct

from kdump.broker.cleaner.cleaned_transactions import TxnBatches
from kdump.broker.cleaner.record_retention import RetentionRules
from kdump.scan.batches import Column, Flags
from kdump.size_groups import size_groups
from kdump.storage.location import Location

LARGEST_PART_BYTES: Final = 16 << 20
"""Approximate size of a part. The rewritten part is held in memory."""


class Amount(Struct, frozen=True):
    """Amount of data in a log, or in a part of one."""

    size_bytes: int = 0
    batches: int = 0
    records: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.size_bytes + other.size_bytes,
            self.batches + other.batches,
            self.records + other.records,
        )


class Extents(Struct, frozen=True):
    """Ranges of consecutive whole batches of a log; each column is of shape (n,).

    Attributes:
        start: position of the first batch.
        end: end of the last batch, exclusive.
        first_offset: base offset of the first batch; for a compressed message set, that of the
            wrapper.
        last_offset: of the last batch.
        batches: number of batches.
        records: number of records.
    """

    start: Column
    end: Column
    first_offset: Column
    last_offset: Column
    batches: Column
    records: Column

    @classmethod
    def of_rows(cls, rows: Iterable[tuple[int, ...]]) -> Extents:
        """Make extents from rows of values."""
        table = np.array(list(rows), np.int64).reshape(-1, len(cls.__struct_fields__))
        return cls(*table.T)

    @classmethod
    def joined(cls, parts: Iterable[Extents]) -> Extents:
        """Concatenate those of consecutive parts."""
        columns = [[getattr(part, name) for name in cls.__struct_fields__] for part in parts]
        if not columns:
            return cls.of_rows([])
        return cls(*(np.concatenate(column) for column in zip(*columns, strict=True)))

    @property
    def count(self) -> int:
        return len(self.start)

    def amount(self, rows: Flags | slice = slice(None)) -> Amount:
        """Amount of data in all extents, or in some of them."""
        size_bytes = self.end[rows] - self.start[rows]
        return Amount(
            int(size_bytes.sum()), int(self.batches[rows].sum()), int(self.records[rows].sum())
        )


class PartToRewrite(Struct, frozen=True):
    """A part of a segment that must be read again.

    Attributes:
        path: the log.
        ranges: byte ranges of whole batches, in order.
        discardable: positions of the batches that no transaction needs any more, rising.
        keeps_legacy_tombstones: whether the segment is too young to drop tombstones of magic 0
            and 1.
        rules: which records and batches stay.
    """

    path: Location
    ranges: tuple[tuple[int, int], ...]
    discardable: Column
    keeps_legacy_tombstones: bool
    rules: RetentionRules

    @property
    def size_bytes(self) -> int:
        """How many bytes are read."""
        return sum(end - start for start, end in self.ranges)


class ScannedSegment(Struct, frozen=True):
    """One segment after its scan.

    Attributes:
        base_offset: from the name of the log.
        extents: all of its batches.
        txn_batches: its transactional and control batches.
        discardable: which of those no transaction needs any more.
        keeps_legacy_tombstones: as :attr:`PartToRewrite.keeps_legacy_tombstones`.
    """

    path: Location
    base_offset: int
    extents: Extents
    txn_batches: TxnBatches
    discardable: Flags
    keeps_legacy_tombstones: bool

    @property
    def end_offset(self) -> int:
        """One above its last offset; the base offset if it has no batch."""
        last = self.extents.last_offset
        return int(last[-1]) + 1 if len(last) else self.base_offset


def parts_to_rewrite(
    segment: ScannedSegment, rules: RetentionRules
) -> tuple[list[PartToRewrite], Amount]:
    """The parts of ``segment`` that must be read again, and the amount that is skipped."""
    extents = segment.extents
    # The first offset of a compressed message set is at least one above the batch before it.
    first_offset = np.concatenate(([segment.base_offset], extents.last_offset[:-1] + 1))
    first_offset = first_offset[: extents.count]
    is_gone = _are_gone(segment, first_offset, rules)
    discardable = segment.txn_batches.position[segment.discardable]
    parts = []
    size_bytes = (extents.end - extents.start).tolist()
    kept = np.flatnonzero(~is_gone).tolist()
    for rows in size_groups(kept, size_bytes.__getitem__, LARGEST_PART_BYTES):
        begin, end = int(first_offset[rows[0]]), int(extents.last_offset[rows[-1]]) + 1
        inside = (discardable >= extents.start[rows[0]]) & (discardable < extents.end[rows[-1]])
        parts.append(
            PartToRewrite(
                path=segment.path,
                ranges=tuple(_ranges(extents, rows)),
                discardable=discardable[inside],
                keeps_legacy_tombstones=segment.keeps_legacy_tombstones,
                rules=rules.between(begin, end),
            )
        )
    return parts, extents.amount(is_gone)


def _are_gone(segment: ScannedSegment, first_offset: Column, rules: RetentionRules) -> Flags:
    """Which extents cannot contain a batch that stays, as far as the scan shows."""
    extents = segment.extents
    live = np.array(
        [
            rules.live.offsets.count_between(first, last + 1)
            for first, last in zip(first_offset.tolist(), extents.last_offset.tolist(), strict=True)
        ],
        np.int64,
    )
    last_data = np.sort(rules.last_records.last_data_offset)
    has_last = np.searchsorted(last_data, first_offset) < np.searchsorted(
        last_data, extents.last_offset, side="right"
    )
    position = segment.txn_batches.position
    has_txn = np.searchsorted(position, extents.start) < np.searchsorted(position, extents.end)
    is_end = extents.last_offset + 1 == rules.kept_end
    gone: Flags = (live == 0) & ~has_last & ~has_txn & ~is_end
    return gone


def _ranges(extents: Extents, rows: list[int]) -> Iterator[tuple[int, int]]:
    """Byte ranges of the extents ``rows``; adjacent ones are joined."""
    start = end = int(extents.start[rows[0]])
    for row in rows:
        if int(extents.start[row]) != end:
            yield start, end
            start = int(extents.start[row])
        end = int(extents.end[row])
    yield start, end
