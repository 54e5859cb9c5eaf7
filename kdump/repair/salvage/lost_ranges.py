"""The byte ranges that salvage removes from logs, and the offsets lost with them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kdump.broker.loader.load_report import Cause, QuarantinedRange
from kdump.broker.loader.valid_batches import DamagedRange
from kdump.formats.record_batch import BatchHeader
from kdump.repair.salvage.kept_logs import REASONS, KeptLog
from kdump.scan.batches import Column


def lost_ranges(logs: Sequence[KeptLog]) -> Iterator[tuple[int, QuarantinedRange]]:
    """Find the ranges to remove, in the order of each log, with the log's base offset."""
    bases = sorted(log.base_offset for log in logs)
    following = dict(itertools.zip_longest(bases, bases[1:]))
    kept_offsets = _KeptOffsets.of_logs(logs)
    for log in logs:
        found = [_of_batch(log, row, kept_offsets) for row in np.flatnonzero(~log.keep).tolist()]
        found.extend(
            _of_damage(log, damaged, following[log.base_offset]) for damaged in log.batches.damaged
        )
        found.sort(key=lambda lost: lost.start)
        yield from ((log.base_offset, lost) for lost in _merged(found))


def _merged(found: Sequence[QuarantinedRange]) -> Iterator[QuarantinedRange]:
    """Merge adjacent batches that go for the same cause."""
    for _, touching in itertools.groupby(_numbered(found), key=lambda each: each[0]):
        pieces = [lost for _, lost in touching]
        first, last = pieces[0], pieces[-1]
        if first is last:
            yield first
            continue
        offsets = [
            offset
            for each in pieces
            for offset in (each.first_offset, each.last_offset)
            if offset is not None
        ]
        records = [each.records for each in pieces]
        known = [count for count in records if count is not None]
        yield replace(
            first,
            end=last.end,
            reason=REASONS.get(first.cause, first.reason),
            first_offset=min(offsets, default=None),
            last_offset=max(offsets, default=None),
            records=sum(known) if len(known) == len(records) else None,
        )


def _numbered(found: Sequence[QuarantinedRange]) -> Iterator[tuple[int, QuarantinedRange]]:
    """Number the range of each piece."""
    number, before = 0, None
    for lost in found:
        is_same = before is not None and before.cause is lost.cause and before.end == lost.start
        number += not (is_same and lost.cause in REASONS)
        before = lost
        yield number, lost


def _of_batch(log: KeptLog, row: int, kept_offsets: _KeptOffsets) -> QuarantinedRange:
    """The range of a valid batch that is dropped."""
    batches = log.batches
    start = log.content.start + int(batches.position[row])
    first, last = int(batches.first_offset[row]), int(batches.last_offset[row])
    count = int(batches.records_count[row])
    cause, reason = log.reasons.get(row) or _why_not(log, row, kept_offsets)
    # If another log was copied over the partition's own batches, those are lost.
    is_gap = cause is Cause.FOREIGN and kept_offsets.surround(first, last)
    is_lost = is_gap or cause not in (Cause.DUPLICATE, Cause.FOREIGN)
    return QuarantinedRange(
        name=log.content.name,
        start=start,
        end=start + int(batches.size_bytes[row]),
        file=None,
        cause=cause,
        reason=reason,
        first_offset=first if is_lost else None,
        last_offset=last if is_lost else None,
        records=0 if not is_lost else count if count >= 0 and not is_gap else None,
    )


class _KeptOffsets(Struct, frozen=True):
    """The offsets of the batches that stay.

    Attributes:
        first: of each batch, increasing.
        last: of each batch.
        crc: of each batch, as stored.
        reached: the largest offset of each batch and those before it.
    """

    first: Column
    last: Column
    crc: Column
    reached: Column

    @classmethod
    def of_logs(cls, logs: Sequence[KeptLog]) -> Self:
        empty = np.empty(0, np.int64)
        first = np.concatenate([empty, *(log.batches.first_offset[log.keep] for log in logs)])
        last = np.concatenate([empty, *(log.batches.last_offset[log.keep] for log in logs)])
        crc = np.concatenate([empty, *(log.batches.crc[log.keep] for log in logs)])
        order = np.argsort(first)
        first, last, crc = first[order], last[order], crc[order]
        return cls(first, last, crc, np.maximum.accumulate(last))

    def have(self, first: int, last: int, crc: int) -> bool:
        """Whether one of them has these offsets and this checksum."""
        start = np.searchsorted(self.first, first, "left")
        end = np.searchsorted(self.first, first, "right")
        return bool(((self.last[start:end] == last) & (self.crc[start:end] == crc)).any())

    def surround(self, first: int, last: int) -> bool:
        """Whether none has an offset from ``first`` to ``last``, and some have later offsets."""
        begun = int(np.searchsorted(self.first, last, side="right"))
        is_free = not begun or int(self.reached[begun - 1]) < first
        return is_free and begun < self.first.size


def _why_not(log: KeptLog, row: int, kept_offsets: _KeptOffsets) -> tuple[Cause, str]:
    """Why a valid batch is dropped without asking the loader."""
    batches = log.batches
    first, last = int(batches.first_offset[row]), int(batches.last_offset[row])
    if kept_offsets.have(first, last, int(batches.crc[row])):
        return Cause.DUPLICATE, f"offsets {first} to {last} occur twice"
    return (
        Cause.OUT_OF_ORDER,
        f"offsets {first} to {last} do not fit between those around them",
    )


def _of_damage(log: KeptLog, damaged: DamagedRange, next_base: int | None) -> QuarantinedRange:
    """The range of damaged bytes; the offsets between the batches around it are lost."""
    rows = log.rows
    at = int(np.searchsorted(log.batches.position[rows], damaged.start))
    first = int(log.batches.last_offset[rows[at - 1]]) + 1 if at else log.base_offset
    last = None if next_base is None else next_base - 1
    if at < len(rows):
        last = int(log.batches.first_offset[rows[at]]) - 1
    first_lost, last_lost, records = _lost_offsets(first, last, damaged.batch)
    return QuarantinedRange(
        name=log.content.name,
        start=log.content.start + damaged.start,
        end=log.content.start + damaged.end,
        file=None,
        cause=Cause.DAMAGED,
        reason=damaged.reason,
        first_offset=first_lost,
        last_offset=last_lost,
        records=records,
    )


def _lost_offsets(
    first: int, last: int | None, claimed: BatchHeader | None
) -> tuple[int | None, int | None, int | None]:
    """First and last missing offset, and the number of records if known.

    A damaged header is believed if it claims exactly what is missing.
    """
    if last is not None and last < first:
        return None, None, 0
    if claimed is not None and claimed.base_offset == first and claimed.records_count >= 0:
        is_open = last is None and claimed.last_offset >= first
        if is_open or claimed.last_offset == last:
            return first, claimed.last_offset, claimed.records_count
    return first, last, None
