"""Replace a lost transaction marker if Kafka would not load the log without one.

A producer with an open transaction writes nothing outside of it until a marker ends it. If the
marker is lost with damaged bytes and the producer continued outside, the loader refuses a valid
batch. An abort marker at a free offset keeps that batch and those after it. It states only that the
transaction ended and did not commit, as when an operator aborts a hanging transaction.
"""

from __future__ import annotations

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
    """Columns of the batches of a partition that stay, in order."""

    first_offset: Column
    last_offset: Column
    producer_id: Column
    attributes: Column


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
