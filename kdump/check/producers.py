"""The sequences of producers, and the state that snapshots and transaction indexes must agree with.

The parts of a partition give their events; :class:`ProducerReplay` applies them in the order of the
log, with the same state machine as the loader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from kdump.check import invariants
from kdump.check.findings import Finding, Place
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.formats.record_batch import NO_SEQUENCE, increment_sequence
from kdump.formats.transaction_index import AbortedTxn
from kdump.state.producer_events import BatchRun, EndMarker, ProducerEvent
from kdump.state.producers import NO_TRANSACTION, Producer, Producers


@dataclass(slots=True)
class ProducerReplay:
    """The producers of a partition up to some offset of its log."""

    _producers: Producers = field(default_factory=Producers)

    def take(
        self, events: Iterable[ProducerEvent], path: str, aborted: list[AbortedTxn]
    ) -> Iterator[Finding]:
        """Apply the events of the next part of the log.

        Args:
            events: those of each producer in the order of the log.
            path: of the segment's log, for the findings.
            aborted: gets the transactions that end in an abort marker there, with
                :data:`NO_TRANSACTION` for their first offset where the log has none of their
                records.

        Yields:
            What is wrong with the sequences.
        """
        for event in sorted(events, key=_by_offset):
            if isinstance(event, BatchRun):
                finding = _sequence_finding(
                    self._producers.by_id.get(event.producer_id), event, path
                )
                if finding is not None:
                    yield finding
            self._append(event, aborted)

    def _append(self, event: ProducerEvent, aborted: list[AbortedTxn]) -> None:
        completed = self._producers.append(event)
        if isinstance(event, EndMarker) and event.is_abort:
            first_offset, last_stable_offset = NO_TRANSACTION, event.offset + 1
            if completed is not None:
                first_offset = completed.first_offset
                last_stable_offset = self._producers.last_stable_offset(completed)
            aborted.append(
                AbortedTxn(event.producer_id, first_offset, event.offset, last_stable_offset)
            )
        if completed is not None:
            self._producers.complete(completed)

    def __bool__(self) -> bool:
        """Whether any producer is known."""
        return bool(self._producers.by_id)

    def entries(self) -> dict[int, tuple[ProducerEntry, ...]]:
        """The state as snapshots have it, by producer id: as of the newest Kafka first.

        A broker that loads a snapshot of an older Kafka goes on in the same way: it knows the
        producer's epoch, its last sequence and whether a transaction is open. Brokers of 1.0 to 2.4
        keep the timestamp of the last records when a marker comes, which only decides when a
        producer expires. Those of 0.11 take the marker for the last batch.
        """
        return {each.producer_id: _entries(each) for each in self._producers.by_id.values()}


def _entries(producer: Producer) -> tuple[ProducerEntry, ...]:
    entry = producer.entry()
    if producer.marker_offset is None:
        return (entry,)
    return (
        entry,
        replace(entry, timestamp=producer.data_timestamp),
        replace(entry, last_offset=producer.marker_offset, offset_delta=0),
    )


def _by_offset(event: ProducerEvent) -> int:
    return event.first_offset if isinstance(event, BatchRun) else event.offset


def _sequence_finding(producer: Producer | None, run: BatchRun, path: str) -> Finding | None:
    """What is wrong where a run begins, given the producer's state before it."""
    if producer is None:
        return None
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
