"""The logs of a partition during salvage: which batches stay, and in which segments."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

import numpy as np

from kdump.broker.loader.load_report import Cause
from kdump.broker.loader.valid_batches import ValidBatches, find_valid_batches
from kdump.formats.names import FileKind
from kdump.formats.record_batch import HEADER_BYTES, BatchHeader, decode_header
from kdump.repair.salvage.foreign import find_foreign, suspect_logs
from kdump.repair.salvage.log_runs import SequenceSpan, sequence_spans
from kdump.repair.salvage.lost_markers import (
    KeptBatches,
    abort_marker,
    free_place,
    outside_of_txns,
)
from kdump.repair.salvage.missing_offsets import LogOffsets, offsets_of_log
from kdump.repair.salvage.offset_order import INT32_MAX, increasing_batches, log_order
from kdump.scan.batches import Column, Flags
from kdump.scan.source import read_at
from kdump.state.transactions.producers import outside_of_txn
from kdump.target.virtual_directory import (
    INDEX_SUFFIXES,
    Content,
    Stored,
    VirtualDirectory,
    Written,
    file_name,
    join,
    part_of,
)

REASONS: Final = {
    Cause.FOREIGN: "they belong to another log",
    Cause.DUPLICATE: "their offsets occur twice",
    Cause.UNDECIDED: (
        "they contradict other batches, and too little shows which belong to the partition"
    ),
    Cause.OUT_OF_ORDER: "their offsets do not fit between those around them",
}
"""The reason for a whole range of batches to go, by cause."""
_NOT_OWN: Final = (Cause.FOREIGN, Cause.DUPLICATE, Cause.UNDECIDED)


@dataclass(slots=True, eq=False)
class KeptLog:
    """One log, and which of its batches stay.

    Attributes:
        base_offset: from its name.
        content: the whole file.
        batches: its valid batches.
        keep: which of them stay.
        reasons: why a batch is dropped, by its number; not for those that are out of order.
        markers: control batches to insert before a batch, by the batch's number.
    """

    base_offset: int
    content: Stored
    batches: ValidBatches
    keep: Flags
    reasons: dict[int, tuple[Cause, str]] = field(default_factory=dict)
    markers: dict[int, list[bytes]] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether all bytes stay and nothing is inserted."""
        return not self.batches.damaged and bool(self.keep.all()) and not self.markers

    @property
    def rows(self) -> Column:
        """Numbers of the batches that stay."""
        return np.flatnonzero(self.keep)

    @property
    def own_rows(self) -> Column:
        """Numbers of the batches that belong to the partition, without copies."""
        others = [row for row, (why, _) in self.reasons.items() if why in _NOT_OWN]
        is_own = np.ones(self.batches.count, np.bool_)
        is_own[others] = False
        return np.flatnonzero(is_own)


@dataclass(frozen=True, slots=True)
class SalvagedSegment:
    """A log of the target state: batches of one existing log, or one inserted marker."""

    base_offset: int
    log: KeptLog
    rows: Column
    marker: bytes = b""

    @property
    def name(self) -> str:
        return file_name(self.base_offset, FileKind.LOG)

    @property
    def is_empty(self) -> bool:
        return not self.rows.size and not self.marker

    @property
    def is_as_before(self) -> bool:
        """Whether it is an existing log, unchanged."""
        is_all = self.log.is_whole and self.rows.size == self.log.batches.count
        return is_all and self.base_offset == self.log.base_offset

    def content(self) -> Content:
        """The bytes of the log, as ranges of the existing one."""
        if self.marker:
            return Written(self.marker)
        if not self.rows.size:
            return part_of(self.log.content, 0, 0)
        start = self.log.content.start
        position = self.log.batches.position[self.rows] + start
        end = position + self.log.batches.size_bytes[self.rows]
        breaks = np.flatnonzero(position[1:] != end[:-1])
        starts = position[np.concatenate(([0], breaks + 1))].tolist()
        ends = end[np.concatenate((breaks, [len(end) - 1]))].tolist()
        name = self.log.content.name
        return join(Stored(name, *one) for one in zip(starts, ends, strict=True))


