"""The logs of a partition during salvage: which batches stay, and in which segments.

A row of a log is a run of batches without damage between them, so memory depends on the damage and
not on the number of batches. Only where batches compete for offsets, or the loader refuses one, is
the log read again and each of its batches a row.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import numpy as np
from msgspec import Struct, field

from kdump.broker.loader.load_report import Cause, DoubtfulLog
from kdump.broker.loader.valid_batches import (
    DamagedRange,
    ValidBatches,
    collected,
    find_valid_batches,
    walk_valid_batches,
)
from kdump.formats.names import FileKind
from kdump.formats.record_batch import HEADER_BYTES, BatchHeader, decode_header
from kdump.repair.salvage.contradictions import LogEvidence
from kdump.repair.salvage.foreign import find_foreign, suspect_logs
from kdump.repair.salvage.log_runs import SequenceSpan, add_spans, sequence_spans
from kdump.repair.salvage.lost_markers import BatchPlace, LostMarkers, RowCut, abort_marker
from kdump.repair.salvage.missing_offsets import LogOffsets
from kdump.repair.salvage.offset_order import INT32_MAX, increasing_batches, log_order
from kdump.repair.salvage.side_files import SideFiles
from kdump.scan.batches import Column, Flags, read_windows
from kdump.scan.source import read_at
from kdump.state.transactions.producers import outside_of_txn
from kdump.target.target_file import CopiedFrom
from kdump.target.virtual_directory import (
    INDEX_SUFFIXES,
    Content,
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


class KeptLog(Struct, eq=False):
    """One log, and which of its batches stay.

    Attributes:
        base_offset: from its name.
        content: the whole file.
        batches: its valid batches.
        keep: which rows of them stay.
        reasons: why a row is dropped, by its number; not for those that are out of order.
        markers: control batches to insert before a batch, by the batch's position.
    """

    base_offset: int
    content: CopiedFrom
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
        """Numbers of the rows that stay."""
        return np.flatnonzero(self.keep)

    @property
    def own_rows(self) -> Column:
        """Numbers of the rows that belong to the partition, without copies."""
        others = [row for row, (why, _) in self.reasons.items() if why in _NOT_OWN]
        is_own = np.ones(self.batches.count, np.bool_)
        is_own[others] = False
        return np.flatnonzero(is_own)

    def split_rows(self, batches: ValidBatches) -> Column:
        """Take rows that each are a part of a row so far; returns the numbers of those."""
        before = np.searchsorted(self.batches.position, batches.position, side="right") - 1
        self.keep = self.keep[before]
        if self.reasons:
            rows = np.flatnonzero(np.isin(before, np.array([*self.reasons], np.int64)))
            self.reasons = {row: self.reasons[int(before[row])] for row in rows.tolist()}
        self.batches = batches
        return before

    def cut(self, cuts: Iterable[RowCut]) -> None:
        """Begin a new row at some batches in the middle of runs."""
        for cut in sorted(cuts, key=lambda each: each.place.position):
            batches = self.batches
            at = int(np.searchsorted(batches.position, cut.place.position, side="right")) - 1
            if batches.position[at] == cut.place.position:
                continue
            both = batches.chosen(np.sort(np.append(np.arange(batches.count), at)))
            begun = cut.number - int(batches.batches[:at].sum())
            head_bytes = cut.place.position - int(batches.position[at])
            both.batches[at : at + 2] = begun, batches.batches[at] - begun
            both.position[at + 1] = cut.place.position
            both.size_bytes[at : at + 2] = head_bytes, batches.size_bytes[at] - head_bytes
            both.last_offset[at], both.first_offset[at + 1] = cut.last_before, cut.first
            self.split_rows(both)


class SalvagedSegment(Struct, frozen=True):
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
        return join(CopiedFrom(name, *one) for one in zip(starts, ends, strict=True))


class KeptLogs:
    """All logs of a partition, in the order of their batches.

    Attributes:
        logs: in that order.
        log_offsets: the offsets of each log on disk, by base offset.
        contradicted: the files that describe other batches than the log has, by base offset.

    Args:
        directory: the directory; its logs have the bytes on disk, perhaps other names.
        base_offsets: of the logs, rising.
        since_offset: transactions that end below are not known to the loader.

    Raises:
        OSError: a log cannot be read.
    """

    def __init__(
        self, directory: VirtualDirectory, base_offsets: Collection[int], since_offset: int
    ) -> None:
        self._directory = directory
        self.logs: list[KeptLog] = []
        self.log_offsets: dict[int, LogOffsets] = {}
        self.contradicted: dict[int, tuple[str, ...]] = {}
        self._lost = LostMarkers(base_offsets, since_offset)
        spans: dict[int, dict[int, SequenceSpan]] = {}
        self._side_files = SideFiles(directory)
        ends: list[int | None] = [*base_offsets, None]
        for base_offset, end_offset in zip(base_offsets, ends[1:], strict=True):
            content = directory.content(file_name(base_offset, FileKind.LOG))
            assert isinstance(content, CopiedFrom), "a log is a file"
            spans[base_offset] = {}
            self.log_offsets[base_offset] = LogOffsets(base_offset)
            evidence = LogEvidence(base_offset, end_offset, self._side_files)
            batches = collected(self._walk(base_offset, spans[base_offset], evidence)).collapsed()
            if evidence.against:
                self.contradicted[base_offset] = evidence.against
            keep = np.ones(batches.count, np.bool_)
            self.logs.append(KeptLog(base_offset, content, batches, keep))
        in_file_order = list(self.logs)
        self._drop_foreign(spans)
        self._choose()
        if not self._is_all_kept(in_file_order):
            self._lost = self._find_lost_markers(since_offset)

    def _walk(
        self, base_offset: int, spans: dict[int, SequenceSpan], evidence: LogEvidence
    ) -> Iterator[ValidBatches | DamagedRange]:
        """Look at all batches of a log once, and yield the runs of each window."""
        number = 0
        with self._directory.open(file_name(base_offset, FileKind.LOG)) as source:
            for step in walk_valid_batches(source):
                if isinstance(step, ValidBatches):
                    add_spans(spans, sequence_spans(step, slice(None)))
                    self.log_offsets[base_offset].add(step)
                    evidence.add(step)
                    self._lost.add(base_offset, step, number)
                    number += step.count
                    yield step.collapsed()
                else:
                    yield step

    def _is_all_kept(self, in_file_order: list[KeptLog]) -> bool:
        """Whether all batches stay in the order in which they were read."""
        if self.logs != in_file_order or not all(log.keep.all() for log in self.logs):
            return False
        return [log for log, rows in self._runs() if rows.size] == [
            log for log in self.logs if log.batches.count
        ]

    def doubtful(self) -> Iterator[DoubtfulLog]:
        """The logs that stay although files beside them describe other batches.

        A damaged log is not judged: damage explains all that.
        """
        for log in sorted(self.logs, key=lambda each: each.base_offset):
            against = self.contradicted.get(log.base_offset)
            if against is not None and log.is_whole:
                yield DoubtfulLog(log.content.name, against)

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
            rows = np.flatnonzero(np.isin(self._expand(segment.log), rows))
        ends = np.cumsum(segment.log.batches.size_bytes[rows])
        at = int(np.searchsorted(ends, position, side="right"))
        return int(rows[at]) if at < len(rows) else None

    def drop(self, log: KeptLog, row: int, why: Cause, reason: str) -> bool:
        """Drop the batch in a row; batches that were dropped only because of it are kept again.

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

    @property
    def has_lost_markers(self) -> bool:
        """Whether the loader would refuse a batch outside of its producer's transaction."""
        return bool(self._lost.markers or self._lost.outside)

    def end_lost_txns(self, since_offset: int) -> None:
        """Get the loader past the batches that producers wrote outside of open transactions.

        An abort marker ends each of these transactions, or if there is no free offset for one, the
        batch is dropped.

        Args:
            since_offset: transactions that end below are not known to the loader.
        """
        if self._lost.since_offset != since_offset:
            self._lost = self._find_lost_markers(since_offset)
        while not self._take(self._lost):
            self._lost = self._find_lost_markers(since_offset)

    def _take(self, lost: LostMarkers) -> bool:
        """Insert markers and drop batches; returns whether all other batches stay."""
        by_base = {log.base_offset: log for log in self.logs}
        for base_offset, log in by_base.items():
            log.markers.clear()
            log.cut(cut for cut in lost.cuts if cut.place.base_offset == base_offset)
        for each in lost.outside:
            log = by_base[each.place.base_offset]
            row = int(np.searchsorted(log.batches.position, each.place.position))
            log.batches.records_count[row] = each.records_count
            reason = outside_of_txn(each.producer_id, each.offset)
            if not self.drop(log, row, Cause.NOT_LOADABLE, reason):
                return False
        for marker in lost.markers:
            txn, timestamp = self._header(marker.txn), self._header(marker.before).max_timestamp
            log = by_base[marker.following.base_offset]
            markers = log.markers.setdefault(marker.following.position, [])
            markers.append(abort_marker(marker.offset, txn, timestamp))
        return True

    def _find_lost_markers(self, since_offset: int) -> LostMarkers:
        """Look at all batches that stay, in their order, if there is any transaction."""
        found = LostMarkers([log.base_offset for log in self.logs], since_offset)
        if not self._lost.has_txns and self._lost.since_offset <= since_offset:
            return found
        for log, rows in list(self._runs()):
            numbers = np.cumsum(log.batches.batches) - log.batches.batches
            if not log.batches.is_collapsed:
                for begin, end in _touching(rows):
                    part = log.batches.chosen(rows[begin:end])
                    found.add(log.base_offset, part, int(numbers[rows[begin]]))
                continue
            with self._directory.open_content(log.content) as source:
                for row in rows.tolist():
                    number, start = int(numbers[row]), int(log.batches.position[row])
                    end = start + int(log.batches.size_bytes[row])
                    for window in read_windows(source, start, end, checksums=False):
                        part = ValidBatches.of_columns(window.batches)
                        found.add(log.base_offset, part, number)
                        number += part.count
        return found

    def _drop_foreign(self, spans: Mapping[int, Mapping[int, SequenceSpan]]) -> None:
        """Drop the batches that belong to another log."""
        by_base = {log.base_offset: log for log in self.logs}
        suspects = suspect_logs({base: log.batches for base, log in by_base.items()}, spans)
        if not suspects:
            return
        for base in suspects:
            self._expand(by_base[base])
        batches = {base: log.batches for base, log in by_base.items()}
        for base, reasons in find_foreign(batches, spans, self._side_files).items():
            log = by_base[base]
            log.reasons |= {row: (why, REASONS[why]) for row, why in reasons.items()}
            self._expand(log)
            log.keep[list(log.reasons)] = False

    def _runs(self) -> Iterator[tuple[KeptLog, Column]]:
        """Batches that stay, in order, as runs from one log; logs without any come first."""
        for log in self.logs:
            if not log.keep.any():
                yield log, log.rows
            elif int(log.batches.last_offset[log.rows[-1]]) - log.base_offset > INT32_MAX:
                self._expand(log)  # a run may have to be cut
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
        by_base = {log.base_offset: log for log in self.logs}
        own = {base: log.own_rows for base, log in by_base.items()}
        batches = {base: log.batches.chosen(own[base]) for base, log in by_base.items()}
        dropped = {base: _dropped(log) for base, log in by_base.items()}
        keep = increasing_batches(batches, dropped)
        while expanded := _overlapped(batches, keep):
            for base in expanded:
                log = by_base[base]
                self._expand(log)
                own[base], dropped[base] = log.own_rows, _dropped(log)
                batches[base] = log.batches.chosen(own[base])
            keep = increasing_batches(batches, dropped)
        self.logs = [by_base[base_offset] for base_offset in log_order(batches)]
        for log in self.logs:
            log.keep = np.zeros(log.batches.count, np.bool_)
            log.keep[own[log.base_offset]] = keep[log.base_offset]

    def _expand(self, log: KeptLog) -> Column:
        """Give each batch of a log its own row; returns the row that each was part of."""
        if not log.batches.is_collapsed:
            return np.arange(log.batches.count)
        with self._directory.open_content(log.content) as source:
            return log.split_rows(find_valid_batches(source))

    def _header(self, place: BatchPlace) -> BatchHeader:
        with self._directory.open(file_name(place.base_offset, FileKind.LOG)) as source:
            return decode_header(read_at(source, place.position, HEADER_BYTES))


