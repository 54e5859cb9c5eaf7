"""What has to be known of a log before anybody can say where to cut it.

A log is read once, as a broker loads it: where it begins and ends, where the first batch is that is
later than a moment, and which transactions it has a part of. Where it is a log of
``__transaction_state``, also what the coordinator wrote about them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kdump.broker.loader.load_context import LoadContext
from kdump.broker.loader.loader import load_directory
from kdump.broker.loader.recovered_partition import Recovered
from kdump.errors import ExitStatus, KdumpError
from kdump.formats.errors import FormatError
from kdump.formats.names import FileKind, TopicPartition
from kdump.repair.verdict.outcome_verdict import verdict
from kdump.repair.verdict.verdict import VerdictKind
from kdump.scan.batches import BatchColumns, Column, Window, read_windows
from kdump.scan.control_batches import is_control
from kdump.scan.records import RecordColumns
from kdump.scan.walk import expand_window
from kdump.state.transactions.markers import read_markers
from kdump.state.transactions.producer_events import BatchRun, EndMarker, read_events
from kdump.state.transactions.transaction_coordinator import (
    TRANSACTION_STATE_TOPIC,
    CoordinatorTransaction,
    read_transaction,
)
from kdump.storage.location import Location
from kdump.target.refusal import Refusal, Refused
from kdump.target.virtual_directory import VirtualDirectory, file_name


class NotRewindableError(KdumpError):
    """A partition that cannot be cut as it is; says what to do first."""

    exit_status = ExitStatus.DAMAGE_LEFT


class Moment(Struct, frozen=True):
    """Where logs are to end: at a time, or at an offset.

    Attributes:
        time_ms: a log ends before the first batch with a later timestamp; None without a time.
        offset: a log ends before the first batch that reaches it; None without an offset.
        since_ms: transactions that ended by then, and before the cut, are left out: all logs keep
            them, as far as clocks can be trusted. None leaves out none.
    """

    time_ms: int | None = None
    offset: int | None = None
    since_ms: int | None = None

    def is_later(self, batches: BatchColumns) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which batches are not to be kept, whatever comes before them."""
        if self.offset is not None:
            is_at_or_after: np.ndarray[tuple[int], np.dtype[np.bool_]]
            is_at_or_after = batches.last_offset >= self.offset
            return is_at_or_after
        if self.time_ms is None:
            return np.zeros(batches.count, np.bool_)
        is_late: np.ndarray[tuple[int], np.dtype[np.bool_]] = batches.max_timestamp > self.time_ms
        return is_late


class TransactionPart(Struct, frozen=True):
    """What one log has of a transaction; each offset is the first of its batch.

    Attributes:
        producer_epoch: of its records.
        first: of its first batch.
        last: of its last batch, without the marker.
        marker: of the marker that ends it; None if there is none.
        is_abort: whether the marker aborts it.
        marker_ms: the time of the marker.
        is_empty: whether there is nothing but the marker: the transaction has no records here.
    """

    producer_id: int
    producer_epoch: int
    first: int
    last: int
    marker: int | None = None
    is_abort: bool = False
    marker_ms: int = 0
    is_empty: bool = False


class CoordinatorEntry(Struct, frozen=True):
    """A record of a coordinator about a transactional id.

    Attributes:
        offset: the first of its batch.
        transactional_id: that it is about.
        state: what it says; None if the id was deleted.
    """

    offset: int
    transactional_id: str
    state: CoordinatorTransaction | None


class LogFacts(Struct, frozen=True):
    """What is known of a log.

    Attributes:
        start_offset: where it begins.
        end_offset: where it ends.
        cut: the first offset of the first batch that is not to be kept; None if all are.
        lacks_times: whether it has batches, and none of them has a timestamp.
        parts: of transactions, in the order of their first batches.
        coordinator: what a coordinator wrote, in order for each transactional id.
        complete_from: transactions that ended before this offset may be left out.
        earliest_removed_ms: the earliest time that a broker gave to a marker, or a coordinator to a
            record, at or after the cut; None if there is none.
        first_later: as ``cut``, but of all batches on disk: one before the log start counts, too.
    """

    start_offset: int
    end_offset: int
    cut: int | None
    lacks_times: bool
    parts: tuple[TransactionPart, ...]
    coordinator: tuple[CoordinatorEntry, ...]
    complete_from: int = 0
    earliest_removed_ms: int | None = None
    first_later: int | None = None


