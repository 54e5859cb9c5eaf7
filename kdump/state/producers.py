"""What a partition knows of a producer, and how batches change it.

Follows ``ProducerStateEntry`` and ``ProducerAppendInfo`` as far as loading goes: everything comes
by replication, so sequences are not looked at, and an epoch that goes back is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from kdump.formats import record_batch
from kdump.formats.compression import Codec
from kdump.formats.end_txn_marker import decode_as_written
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.formats.record_batch import wrap_int32
from kdump.scan.batches import BatchColumns, Column, Window
from kdump.scan.records import read_records
from kdump.state.decompression import require_decompressible
from kdump.target.refusal import Refused

NO_EPOCH: Final = -1
_ABORT: Final = 0
_COMMIT: Final = 1
_MOST_ROWS_ONE_BY_ONE: Final = 12
"""So few batches are taken in one by one sooner than as columns."""


@dataclass(slots=True)
class Producer:
    """The state of one producer, as a snapshot has it; None for what there is not."""

    producer_id: int
    epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    timestamp: int = record_batch.NO_TIMESTAMP
    txn_first_offset: int | None = None
    last_sequence: int = record_batch.NO_SEQUENCE
    last_offset: int = -1
    offset_delta: int = 0
    has_batch: bool = False

    def add_batch(
        self, epoch: int, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int
    ) -> None:
        """Take in a batch of data."""
        self.epoch = epoch
        self.last_sequence = last_sequence
        self.last_offset = last_offset
        self.offset_delta = offset_delta
        self.has_batch = True
        self.timestamp = timestamp

    def end_txn(self, epoch: int, coordinator_epoch: int, timestamp: int) -> None:
        """Take in a marker."""
        if self.epoch != epoch:
            self._forget_batches()
            self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.timestamp = timestamp
        self.txn_first_offset = None

    def staged(self) -> Producer:
        """What further batches are added to, before :meth:`update` takes them over."""
        return Producer(
            self.producer_id,
            self.epoch,
            self.coordinator_epoch,
            self.timestamp,
            self.txn_first_offset,
        )

    def update(self, staged: Producer) -> None:
        """Take over what was added to ``staged``."""
        if self.epoch != staged.epoch:
            self._forget_batches()
            self.epoch = staged.epoch
        if staged.has_batch:
            self.last_sequence = staged.last_sequence
            self.last_offset = staged.last_offset
            self.offset_delta = staged.offset_delta
            self.has_batch = True
        self.coordinator_epoch = staged.coordinator_epoch
        self.timestamp = staged.timestamp
        self.txn_first_offset = staged.txn_first_offset

    def entry(self) -> ProducerEntry:
        return ProducerEntry(
            self.producer_id,
            self.epoch,
            self.last_sequence,
            self.last_offset,
            self.offset_delta,
            self.timestamp,
            self.coordinator_epoch,
            -1 if self.txn_first_offset is None else self.txn_first_offset,
        )

    def _forget_batches(self) -> None:
        self.last_sequence = record_batch.NO_SEQUENCE
        self.last_offset = -1
        self.offset_delta = 0
        self.has_batch = False


@dataclass(frozen=True, slots=True)
class EndedTxn:
    """A transaction that a marker has ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class Appends(Protocol):
    """Where batches of producers are taken in."""

    def producer(self, producer_id: int) -> Producer:
        """The state to change; made if there is none."""
        ...

    def begin_txn(self, producer_id: int, first_offset: int) -> None: ...

    def end_txn(self, ended: EndedTxn) -> None: ...


class InvalidMarker(Exception):
    """A control batch whose first record Kafka calls invalid: a recovering broker stops there."""

    def __init__(self, row: int, what: str) -> None:
        super().__init__(what)
        self.row = row


def append_batches(window: Window, count: int, appends: Appends, file_name: str) -> None:
    """Take in the first ``count`` batches of ``window``, as far as they have a producer.

    Raises:
        InvalidMarker: a marker cannot be read; all batches before it have been taken in.
        Refused: a batch on which Kafka's loading ends.
    """
    batches = window.batches
    has_producer = (batches.producer_id[:count] >= 0) & (batches.magic[:count] >= 2)
    rows = np.flatnonzero(has_producer)
    if not rows.size:
        return
    is_control = (batches.attributes[rows] & record_batch.CONTROL_FLAG) != 0
    begin = 0
    for control in [*np.flatnonzero(is_control).tolist(), len(rows)]:
        _append_data(batches, rows[begin:control], appends, file_name)
        if control < len(rows):
            _append_marker(window, int(rows[control]), appends, file_name)
        begin = control + 1


