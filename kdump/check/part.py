"""What is known of a part of a segment once it was checked: findings, and what crosses parts.

A segment may be checked in parts, by several workers. What can only be judged with what came
before (whether offsets and leader epochs go on, which transaction a marker ends) is kept small,
and is judged when the parts of a partition are put behind each other, in order.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple

from kdump.check.findings import Finding
from kdump.formats.record_batch import NO_TIMESTAMP
from kdump.state.producer_events import ProducerEvent


class Level(enum.IntEnum):
    """How far a check goes."""

    QUICK = 0
    """Headers of batches, and indexes."""
    DEFAULT = 1
    """Checksums too, and control records."""
    DEEP = 2
    """Every record is decoded."""


@dataclass(frozen=True, slots=True)
class ByteAccount:
    """What the bytes of files are: each is one of these, and their sum is the files' size.

    Attributes:
        sound_bytes: what is as it should be.
        padding_bytes: zeroes that were set aside and not yet written.
        damaged_bytes: what Kafka wrote, and is not as it should be.
        foreign_bytes: what is in files that are not a broker's.
    """

    sound_bytes: int = 0
    padding_bytes: int = 0
    damaged_bytes: int = 0
    foreign_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        return self.sound_bytes + self.padding_bytes + self.damaged_bytes + self.foreign_bytes

    def __add__(self, other: ByteAccount) -> ByteAccount:
        return ByteAccount(
            self.sound_bytes + other.sound_bytes,
            self.padding_bytes + other.padding_bytes,
            self.damaged_bytes + other.damaged_bytes,
            self.foreign_bytes + other.foreign_bytes,
        )


class EpochRun(NamedTuple):
    """Batches of one leader epoch behind each other, by the first of them."""

    epoch: int
    base_offset: int
    position: int


def total_records(*counts: int | None) -> int | None:
    """The sum of counts of records; None where one of them is not known."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """A part of a segment's log, and of its offset and time indexes, checked.

    Attributes:
        path: of the log.
        start: byte at which the part begins.
        end: byte at which it ended, and where the next one has to begin: the first batch that
            begins at or behind where it was to end.
        findings: in the order of the file.
        account: of the log's bytes from ``start`` to ``end``.
        index_account: of the offset and time index; in the first part of a segment.
        batches: how many are sound.
        records: how many are in them; None where there are compressed message sets (magic 0 and
            1), which only a deep check opens, or batches that were not decoded.
        not_decoded: how many batches have records over the limit; a deep check counts them.
        first_offset: base offset of the first sound batch; None where there is none.
        first_position: byte at which that begins.
        last_offset: of the last sound batch.
        max_offset: the greatest of all.
        max_timestamp: the greatest, -1 where no batch has one.
        max_timestamp_offset: last offset of the batch that has it.
        epochs: runs of leader epochs.
        events: of producers, those of each in the order of the log.
        is_thinned: whether batches hold fewer records than offsets, as compaction leaves them.
        starts_legacy: whether the first sound batch is of magic 0 or 1, which may hold offsets
            below its own.
        has_legacy: whether any sound batch is.
        has_untimed: whether any sound batch is of magic 0, which has no timestamps.
        has_transactions: whether any sound batch is part of a transaction, or ends one.
        ends_damaged: whether damage lies between the last sound batch and the end.
        starts_damaged: whether damage lies before the first sound batch.
    """

    path: str
    start: int
    end: int
    findings: tuple[Finding, ...] = ()
    account: ByteAccount = field(default_factory=ByteAccount)
    index_account: ByteAccount = field(default_factory=ByteAccount)
    batches: int = 0
    records: int | None = 0
    not_decoded: int = 0
    first_offset: int | None = None
    first_position: int | None = None
    last_offset: int | None = None
    max_offset: int | None = None
    max_timestamp: int = NO_TIMESTAMP
    max_timestamp_offset: int = -1
    epochs: tuple[EpochRun, ...] = ()
    events: tuple[ProducerEvent, ...] = ()
    is_thinned: bool = False
    starts_legacy: bool = False
    has_legacy: bool = False
    has_untimed: bool = False
    has_transactions: bool = False
    starts_damaged: bool = False
    ends_damaged: bool = False
