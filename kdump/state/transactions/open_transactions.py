"""The transactions that are open at the end of a log, and the last stable offset.

They are found as a starting broker finds them: from a producer snapshot and the log after it. But a
snapshot counts only if the segment before it agrees.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct

from kdump.formats.names import FileKind
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.log.living_windows import partition_windows
from kdump.log.partition import Partition
from kdump.log.producer_snapshots import read_producers
from kdump.log.segment import Segment
from kdump.log.valid_windows import Damage, OnDamage, batch_damage, segment_part, valid_windows
from kdump.scan.batches import BatchColumns, Flags, Window
from kdump.state.transactions.markers import Markers, read_markers
from kdump.state.transactions.producer_events import (
    BatchRun,
    EmptyMarker,
    ProducerEvent,
    read_events,
)
from kdump.state.transactions.producers import CompletedTxn, OpenTxn, Producers
from kdump.state.transactions.transaction_outcomes import is_in_transaction, log_path

_NO_LIMIT: Final = 2**63 - 1
_MAX_ROWS_TOGETHER: Final = 1 << 16
"""Batches are applied when there are so many: about 8 MiB of columns."""


def usable_snapshots(
    partition: Partition, log_start_offset: int, flushed_offset: int | None
) -> list[int]:
    """Offsets of the producer snapshots that a starting broker may begin with, the newest first.

    A starting broker deletes snapshots outside the log and those past the first segment that it
    recovers. The one that a clean stop leaves at the end of the log is left out: it only saves
    reading the last segment.

    Args:
        partition: as a starting broker loads it.
        log_start_offset: where the log begins, as the checkpoint says.
        flushed_offset: no segment below it is recovered; None if none is at all.
    """
    bases = [segment.base_offset for segment in partition.segments]
    if flushed_offset is not None:
        bases = bases[: max(1, bisect_right(bases, flushed_offset))]
    least = max([log_start_offset, *bases[:1]])
    present = {snapshot.offset for snapshot in partition.producer_snapshots}
    return [base for base in reversed(bases) if base > least and base in present]


class LogTransactions(Struct, frozen=True):
    """The transactions of a partition at the end of its log.

    Attributes:
        open_txns: those that are open, by first offset.
        uncertain_txns: those that were open where damage is, by first offset: their marker may have
            been there. Only damage that valid batches follow counts: a starting broker truncates
            the log before damage at its end.
        unreplicated_offset: first offset of the first transaction whose marker is at or past the
            high watermark; None if there is none.
        end_offset: after the last valid batch, and at least where the last segment begins; None
            without a segment.
        has_damage: whether there is damage that valid batches follow.
    """

    open_txns: tuple[OpenTxn, ...] = ()
    uncertain_txns: tuple[OpenTxn, ...] = ()
    unreplicated_offset: int | None = None
    end_offset: int | None = None
    has_damage: bool = False

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the first transaction begins that is undecided for consumers; None if none is.

        Follows ``ProducerStateManager.firstUnstableOffset``.
        """
        firsts = [txn.first_offset for txn in self.open_txns[:1]]
        if self.unreplicated_offset is not None:
            firsts.append(self.unreplicated_offset)
        return min(firsts, default=None)


def read_transactions(
    partition: Partition,
    snapshots: Sequence[int],
    on_damage: OnDamage,
    *,
    high_watermark: int | None = None,
) -> LogTransactions:
    """Find the transactions at the end of a log.

    Without a snapshot that agrees with the segment before it, all of the log is read.

    Args:
        partition: as a starting broker loads it.
        snapshots: offsets of those that may be used, the newest first; a segment begins at each.
        on_damage: takes the damage found.
        high_watermark: of the log; None if it is unknown, and no marker is past it.

    Raises:
        OSError: a segment cannot be read.
    """
    if not partition.segments:
        return LogTransactions()
    replay = TransactionReplay(high_watermark)
    first = 0
    numbers = {segment.base_offset: n for n, segment in enumerate(partition.segments)}
    for number in (numbers[offset] for offset in snapshots):
        entries = _trusted_entries(partition, *partition.segments[number - 1 : number + 1])
        if entries is not None:
            first = number
            replay.load(entries)
            break
    for step in partition_windows(partition, first):
        replay.take(step, on_damage)
    return replay.result(partition.segments[-1].base_offset)