def _append_data(batches: BatchColumns, rows: Column, appends: Appends, file_name: str) -> None:
    """Take in batches without markers between them."""
    if len(rows) <= _MOST_ROWS_ONE_BY_ONE:
        for row in rows.tolist():
            _append_of_one(batches, rows[:0], row, appends, file_name)
        return
    producer_ids = batches.producer_id[rows]
    order = np.argsort(producer_ids, kind="stable")
    begins = np.flatnonzero(np.diff(producer_ids[order], prepend=-1))
    ends = np.append(begins[1:], len(order))
    for at in np.argsort(order[begins]).tolist():
        own = rows[order[begins[at] : ends[at]]]
        _append_of_one(batches, own[:-1], int(own[-1]), appends, file_name)


def _append_of_one(
    batches: BatchColumns, earlier: Column, last: int, appends: Appends, file_name: str
) -> None:
    """Take in batches of one producer: of all but the last, only transactions leave a trace."""
    producer = appends.producer(int(batches.producer_id[last]))
    rows = [*earlier.tolist(), last]
    is_transactional = (batches.attributes[rows] & record_batch.TRANSACTIONAL_FLAG) != 0
    expected = 0
    if producer.txn_first_offset is None and is_transactional.any():
        expected = int(np.argmax(is_transactional))
        first_offset = int(batches.base_offset[rows[expected]])
        producer.txn_first_offset = first_offset
        appends.begin_txn(producer.producer_id, first_offset)
    if producer.txn_first_offset is not None and not is_transactional[expected:].all():
        row = rows[expected + int(np.argmin(is_transactional[expected:]))]
        raise Refused(
            f"producer {producer.producer_id} writes outside its open transaction at offset"
            f" {int(batches.base_offset[row])}",
            file_name,
            "InvalidTxnStateException",
            int(batches.position[row]),
        )
    header = batches.header(last)
    producer.add_batch(
        header.producer_epoch,
        header.last_sequence,
        header.last_offset,
        wrap_int32(header.last_offset - header.base_offset),
        header.max_timestamp,
    )


def _append_marker(window: Window, row: int, appends: Appends, file_name: str) -> None:
    batches = window.batches
    if batches.records_count[row] == 0:
        # All of the transaction was compacted away, and its marker too.
        appends.producer(int(batches.producer_id[row]))
        return
    is_aborted, coordinator_epoch, timestamp = read_marker(window, row, file_name)
    producer = appends.producer(int(batches.producer_id[row]))
    first_offset = producer.txn_first_offset
    producer.end_txn(int(batches.producer_epoch[row]), coordinator_epoch, timestamp)
    if first_offset is not None:
        last_offset = int(batches.base_offset[row])
        appends.end_txn(EndedTxn(producer.producer_id, first_offset, last_offset, is_aborted))


def read_marker(window: Window, row: int, file_name: str) -> tuple[bool, int, int]:
    """Whether it aborts, the coordinator's epoch and the time: ``EndTransactionMarker``.

    Raises:
        InvalidMarker: a recovering broker ends the log behind it.
        Refused: Kafka's loading ends on it.
    """
    position = int(window.batches.position[row])
    attributes = int(window.batches.attributes[row])
    is_plain = attributes & record_batch.CODEC_MASK == Codec.NONE
    one = window
    if is_plain and not window.is_giant and window.batches.records_count[row] == 1:
        marker = decode_as_written(window.batch_bytes(row)[record_batch.HEADER_BYTES :])
        if marker is not None and not attributes & record_batch.LOG_APPEND_TIME_FLAG:
            timestamp = int(window.batches.base_timestamp[row])
            return marker.is_abort, marker.coordinator_epoch, timestamp
    if not window.is_giant:
        one = window.rows(slice(row, row + 1))
        if not is_plain:
            body = one.batch_bytes(0)[record_batch.HEADER_BYTES :]
            require_decompressible(attributes, body, file_name, position)
    columns = next(read_records(one), None)
    if columns is None:
        raise InvalidMarker(row, "a control batch without a record")
    is_all_read = not is_plain or window.batches.records_count[row] == 1
    problem = next(iter(columns.problems.values()), None)
    if not columns.count or (problem is not None and is_all_read):
        raise InvalidMarker(row, str(problem))
    key, value = columns.key(0), columns.value(0)
    if key is None:
        raise Refused("the key of a marker is null", file_name, "NullPointerException", position)
    if len(key) < 4:
        raise InvalidMarker(row, "the key of a control record is too short")
    if key[0] & 0x80:
        raise InvalidMarker(row, "the key of a control record has a negative version")
    kind = int.from_bytes(key[2:4], signed=True)
    if kind not in (_ABORT, _COMMIT):
        raise Refused(
            f"a control record of type {kind} has a producer",
            file_name,
            "IllegalArgumentException",
            position,
        )
    if value is None:
        raise Refused("a marker is null", file_name, "NullPointerException", position)
    if len(value) >= 2 and value[0] & 0x80:
        raise InvalidMarker(row, "a marker has a negative version")
    if len(value) < 6:
        raise Refused("a marker ends early", file_name, "BufferUnderflowException", position)
    coordinator_epoch = int.from_bytes(value[2:6], signed=True)
    return kind == _ABORT, coordinator_epoch, int(columns.timestamp[0])
