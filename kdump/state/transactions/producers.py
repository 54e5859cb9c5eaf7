"""The state of a partition's producers and their transactions, and how a log changes it.

One state machine for everyone: the loader repeats a starting broker with it, ``verify`` judges logs
and snapshots by it, and the data source finds open transactions with it. Follows
``ProducerStateEntry``, ``ProducerAppendInfo`` and ``ProducerStateManager`` for batches that come by
loading or replication: sequences are not checked, and an epoch may go back. What Kafka keeps only
for producers that are connected (``VerificationStateEntry``) is never on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from kdump.formats import record_batch
from kdump.formats.end_txn_marker import NO_COORDINATOR_EPOCH
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.formats.record_batch import wrap_int64
from kdump.scan.batches import Window
from kdump.state.transactions.markers import read_markers
from kdump.state.transactions.open_txns import OpenTxns
from kdump.state.transactions.producer_events import (
    BatchRun,
    EmptyMarker,
    EndMarker,
    ProducerEvent,
    read_events,
)
from kdump.target.refusal import Refused

NO_EPOCH: Final = -1
NO_TRANSACTION: Final = -1
"""First offset of a transaction in a snapshot's entry for a producer that has none open."""


class Producer(Struct):
    """The state of one producer; follows ``ProducerStateEntry``.

    Attributes:
        epoch: of the last batch or marker.
        coordinator_epoch: of the last marker.
        timestamp: of the last batch or marker.
        txn_first_offset: where the open transaction begins; None if none is open.
        txn_start_timestamp: base timestamp of the first batch of the open transaction; None if none
            is open, or if only a snapshot mentions it.
        last_sequence: of the last batch.
        last_offset: of the last batch.
        offset_delta: of the last batch, from its first offset to its last.
        has_batch: whether there is a last batch: a marker with another epoch drops it.
        data_timestamp: the largest of the last batch, whatever markers followed.
        marker_offset: of the last marker, if no batch followed it.
    """

    producer_id: int
    epoch: int = NO_EPOCH
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    timestamp: int = record_batch.NO_TIMESTAMP
    txn_first_offset: int | None = None
    txn_start_timestamp: int | None = None
    last_sequence: int = record_batch.NO_SEQUENCE
    last_offset: int = -1
    offset_delta: int = 0
    has_batch: bool = False
    data_timestamp: int = record_batch.NO_TIMESTAMP
    marker_offset: int | None = None

    @classmethod
    def of_entry(cls, entry: ProducerEntry) -> Producer:
        """The producer as a snapshot's entry has it."""
        producer = cls(entry.producer_id, entry.epoch, entry.coordinator_epoch, entry.timestamp)
        if entry.current_txn_first_offset >= 0:
            producer.txn_first_offset = entry.current_txn_first_offset
        if entry.last_offset >= 0:
            producer._take_last(entry)
        return producer

    def entry(self) -> ProducerEntry:
        """The producer as Kafka writes it to a snapshot."""
        return ProducerEntry(
            self.producer_id,
            self.epoch,
            self.last_sequence,
            self.last_offset,
            self.offset_delta,
            self.timestamp,
            self.coordinator_epoch,
            NO_TRANSACTION if self.txn_first_offset is None else self.txn_first_offset,
        )

    def _take_last(self, last: ProducerEntry | BatchRun | Producer) -> None:
        self.last_sequence = last.last_sequence
        self.last_offset = last.last_offset
        self.offset_delta = last.offset_delta
        self.has_batch = True

    def add_run(self, run: BatchRun) -> None:
        """Take in batches of data."""
        if run.producer_epoch != self.epoch:
            self._begin_epoch(run.producer_epoch)
        self._take_last(run)
        self.timestamp = self.data_timestamp = run.timestamp
        self.marker_offset = None

    def end_txn(self, marker: EndMarker) -> None:
        """Take in a marker."""
        if marker.producer_epoch != self.epoch:
            self._begin_epoch(marker.producer_epoch)
        self.coordinator_epoch = marker.coordinator_epoch
        self.timestamp = marker.timestamp
        self.marker_offset = marker.offset
        self.txn_first_offset = self.txn_start_timestamp = None

    def _begin_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.last_sequence = record_batch.NO_SEQUENCE
        self.last_offset = -1
        self.offset_delta = 0
        self.has_batch = False
        self.data_timestamp = record_batch.NO_TIMESTAMP

    # How ``loadProducersFromRecords`` applies a segment: to empty copies first.

    def staged(self) -> Producer:
        """A copy without batches, for events that :meth:`update` applies later."""
        return Producer(
            self.producer_id,
            self.epoch,
            self.coordinator_epoch,
            self.timestamp,
            self.txn_first_offset,
            self.txn_start_timestamp,
            marker_offset=self.marker_offset,
        )

    def update(self, staged: Producer) -> None:
        """Apply the events that a copy took in."""
        if self.epoch != staged.epoch:
            self._begin_epoch(staged.epoch)
        if staged.has_batch:
            self._take_last(staged)
            self.data_timestamp = staged.data_timestamp
        self.coordinator_epoch = staged.coordinator_epoch
        self.timestamp = staged.timestamp
        self.txn_first_offset = staged.txn_first_offset
        self.txn_start_timestamp = staged.txn_start_timestamp
        self.marker_offset = staged.marker_offset