class _KeptOrder:
    """The batches that stay, in the order of their offsets.

    Attributes:
        batches: their columns.

    Args:
        runs: as :meth:`KeptLogs._runs` has them.
    """

    def __init__(self, runs: Sequence[tuple[KeptLog, Column]]) -> None:
        self._logs = [log for log, _ in runs]
        self._run = np.repeat(np.arange(len(runs)), [rows.size for _, rows in runs])
        self._row = np.concatenate([rows for _, rows in runs])
        self.batches = KeptBatches(
            **{
                each.name: np.concatenate(
                    [getattr(log.batches, each.name)[rows] for log, rows in runs]
                )
                for each in fields(KeptBatches)
            }
        )

    def place(self, at: int) -> tuple[KeptLog, int]:
        """The log of a batch, and its number there."""
        return self._logs[int(self._run[at])], int(self._row[at])

    def index(self, log: KeptLog, row: int) -> int:
        """Where a batch of a log is, or if it does not stay, the next one of the log."""
        is_run_of_log = np.array([each is log for each in self._logs])
        found = np.flatnonzero(is_run_of_log[self._run] & (self._row >= row))
        return int(found[0]) if found.size else len(self._row)

    def reason(self, at: int) -> str:
        """Why the loader refuses a batch outside of its producer's transaction."""
        producer_id, offset = self.batches.producer_id[at], self.batches.first_offset[at]
        return outside_of_txn(int(producer_id), int(offset))

    def outside_of_txns(self, begin: int, since_offset: int) -> list[int]:
        """The batches from ``begin`` on that the loader refuses for that reason."""
        inserted = [
            (self.index(log, row), decode_header(marker).producer_id)
            for log in dict.fromkeys(self._logs)
            for row, markers in log.markers.items()
            for marker in markers
        ]
        found: list[int] = outside_of_txns(self.batches, inserted, begin, since_offset).tolist()
        return found