def snapshot_transactions(partition: Partition, end_offset: int) -> LogTransactions | None:
    """Find the transactions at the end of a log from the snapshot that a clean stop left there.

    As a starting broker does after a clean shutdown, which reads no record.

    Args:
        partition: as a starting broker loads it.

    Returns:
        The transactions; None if there is no such snapshot, or it is damaged.
    """
    if all(snapshot.offset != end_offset for snapshot in partition.producer_snapshots):
        return None
    entries = read_producers(partition, end_offset)
    if entries is None:
        return None
    producers = Producers()
    for entry in entries:
        producers.load(entry)
    return LogTransactions(tuple(producers.open_txns()), end_offset=end_offset)


def open_transactions(
    partition: Partition, snapshots: Sequence[int], on_damage: OnDamage
) -> list[OpenTxn]:
    """The transactions that are open at the end of a log, by first offset.

    A transaction that is open where damage is, with valid batches after it, may have ended there
    and is not counted. Takes and raises what :func:`read_transactions` does.
    """
    return list(read_transactions(partition, snapshots, on_damage).open_txns)


def last_stable_offset(
    partition: Partition, snapshots: Sequence[int], on_damage: OnDamage
) -> int | None:
    """Where the first transaction begins that is open at the end of a log; None if none is.

    Takes and raises what :func:`open_transactions` does.
    """
    return read_transactions(partition, snapshots, on_damage).first_unstable_offset


class TransactionReplay:
    """The producers of a log while its batches are applied.

    Args:
        high_watermark: of the log; None if it is unknown, and no marker is past it.
    """

    def __init__(self, high_watermark: int | None) -> None:
        self._producers = Producers()
        self._pending = _Pending(self._producers, high_watermark)
        self._uncertain: dict[int, OpenTxn] = {}
        self._end_offset = 0
        self._is_after_damage = False
        self._has_damage = False

    def load(self, entries: Sequence[ProducerEntry]) -> None:
        """Begin with the entries of a snapshot."""
        for entry in entries:
            self._producers.load(entry)

    def take(self, step: Window | Damage, on_damage: OnDamage) -> None:
        """Take in the next valid batches of the log, or the damage between them."""
        if isinstance(step, Damage):
            self._take_damage(step, on_damage)
            return
        end_offset = int(step.batches.last_offset[-1]) + 1
        for part in _parts_of(step.rows(is_in_transaction(step.batches)), end_offset):
            if isinstance(part, Damage):
                self._take_damage(part, on_damage)
            else:
                self._take_part(part)

    def _take_damage(self, damage: Damage, on_damage: OnDamage) -> None:
        on_damage(damage)
        self._is_after_damage = True

    def _take_part(self, part: _Part) -> None:
        if self._is_after_damage:
            self._forget()
        self._end_offset = part.end_offset
        for producer_id in part.batches.producer_id[part.markers.row].tolist():
            self._uncertain.pop(producer_id, None)
        self._pending.add(part)

    def _forget(self) -> None:
        """Count no transaction as open any more that may have ended in the damage."""
        self._is_after_damage = False
        self._has_damage = True
        self._pending.apply()
        for txn in self._producers.open_txns():
            self._uncertain.setdefault(txn.producer_id, txn)
        self._producers.forget_open_txns()

    def result(self, least_end_offset: int) -> LogTransactions:
        """The transactions; an empty segment at the end begins at ``least_end_offset``."""
        self._pending.apply(is_all=True)
        return LogTransactions(
            tuple(self._producers.open_txns()),
            tuple(sorted(self._uncertain.values(), key=lambda txn: txn.first_offset)),
            self._pending.unreplicated_offset,
            max(self._end_offset, least_end_offset),
            self._has_damage,
        )


