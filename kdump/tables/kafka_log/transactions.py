"""How the transactions of a partition end, and the last stable offset, by reading the log.

What the markers say is nowhere else on disk. Damage that is met on the way is damage: it may hold
the end of any transaction that was open there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from kdump.broker.loader.starting import as_loaded
from kdump.formats import names, producer_snapshot, record_batch
from kdump.formats.compression import Codec
from kdump.formats.errors import FormatError
from kdump.formats.names import FileKind, FileStage
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.log.directory import read_lone_partition
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.log.sound import NO_OFFSET, Damage, LogPart, batch_damage, segment_part, sound_windows
from kdump.scan.batches import BatchColumns, Column, Window
from kdump.scan.source import FileSource
from kdump.state.producers import InvalidMarker, read_marker
from kdump.storage.regular_files import read_file
from kdump.tables.kafka_log.columns import (
    ABORTED,
    COMMITTED,
    OPEN,
    TRANSACTION_STATES,
    is_control,
)
from kdump.tables.kafka_log.damage import OnDamage
from kdump.target.refusal import Refused

ABORT: Final = 0
COMMIT: Final = 1
_ANY: Final = -1
_MARKER_LAYOUT: Final = (
    *(0x20, _ANY, 0, 0),  # length 16, attributes, timestamp delta, offset delta
    *(0x08, 0, 0, 0, _ANY),  # a key of 4 bytes: version 0, kind (``ControlRecordType``)
    *(0x0C, 0, 0, _ANY, _ANY, _ANY, _ANY),  # a value of 6: version 0, coordinator epoch
    0,  # no headers
)
"""The record of a marker, byte by byte, as brokers write it."""
_KIND_AT: Final = 8
_IS_FIXED: Final = np.array([byte != _ANY for byte in _MARKER_LAYOUT])
_PLAIN_MARKER: Final = np.array([max(byte, 0) for byte in _MARKER_LAYOUT], np.uint8)
_PLAIN_MARKER_BYTES: Final = record_batch.HEADER_BYTES + len(_MARKER_LAYOUT)

_STATE_OF_MARKER: Final = {
    ABORT: TRANSACTION_STATES.index(ABORTED),
    COMMIT: TRANSACTION_STATES.index(COMMITTED),
}
_OPEN_STATE: Final = TRANSACTION_STATES.index(OPEN)


class Marker(NamedTuple):
    """The end of a transaction: ``kind`` is :data:`ABORT` or :data:`COMMIT`."""

    producer_id: int
    offset: int
    kind: int


def transaction_rows(batches: BatchColumns) -> Column:
    """Rows of the batches that begin, go on with or end a transaction, in order."""
    flags = record_batch.TRANSACTIONAL_FLAG | record_batch.CONTROL_FLAG
    has_flag = (batches.attributes & flags) != 0
    return np.flatnonzero((batches.magic >= 2) & has_flag & (batches.producer_id >= 0))


def markers(window: Window, rows: Column, path: str) -> Iterator[tuple[int, Marker | Damage]]:
    """The markers among sound batches, each with its row; nothing for what holds data.

    Nothing either for what compaction leaves of a marker once its transaction is gone. Damage is
    what no starting broker can read.

    Args:
        window: the batches.
        rows: given by :func:`transaction_rows`.
        path: of the log.
    """
    batches = window.batches
    rows = rows[(batches.attributes[rows] & record_batch.CONTROL_FLAG) != 0]
    rows = rows[batches.records_count[rows] != 0]
    for row, kind in zip(rows.tolist(), _plain_kinds(window, rows).tolist(), strict=True):
        producer_id, offset = int(batches.producer_id[row]), int(batches.base_offset[row])
        if kind in (ABORT, COMMIT):
            yield row, Marker(producer_id, offset, kind)
            continue
        try:
            is_aborted, _, _ = read_marker(window, row, Path(path).name)
        except (InvalidMarker, Refused) as problem:
            yield row, batch_damage(window, row, path, str(problem))
        else:
            yield row, Marker(producer_id, offset, ABORT if is_aborted else COMMIT)


def _plain_kinds(window: Window, rows: Column) -> Column:
    """The kind of each marker, where the batch is as every broker writes it; -1 else."""
    kinds = np.full(len(rows), -1, np.int64)
    batches = window.batches
    is_plain = (batches.size_bytes[rows] == _PLAIN_MARKER_BYTES) & (
        batches.attributes[rows] & record_batch.CODEC_MASK == Codec.NONE
    )
    plain = np.flatnonzero(is_plain & (batches.records_count[rows] == 1))
    if not plain.size or window.is_giant:
        return kinds
    starts = batches.position[rows[plain]] - window.start + record_batch.HEADER_BYTES
    records = window.data[starts[:, None] + np.arange(len(_PLAIN_MARKER))]
    is_same = ((records == _PLAIN_MARKER) | ~_IS_FIXED).all(axis=1)
    kinds[plain] = np.where(is_same & (records[:, _KIND_AT] <= COMMIT), records[:, _KIND_AT], -1)
    return kinds


# ---- The end of each transaction ----


class TransactionEnds:
    """Finds how the transactions end whose batches are met while a log is read front to back.

    The end of a transaction is the next marker of its producer. A second reading runs ahead of the
    first, over headers alone, as far as is needed to find it: mostly not far, and no further than
    to the end of the partition. A transaction with damage between it and that marker is open, as
    its own marker may have been there.
    """

    def __init__(self, log: Path, part: LogPart, on_damage: OnDamage) -> None:
        """Begin to look.

        Args:
            log: a segment.
            part: what will be asked about.
            on_damage: is given what damage is met; no end may be told behind it.
        """
        self._ends: dict[int, deque[Marker]] = defaultdict(deque)
        self._ended_behind: set[int] = set()
        self._steps = _steps_from(log, part)
        self._on_damage = on_damage
        self._last_offset = NO_OFFSET
        self._damaged_behind: list[int] = []

    def states(self, batches: BatchColumns) -> Column:
        """For each batch its place in ``TRANSACTION_STATES``; batches come by rising offsets.

        Raises:
            OSError: a later segment cannot be read.
        """
        found = np.zeros(batches.count, np.int64)
        rows = transaction_rows(batches)
        for row in rows[~is_control(batches)[rows]].tolist():
            found[row] = self._state(int(batches.producer_id[row]), int(batches.base_offset[row]))
        return found

    def _state(self, producer_id: int, offset: int) -> int:
        ends = self._ends[producer_id]
        while True:
            while ends and ends[0].offset < offset:
                ends.popleft()
            damages = self._damaged_behind
            at = bisect_left(damages, offset)
            if at < len(damages) and not (ends and ends[0].offset <= damages[at]):
                return _OPEN_STATE
            if ends:
                return _STATE_OF_MARKER[ends[0].kind]
            step, is_behind = next(self._steps, (None, True))
            if step is None:
                return _OPEN_STATE
            self._take(step, is_behind)

    def _take(self, step: Window | Damage, is_behind: bool) -> None:
        if isinstance(step, Damage):
            self._damaged(step)
            return
        batches = step.batches
        rows = transaction_rows(batches)
        for row, marker in markers(step, rows, _path(step)):
            if isinstance(marker, Damage):
                self._last_offset = max(self._last_offset, int(batches.base_offset[row]) - 1)
                self._damaged(marker)
            elif marker.producer_id not in self._ended_behind:
                # Behind what is asked about, only a producer's first marker matters.
                self._ends[marker.producer_id].append(marker)
                if is_behind:
                    self._ended_behind.add(marker.producer_id)
        self._last_offset = max(self._last_offset, int(batches.last_offset[-1]))

    def _damaged(self, damage: Damage) -> None:
        self._on_damage(damage)
        self._damaged_behind.append(self._last_offset)


def _path(window: Window) -> str:
    assert isinstance(window.source, FileSource)
    return str(window.source.path)


def _steps_from(log: Path, part: LogPart) -> Iterator[tuple[Window | Damage, bool]]:
    """The sound batches of a segment from a part on, of those behind it, and the damage.

    Each comes with whether all of it lies behind that part.
    """
    with FileSource(log) as source:
        for step in sound_windows(source, replace(part, end=None)):
            yield step, part.end is not None and step.start >= part.end
    for path, later in _logs_behind(log):
        with FileSource(path) as source:
            for step in sound_windows(source, later):
                yield step, True


def _logs_behind(log: Path) -> list[tuple[Path, LogPart]]:
    """The logs that follow in the partition as a starting broker loads it.

    Nothing follows on a leftover that is not loaded.
    """
    partition = as_loaded(read_lone_partition(log.parent, log.absolute().parent.name))
    segment = partition.segment_of(log.name)
    base_offset = None if segment is None else segment.base_offset
    if segment is None:
        parsed = names.parse_offset_file_name(log.name)
        if parsed is not None and parsed.stage is FileStage.LIVE:
            base_offset = parsed.offset
    return [
        (partition.segment_path(each, FileKind.LOG), segment_part(each, following))
        for each, following in partition.with_following()
        if base_offset is not None and each.base_offset > base_offset
    ]


# ---- The last stable offset ----


def snapshots_in(
    partition: Partition, log_start_offset: int, flushed_offset: int | None
) -> list[int]:
    """Offsets of the producer snapshots that a starting broker may begin with, the newest first.

    It deletes those outside of the log, and those behind the first segment that it recovers. What
    a clean stop leaves at the end of the log is left out, as it spares reading the last segment
    alone.

    Args:
        partition: as a starting broker loads it.
        log_start_offset: where the log begins, as the checkpoint says.
        flushed_offset: up to where no segment is recovered; None where none is.
    """
    bases = [segment.base_offset for segment in partition.segments]
    if flushed_offset is not None:
        bases = bases[: max(1, bisect_right(bases, flushed_offset))]
    least = max([log_start_offset, *bases[:1]])
    there = {snapshot.offset for snapshot in partition.producer_snapshots}
    return [base for base in reversed(bases) if base > least and base in there]


def last_stable_offset(
    partition: Partition, snapshots: Sequence[int], on_damage: OnDamage
) -> int | None:
    """Where the first transaction begins that is open at the end of a log; None where none is.

    By a producer snapshot and the log behind it. A snapshot counts only if it agrees with what the
    segment before it says; with none that does, all of the log is read. A transaction that is open
    where damage is may have ended there, and counts no longer.

    Args:
        partition: as a starting broker loads it.
        snapshots: offsets of those that may count, the newest first; a segment begins at each.
        on_damage: is given what damage is met.

    Raises:
        OSError: a segment cannot be read.
    """
    segments = list(partition.with_following())
    at, begun = 0, dict[int, int]()
    numbers = {segment.base_offset: n for n, segment in enumerate(partition.segments)}
    for number in (numbers[offset] for offset in snapshots):
        by_snapshot = _open_by_snapshot(partition, *partition.segments[number - 1 : number + 1])
        if by_snapshot is not None:
            at, begun = number, by_snapshot
            break
    for segment, following in segments[at:]:
        with FileSource(partition.segment_path(segment, FileKind.LOG)) as log:
            for step in sound_windows(log, segment_part(segment, following)):
                _follow(step, begun, on_damage)
    return min(begun.values(), default=None)


def _follow(step: Window | Damage, begun: dict[int, int], on_damage: OnDamage) -> None:
    """Let transactions begin and end as the batches of a window say."""
    if isinstance(step, Damage):
        on_damage(step)
        begun.clear()
        return
    batches = step.batches
    rows = transaction_rows(batches)
    ends = dict(markers(step, rows, _path(step)))
    for row, is_end in zip(rows.tolist(), is_control(batches)[rows].tolist(), strict=True):
        end = ends.get(row)
        if isinstance(end, Damage):
            on_damage(end)
            begun.clear()
        elif end is not None:
            begun.pop(end.producer_id, None)
        elif not is_end:
            begun.setdefault(int(batches.producer_id[row]), int(batches.base_offset[row]))


def _open_by_snapshot(
    partition: Partition, before: Segment, segment: Segment
) -> dict[int, int] | None:
    """By producer, where the transactions begin that are open where ``segment`` does.

    None where the snapshot there cannot be read, or the segment before contradicts it.
    """
    offset = segment.base_offset
    name = str(names.OffsetFileName(offset, FileKind.PRODUCER_SNAPSHOT))
    try:
        snapshot = producer_snapshot.read(read_file(partition.file_path(name)))
    except (FormatError, OSError):
        return None
    seen = _seen_in(partition, before, segment)
    entries = {entry.producer_id: entry for entry in snapshot.entries}
    if seen is None or not _agrees(entries, seen, before.base_offset, offset):
        return None
    return {
        producer_id: entry.current_txn_first_offset
        for producer_id, entry in entries.items()
        if entry.current_txn_first_offset >= 0
    }


@dataclass(slots=True)
class _Seen:
    """What a segment says of a producer: as of its end.

    Attributes:
        is_open: whether a transaction is.
        first_offset: of the first batch of the transaction that is open, in this segment.
        has_ended: whether a transaction ended in it before that, so that none goes on into it.
        last_offset: of the last batch of data; None where there is none.
    """

    is_open: bool = False
    first_offset: int = NO_OFFSET
    has_ended: bool = False
    last_offset: int | None = None


def _seen_in(partition: Partition, segment: Segment, following: Segment) -> dict[int, _Seen] | None:
    """By producer; None where the segment is damaged."""
    seen: dict[int, _Seen] = defaultdict(_Seen)
    with FileSource(partition.segment_path(segment, FileKind.LOG)) as log:
        for step in sound_windows(log, segment_part(segment, following)):
            if isinstance(step, Damage):
                return None
            batches = step.batches
            rows = np.flatnonzero((batches.magic >= 2) & (batches.producer_id >= 0))
            ends = dict(markers(step, transaction_rows(batches), _path(step)))
            flags = batches.attributes[rows].tolist()
            for row, attributes in zip(rows.tolist(), flags, strict=True):
                producer = seen[int(batches.producer_id[row])]
                if attributes & record_batch.CONTROL_FLAG:
                    end = ends.get(row)
                    if isinstance(end, Damage):
                        return None
                    if end is not None:
                        producer.is_open, producer.has_ended = False, True
                    continue
                producer.last_offset = int(batches.last_offset[row])
                if attributes & record_batch.TRANSACTIONAL_FLAG and not producer.is_open:
                    producer.is_open = True
                    producer.first_offset = int(batches.base_offset[row])
    return dict(seen)


def _agrees(
    entries: dict[int, ProducerEntry], seen: dict[int, _Seen], start: int, end: int
) -> bool:
    """Whether a snapshot at ``end`` can be of the log with the segment from ``start`` to there.

    A producer may have expired, and compaction may have removed its last batches.
    """
    if any(entry.last_offset >= end for entry in entries.values()):
        return False
    for producer_id, entry in entries.items():
        begin = entry.current_txn_first_offset
        if begin >= start and (producer_id not in seen or begin >= end):
            return False
    for producer_id, producer in seen.items():
        known = entries.get(producer_id)
        begin = NO_OFFSET if known is None else known.current_txn_first_offset
        if producer.is_open != (begin >= 0):
            return False
        is_elsewhere = producer.is_open and begin != producer.first_offset
        if is_elsewhere and (producer.has_ended or begin > producer.first_offset):
            return False
        is_behind = known is not None and 0 <= known.last_offset < (producer.last_offset or 0)
        if is_behind:
            return False
    return True