class KeptLogs:
    """All logs of a partition, in the order of their batches.

    Attributes:
        logs: in that order.
        log_offsets: the offsets of each log on disk, by base offset.

    Args:
        directory: the directory; its logs have the bytes on disk, perhaps other names.
        base_offsets: of the logs.

    Raises:
        OSError: a log cannot be read.
    """

    def __init__(self, directory: VirtualDirectory, base_offsets: Iterable[int]) -> None:
        self._directory = directory
        self.logs: list[KeptLog] = []
        self.log_offsets: dict[int, LogOffsets] = {}
        spans: dict[int, dict[int, SequenceSpan]] = {}
        for base_offset in base_offsets:
            content = directory.content(file_name(base_offset, FileKind.LOG))
            assert isinstance(content, Stored), "a log is a file"
            batches = self._read(base_offset)
            spans[base_offset] = sequence_spans(batches, slice(None))
            self.log_offsets[base_offset] = offsets_of_log(base_offset, batches)
            batches = batches.collapsed()
            keep = np.ones(batches.count, np.bool_)
            self.logs.append(KeptLog(base_offset, content, batches, keep))
        self._drop_foreign(spans)
        self._choose()

    @property
    def end_offset(self) -> int:
        """The offset after the last one, or the highest base offset if that is more."""
        end_offset = max((log.base_offset for log in self.logs), default=0)
        for log in self.logs:
            if log.keep.any():
                end_offset = max(end_offset, int(log.batches.last_offset[log.keep].max()) + 1)
        return end_offset

    @property
    def has_own_names(self) -> bool:
        """Whether every log keeps its name, and none has offsets between batches of another."""
        if sum(1 for _ in self._runs()) > len(self.logs):
            return False
        return all(each.base_offset == each.log.base_offset for each in self.segments())

    def segments(self) -> list[SalvagedSegment]:
        """The logs of the target state, in order.

        A log is named after its first batch if that is below the log's name, or if the log before
        overlaps it. A new log begins with an inserted marker, after batches of another log, and
        where offsets are too far above the name for an index.
        """
        found: list[SalvagedSegment] = []
        last_before = -1
        for log, rows in self._runs():
            base_offset = log.base_offset
            if rows.size:
                first = int(log.batches.first_offset[rows[0]])
                is_first = rows[0] == log.rows[0]
                if first < base_offset or last_before >= base_offset or not is_first:
                    base_offset = first
                last_before = int(log.batches.last_offset[rows[-1]])
            found.extend(_segments_of(log, base_offset, rows))
        return [
            segment for segment in found if not (segment.is_empty and _is_covered(segment, found))
        ]

    def lay_out(self, directory: VirtualDirectory, segments: list[SalvagedSegment]) -> None:
        """Replace the logs in ``directory`` by ``segments``; changed ones lose their indexes."""
        changed = [segment for segment in segments if not segment.is_as_before]
        used = {segment.log.base_offset for segment in segments}
        gone = {log.base_offset for log in self.logs if log.base_offset not in used}
        for segment in changed:
            gone |= {segment.log.base_offset, segment.base_offset}
        for base_offset in gone:
            directory.remove(file_name(base_offset, FileKind.LOG))
            for suffix in INDEX_SUFFIXES:
                directory.remove(file_name(base_offset, FileKind(suffix)))
        for segment in changed:
            directory.put(segment.name, segment.content())

    def row_at(self, segment: SalvagedSegment, position: int) -> int | None:
        """Number of the batch at byte ``position`` of ``segment``."""
        if segment.marker:
            return None
        rows = segment.rows
        if segment.log.batches.is_collapsed:
            self._expand(segment.log)
            rows = segment.log.rows
        ends = np.cumsum(segment.log.batches.size_bytes[rows])
        at = int(np.searchsorted(ends, position, side="right"))
        return int(rows[at]) if at < len(rows) else None

    def drop(self, log: KeptLog, row: int, why: Cause, reason: str) -> bool:
        """Drop a batch; batches that were dropped only because of it are kept again.

        Returns:
            Whether all other batches stay as they were.
        """
        was_out_of_order = any(
            int(np.count_nonzero(~each.keep)) > len(each.reasons) for each in self.logs
        )
        log.keep[row] = False
        log.reasons[row] = (why, reason)
        if not was_out_of_order:
            return True
        before = {each.base_offset: each.keep for each in self.logs}
        self._choose()
        if all(np.array_equal(before[each.base_offset], each.keep) for each in self.logs):
            return True
        for each in self.logs:
            each.markers.clear()  # other batches may have their offsets now
        return False

    def get_past_txn(self, log: KeptLog, row: int, since_offset: int) -> None:
        """Get the loader past a batch that its producer wrote outside of its open transaction.

        An abort marker ends the transaction, or if there is no free offset for one, the batch is
        dropped. Then the same for each such batch that the loader would refuse next, so that it
        does not have to read everything again for each.

        Args:
            log: of the batch.
            row: of the batch in it.
            since_offset: where the loader begins.
        """
        for each in self.logs:
            self._expand(each)
        order = _KeptOrder(list(self._runs()))
        first = order.index(log, row)
        refused: Sequence[int] = [first]
        while refused:
            for at in refused:
                if self._end_txn(order, at):
                    continue
                if not self.drop(*order.place(at), Cause.NOT_LOADABLE, order.reason(at)):
                    return
                order = _KeptOrder(list(self._runs()))
                break
            refused = order.outside_of_txns(first, since_offset)

    def _end_txn(self, order: _KeptOrder, at: int) -> bool:
        """Insert an abort marker before a batch, or before one of those before it.

        Returns:
            Whether there is a free offset for the marker.
        """
        batches = order.batches
        place = free_place(batches, at)
        if place is None:
            return False
        log, following = order.place(place.row)
        markers = log.markers.setdefault(following, [])
        offset = int(batches.last_offset[place.row - 1]) + 1 + len(markers)
        is_name_taken = any(
            other.base_offset == offset and not (other is log and following == log.rows[0])
            for other in self.logs
        )
        if offset >= batches.first_offset[place.row] or is_name_taken:
            return False
        timestamp = self._header(*order.place(place.row - 1)).max_timestamp
        txn = self._header(*order.place(place.txn_row))
        markers.append(abort_marker(offset, txn, timestamp))
        return True

    def _drop_foreign(self, spans: Mapping[int, Mapping[int, SequenceSpan]]) -> None:
        """Drop the batches that belong to another log."""
        by_base = {log.base_offset: log for log in self.logs}
        suspects = suspect_logs({base: log.batches for base, log in by_base.items()}, spans)
        if not suspects:
            return
        for base in suspects:
            self._expand(by_base[base])
        batches = {base: log.batches for base, log in by_base.items()}
        for base, reasons in find_foreign(batches, spans, self._directory).items():
            log = by_base[base]
            if log.batches.is_collapsed:
                self._expand(log)
                reasons = dict.fromkeys(range(log.batches.count), reasons[0])
            log.keep[list(reasons)] = False
            log.reasons |= {row: (why, REASONS[why]) for row, why in reasons.items()}

    def _runs(self) -> Iterator[tuple[KeptLog, Column]]:
        """Batches that stay, in order, as runs from one log; logs without any come first."""
        for log in self.logs:
            if not log.keep.any():
                yield log, log.rows
            elif int(log.batches.last_offset[log.rows[-1]]) - log.base_offset > INT32_MAX:
                self._expand(log)
        logs = [log for log in self.logs if log.keep.any()]
        if not logs:
            return
        first = np.concatenate([log.batches.first_offset[log.rows] for log in logs])
        rows = np.concatenate([log.rows for log in logs])
        of_log = np.repeat(np.arange(len(logs)), [log.rows.size for log in logs])
        order = np.argsort(first, kind="stable")
        rows, of_log = rows[order], of_log[order]
        edges = [0, *(np.flatnonzero(of_log[1:] != of_log[:-1]) + 1).tolist(), len(rows)]
        for begin, end in itertools.pairwise(edges):
            yield logs[int(of_log[begin])], rows[begin:end]

    def _choose(self) -> None:
        """Choose which batches stay, except for dropped ones, and order the logs."""
        own = {log.base_offset: log.own_rows for log in self.logs}
        batches = {log.base_offset: log.batches.chosen(own[log.base_offset]) for log in self.logs}
        dropped = {
            log.base_offset: np.flatnonzero(
                np.isin(own[log.base_offset], np.array([*log.reasons], np.int64))
            ).tolist()
            for log in self.logs
        }
        keep = increasing_batches(batches, dropped)
        by_base = {log.base_offset: log for log in self.logs}
        while expanded := _overlapped(batches, keep):
            for base in expanded:
                by_base[base].batches = batches[base] = self._read(base)
                own[base] = np.arange(batches[base].count)
            keep = increasing_batches(batches, dropped)
        self.logs = [by_base[base_offset] for base_offset in log_order(batches)]
        for log in self.logs:
            log.keep = np.zeros(log.batches.count, np.bool_)
            log.keep[own[log.base_offset]] = keep[log.base_offset]

    def _read(self, base_offset: int) -> ValidBatches:
        with self._directory.open(file_name(base_offset, FileKind.LOG)) as source:
            return find_valid_batches(source)

    def _expand(self, log: KeptLog) -> None:
        if log.batches.is_collapsed:
            log.batches = self._read(log.base_offset)
            log.keep = np.ones(log.batches.count, np.bool_)

    def _header(self, log: KeptLog, row: int) -> BatchHeader:
        with self._directory.open_content(log.content) as source:
            return decode_header(read_at(source, int(log.batches.position[row]), HEADER_BYTES))


