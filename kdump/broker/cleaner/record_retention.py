"""Decide which records and batches compaction keeps.

Follows the ``RecordFilter`` of ``Cleaner.cleanInto`` and ``MemoryRecords.filterTo``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kdump.broker.cleaner.live_records import LiveColumns, LiveRecords
from kdump.formats import record_batch
from kdump.formats.kafka_versions import KAFKA_4_4, ChangedRule
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.scan.batches import BatchColumns, Column, Flags
from kdump.scan.control_batches import is_control

NO_HORIZON = -1


class Fate(enum.IntEnum):
    """What compaction does with a batch."""

    DROPPED = 0
    COPIED = 1
    """It stays unchanged."""
    EMPTIED = 2
    """Only its header stays, for its offsets and its producer."""
    REBUILT = 3
    """Some of its records stay, or it gets a delete horizon."""


class LastRecords(Struct, frozen=True):
    """The last record of each active producer of a log (``LastRecord``).

    Follows ``UnifiedLog.lastRecordsOfActiveProducers``.

    Attributes:
        producer_id: the producers, rising; int64 of shape (n,), as all columns.
        last_data_offset: last offset of the last data batch of each; -1 if only a marker is left.
        epoch: the latest epoch of each.
    """

    producer_id: Column
    last_data_offset: Column
    epoch: Column

    @classmethod
    def of(cls, producers: Iterable[ProducerEntry]) -> LastRecords:
        rows = sorted(
            (each.producer_id, max(each.last_offset, -1), each.epoch) for each in producers
        )
        return cls(*np.array(rows, np.int64).reshape(-1, 3).T)

    def between(self, start: int, end: int) -> LastRecords:
        """Only those that batches at or above ``start`` and below ``end`` can have."""
        offset = self.last_data_offset
        rows = (offset < 0) | ((offset >= start) & (offset < end))
        return LastRecords(self.producer_id[rows], offset[rows], self.epoch[rows])

    def of_batches(self, batches: BatchColumns) -> Flags:
        """Which batches end with the last record of their producer."""
        if not len(self.producer_id):
            return np.zeros(batches.count, np.bool_)
        at = np.searchsorted(self.producer_id, batches.producer_id)
        at = np.minimum(at, len(self.producer_id) - 1)
        offset = self.last_data_offset[at]
        is_last: Flags = np.where(
            offset < 0,
            is_control(batches) & (batches.producer_epoch == self.epoch[at]),
            batches.last_offset == offset,
        )
        is_last &= (self.producer_id[at] == batches.producer_id) & (batches.producer_id >= 0)
        return is_last


EMPTY_AT_HIGH_WATERMARK = ChangedRule(
    KAFKA_4_4,
    "KAFKA-20452",
    "a batch without records stays where the next offset is the high watermark; before, where the"
    " round of the cleaner ends",
)


class RetentionRules(Struct, frozen=True):
    """The rules for batches and records of a whole log.

    Attributes:
        live: the records that no later record replaces.
        last_records: of the active producers.
        kept_end: the offset before which a batch stays although none of its records does, so that
            the log's end is not lost (:data:`EMPTY_AT_HIGH_WATERMARK`).
        now_ms: the clock.
        delete_retention_ms: how long tombstones and markers stay once nothing else needs them;
            None if unknown: then no batch gets a delete horizon.
    """

    live: LiveRecords
    last_records: LastRecords
    kept_end: int
    now_ms: int
    delete_retention_ms: int | None

    def between(self, start: int, end: int) -> RetentionRules:
        """The same for batches at or above ``start`` and below ``end``."""
        return replace(
            self,
            live=self.live.between(start, end),
            last_records=self.last_records.between(start, end),
        )

    @property
    def new_horizon_ms(self) -> int:
        """Horizon for batches without one; :data:`NO_HORIZON` if they get none."""
        if self.delete_retention_ms is None:
            return NO_HORIZON
        return self.now_ms + self.delete_retention_ms

    def keeps_empty(self, batches: BatchColumns) -> Flags:
        """Which batches stay although none of their records does."""
        is_end: Flags = batches.last_offset + 1 == self.kept_end
        return is_end | self.last_records.of_batches(batches)


class Fates(Struct, frozen=True):
    """The fates of n batches of magic 2; each column is of shape (n,).

    Attributes:
        fate: values of :class:`Fate`.
        records_count: how many records stay.
        horizon_ms: delete horizon of rebuilt batches; :data:`NO_HORIZON` for none.
        drops_tombstones: whether tombstones are dropped: the delete horizon is over.
        tombstones_dropped: how many tombstones are dropped.
    """

    fate: Column
    records_count: Column
    horizon_ms: Column
    drops_tombstones: Flags
    tombstones_dropped: Column


def fates_of(
    batches: BatchColumns, discardable: Flags, rules: RetentionRules, live: LiveColumns
) -> Fates:
    """Decide the fates of ``batches``.

    Args:
        batches: the batches, all of magic 2.
        discardable: which of them no transaction needs any more.
        rules: the other rules.
        live: the live records of the batches.
    """
    control = is_control(batches)
    has_horizon = (batches.attributes & record_batch.DELETE_HORIZON_FLAG) != 0
    is_over = has_horizon & (batches.base_timestamp <= rules.now_ms)
    is_discarded = discardable & (~control | is_over)
    count, tombstones = live.count_between(batches.base_offset, batches.last_offset + 1)
    kept = np.where(control, batches.records_count, count - np.where(is_over, tombstones, 0))
    kept = np.where(is_discarded, 0, kept)
    needs_horizon = np.where(control, discardable, (tombstones > 0) & ~is_over) & ~has_horizon
    needs_horizon &= rules.new_horizon_ms != NO_HORIZON
    fate = np.where(
        kept > 0,
        np.where(
            (kept == batches.records_count) & ~needs_horizon, int(Fate.COPIED), int(Fate.REBUILT)
        ),
        np.where(rules.keeps_empty(batches), int(Fate.EMPTIED), int(Fate.DROPPED)),
    )
    horizon = np.where(has_horizon, batches.base_timestamp, NO_HORIZON)
    return Fates(
        fate=fate,
        records_count=kept,
        horizon_ms=np.where(needs_horizon, rules.new_horizon_ms, horizon),
        drops_tombstones=is_over & ~control,
        tombstones_dropped=np.where(is_over & ~control & ~is_discarded, tombstones, 0),
    )
