"""Read the log of one replica in step with those of the others."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from kdump.formats.names import FileKind
from kdump.jobs.diff.record_rows import RecordRows, rows_of
from kdump.log.joined_segments import JoinedLogs, joined_window
from kdump.log.partition import Partition
from kdump.log.valid_windows import Damage, batch_damage, segment_part, valid_windows
from kdump.scan.batches import BatchColumns, Column, Flags, Window
from kdump.state.epochs.epoch_history import EpochHistory
from kdump.storage.location import Location, StoredFile

MAX_OFFSET: Final = 2**63 - 1
MOST_DAMAGES: Final = 20
"""How many damaged ranges of a replica are named."""


class OffsetRange(NamedTuple):
    """Offsets from ``start`` to ``end``, exclusive."""

    start: int
    end: int


class OffsetRanges(Struct):
    """Ranges that rise; adjacent ones are joined, and only the first ones are kept.

    Attributes:
        ranges: the first ranges.
        most: how many are kept.
    """

    ranges: list[OffsetRange] = field(default_factory=list)
    count: int = 0
    most: int = 100
    _end: int | None = None

    def add(self, start: int, end: int) -> None:
        if start == self._end:
            if self.count == len(self.ranges):
                self.ranges[-1] = OffsetRange(self.ranges[-1].start, end)
        else:
            self.count += 1
            if len(self.ranges) < self.most:
                self.ranges.append(OffsetRange(start, end))
        self._end = end

    def add_offsets(self, offsets: Column) -> None:
        """Add single offsets, which rise."""
        if not len(offsets):
            return
        cuts = np.flatnonzero(np.diff(offsets) > 1) + 1
        starts = offsets[np.concatenate(([0], cuts))].tolist()
        ends = offsets[np.concatenate((cuts - 1, [len(offsets) - 1]))].tolist()
        for start, last in zip(starts, ends, strict=True):
            self.add(start, last + 1)


class Batches(Struct, frozen=True):
    """Valid batches of a log.

    Attributes:
        window: with them.
        first_offset: the first offset that each can hold. A set of magic 0 or 1 has only its last
            offset: it may begin right after the batch before it.
    """

    window: Window
    first_offset: Column
    path: Location

    def rows(self, keep: slice | Flags) -> Batches:
        """Return only some of them."""
        return Batches(self.window.rows(keep), self.first_offset[keep], self.path)

    def by_log(self) -> list[Batches]:
        """Return those of each segment, if segments were joined."""
        if not isinstance(self.window.source, JoinedLogs):
            return [self]
        return [
            Batches(window, self.first_offset[rows], path)
            for path, rows, window in self.window.source.by_log(self.window)
        ]


class ReplicaLog:
    """The valid batches of a replica's log from an offset on, and their records on request.

    Batches are taken up to an offset; those whose records matter are given back with
    :meth:`expand`, and their records taken up to an offset.

    Attributes:
        start_offset: where the comparison begins in this log.
        cleaned_to: before this offset the cleaner may have removed records.
        end_offset: after the last valid batch that was read.
        is_done: whether all batches were read.
        unreadable: the offsets between valid batches that damage took.
        recent: those of them that :meth:`forget` has not been told of.
        damages: the first damaged ranges.
        damage_count: how many there are.
        epochs: the leader epochs of the batches.
    """

    def __init__(
        self,
        partition: Partition,
        start_offset: int,
        read_from: int,
        largest_record_bytes: int,
        *,
        cleaned_to: int = 0,
        limit: int = MAX_OFFSET,
        others: Sequence[ReplicaLog] = (),
    ) -> None:
        """Begin to read.

        Args:
            partition: the partition, as a broker loads it.
            start_offset: the first offset of the log.
            read_from: batches that end before this offset are skipped.
            cleaned_to: before this offset the cleaner may have removed records.
            limit: records from this offset on are not taken.
            others: of the same partition: what is the same to the byte need not be parsed again.
        """
        self.start_offset = start_offset
        self.cleaned_to = cleaned_to
        self.end_offset = start_offset
        self.is_done = False
        self.unreadable = OffsetRanges()
        self.recent: list[OffsetRange] = []
        self.damages: list[Damage] = []
        self.damage_count = 0
        self.epochs = EpochHistory()
        self._read_from = max(read_from, start_offset)
        self._limit = limit
        self._others = others
        self._joined: Window | None = None
        self._largest_record_bytes = largest_record_bytes
        self._read_batches = self._read(partition)
        self._batches: Batches | None = None
        self._expanding: list[Batches] = []
        self._pieces: Iterator[RecordRows] = iter(())
        self._rows: RecordRows | None = None

    @property
    def read_end(self) -> int | None:
        """The end of the batches that were read and not yet taken; None at the end of the log."""
        if self._batches is None and not self.is_done:
            self._batches = next(self._read_batches, None)
            self.is_done = self._batches is None
        if self._batches is None:
            return None
        return int(self._batches.window.batches.last_offset[-1]) + 1

    def take(self, end: int) -> Batches | None:
        """Take the batches that begin before ``end``."""
        batches = self._batches
        count = 0 if batches is None else int(np.searchsorted(batches.first_offset, end))
        if batches is None or not count:
            return None
        is_whole = count == len(batches.first_offset)
        self._batches = None if is_whole else batches.rows(slice(count, None))
        return batches if is_whole else batches.rows(slice(0, count))

    def expand(self, batches: Batches) -> None:
        """Decode the records of these batches, when they are taken."""
        if len(batches.first_offset):
            self._expanding += batches.by_log()

    def rows_end(self, end: int) -> int:
        """Return up to which offset records can be taken now; ``end`` if up to there."""
        while self._rows is None:
            self._rows = next(self._pieces, None)
            if self._rows is None:
                if not self._expanding:
                    return end
                self._pieces = self._decoded(self._expanding.pop(0))
        return min(int(self._rows.offset[-1]) + 1, end)

    def take_rows(self, end: int) -> RecordRows | None:
        """Take the records before ``end``, which :meth:`rows_end` returned."""
        rows = self._rows
        if rows is None:
            return None
        count = int(np.searchsorted(rows.offset, end))
        self._rows = rows.slice(count, len(rows.offset)) if count < len(rows.offset) else None
        return rows.slice(0, count) if count else None

    def forget(self, end: int) -> None:
        """Forget the recent unreadable offsets before ``end``."""
        self.recent = [each for each in self.recent if each.end > end]

    def close(self) -> None:
        """Close the file that is being read."""
        self._read_batches.close()

    def look_again(self) -> bool:
        """Look for what explains missing records; whether the log can have changed at all."""
        return False

    def _read(self, partition: Partition) -> Generator[Batches, None, None]:
        is_damaged = False
        for step in self._windows(partition):
            if isinstance(step, Damage):
                self._damaged(step)
                is_damaged = True
                continue
            first_offset = self._first_offsets(step.batches)
            if is_damaged:
                self._cannot_read(self.end_offset, int(first_offset[0]))
                is_damaged = False
            self._note_epochs(step.batches)
            self.end_offset = int(step.batches.last_offset[-1]) + 1
            is_wanted = (step.batches.last_offset >= self._read_from) & (first_offset < self._limit)
            if is_wanted.any():
                assert isinstance(step.source, StoredFile)
                batches = Batches(step, first_offset, step.source.location)
                yield batches if is_wanted.all() else batches.rows(is_wanted)
        self.end_offset = max(self.end_offset, self._least_end(partition))

    def _windows(self, partition: Partition) -> Iterator[Window | Damage]:
        wanted = [
            (segment, following)
            for segment, following in partition.with_following()
            if following is None or following.base_offset > self._read_from
        ]
        known = [each._joined for each in self._others if each._joined is not None]
        self._joined = joined_window(partition, [segment for segment, _ in wanted], known)
        if self._joined is not None:
            yield self._joined
            return
        for segment, following in wanted:
            with partition.segment_path(segment, FileKind.LOG).open_file() as source:
                yield from valid_windows(source, segment_part(segment, following))

    def _least_end(self, partition: Partition) -> int:
        """Where a log ends at least, whatever batches are in it."""
        return partition.segments[-1].base_offset if partition.segments else 0

    def _first_offsets(self, batches: BatchColumns) -> Column:
        before = np.concatenate(([self.end_offset], batches.last_offset[:-1] + 1))
        return np.where(
            batches.magic < 2, np.minimum(before, batches.base_offset), batches.base_offset
        )

    def _note_epochs(self, batches: BatchColumns) -> None:
        epoch = batches.partition_leader_epoch
        changes = np.flatnonzero(np.diff(epoch, prepend=-1))
        for row in changes.tolist():
            if epoch[row] >= 0:
                self.epochs.assign(int(epoch[row]), int(batches.base_offset[row]))

    def _decoded(self, batches: Batches) -> Iterator[RecordRows]:
        if batches.window.is_giant:
            # Its records are read now, and the file may have been closed since.
            with self._opened_again(batches.path) as source:
                window = replace(batches.window, source=source)
                yield from self._decoded_window(window, batches)
        else:
            yield from self._decoded_window(batches.window, batches)

    def _opened_again(self, path: Location) -> StoredFile:
        return path.open_file()

    def _decoded_window(self, window: Window, batches: Batches) -> Iterator[RecordRows]:
        for rows, cuts in rows_of(window, self._largest_record_bytes):
            for cut in cuts:
                row = int(np.searchsorted(window.batches.position, cut.position))
                self._damaged(batch_damage(window, row, str(batches.path), cut.problem))
                start = max(int(batches.first_offset[row]), cut.end_offset)
                self._cannot_read(start, int(window.batches.last_offset[row]) + 1)
            count = int(np.searchsorted(rows.offset, self._limit))
            if count:
                yield rows if count == len(rows.offset) else rows.slice(0, count)

    def _damaged(self, damage: Damage) -> None:
        self.damage_count += 1
        if len(self.damages) < MOST_DAMAGES:
            self.damages.append(damage)

    def _cannot_read(self, start: int, end: int) -> None:
        if start < end:
            self.unreadable.add(start, end)
            self.recent.append(OffsetRange(start, end))


def inside(ranges: Sequence[OffsetRange], first: Column, last: Column) -> Flags:
    """Which of the ranges from ``first`` to ``last``, inclusive, lie in one of ``ranges``."""
    found = np.zeros(len(first), np.bool_)
    for start, end in ranges:
        found |= (first >= start) & (last < end)
    return found


def count_records(partition: Partition, start_offset: int, largest_record_bytes: int) -> int:
    """Count the readable records of a log from ``start_offset`` on.

    Raises:
        OSError: the log cannot be read.
    """
    log = ReplicaLog(partition, start_offset, start_offset, largest_record_bytes)
    count = 0
    with contextlib.closing(log):
        while (end := log.read_end) is not None:
            batches = log.take(end)
            assert batches is not None
            columns = batches.window.batches
            has_count = (columns.magic >= 2) & (batches.first_offset >= start_offset)
            count += int(columns.records_count[has_count].sum())
            log.expand(batches.rows(~has_count))
            done = 0
            while done < end:
                done = log.rows_end(end)
                rows = log.take_rows(done)
                count += 0 if rows is None else int((rows.offset >= start_offset).sum())
    return count
