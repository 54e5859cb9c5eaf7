"""Decide which records and batches compaction keeps.

Follows the ``RecordFilter`` of ``Cleaner.cleanInto`` and ``MemoryRecords.filterTo``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kdump.broker.cleaner.cleanable_log import LastRecord
from kdump.broker.cleaner.live_records import LiveColumns, LiveRecords
from kdump.formats import record_batch
from kdump.scan.batches import BatchColumns, Column, Flags
from kdump.state.transactions.markers import is_control

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


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """The rules for batches and records of a whole log.

    Attributes:
        live: the records that no later record replaces.
        last_records: of the active producers, by producer id.
        end_offset: of the round, exclusive.
        now_ms: the clock.
        delete_retention_ms: how long tombstones and markers stay once nothing else needs them;
            None if unknown: then no batch gets a delete horizon.
    """

    live: LiveRecords
    last_records: Mapping[int, LastRecord]
    end_offset: int
    now_ms: int
    delete_retention_ms: int | None

    @property
    def new_horizon_ms(self) -> int:
        """Horizon for batches without one; :data:`NO_HORIZON` if they get none."""
        if self.delete_retention_ms is None:
            return NO_HORIZON
        return self.now_ms + self.delete_retention_ms

    def keeps_empty(self, batches: BatchColumns) -> Flags:
        """Which batches stay although none of their records does."""
        is_last: Flags = batches.last_offset + 1 == self.end_offset
        known = np.array(sorted(self.last_records), np.int64)
        if not len(known):
            return is_last
        of_known = np.flatnonzero(np.isin(batches.producer_id, known) & (batches.producer_id >= 0))
        control = is_control(batches)
        for row in of_known.tolist():
            last = self.last_records[int(batches.producer_id[row])]
            if last.last_data_offset is None:
                is_last[row] |= control[row] and batches.producer_epoch[row] == last.epoch
            else:
                is_last[row] |= batches.last_offset[row] == last.last_data_offset
        return is_last


@dataclass(frozen=True, slots=True)
class Fates:
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
