"""A marker in the place of one that was lost, where Kafka would not load a log without.

A producer that has begun a transaction writes nothing outside of it before a marker ends it. If
that marker is lost with damaged bytes, and the producer goes on outside, loading ends on a batch
that is as good as any. An abort marker at an offset that is free since keeps those batches: what
is made up is only that the transaction ended, and that it did not commit, as when an operator
ends one that hangs.
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
    """The batches of a whole log that stay, in order, as far as this is about them."""

    first_offset: Column
    last_offset: Column
    producer_id: Column
    attributes: Column


@dataclass(frozen=True, slots=True)
class MarkerSlot:
    """Where a marker fits: in front of batch ``row``, behind ``txn_row`` of the transaction."""

    row: int
    txn_row: int


def free_place(batches: KeptBatches, at: int) -> MarkerSlot | None:
    """Where a marker fits that ends the transaction that is open at batch ``at``.

    It is at the first offset that is free behind the last batch of that transaction; None where
    none is.
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
    """The control batch that aborts the transaction of which ``txn`` is a batch."""
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