def _dropped(log: KeptLog) -> list[int]:
    """The numbers of the dropped rows among the own rows of a log."""
    reasons = np.array([*log.reasons], np.int64)
    found: list[int] = np.flatnonzero(np.isin(log.own_rows, reasons)).tolist()
    return found


def _touching(rows: Column) -> Iterator[tuple[int, int]]:
    """Begin and end of each part of ``rows`` that has consecutive numbers."""
    edges = [0, *(np.flatnonzero(np.diff(rows) != 1) + 1).tolist(), len(rows)]
    return itertools.pairwise(edges) if len(rows) else iter(())


def _overlapped(logs: Mapping[int, ValidBatches], keep: Mapping[int, Flags]) -> list[int]:
    """The collapsed logs that overlap batches that go: read in full, more of those may stay."""
    collapsed = [base for base, batches in logs.items() if batches.is_collapsed]
    if not collapsed or all(keep[base].all() for base in logs):
        return []
    first = np.concatenate([logs[base].first_offset[~keep[base]] for base in logs])
    last = np.concatenate([logs[base].last_offset[~keep[base]] for base in logs])
    return [base for base in collapsed if _reaches(logs[base], first, last)]


def _reaches(batches: ValidBatches, first: Column, last: Column) -> bool:
    """Whether a log has offsets in the range of another's batches."""
    low, high = batches.first_offset.min(), batches.last_offset.max()
    return bool(((first <= high) & (last >= low)).any())


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
    for position in sorted(log.markers):
        row = int(np.searchsorted(log.batches.position, position))
        following = kept[min(int(np.searchsorted(kept, row)), kept.size - 1)] if kept.size else row
        if rows.size and not rows[0] <= following <= rows[-1]:
            continue
        at = int(np.searchsorted(rows, row))
        offsets = [decode_header(marker).base_offset for marker in log.markers[position]]
        if at > begin:
            yield from _fitting(log, base_offset, rows[begin:at])
        for offset, marker in zip(offsets, log.markers[position], strict=True):
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
