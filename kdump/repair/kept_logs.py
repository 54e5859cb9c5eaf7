"""The logs of a partition that is salvaged: which batches stay, and under which names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from kdump.formats.names import FileKind
from kdump.formats.record_batch import HEADER_BYTES, BatchHeader, decode_header
from kdump.repair.account import Why
from kdump.repair.lost_markers import Row, abort_marker, free_place
from kdump.repair.offset_order import log_order, rising_batches
from kdump.repair.sound_batches import SoundBatches, find_sound_batches
from kdump.repair.workspace import (
    INDEX_SUFFIXES,
    Content,
    Stored,
    Workspace,
    Written,
    file_name,
    join,
    part_of,
)
from kdump.scan.batches import Column, Flags
from kdump.scan.source import read_at


@dataclass(slots=True, eq=False)
class KeptLog:
    """One log, and which of its batches stay.

    Attributes:
        base_offset: from its name.
        content: all of it.
        batches: the valid ones in it.
        keep: which of them stay.
        reasons: why others do not, where the loader said so; by number.
        markers: what comes in front of a batch, by the batch's number.
    """

    base_offset: int
    content: Stored
    batches: SoundBatches
    keep: Flags
    reasons: dict[int, tuple[Why, str]] = field(default_factory=dict)
    markers: dict[int, list[bytes]] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        return not self.batches.damaged and bool(self.keep.all()) and not self.markers

    @property
    def rows(self) -> Column:
        """Numbers of the batches that stay."""
        return np.flatnonzero(self.keep)


@dataclass(frozen=True, slots=True)
class Segment:
    """A log as it is to be: some batches of one that is there, or one that is made."""

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
        return self.log.is_whole and self.base_offset == self.log.base_offset

    def content(self) -> Content:
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


class KeptLogs:
    """All logs of a partition in the order of what they hold.

    Args:
        workspace: the directory; its logs are as they are on disk, but for their names.
        base_offsets: of the logs.

    Raises:
        OSError: a log cannot be read.
    """

    def __init__(self, workspace: Workspace, base_offsets: Iterable[int]) -> None:
        self._workspace = workspace
        self.logs: list[KeptLog] = []
        batches = {base: self._read(base).collapsed() for base in base_offsets}
        keep = rising_batches(batches)
        while expanded := _overlapped(batches, keep):
            batches |= {base: self._read(base) for base in expanded}
            keep = rising_batches(batches)
        for base_offset in log_order(batches):
            content = workspace.content(file_name(base_offset, FileKind.LOG))
            assert isinstance(content, Stored), "a log is a file"
            self.logs.append(KeptLog(base_offset, content, batches[base_offset], keep[base_offset]))

    @property
    def end_offset(self) -> int:
        """One above the last offset of all; the highest base offset where that is more."""
        end_offset = max((log.base_offset for log in self.logs), default=0)
        for log in self.logs:
            if log.keep.any():
                end_offset = max(end_offset, int(log.batches.last_offset[log.keep].max()) + 1)
        return end_offset

    def segments(self) -> list[Segment]:
        """The logs as they are to be, in order.

        One that does not begin at its name, or that one before reaches into, gets the name of
        its first batch. A marker that is made becomes a log by itself.
        """
        found: list[Segment] = []
        last_before = -1
        for log in self.logs:
            base_offset = log.base_offset
            rows = log.rows
            if rows.size:
                first = int(log.batches.first_offset[rows[0]])
                if first < base_offset or last_before >= base_offset:
                    base_offset = first
                last_before = int(log.batches.last_offset[rows[-1]])
            found.extend(_segments_of(log, base_offset))
        used = {segment.base_offset for segment in found if not segment.is_empty}
        return [
            segment for segment in found if not (segment.is_empty and segment.base_offset in used)
        ]

    def lay_out(self, workspace: Workspace, segments: list[Segment]) -> None:
        """Let the logs in ``workspace`` be ``segments``; changed ones lose their indexes."""
        changed = [segment for segment in segments if not segment.is_as_before]
        for segment in changed:
            for base_offset in (segment.log.base_offset, segment.base_offset):
                workspace.remove(file_name(base_offset, FileKind.LOG))
                for suffix in INDEX_SUFFIXES:
                    workspace.remove(file_name(base_offset, FileKind(suffix)))
        for segment in changed:
            workspace.put(segment.name, segment.content())

    def row_at(self, segment: Segment, position: int) -> int | None:
        """Number of the batch that stands at byte ``position`` of ``segment``."""
        if segment.marker:
            return None
        rows = segment.rows
        if segment.log.batches.is_collapsed:
            self._expand(segment.log)
            rows = segment.log.rows
        ends = np.cumsum(segment.log.batches.size_bytes[rows])
        at = int(np.searchsorted(ends, position, side="right"))
        return int(rows[at]) if at < len(rows) else None

    def let_go(self, segment: Segment, row: int, why: Why, reason: str) -> None:
        """Keep a batch no longer."""
        segment.log.keep[row] = False
        segment.log.reasons[row] = (why, reason)

    def end_txn(self, segment: Segment, row: int) -> bool:
        """Put a marker in front of a batch on which loading ends; gives whether one fits.

        The marker ends the transaction of the batch's producer.
        """
        for log in self.logs:
            self._expand(log)
        rows = [(log, at) for log in self.logs for at in log.rows.tolist()]
        columns = Row(
            *(
                np.concatenate([getattr(log.batches, name)[log.keep] for log in self.logs])
                for name in ("first_offset", "last_offset", "producer_id", "attributes")
            )
        )
        place = free_place(columns, rows.index((segment.log, row)))
        if place is None:
            return False
        log, following = rows[place.row]
        markers = log.markers.setdefault(following, [])
        offset = int(columns.last_offset[place.row - 1]) + 1 + len(markers)
        is_name_taken = any(
            other.base_offset == offset and not (other is log and following == log.rows[0])
            for other in self.logs
        )
        if offset >= columns.first_offset[place.row] or is_name_taken:
            return False
        timestamp = self._header(*rows[place.row - 1]).max_timestamp
        markers.append(abort_marker(offset, self._header(*rows[place.txn_row]), timestamp))
        return True

    def _read(self, base_offset: int) -> SoundBatches:
        with self._workspace.open(file_name(base_offset, FileKind.LOG)) as source:
            return find_sound_batches(source)

    def _expand(self, log: KeptLog) -> None:
        if log.batches.is_collapsed:
            log.batches = self._read(log.base_offset)
            log.keep = np.ones(log.batches.count, np.bool_)

    def _header(self, log: KeptLog, row: int) -> BatchHeader:
        with self._workspace.open_content(log.content) as source:
            return decode_header(read_at(source, int(log.batches.position[row]), HEADER_BYTES))


def _overlapped(logs: Mapping[int, SoundBatches], keep: Mapping[int, Flags]) -> list[int]:
    """The collapsed logs that something which goes overlaps: perhaps less of it has to go."""
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


def _segments_of(log: KeptLog, base_offset: int) -> Iterator[Segment]:
    """One segment, and where markers are made, one for each and one for what follows."""
    rows = log.rows
    begin = 0
    for row in sorted(log.markers):
        at = int(np.searchsorted(rows, row))
        offsets = [decode_header(marker).base_offset for marker in log.markers[row]]
        if at > begin:
            yield Segment(base_offset, log, rows[begin:at])
        for offset, marker in zip(offsets, log.markers[row], strict=True):
            yield Segment(offset, log, rows[:0], marker)
        if at > begin or base_offset in offsets:
            base_offset = int(log.batches.first_offset[row])
        begin = at
    yield Segment(base_offset, log, rows[begin:])
