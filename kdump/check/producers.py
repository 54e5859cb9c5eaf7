"""What producers wrote: sequences, transactions, and the state that follows from them.

The batches of a window become *runs* first, in columns: batches of one producer whose sequences
follow each other. What does not follow is where runs end, so that only runs and markers are looked
at one by one, in the order of the log, when the parts of a partition are put together.

Follows ``ProducerStateManager`` and ``ProducerAppendInfo`` as they are used when a log is loaded:
nothing is refused there, the newest batch decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from kdump.check import invariants
from kdump.check.findings import Finding, Place
from kdump.check.part import EndMarker, ProducerEvent, SequenceRun
from kdump.formats import record_batch
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.formats.record_batch import NO_SEQUENCE, increment_sequence
from kdump.formats.transaction_index import AbortedTxn
from kdump.scan.batches import BatchColumns
from kdump.state.open_txns import OpenTxns

NO_COORDINATOR_EPOCH: Final = -1
NO_TRANSACTION: Final = -1


class RunBuilder:
    """Makes runs of the batches of a segment, window by window."""

    def __init__(self) -> None:
        self._open: dict[int, SequenceRun] = {}
        self._events: list[ProducerEvent] = []

    def add_batches(self, batches: BatchColumns) -> None:
        """Take batches of data, in the order of the log; those without a producer are ignored."""
        if batches.producer_id.max(initial=-1) < 0:
            return
        rows = np.flatnonzero((batches.producer_id >= 0) & (batches.magic >= 2))
        if not rows.size:
            return
        if rows.size != batches.count:
            batches = batches.rows(rows)
        order = np.argsort(batches.producer_id, kind="stable")
        if (batches.producer_id != batches.producer_id[0]).any():
            batches = batches.rows(order)
        last_sequence = np.where(
            batches.base_sequence >= 0,
            record_batch.increment_sequences(batches.base_sequence, batches.last_offset_delta),
            NO_SEQUENCE,
        )
        is_transactional = (batches.attributes & record_batch.TRANSACTIONAL_FLAG) != 0
        following = record_batch.increment_sequences(
            last_sequence[:-1], np.ones(batches.count - 1, np.int64)
        )
        goes_on = (
            (batches.producer_id[1:] == batches.producer_id[:-1])
            & (batches.producer_epoch[1:] == batches.producer_epoch[:-1])
            & (batches.base_sequence[1:] == following)
            & (batches.base_sequence[1:] >= 0)
            & (is_transactional[1:] == is_transactional[:-1])
        )
        breaks = np.flatnonzero(~goes_on)
        firsts = np.concatenate(([0], breaks + 1))
        lasts = np.concatenate((breaks, [batches.count - 1]))
        for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
            self._add_run(
                SequenceRun(
                    producer_id=int(batches.producer_id[first]),
                    producer_epoch=int(batches.producer_epoch[first]),
                    first_sequence=int(batches.base_sequence[first]),
                    last_sequence=int(last_sequence[last]),
                    first_offset=int(batches.base_offset[first]),
                    last_offset=int(batches.last_offset[last]),
                    offset_delta=int(batches.last_offset_delta[last]),
                    timestamp=int(batches.max_timestamp[last]),
                    is_transactional=bool(is_transactional[first]),
                    position=int(batches.position[first]),
                )
            )

    def _add_run(self, run: SequenceRun) -> None:
        before = self._open.get(run.producer_id)
        if before is not None:
            if follows(before, run) and before.is_transactional == run.is_transactional:
                run = run._replace(
                    first_sequence=before.first_sequence,
                    first_offset=before.first_offset,
                    position=before.position,
                )
            else:
                self._events.append(before)
        self._open[run.producer_id] = run

    def add_marker(self, marker: EndMarker) -> None:
        """Take the marker of a transaction; batches in front of it have to be taken before."""
        run = self._open.pop(marker.producer_id, None)
        if run is not None:
            self._events.append(run)
        self._events.append(marker)

    def events(self) -> tuple[ProducerEvent, ...]:
        """All runs and markers, those of each producer in the order of the log."""
        return (*self._events, *self._open.values())


def follows(before: SequenceRun, run: SequenceRun) -> bool:
    """Whether the sequences of ``run`` go on where those of ``before`` ended."""
    return (
        run.producer_epoch == before.producer_epoch
        and run.first_sequence >= 0
        and before.last_sequence >= 0
        and run.first_sequence == increment_sequence(before.last_sequence, 1)
    )


@dataclass(slots=True)
class _Producer:
    """The state of one producer, as ``ProducerStateEntry`` keeps it.

    Attributes:
        data_timestamp: the greatest of its last batch of records; -1 once a marker has begun a new
            epoch.
        marker_offset: of the marker that is the last it has in the log; None where that is a batch.
    """

    epoch: int
    last_sequence: int = NO_SEQUENCE
    last_offset: int = -1
    offset_delta: int = 0
    timestamp: int = record_batch.NO_TIMESTAMP
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    transaction_start: int = NO_TRANSACTION
    data_timestamp: int = record_batch.NO_TIMESTAMP
    marker_offset: int | None = None

    def take_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.last_sequence, self.last_offset, self.offset_delta = NO_SEQUENCE, -1, 0
            self.data_timestamp = record_batch.NO_TIMESTAMP


@dataclass(slots=True)
class Replay:
    """The producers of a partition, as the log up to some offset says.

    Attributes:
        producers: the state of each by its id.
    """

    _producers: dict[int, _Producer] = field(default_factory=dict)
    _open_txns: OpenTxns = field(default_factory=OpenTxns)

    def take(
        self, events: Iterable[ProducerEvent], path: str, aborted: list[AbortedTxn]
    ) -> Iterator[Finding]:
        """Carry the state on over the events of a part of the log.

        Args:
            events: in any order that is the log's for each producer.
            path: of the segment's log, for the findings.
            aborted: gets the transactions that end in an abort marker there, with
                :data:`NO_TRANSACTION` for their first offset where the log has none of their
                records.

        Yields:
            What is wrong with the sequences.
        """
        for event in sorted(events, key=_by_offset):
            if isinstance(event, EndMarker):
                self._end_transaction(event, aborted)
            else:
                finding = self._append(event, path)
                if finding is not None:
                    yield finding

    def _append(self, run: SequenceRun, path: str) -> Finding | None:
        producer = self._producers.get(run.producer_id)
        finding = None
        if producer is None:
            producer = self._producers[run.producer_id] = _Producer(run.producer_epoch)
        else:
            finding = _sequence_finding(producer, run, path)
        producer.take_epoch(run.producer_epoch)
        producer.last_sequence = run.last_sequence
        producer.last_offset = run.last_offset
        producer.offset_delta = run.offset_delta
        producer.timestamp = producer.data_timestamp = run.timestamp
        producer.marker_offset = None
        if run.is_transactional and producer.transaction_start == NO_TRANSACTION:
            producer.transaction_start = run.first_offset
            self._open_txns.begin(run.first_offset, run.producer_id)
        return finding

    def _end_transaction(self, marker: EndMarker, aborted: list[AbortedTxn]) -> None:
        producer = self._producers.get(marker.producer_id)
        if producer is None:
            producer = self._producers[marker.producer_id] = _Producer(marker.producer_epoch)
        if producer.transaction_start == NO_TRANSACTION:
            if marker.is_abort:
                aborted.append(
                    AbortedTxn(marker.producer_id, NO_TRANSACTION, marker.offset, marker.offset + 1)
                )
        else:
            if marker.is_abort:
                aborted.append(self._aborted(marker, producer.transaction_start))
            self._open_txns.end(producer.transaction_start)
        producer.take_epoch(marker.producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.timestamp = marker.timestamp
        producer.marker_offset = marker.offset
        producer.transaction_start = NO_TRANSACTION

    def __bool__(self) -> bool:
        """Whether any producer is known."""
        return bool(self._producers)

    def _aborted(self, marker: EndMarker, first_offset: int) -> AbortedTxn:
        first_of_others = self._open_txns.first_offset_of_others(marker.producer_id)
        return AbortedTxn(
            producer_id=marker.producer_id,
            first_offset=first_offset,
            last_offset=marker.offset,
            last_stable_offset=marker.offset + 1 if first_of_others is None else first_of_others,
        )

    def entries(self) -> dict[int, tuple[ProducerEntry, ...]]:
        """The state as snapshots have it, by producer id: as of the newest Kafka first.

        A broker that loads one of an older Kafka goes on in the same way: it knows the producer's
        epoch, its last sequence and whether a transaction is open. Brokers of 1.0 to 2.4 keep the
        timestamp of the last records when a marker comes, which only decides when a producer
        expires. Those of 0.11 take the marker for the last batch.
        """
        return {
            producer_id: _entries(producer_id, each)
            for producer_id, each in self._producers.items()
        }


def _entries(producer_id: int, producer: _Producer) -> tuple[ProducerEntry, ...]:
    entry = ProducerEntry(
        producer_id=producer_id,
        epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_offset=producer.last_offset,
        offset_delta=producer.offset_delta,
        timestamp=producer.timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_first_offset=producer.transaction_start,
    )
    if producer.marker_offset is None:
        return (entry,)
    return (
        entry,
        replace(entry, timestamp=producer.data_timestamp),
        replace(entry, last_offset=producer.marker_offset, offset_delta=0),
    )


def _by_offset(event: ProducerEvent) -> int:
    return event.offset if isinstance(event, EndMarker) else event.first_offset


def _sequence_finding(producer: _Producer, run: SequenceRun, path: str) -> Finding | None:
    """What is wrong where a run begins, given the producer's state before it."""
    if run.first_sequence == NO_SEQUENCE or producer.last_sequence == NO_SEQUENCE:
        return None
    if run.producer_epoch != producer.epoch:
        return None
    expected = increment_sequence(producer.last_sequence, 1)
    if run.first_sequence == expected:
        return None
    place = Place(path, run.position, run.first_offset)
    who = f"producer {run.producer_id}, epoch {run.producer_epoch}"
    if run.first_sequence < expected:
        return invariants.PRODUCER_SEQUENCE_REPEAT.finding(
            place,
            f"a sequence of {who} comes again",
            expected=expected,
            found=run.first_sequence,
        )
    return invariants.PRODUCER_SEQUENCE_GAP.finding(
        place,
        f"a sequence of {who} is missing",
        expected=expected,
        found=run.first_sequence,
        loss=f"sequences {expected} to {run.first_sequence - 1}",
    )