def _overlapped(logs: Mapping[int, ValidBatches], keep: Mapping[int, Flags]) -> list[int]:
    """The collapsed logs that overlap batches that go: read in full, more of those may stay."""
    collapsed = [base for base, batches in logs.items() if batches.is_collapsed]
    if not collapsed:
        return []
    first = np.concatenate([logs[base].first_offset[~keep[base]] for base in logs])
    last = np.concatenate([logs[base].last_offset[~keep[base]] for base in logs])
    return [
        base
        for base in collapsed
        if ((first <= logs[base].last_offset) & (last >= logs[base].first_offset)).any()
    ]


def _is_covered(empty: SalvagedSegment, segments: Iterable[SalvagedSegment]) -> bool:
    """Whether a segment with batches covers the base offset of an empty one."""
    for each in segments:
        if each.is_empty:
            continue
        last = each.base_offset
        if each.rows.size:
            last = int(each.log.batches.last_offset[each.rows[-1]])
        if each.base_offset <= empty.base_offset <= last:
            return True
    return False


def _segments_of(log: KeptLog, base_offset: int, rows: Column) -> Iterator[SalvagedSegment]:
    """One segment; with inserted markers, one for each marker and one for what follows."""
    begin = 0
    kept = log.rows
    for row in sorted(log.markers):
        following = kept[min(int(np.searchsorted(kept, row)), kept.size - 1)] if kept.size else row
        if rows.size and not rows[0] <= following <= rows[-1]:
            continue
        at = int(np.searchsorted(rows, row))
        offsets = [decode_header(marker).base_offset for marker in log.markers[row]]
        if at > begin:
            yield from _fitting(log, base_offset, rows[begin:at])
        for offset, marker in zip(offsets, log.markers[row], strict=True):
            yield SalvagedSegment(offset, log, rows[:0], marker)
        if at > begin or base_offset in offsets:
            base_offset = int(log.batches.first_offset[rows[at] if at < len(rows) else row])
        begin = at
    yield from _fitting(log, base_offset, rows[begin:])


def _fitting(log: KeptLog, base_offset: int, rows: Column) -> Iterator[SalvagedSegment]:
    """One segment, or several if its offsets span more than an index can hold."""
    while rows.size:
        first = log.batches.first_offset[rows]
        relative = log.batches.last_offset[rows] - base_offset
        fitting = int(np.searchsorted(relative, INT32_MAX, side="right"))
        if base_offset == first[0]:
            fitting = max(fitting, 1)  # no other name suits a batch that is this wide
        if fitting == rows.size:
            break
        if fitting:
            yield SalvagedSegment(base_offset, log, rows[:fitting])
        base_offset, rows = int(first[fitting]), rows[fitting:]
    yield SalvagedSegment(base_offset, log, rows)