class _Part(NamedTuple):
    """Batches of a log without damage between them, and all markers that they hold.

    ``end_offset`` is after the last valid batch of the log up to there, in a transaction or not.
    """

    batches: BatchColumns
    markers: Markers
    end_offset: int


class _Pending:
    """Batches of transactions that are not yet applied to ``producers``.

    Most transactions begin and end among them. Those are left out before anything is applied one
    by one: only the last marker of each producer and the batches after it say what is open.
    """

    def __init__(self, producers: Producers, high_watermark: int | None) -> None:
        self._producers = producers
        self._parts: list[_Part] = []
        self._count = 0
        self._high_watermark = _NO_LIMIT if high_watermark is None else high_watermark
        self.unreplicated_offset: int | None = None
        """First offset of the first transaction whose marker is not below the high watermark."""

    def add(self, part: _Part) -> None:
        """Take the next batches of the log, all of them in transactions."""
        self._parts.append(part)
        self._count += part.batches.count
        if self._count >= _MAX_ROWS_TOGETHER:
            self.apply()

    def apply(self, *, is_all: bool = False) -> None:
        """Apply the batches to the producers; ``is_all`` if nothing follows."""
        if self._count:
            part = _joined(self._parts)
            keep = _is_undecided(part, self._high_watermark)
            if is_all:
                keep &= ~self._is_of_ended(part)
            kept = _rows_of(part, keep)
            for event in read_events(kept.batches, kept.markers):
                completed = self._producers.append(event)
                if completed is not None:
                    self._complete(completed)
        self._parts, self._count = [], 0

    def _complete(self, txn: CompletedTxn) -> None:
        self._producers.complete(txn)
        if txn.last_offset >= self._high_watermark:
            first = txn.first_offset
            before = self.unreplicated_offset
            self.unreplicated_offset = first if before is None else min(before, first)

    def _is_of_ended(self, part: _Part) -> Flags:
        """Which batches are of producers that do nothing after a marker and had nothing open."""
        producer_id = part.batches.producer_id
        ids, last = np.unique(producer_id[::-1], return_index=True)
        is_ended = _is_marker(part)[part.batches.count - 1 - last]
        is_ended &= part.batches.base_offset[part.batches.count - 1 - last] < self._high_watermark
        known = np.fromiter(self._producers.by_id, np.int64, len(self._producers.by_id))
        ended = ids[is_ended & ~np.isin(ids, known)]
        of_ended: Flags = np.isin(producer_id, ended)
        return of_ended


def _is_undecided(part: _Part, high_watermark: int) -> Flags:
    """Which batches are not before the last marker of their producer below the high watermark."""
    row = part.markers.row
    row = row[part.batches.base_offset[row] < high_watermark]
    ids, last = np.unique(part.batches.producer_id[row][::-1], return_index=True)
    if not ids.size:
        return np.ones(part.batches.count, np.bool_)
    last_row = row[::-1][last]
    at = np.minimum(np.searchsorted(ids, part.batches.producer_id), ids.size - 1)
    is_before = np.arange(part.batches.count) < last_row[at]
    undecided: Flags = (ids[at] != part.batches.producer_id) | ~is_before
    return undecided


def _is_marker(part: _Part) -> Flags:
    is_marker = np.zeros(part.batches.count, np.bool_)
    is_marker[part.markers.row] = True
    return is_marker


def _joined(parts: Sequence[_Part]) -> _Part:
    """Several parts of a log as one."""
    starts = np.cumsum([0, *(part.batches.count for part in parts[:-1])])
    markers = [part.markers for part in parts]
    return _Part(
        BatchColumns.joined([part.batches for part in parts]),
        Markers(
            np.concatenate([each.row + start for each, start in zip(markers, starts, strict=True)]),
            np.concatenate([each.is_abort for each in markers]),
            np.concatenate([each.coordinator_epoch for each in markers]),
            np.concatenate([each.timestamp for each in markers]),
            {},
        ),
        parts[-1].end_offset,
    )