class CompletedTxn(Struct, frozen=True):
    """A transaction that a marker has ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class OpenTxn(Struct, frozen=True):
    """A transaction that no marker has ended.

    Attributes:
        producer_epoch: of its last batch or marker.
        coordinator_epoch: of the last marker of the producer; -1 if it has none.
        last_offset: of the last batch of the producer.
        start_timestamp: base timestamp of its first batch; None if only a snapshot tells of it.
        last_timestamp: of the last batch of the producer.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    last_offset: int
    start_timestamp: int | None
    last_timestamp: int


class Producers:
    """The producers of a partition by id, and the transactions that are open.

    A transaction that a marker ends stays open until :meth:`complete`: the last stable offset of an
    aborted one is computed in between, as ``LogSegment.updateProducerState`` does.
    """

    def __init__(self) -> None:
        self.by_id: dict[int, Producer] = {}
        self._ongoing = OpenTxns()

    def producer(self, producer_id: int) -> Producer:
        """The state to change; a new one for an unknown producer."""
        found = self.by_id.get(producer_id)
        if found is None:
            found = self.by_id[producer_id] = Producer(producer_id)
        return found

    def load(self, entry: ProducerEntry) -> None:
        """Take in a snapshot's entry."""
        producer = self.by_id[entry.producer_id] = Producer.of_entry(entry)
        if producer.txn_first_offset is not None:
            self.begin_txn(producer.txn_first_offset, entry.producer_id)

    def append(self, event: ProducerEvent) -> CompletedTxn | None:
        """Apply the next event of the log; returns the transaction that it ends, if any."""
        producer = self.producer(event.producer_id)
        if isinstance(event, BatchRun):
            producer.add_run(event)
            if event.is_transactional and producer.txn_first_offset is None:
                producer.txn_first_offset = event.first_offset
                producer.txn_start_timestamp = event.first_timestamp
                self.begin_txn(event.first_offset, event.producer_id)
            return None
        if isinstance(event, EmptyMarker):
            return None
        first_offset = producer.txn_first_offset
        producer.end_txn(event)
        if first_offset is None:
            return None
        return CompletedTxn(event.producer_id, first_offset, event.offset, event.is_abort)

    def begin_txn(self, first_offset: int, producer_id: int) -> None:
        """Open a transaction."""
        self._ongoing.begin(first_offset, producer_id)

    def complete(self, txn: CompletedTxn) -> bool:
        """Close a transaction; returns whether it was open."""
        return self._ongoing.end(txn.first_offset)

    def last_stable_offset(self, txn: CompletedTxn) -> int:
        """The last stable offset when ``txn`` ends: where the first other open one begins."""
        first_of_others = self._ongoing.first_offset_of_others(txn.producer_id)
        return wrap_int64(txn.last_offset + 1) if first_of_others is None else first_of_others

    @property
    def first_open_offset(self) -> int | None:
        """Where the first open transaction begins; None if none is open."""
        return self._ongoing.first_offset()

    def open_txns(self) -> list[OpenTxn]:
        """The open transactions, by first offset."""
        found = [
            OpenTxn(
                each.producer_id,
                each.epoch,
                each.coordinator_epoch,
                each.txn_first_offset,
                each.last_offset,
                each.txn_start_timestamp,
                each.timestamp,
            )
            for each in self.by_id.values()
            if each.txn_first_offset is not None
        ]
        return sorted(found, key=lambda txn: txn.first_offset)

    def forget_open_txns(self) -> None:
        """Take no transaction for open any more: where damage is, each may have ended."""
        self._ongoing.clear()
        for producer in self.by_id.values():
            producer.txn_first_offset = producer.txn_start_timestamp = None

    def clear(self) -> None:
        """Forget all producers."""
        self.by_id.clear()
        self._ongoing.clear()


def append_batches(
    window: Window, count: int, producers: Producers, file_name: str
) -> Iterator[CompletedTxn]:
    """Apply the first ``count`` batches of ``window`` as a loading broker does.

    Yields:
        Each transaction that ends, before the batches after its marker are applied. The caller has
        to :meth:`~Producers.complete` it.

    Raises:
        InvalidMarker: a marker cannot be read; all batches before it have been applied.
        Refused: Kafka's loading fails on a batch.
    """
    if window.batches.producer_id[:count].max(initial=-1) < 0:
        return
    if count < window.batches.count:
        window = window.rows(slice(0, count))
    batches = window.batches
    markers = read_markers(window, file_name)
    problem = None
    if markers.problems:
        count = min(markers.problems)
        problem = markers.problems[count]
        batches = batches.rows(slice(0, count))
    for event in read_events(batches, markers):
        if isinstance(event, BatchRun) and not event.is_transactional:
            _require_no_open_txn(producers.producer(event.producer_id), event, file_name)
        completed = producers.append(event)
        if completed is not None:
            yield completed
    if problem is not None:
        raise problem


def _require_no_open_txn(producer: Producer, run: BatchRun, file_name: str) -> None:
    if producer.txn_first_offset is not None:
        raise Refused(
            outside_of_txn(run.producer_id, run.first_offset),
            file_name,
            "InvalidTxnStateException",
            run.position,
        )


def outside_of_txn(producer_id: int, offset: int) -> str:
    """Why Kafka does not load a batch: another of its producer's transactions is open."""
    return f"producer {producer_id} writes outside its open transaction at offset {offset}"