def loaded(directory: VirtualDirectory, context: LoadContext) -> Recovered:
    """Load a log as a broker does, in memory.

    Raises:
        NotRewindableError: a broker does not load it, or loses records of it.
        OSError: a file cannot be read.
    """
    outcome = load_directory(directory, context)
    if isinstance(outcome, Refusal):
        raise NotRewindableError(f"{directory.path}: a broker does not load it: {outcome}")
    judged = verdict(outcome)
    if judged.kind is VerdictKind.LOSS:
        raise NotRewindableError(
            f"{directory.path}: {judged.sentence}; repair it first, for example with kdump recover"
        )
    return outcome


def read_facts(
    path: Location, key: TopicPartition, context: LoadContext, moment: Moment
) -> LogFacts:
    """Read a log. Every batch is checked, because what comes later decides, too.

    Args:
        path: of its directory.
        key: the partition.
        moment: where it is to end.

    Raises:
        NotRewindableError: it is damaged.
        OSError: a file cannot be read.
    """
    directory = VirtualDirectory(path)
    outcome = loaded(directory, context)
    parts, entries = _Parts(moment.since_ms), _Entries(moment.since_ms)
    cut: int | None = None
    first_later: int | None = None
    has_times = has_batches = False
    for window, name in valid_windows_of(directory):
        batches = window.batches
        if not batches.count:
            continue
        has_batches = True
        has_times |= bool((batches.max_timestamp >= 0).any())
        is_later = moment.is_later(batches)
        if first_later is None and is_later.any():
            first_later = int(batches.base_offset[is_later.argmax()])
        is_later &= batches.last_offset >= outcome.log_start_offset
        if cut is None and is_later.any():
            cut = int(batches.base_offset[is_later.argmax()])
        parts.take(window, path, name, cut)
        if key.topic == TRANSACTION_STATE_TOPIC:
            entries.take(coordinator_entries(window, path, name), cut)
    return LogFacts(
        start_offset=outcome.log_start_offset,
        end_offset=outcome.log_end_offset,
        cut=cut,
        lacks_times=has_batches and not has_times,
        parts=parts.found(outcome.log_start_offset),
        coordinator=entries.found(),
        complete_from=max(parts.complete_from, entries.complete_from),
        earliest_removed_ms=min(parts.removed_ms + entries.removed_ms, default=None),
        first_later=first_later,
    )


def valid_windows_of(
    directory: VirtualDirectory, from_offset: int = 0, to_offset: int | None = None
) -> Iterator[tuple[Window, str]]:
    """The batches of a log in order, with the names of their files.

    Args:
        directory: of the log.
        from_offset: segments that end before it are left out.
        to_offset: segments that begin at or after it are left out; None leaves out none.

    Raises:
        NotRewindableError: a batch is damaged.
        OSError: a file cannot be read.
    """
    bases = directory.base_offsets()
    for base, following in itertools.zip_longest(bases, bases[1:]):
        if following is not None and following <= from_offset:
            continue
        if to_offset is not None and base >= to_offset:
            return
        name = file_name(base, FileKind.LOG)
        with directory.open(name) as source:
            for window in read_windows(source):
                batches, stop = window.batches, window.stop
                if not batches.is_valid.all():
                    at = int(batches.position[batches.is_valid.argmin()])
                    raise _damaged(directory.path / name, at, "a batch with a wrong checksum")
                if stop is not None and stop.problem is not None:
                    raise _damaged(directory.path / name, stop.position, str(stop.problem))
                yield window, name


def _damaged(path: Location, position: int, what: str) -> NotRewindableError:
    return NotRewindableError(
        f"{path}: byte {position}: {what}; kdump verify shows what is damaged, kdump verify"
        " --repair repairs it"
    )


