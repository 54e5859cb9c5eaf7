"""Which parts of a log have to be read again to be rewritten.

What was scanned is known in :class:`Extents` of about two megabytes. Where none of their records
stays, they are passed over: of a log that was not compacted for long, that is most of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from kdump.broker.cleaner.cleaned_transactions import TxnBatches
from kdump.broker.cleaner.record_retention import RetentionRules
from kdump.scan.batches import Column, Flags
from kdump.size_groups import size_groups
from kdump.storage.location import Location

LARGEST_PART_BYTES: Final = 16 << 20
"""How much is rewritten at once, about: what comes of it is held in memory."""


@dataclass(frozen=True, slots=True)
class Amount:
    """How much there is of a log, or of a part of it."""

    size_bytes: int = 0
    batches: int = 0
    records: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            self.size_bytes + other.size_bytes,
            self.batches + other.batches,
            self.records + other.records,
        )


@dataclass(frozen=True, slots=True)
class Extents:
    """Runs of whole batches that lie one behind the other in a log; each column is of shape (n,).

    Attributes:
        start: byte at which the first batch begins.
        end: byte behind the last one.
        first_offset: base offset of the first batch; a message that wraps others has its own.
        last_offset: of the last batch.
        batches: how many.
        records: how many.
    """

    start: Column
    end: Column
    first_offset: Column
    last_offset: Column
    batches: Column
    records: Column

    @classmethod
    def of_rows(cls, rows: Iterable[tuple[int, ...]]) -> Extents:
        """From a row of values for each."""
        table = np.array(list(rows), np.int64).reshape(-1, len(cls.__slots__))
        return cls(*table.T)

    @classmethod
    def joined(cls, parts: Iterable[Extents]) -> Extents:
        """Those of neighbouring parts as one."""
        columns = [[getattr(part, name) for name in cls.__slots__] for part in parts]
        if not columns:
            return cls.of_rows([])
        return cls(*(np.concatenate(column) for column in zip(*columns, strict=True)))

    @property
    def count(self) -> int:
        return len(self.start)

    def amount(self, rows: Flags | slice = slice(None)) -> Amount:
        """How much is in them, or in some of them."""
        size_bytes = self.end[rows] - self.start[rows]
        return Amount(
            int(size_bytes.sum()), int(self.batches[rows].sum()), int(self.records[rows].sum())
        )


@dataclass(frozen=True, slots=True)
class PartToRewrite:
    """A part of a segment that is read again.

    Attributes:
        path: the log.
        ranges: from which byte to which; whole batches, in order.
        discardable: where the batches begin that transactions need no more; rising.
        keeps_legacy_tombstones: whether the segment is too young for tombstones of magic 0 and 1
            to go.
        rules: what decides about the batches.
    """

    path: Location
    ranges: tuple[tuple[int, int], ...]
    discardable: Column
    keeps_legacy_tombstones: bool
    rules: RetentionRules

    @property
    def size_bytes(self) -> int:
        """How much there is to be read."""
        return sum(end - start for start, end in self.ranges)


@dataclass(frozen=True, slots=True)
class ScannedSegment:
    """What is known of one segment.

    Attributes:
        path: its log.
        base_offset: from the name of that.
        extents: all of its batches.
        txn_batches: those that transactions are about.
        discardable: which of these transactions need no more.
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
        """One above its last offset; the base offset where it holds no batch."""
        last = self.extents.last_offset
        return int(last[-1]) + 1 if len(last) else self.base_offset


def parts_to_rewrite(
    segment: ScannedSegment, rules: RetentionRules
) -> tuple[list[PartToRewrite], Amount]:
    """What of ``segment`` has to be read again, and how much is passed over."""
    extents = segment.extents
    # A message that wraps others begins where the batch before it ends, and no later.
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
                rules=replace(rules, live=rules.live.between(begin, end)),
            )
        )
    return parts, extents.amount(is_gone)


def _are_gone(segment: ScannedSegment, first_offset: Column, rules: RetentionRules) -> Flags:
    """Which extents hold no batch that could stay, by what is known without reading them."""
    extents = segment.extents
    live, _ = rules.live.count_between(first_offset, extents.last_offset + 1)
    last_data = np.array(
        sorted(
            last.last_data_offset
            for last in rules.last_records.values()
            if last.last_data_offset is not None
        ),
        np.int64,
    )
    has_last = np.searchsorted(last_data, first_offset) < np.searchsorted(
        last_data, extents.last_offset, side="right"
    )
    position = segment.txn_batches.position
    has_txn = np.searchsorted(position, extents.start) < np.searchsorted(position, extents.end)
    is_end = extents.last_offset + 1 == rules.end_offset
    gone: Flags = (live == 0) & ~has_last & ~has_txn & ~is_end
    return gone


def _ranges(extents: Extents, rows: list[int]) -> Iterator[tuple[int, int]]:
    """From which byte to which, neighbours as one."""
    start = end = int(extents.start[rows[0]])
    for row in rows:
        if int(extents.start[row]) != end:
            yield start, end
            start = int(extents.start[row])
        end = int(extents.end[row])
    yield start, end
