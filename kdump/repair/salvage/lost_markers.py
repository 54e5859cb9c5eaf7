"""Replace a lost transaction marker if Kafka would not load the log without one.

A producer with an open transaction writes nothing outside of it until a marker ends it. If the
marker is lost with damaged bytes and the producer continued outside, the loader refuses a valid
batch. An abort marker at a free offset keeps that batch and those after it. It states only that the
transaction ended and did not commit, as when an operator aborts a hanging transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kdump.formats.record_batch import (
    CONTROL_FLAG,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Record,
    encode_batch,
    encode_record,
)
from kdump.scan.batches import Column

_ABORT_KEY = bytes(4)
"""Version 0, type 0."""
_VALUE = bytes(6)
"""Version 0, coordinator epoch 0."""


@dataclass(frozen=True, slots=True)
class KeptBatches:
    """Columns of the batches of a partition that stay, in order.

    Attributes:
        first_offset: of each.
        last_offset: of each.
        producer_id: of each; -1 for none.
        attributes: of each.
        records_count: of each.
    """

    first_offset: Column
    last_offset: Column
    producer_id: Column
    attributes: Column
    records_count: Column


@dataclass(frozen=True, slots=True)
class MarkerSlot:
    """A location for a marker: before batch ``row``, after ``txn_row`` of the transaction."""

    row: int
    txn_row: int


def free_place(batches: KeptBatches, at: int) -> MarkerSlot | None:
    """Find a location for a marker that ends the transaction that is open at batch ``at``.

    It is the first free offset after the last batch of that transaction; None if there is none.
    """
    is_of_txn = (batches.producer_id[:at] == batches.producer_id[at]) & (
        (batches.attributes[:at] & (TRANSACTIONAL_FLAG | CONTROL_FLAG)) == TRANSACTIONAL_FLAG
    )
    if not is_of_txn.any():
        return None
    txn_row = int(np.flatnonzero(is_of_txn)[-1])
    is_free = batches.first_offset[txn_row + 1 : at + 1] > batches.last_offset[txn_row:at] + 1
    return MarkerSlot(txn_row + 1 + int(np.argmax(is_free)), txn_row) if is_free.any() else None


def outside_of_txns(
    batches: KeptBatches, inserted: Sequence[tuple[int, int]], begin: int, since_offset: int
) -> Column:
    """Find the batches that a producer wrote outside of its open transaction, as the loader does.

    Of several in a row, only the first: the marker that is missing before it serves all.

    Args:
        batches: of the partition.
        inserted: row and producer id of each marker that is inserted before a row.
        begin: the first row to look at.
        since_offset: transactions that end below are not known to the loader.
    """
    is_data = (batches.attributes & CONTROL_FLAG) == 0
    in_txn = (batches.attributes & TRANSACTIONAL_FLAG) != 0
    # A control batch that compaction has emptied ends nothing.
    counts = (batches.producer_id >= 0) & (is_data | (batches.records_count != 0))
    opens = is_data & in_txn & (batches.last_offset >= since_offset)
    rows = np.flatnonzero(counts)
    marker_rows = np.array([row for row, _ in inserted], np.int64)
    marker_ids = np.array([producer_id for _, producer_id in inserted], np.int64)
    # A marker is between its row and the row before.
    place = np.concatenate((2 * rows, 2 * marker_rows - 1))
    producer_id = np.concatenate((batches.producer_id[rows], marker_ids))
    order = np.lexsort((place, producer_id))
    place, producer_id = place[order], producer_id[order]
    is_row = place % 2 == 0
    row = np.maximum(place // 2, 0)
    is_outside = is_row & is_data[row] & ~in_txn[row] & (row >= begin)
    is_open = np.zeros_like(is_outside)
    is_open[1:] = (is_row & opens[row])[:-1] & (producer_id[1:] == producer_id[:-1])
    return np.sort(row[is_outside & is_open])


def abort_marker(offset: int, txn: BatchHeader, timestamp: int) -> bytes:
    """Encode a control batch that aborts the transaction to which the batch ``txn`` belongs."""
    record = Record(
        offset=offset,
        timestamp=timestamp,
        sequence=NO_SEQUENCE,
        key=_ABORT_KEY,
        value=_VALUE,
        headers=(),
    )
    header = BatchHeader(
        base_offset=offset,
        length=0,
        partition_leader_epoch=txn.partition_leader_epoch,
        magic=2,
        crc=0,
        attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        base_sequence=NO_SEQUENCE,
        records_count=1,
    )
    return encode_batch(header, encode_record(record, offset, timestamp))
