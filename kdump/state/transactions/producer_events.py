"""What producers did in a log: runs of batches, and the markers that end transactions.

The batches of a window become *events* first, in columns: consecutive batches of one producer are
one run. Only runs and markers are then applied one by one to the producers' state
(:class:`~kdump.state.transactions.producers.Producers`). Events pickle and their number does not
depend on the number of batches, so the parts of a log can be read by several workers and applied in
order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Self

import numpy as np

from kdump.formats import record_batch
from kdump.formats.record_batch import increment_sequence
from kdump.scan.batches import BatchColumns, Column
from kdump.scan.header_columns import increment_sequences, last_sequences
from kdump.scan.usual_batches import HeaderFields
from kdump.state.transactions.markers import Markers

_MAX_ROWS_ONE_BY_ONE: Final = 12
"""This few batches become events faster one by one than as columns."""


class BatchRun(NamedTuple):
    """Consecutive batches of one producer, in one epoch, all inside or all outside a transaction.

    Attributes:
        first_sequence: of the first record; -1 if the producer does not number its records.
        last_sequence: of the last record.
        first_offset: of the first record.
        last_offset: of the last record.
        offset_delta: of the last batch, from its first offset to its last.
        first_timestamp: base timestamp of the first batch.
        timestamp: the largest of the last batch.
        is_transactional: whether the batches belong to a transaction.
        position: byte at which the first batch begins.
    """

    producer_id: int
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    offset_delta: int
    first_timestamp: int
    timestamp: int
    is_transactional: bool
    position: int

    @classmethod
    def of_batch(cls, header: HeaderFields, position: int) -> Self:
        """The run of one batch, which must be outside a transaction; it begins at ``position``."""
        # fmt: off
        (
            base_offset, _, _, _, _, _, offset_delta,
            base_timestamp, timestamp, producer_id, producer_epoch, sequence, _,
        ) = header
        # fmt: on
        is_numbered = sequence != record_batch.NO_SEQUENCE
        return cls(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            first_sequence=sequence,
            last_sequence=increment_sequence(sequence, offset_delta) if is_numbered else sequence,
            first_offset=base_offset,
            last_offset=base_offset + offset_delta,
            offset_delta=offset_delta,
            first_timestamp=base_timestamp,
            timestamp=timestamp,
            is_transactional=False,
            position=position,
        )

    def joined(self, following: BatchRun) -> BatchRun:
        """One run of this one and the one after it."""
        return following._replace(
            first_sequence=self.first_sequence,
            first_offset=self.first_offset,
            first_timestamp=self.first_timestamp,
            position=self.position,
        )


class EndMarker(NamedTuple):
    """The marker that ends a transaction.

    Attributes:
        producer_epoch: in the marker's batch.
        coordinator_epoch: of the coordinator that wrote the marker.
        is_abort: whether the transaction was aborted.
        position: byte at which its batch begins.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    offset: int
    timestamp: int
    is_abort: bool
    position: int


class EmptyMarker(NamedTuple):
    """A control batch without a record: compaction removed all of the transaction."""

    producer_id: int
    offset: int


ProducerEvent = BatchRun | EndMarker | EmptyMarker


def is_continued(before: BatchRun, run: BatchRun) -> bool:
    """Whether the sequences of ``run`` continue those of ``before``, in the same epoch."""
    return (
        run.producer_epoch == before.producer_epoch
        and run.first_sequence >= 0
        and before.last_sequence >= 0
        and run.first_sequence == increment_sequence(before.last_sequence, 1)
    )


def read_events(
    batches: BatchColumns, markers: Markers, *, splits_at_sequences: bool = False
) -> list[ProducerEvent]:
    """The events of some batches, in the order of the log.

    Batches without a producer and markers that cannot be read are left out.

    Args:
        batches: in the order of the log.
        markers: all that ``batches`` hold.
        splits_at_sequences: whether a run also ends where the sequences do not continue.
    """
    if batches.producer_id.max(initial=-1) < 0:
        return []
    rows = np.flatnonzero((batches.producer_id >= 0) & (batches.magic >= 2))
    if rows.size <= _MAX_ROWS_ONE_BY_ONE:
        firsts = lasts = rows
    else:
        firsts, lasts = _run_bounds(batches, rows, splits_at_sequences)
    return _events_of(batches, markers, firsts, lasts)


