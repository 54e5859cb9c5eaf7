"""Check the sequence numbers of producers, and replay the state for other checks.

:class:`ProducerReplay` applies the events of a partition's parts in the order of the log, with the
state machine of the loader. Snapshots and transaction indexes are compared with the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from kdump.check import invariants
from kdump.check.findings import Finding, Place
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.formats.record_batch import NO_SEQUENCE, increment_sequence
from kdump.formats.transaction_index import AbortedTxn
from kdump.state.transactions.producer_events import BatchRun, EndMarker, ProducerEvent
from kdump.state.transactions.producers import NO_TRANSACTION, OpenTxn, Producer, Producers


class ProducerReplay(Struct):
    """The state of the producers of a partition up to an offset of its log.

    Attributes:
        high_watermark: of the log; None if it is unknown.
        unreplicated_offset: first offset of the first transaction whose marker is at or past the
            high watermark; None if there is none.
    """

    high_watermark: int | None = None
    unreplicated_offset: int | None = None
    _producers: Producers = field(default_factory=Producers)

    def take(
        self, events: Iterable[ProducerEvent], path: str, aborted: list[AbortedTxn]
    ) -> Iterator[Finding]:
        """Apply the events of the next part of the log.

        Args:
            events: those of each producer in the order of the log.
            path: of the segment's log, for the findings.
            aborted: takes the transactions that end with an abort marker in the part, with
                :data:`NO_TRANSACTION` as first offset if the log has none of their records.

        Yields:
            Findings about repeated and missing sequence numbers.
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
            if self.high_watermark is not None and completed.last_offset >= self.high_watermark:
                firsts = (self.unreplicated_offset, completed.first_offset)
                self.unreplicated_offset = min(each for each in firsts if each is not None)

    def open_txns(self) -> tuple[OpenTxn, ...]:
        """The transactions that no marker has ended, by first offset."""
        return tuple(self._producers.open_txns())

    def __bool__(self) -> bool:
        """Whether any producer is known."""
        return bool(self._producers.by_id)

    def entries(self) -> dict[int, tuple[ProducerEntry, ...]]:
        """The valid snapshot entries of each producer id: first that of the newest Kafka.

        A broker that loads a snapshot of an older Kafka continues in the same way: it knows the
        producer's epoch, its last sequence and whether a transaction is open. With a marker,
        brokers of 1.0 to 2.4 keep the timestamp of the last records, which only decides when a
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
    """The finding about the start of a run, given the producer's state before it, if any."""
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
            f"a sequence number of {who} is repeated",
            expected=expected,
            found=run.first_sequence,
        )
    return invariants.PRODUCER_SEQUENCE_GAP.finding(
        place,
        f"sequence numbers of {who} are missing",
        expected=expected,
        found=run.first_sequence,
        loss=f"sequences {expected} to {run.first_sequence - 1}",
    )
