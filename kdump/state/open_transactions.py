"""The transactions that are open at the end of a log, and the last stable offset.

They are found as a starting broker finds them: from a producer snapshot and the log after it. But a
snapshot counts only if the segment before it agrees.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from kdump.formats import names, producer_snapshot
from kdump.formats.errors import FormatError
from kdump.formats.names import FileKind
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.log.valid_windows import Damage, OnDamage, batch_damage, segment_part, valid_windows
from kdump.scan.batches import Window
from kdump.state.markers import read_markers
from kdump.state.producer_events import BatchRun, EmptyMarker, ProducerEvent, read_events
from kdump.state.producers import OpenTxn, Producers
from kdump.state.transaction_outcomes import is_in_transaction, log_path


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


def open_transactions(
    partition: Partition, snapshots: Sequence[int], on_damage: OnDamage
) -> list[OpenTxn]:
    """The transactions that are open at the end of a log, by first offset.

    Without a snapshot that agrees with the segment before it, all of the log is read. A transaction
    that is open where damage is may have ended there and is not counted.

    Args:
        partition: as a starting broker loads it.
        snapshots: offsets of those that may be used, the newest first; a segment begins at each.
        on_damage: takes the damage found.

    Raises:
        OSError: a segment cannot be read.
    """
    return _replay(partition, snapshots, on_damage).open_txns()


def last_stable_offset(
    partition: Partition, snapshots: Sequence[int], on_damage: OnDamage
) -> int | None:
    """Where the first transaction begins that is open at the end of a log; None if none is.

    Takes and raises what :func:`open_transactions` does.
    """
    return _replay(partition, snapshots, on_damage).first_open_offset


def _replay(partition: Partition, snapshots: Sequence[int], on_damage: OnDamage) -> Producers:
    """The producers at the end of a log."""
    segments = list(partition.with_following())
    first, producers = 0, Producers()
    numbers = {segment.base_offset: n for n, segment in enumerate(partition.segments)}
    for number in (numbers[offset] for offset in snapshots):
        entries = _trusted_entries(partition, *partition.segments[number - 1 : number + 1])
        if entries is not None:
            first = number
            for entry in entries:
                producers.load(entry)
            break
    for segment, following in segments[first:]:
        for found in _events_in(partition, segment, following, only_transactions=True):
            if isinstance(found, Damage):
                on_damage(found)
                producers.forget_open_txns()
                continue
            completed = producers.append(found)
            if completed is not None:
                producers.complete(completed)
    return producers


def _events_in(
    partition: Partition,
    segment: Segment,
    following: Segment | None,
    *,
    only_transactions: bool = False,
) -> Iterator[ProducerEvent | Damage]:
    """What the producers did in a segment, or only in transactions, and the damage, in order."""
    with partition.segment_path(segment, FileKind.LOG).open_file() as log:
        for step in valid_windows(log, segment_part(segment, following)):
            if isinstance(step, Damage):
                yield step
            elif only_transactions:
                yield from _events_of(step.rows(is_in_transaction(step.batches)))
            else:
                yield from _events_of(step)


def _events_of(window: Window) -> Iterator[ProducerEvent | Damage]:
    path = log_path(window)
    markers = read_markers(window, path)
    if not markers.problems:
        yield from read_events(window.batches, markers)
        return
    begin = 0
    for row, problem in sorted(markers.problems.items()):
        yield from _events_of(window.rows(slice(begin, row)))
        yield batch_damage(window, row, path, str(problem))
        begin = row + 1
    yield from _events_of(window.rows(slice(begin, None)))


def _trusted_entries(
    partition: Partition, before: Segment, segment: Segment
) -> tuple[ProducerEntry, ...] | None:
    """The snapshot where ``segment`` begins.

    None if it cannot be read, or if the segment before it is damaged or contradicts it.
    """
    offset = segment.base_offset
    name = str(names.OffsetFileName(offset, FileKind.PRODUCER_SNAPSHOT))
    try:
        entries = producer_snapshot.read(partition.file_path(name).read()).entries
    except (FormatError, OSError):
        return None
    evidence = _Evidence()
    for found in _events_in(partition, before, segment):
        if isinstance(found, Damage):
            return None
        evidence.take(found)
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