def _run_bounds(
    batches: BatchColumns, rows: Column, splits_at_sequences: bool
) -> tuple[Column, Column]:
    """First and last row of each run and each control batch, by rising first row."""
    order = rows[np.argsort(batches.producer_id[rows], kind="stable")]
    producer_id, attributes = batches.producer_id[order], batches.attributes[order]
    epoch = batches.producer_epoch[order]
    is_transactional = (attributes & record_batch.TRANSACTIONAL_FLAG) != 0
    is_data = (attributes & record_batch.CONTROL_FLAG) == 0
    goes_on = (
        (producer_id[1:] == producer_id[:-1])
        & (epoch[1:] == epoch[:-1])
        & (is_transactional[1:] == is_transactional[:-1])
        & is_data[1:]
        & is_data[:-1]
    )
    if splits_at_sequences:
        base_sequence = batches.base_sequence[order]
        last_sequence = _last_sequence(batches, order)
        following = increment_sequences(last_sequence[:-1], np.ones(len(order) - 1, np.int64))
        goes_on &= (base_sequence[1:] == following) & (base_sequence[1:] >= 0)
        goes_on &= last_sequence[:-1] >= 0
    breaks = np.flatnonzero(~goes_on)
    firsts = order[np.concatenate(([0], breaks + 1))]
    lasts = order[np.concatenate((breaks, [len(order) - 1]))]
    in_order = np.argsort(firsts)
    return firsts[in_order], lasts[in_order]


def _last_sequence(batches: BatchColumns, rows: Column) -> Column:
    return last_sequences(batches.base_sequence[rows], batches.last_offset_delta[rows])


def _events_of(
    batches: BatchColumns, markers: Markers, firsts: Column, lasts: Column
) -> list[ProducerEvent]:
    """The events of runs and control batches, given the first and last row of each."""
    is_control = (batches.attributes[firsts] & record_batch.CONTROL_FLAG) != 0
    if not is_control.any():
        return [*_runs_of(batches, firsts, lasts)]
    runs = _runs_of(batches, firsts[~is_control], lasts[~is_control])
    ends = _ends_by_row(markers)
    events: list[ProducerEvent] = []
    for row, is_marker, records_count, producer_id, producer_epoch, offset, position in zip(
        firsts.tolist(),
        is_control.tolist(),
        batches.records_count[firsts].tolist(),
        batches.producer_id[firsts].tolist(),
        batches.producer_epoch[firsts].tolist(),
        batches.base_offset[firsts].tolist(),
        batches.position[firsts].tolist(),
        strict=True,
    ):
        if not is_marker:
            events.append(next(runs))
        elif not records_count:
            events.append(EmptyMarker(producer_id, offset))
        elif row in ends:
            epoch, timestamp, is_abort = ends[row]
            events.append(
                EndMarker(producer_id, producer_epoch, epoch, offset, timestamp, is_abort, position)
            )
    return events


def _runs_of(batches: BatchColumns, firsts: Column, lasts: Column) -> Iterator[BatchRun]:
    """Runs of data, given the first and last row of each."""
    is_transactional = (batches.attributes[firsts] & record_batch.TRANSACTIONAL_FLAG) != 0
    return map(
        BatchRun,
        batches.producer_id[firsts].tolist(),
        batches.producer_epoch[firsts].tolist(),
        batches.base_sequence[firsts].tolist(),
        _last_sequence(batches, lasts).tolist(),
        batches.base_offset[firsts].tolist(),
        (batches.base_offset[lasts] + batches.last_offset_delta[lasts]).tolist(),
        batches.last_offset_delta[lasts].tolist(),
        batches.base_timestamp[firsts].tolist(),
        batches.max_timestamp[lasts].tolist(),
        is_transactional.tolist(),
        batches.position[firsts].tolist(),
    )


def _ends_by_row(markers: Markers) -> dict[int, tuple[int, int, bool]]:
    """Coordinator epoch, timestamp and outcome of the markers that can be read, by row."""
    columns = markers.coordinator_epoch, markers.timestamp, markers.is_abort
    values = zip(*(column.tolist() for column in columns), strict=True)
    ends = dict(zip(markers.row.tolist(), values, strict=True))
    for row in markers.problems:
        del ends[row]
    return ends


def single_runs(batches: BatchColumns, rows: Column) -> list[BatchRun]:
    """A run for each of some batches of data, which have producers."""
    return [*_runs_of(batches, rows, rows)]


class EventBuilder:
    """Collects the events of a part of a log window by window; runs grow across windows."""

    def __init__(self) -> None:
        self._open: dict[int, BatchRun] = {}
        self._events: list[ProducerEvent] = []

    def add(self, batches: BatchColumns, markers: Markers) -> None:
        """Take the next batches of the log, and the markers that they hold."""
        self.extend(read_events(batches, markers, splits_at_sequences=True))

    def extend(self, events: Iterable[ProducerEvent]) -> None:
        """Take the next events of the log; empty markers are left out."""
        for event in events:
            if isinstance(event, BatchRun):
                self._add_run(event)
            elif isinstance(event, EndMarker):
                run = self._open.pop(event.producer_id, None)
                if run is not None:
                    self._events.append(run)
                self._events.append(event)

    def _add_run(self, run: BatchRun) -> None:
        before = self._open.get(run.producer_id)
        if before is not None:
            if is_continued(before, run) and before.is_transactional == run.is_transactional:
                run = before.joined(run)
            else:
                self._events.append(before)
        self._open[run.producer_id] = run

    def events(self) -> tuple[ProducerEvent, ...]:
        """All runs and markers; those of each producer in the order of the log."""
        return (*self._events, *self._open.values())
