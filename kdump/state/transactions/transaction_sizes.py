"""How much of a log open transactions take up, and how much they pin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from kdump.log.log_search import SegmentSearch, Trust
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.log.valid_windows import Damage, OnDamage, segment_part, valid_windows
from kdump.scan.batches import BatchColumns, Flags
from kdump.scan.control_batches import is_control
from kdump.state.transactions.producers import OpenTxn


class TransactionSize(Struct, frozen=True):
    """The size of an open transaction in one partition.

    Attributes:
        batches: of its producer, from its first offset to the last batch; None if damage may hide
            some of them.
        records: in these batches, likewise.
        size_bytes: of these batches, likewise.
        pinned_bytes: of the log, from the batch at its first offset to the end: what consumers of
            committed records cannot read, and the log cleaner cannot compact; None if that batch
            is not there.
        start_timestamp: base timestamp of the first batch; None if that batch is not there.
    """

    batches: int | None
    records: int | None
    size_bytes: int | None
    pinned_bytes: int | None
    start_timestamp: int | None


def transaction_sizes(
    partition: Partition, txns: Sequence[OpenTxn], on_damage: OnDamage
) -> dict[int, TransactionSize]:
    """Measure open transactions, by producer id; at most one for each producer.

    Reads the log from the first offset of the first transaction to the last batch of the last one.

    Raises:
        OSError: a segment cannot be read.
    """
    if not txns or not partition.segments:
        return {}
    measured = _Measured(txns)
    has_damage = False
    for found in _parts(partition, measured.least_offset, measured.most_offset):
        if isinstance(found, Damage):
            has_damage = True
            on_damage(found)
        else:
            measured.add(found.batches, found.bytes_before)
    start = partition.segments[0].base_offset
    return measured.sizes(start, _end_position(partition), has_damage=has_damage)


class _Part(NamedTuple):
    """Valid batches, and how many bytes of the log are before the segment that they are in."""

    batches: BatchColumns
    bytes_before: int


class _Measured:
    """Sums over the batches of each transaction, in the order of producer ids."""

    def __init__(self, txns: Sequence[OpenTxn]) -> None:
        ordered = sorted(txns, key=lambda txn: txn.producer_id)
        self._ids = np.array([txn.producer_id for txn in ordered], np.int64)
        self._first = np.array([txn.first_offset for txn in ordered], np.int64)
        self._last = np.array([txn.last_offset for txn in ordered], np.int64)
        self._sums = np.zeros((3, len(ordered)), np.int64)
        self._start: dict[int, tuple[int, int]] = {}

    @property
    def least_offset(self) -> int:
        return int(self._first.min())

    @property
    def most_offset(self) -> int:
        return int(self._last.max())

    def add(self, batches: BatchColumns, bytes_before: int) -> None:
        """Count the batches of the transactions."""
        at = np.minimum(np.searchsorted(self._ids, batches.producer_id), len(self._ids) - 1)
        is_own: Flags = (self._ids[at] == batches.producer_id) & ~is_control(batches)
        is_own &= (batches.base_offset >= self._first[at]) & (batches.base_offset <= self._last[at])
        rows = np.flatnonzero(is_own)
        if not rows.size:
            return
        at = at[rows]
        ones = np.ones(len(rows), np.int64)
        for sums, values in zip(
            self._sums, (ones, batches.records_count[rows], batches.size_bytes[rows]), strict=True
        ):
            np.add.at(sums, at, values)
        is_first = batches.base_offset[rows] == self._first[at]
        for each, row in zip(at[is_first].tolist(), rows[is_first].tolist(), strict=True):
            position = bytes_before + int(batches.position[row])
            self._start[each] = position, int(batches.base_timestamp[row])

    def sizes(
        self, log_start_offset: int, end_position: int, *, has_damage: bool
    ) -> dict[int, TransactionSize]:
        """The sizes by producer id, given where the whole log begins and ends."""
        found = {}
        for at, (producer_id, sums) in enumerate(
            zip(self._ids.tolist(), self._sums.T.tolist(), strict=True)
        ):
            position, timestamp = self._start.get(at, (None, None))
            if position is None and not has_damage and self._first[at] < log_start_offset:
                position = 0  # the first batches are gone, and all of the log is pinned
            pinned_bytes = None if position is None else max(0, end_position - position)
            batches, records, size_bytes = (None, None, None) if has_damage else sums
            found[producer_id] = TransactionSize(
                batches, records, size_bytes, pinned_bytes, timestamp
            )
        return found


def _parts(partition: Partition, least_offset: int, most_offset: int) -> Iterator[_Part | Damage]:
    """The batches of the log from one offset to another, and the damage between them."""
    bytes_before = 0
    for segment, following in partition.with_following():
        if segment.base_offset > most_offset:
            return
        if following is None or following.base_offset > least_offset:
            for found in _parts_in(partition, segment, following, least_offset):
                if isinstance(found, Damage):
                    yield found
                    continue
                if int(found.base_offset[0]) > most_offset:
                    return
                yield _Part(found, bytes_before)
        bytes_before += segment.log_bytes


def _parts_in(
    partition: Partition, segment: Segment, following: Segment | None, least_offset: int
) -> Iterator[BatchColumns | Damage]:
    # By checksums, because batches before the start are not counted.
    with SegmentSearch.of(partition, segment, Trust.CHECKSUMS) as search:
        start = search.position_of(least_offset)
        for step in valid_windows(search.log, segment_part(segment, following, start)):
            yield step if isinstance(step, Damage) else step.batches


def _end_position(partition: Partition) -> int:
    """How many bytes the log has, without preallocated space and bytes that are no batch."""
    *closed, active = partition.segments
    with SegmentSearch.of(partition, active, Trust.HEADERS) as search:
        return sum(segment.log_bytes for segment in closed) + search.end().position