class _Parts:
    """Collects the parts of transactions from the batches of a log, in order.

    Attributes:
        complete_from: those that end before this offset may be left out.
        removed_ms: the earliest time of a marker at or after the cut; empty without one.
    """

    def __init__(self, since_ms: int | None) -> None:
        self.complete_from = 0
        self.removed_ms: list[int] = []
        self._since_ms = since_ms
        self._open: dict[int, TransactionPart] = {}
        self._ended: list[TransactionPart] = []

    def take(self, window: Window, path: Location, name: str, cut: int | None) -> None:
        try:
            markers = read_markers(window, name)
        except Refused as refused:
            raise NotRewindableError(f"{path / name}: {refused.refusal}") from refused
        if markers.problems:
            row, problem = min(markers.problems.items())
            raise _damaged(path / name, int(window.batches.position[row]), str(problem))
        for event in read_events(window.batches, markers):
            if isinstance(event, BatchRun):
                if event.is_transactional:
                    self._take_run(event)
            elif isinstance(event, EndMarker):
                self._take_marker(event, is_removed=cut is not None and event.offset >= cut)

    def _take_run(self, run: BatchRun) -> None:
        before = self._open.get(run.producer_id)
        last = run.last_offset - run.offset_delta
        self._open[run.producer_id] = TransactionPart(
            run.producer_id,
            run.producer_epoch,
            run.first_offset if before is None else before.first,
            last,
        )

    def _take_marker(self, marker: EndMarker, *, is_removed: bool) -> None:
        part = self._open.pop(marker.producer_id, None)
        if is_removed:
            self.removed_ms = [min([*self.removed_ms, marker.timestamp])]
        elif self._since_ms is not None and marker.timestamp <= self._since_ms:
            self.complete_from = marker.offset + 1
            return
        is_empty = part is None
        if part is None:
            # The epoch may be that of its records, or above it.
            part = TransactionPart(
                marker.producer_id, marker.producer_epoch, marker.offset, marker.offset
            )
        self._ended.append(
            replace(
                part,
                marker=marker.offset,
                is_abort=marker.is_abort,
                marker_ms=marker.timestamp,
                is_empty=is_empty,
            )
        )

    def found(self, start_offset: int) -> tuple[TransactionPart, ...]:
        every = [*self._ended, *self._open.values()]
        kept = (each for each in every if each.marker is None or each.marker >= start_offset)
        return tuple(sorted(kept, key=lambda each: each.first))


class _Entries:
    """Collects what a coordinator wrote, in order for each transactional id.

    Attributes:
        complete_from: transactions that ended before this offset may be left out.
        removed_ms: the earliest time of a record at or after the cut; empty without one.
    """

    def __init__(self, since_ms: int | None) -> None:
        self.complete_from = 0
        self.removed_ms: list[int] = []
        self._since_ms = since_ms
        self._early: dict[str, list[CoordinatorEntry]] = {}
        self._found: list[CoordinatorEntry] = []

    def take(self, entries: Iterable[CoordinatorEntry], cut: int | None) -> None:
        for each in entries:
            state = each.state
            is_removed = cut is not None and each.offset >= cut
            if state is not None and is_removed:
                self.removed_ms = [min([*self.removed_ms, state.last_change_ms])]
            if state is not None and not is_removed and self._is_early(state):
                if state.state.is_open:
                    self._early.setdefault(each.transactional_id, []).append(each)
                else:
                    self._early.pop(each.transactional_id, None)
                    self.complete_from = each.offset + 1
                continue
            self._found += [*self._early.pop(each.transactional_id, ()), each]

    def _is_early(self, state: CoordinatorTransaction) -> bool:
        return self._since_ms is not None and state.last_change_ms <= self._since_ms

    def found(self) -> tuple[CoordinatorEntry, ...]:
        return (*self._found, *(each for own in self._early.values() for each in own))


def coordinator_entries(window: Window, path: Location, name: str) -> Iterator[CoordinatorEntry]:
    """What a coordinator wrote in the batches of a window.

    Raises:
        NotRewindableError: no coordinator can read a record.
    """
    for columns in expand_window(window, with_records=True, only_valid=True):
        if not isinstance(columns, RecordColumns):
            continue
        base: Column = columns.batches.base_offset[columns.batch]
        is_marker = is_control(columns.batches)[columns.batch]
        for row in range(columns.count):
            if is_marker[row]:
                continue
            offset = int(columns.offset[row])
            try:
                found = read_transaction(columns.key(row), columns.value(row), offset)
            except FormatError as problem:
                raise NotRewindableError(
                    f"{path / name}: the record at offset {offset} cannot be read: {problem.what};"
                    " kdump txns shows what a coordinator makes of it"
                ) from problem
            if found is not None:
                yield CoordinatorEntry(int(base[row]), *found)