def _rows_of(part: _Part, keep: Flags) -> _Part:
    """Only some of the batches, and the markers that they hold."""
    markers = part.markers
    kept = keep[markers.row]
    rows = np.cumsum(keep) - 1
    return _Part(
        part.batches.rows(keep),
        Markers(
            rows[markers.row[kept]],
            markers.is_abort[kept],
            markers.coordinator_epoch[kept],
            markers.timestamp[kept],
            {},
        ),
        part.end_offset,
    )


def _parts_in(
    partition: Partition, segment: Segment, following: Segment | None
) -> Iterator[_Part | Damage]:
    """The batches of a segment and the damage, in order."""
    with partition.segment_path(segment, FileKind.LOG).open_file() as log:
        for step in valid_windows(log, segment_part(segment, following)):
            if isinstance(step, Damage):
                yield step
                continue
            end_offset = int(step.batches.last_offset[-1]) + 1
            yield from _parts_of(step, end_offset)


def _parts_of(window: Window, end_offset: int) -> Iterator[_Part | Damage]:
    path = log_path(window)
    markers = read_markers(window, path)
    if not markers.problems:
        yield _Part(window.batches, markers, end_offset)
        return
    begin = 0
    for row, problem in sorted(markers.problems.items()):
        yield from _parts_of(window.rows(slice(begin, row)), int(window.batches.base_offset[row]))
        yield batch_damage(window, row, path, str(problem))
        begin = row + 1
    if begin < window.batches.count:
        yield from _parts_of(window.rows(slice(begin, None)), end_offset)


def _trusted_entries(
    partition: Partition, before: Segment, segment: Segment
) -> tuple[ProducerEntry, ...] | None:
    """The snapshot where ``segment`` begins.

    None if it cannot be read, or if the segment before it is damaged or contradicts it.
    """
    offset = segment.base_offset
    entries = read_producers(partition, offset)
    if entries is None:
        return None
    evidence = _Evidence()
    for found in _parts_in(partition, before, segment):
        if isinstance(found, Damage):
            return None
        for event in read_events(found.batches, found.markers):
            evidence.take(event)
    return entries if evidence.agrees_with(entries, before.base_offset, offset) else None


class _Evidence:
    """What one segment alone says about producers."""

    def __init__(self) -> None:
        self._producers = Producers()
        self._last_offsets: dict[int, int] = {}
        self._with_marker: set[int] = set()

    def take(self, event: ProducerEvent) -> None:
        self._producers.append(event)
        if isinstance(event, BatchRun):
            self._last_offsets[event.producer_id] = event.last_offset
        elif not isinstance(event, EmptyMarker):
            self._with_marker.add(event.producer_id)

    def agrees_with(self, entries: Sequence[ProducerEntry], start: int, end: int) -> bool:
        """Whether a snapshot at ``end`` fits the segment from ``start`` to there.

        A producer may have expired, and compaction may have removed its last batches.
        """
        known = {entry.producer_id: entry for entry in entries}
        for entry in entries:
            begin = entry.current_txn_first_offset
            is_unseen = begin >= end or entry.producer_id not in self._producers.by_id
            if entry.last_offset >= end or (begin >= start and is_unseen):
                return False
        return all(self._agrees(id_, known.get(id_)) for id_ in self._producers.by_id)

    def _agrees(self, producer_id: int, entry: ProducerEntry | None) -> bool:
        first_offset = self._producers.by_id[producer_id].txn_first_offset
        begin = -1 if entry is None else entry.current_txn_first_offset
        if (first_offset is not None) != (begin >= 0):
            return False
        # It may have begun in an earlier segment, unless a marker stands between.
        may_begin_earlier = producer_id not in self._with_marker and begin <= (first_offset or 0)
        if first_offset is not None and begin != first_offset and not may_begin_earlier:
            return False
        last_offset = self._last_offsets.get(producer_id, 0)
        return entry is None or not 0 <= entry.last_offset < last_offset
