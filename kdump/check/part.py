"""The result of checking a part of a segment: findings, and what later parts need.

A segment may be checked in parts, by several workers. What can only be judged with the parts before
it (whether offsets and leader epochs continue, which transaction a marker ends) is kept small, and
is judged when the parts of a partition are joined in order.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

from kdump.check.findings import Finding
from kdump.formats.record_batch import NO_TIMESTAMP

if TYPE_CHECKING:
    from kdump.check.log_map import ByteRun
    from kdump.scan.batch_statistics import BatchStatistics
    from kdump.state.transactions.producer_events import ProducerEvent


class Level(enum.IntEnum):
    """How thorough a check is."""

    QUICK = 0
    """Check batch headers and indexes."""
    DEFAULT = 1
    """Also check checksums and control records."""
    DEEP = 2
    """Also decode every record."""


class ByteAccount(Struct, frozen=True):
    """Number of bytes of each kind; their sum is the size of the files.

    Attributes:
        padding_bytes: zeroes that were allocated and not yet written.
        damaged_bytes: damaged bytes in files of a broker.
        foreign_bytes: bytes of files that no broker wrote.
    """

    valid_bytes: int = 0
    padding_bytes: int = 0
    damaged_bytes: int = 0
    foreign_bytes: int = 0

    @property
    def total_bytes(self) -> int:
        return self.valid_bytes + self.padding_bytes + self.damaged_bytes + self.foreign_bytes

    def __add__(self, other: ByteAccount) -> ByteAccount:
        return ByteAccount(
            self.valid_bytes + other.valid_bytes,
            self.padding_bytes + other.padding_bytes,
            self.damaged_bytes + other.damaged_bytes,
            self.foreign_bytes + other.foreign_bytes,
        )


class EpochRun(NamedTuple):
    """Consecutive batches of one leader epoch: the first of them."""

    epoch: int
    base_offset: int
    position: int


def total_records(*counts: int | None) -> int | None:
    """Add counts of records; None if one of them is unknown."""
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


class PartStatistics(Struct, frozen=True):
    """What a picture of a part of a segment's log needs.

    Attributes:
        batches: the statistics of its valid batches.
        runs: which of its bytes are valid.
    """

    batches: BatchStatistics
    runs: tuple[ByteRun, ...]


class SegmentPart(Struct, frozen=True):
    """The result for a part of a segment's log and of its offset and time indexes.

    Attributes:
        start: byte at which the part begins.
        end: byte at which the part ends and the next one begins: the first batch at or after the
            requested end.
        findings: in the order of the file.
        account: of the log's bytes from ``start`` to ``end``.
        index_account: of the offset and time index; in the first part of a segment.
        batches: number of valid batches.
        records: number of records in them; None if there are compressed message sets (magic 0 and
            1), which only a deep check opens, or batches that were not decoded.
        not_decoded: number of batches with records over the limit; only a deep check counts them.
        first_offset: base offset of the first valid batch; None if there is none.
        first_position: byte at which that batch begins.
        last_offset: of the last valid batch.
        max_timestamp: the maximum timestamp, -1 if no batch has one.
        max_timestamp_offset: last offset of the batch that has it.
        epochs: runs of leader epochs.
        events: of producers; those of each producer are in the order of the log.
        is_thinned: whether batches have fewer records than offsets, as compaction leaves them.
        starts_legacy: whether the first valid batch has magic 0 or 1, and so may have offsets
            below its base offset.
        has_legacy: whether any valid batch has magic 0 or 1.
        has_untimed: whether any valid batch has magic 0, which has no timestamps.
        has_transactions: whether any valid batch is part of a transaction, or ends one.
        ends_damaged: whether there is damage after the last valid batch.
        starts_damaged: whether there is damage before the first valid batch.
        is_unread: whether its bytes cannot be read: what they are is not known.
        is_left_out: whether nobody asked for it, or there was no time to read it.
        last_indexed_ms: timestamp of the last entry of the time index, -1 if it has none; None if
            it was not looked at as a whole.
        statistics: of the part; None if they were not asked for.
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
    is_unread: bool = False
    is_left_out: bool = False
    ends_damaged: bool = False
    last_indexed_ms: int | None = None
    statistics: PartStatistics | None = None


def left_out_part(path: str) -> SegmentPart:
    """Stands for a segment that is not read: nothing is known of what is before and after it."""
    return SegmentPart(
        path,
        0,
        0,
        starts_damaged=True,
        ends_damaged=True,
        is_unread=True,
        is_left_out=True,
    )
