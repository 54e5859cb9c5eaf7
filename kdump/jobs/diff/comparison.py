"""Compare the logs of a partition's replicas offset by offset.

All logs are read once, in step. Batches with the same offsets, size and checksum are the same: they
are not decoded. The records of all others are compared, whatever codec and batches they are in.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct, field

from kdump.jobs.diff.record_rows import RecordRows, same_records
from kdump.jobs.diff.replica_log import (
    MAX_OFFSET,
    Batches,
    OffsetRange,
    OffsetRanges,
    ReplicaLog,
    inside,
)
from kdump.scan.batches import BatchColumns, Column, Flags
from kdump.scan.control_batches import is_control

_ABSENT: Final = -1

OnRecords = Callable[[int, int, RecordRows], None]
"""Takes records that one replica has and another lacks: their numbers, and the records."""


class OnlyOnOne(Struct):
    """What one replica has, and another has not.

    Attributes:
        cut_from: the offset to which the first one truncates as the follower of the other.
        records: how many, control records included.
        control_records: how many of them are control records.
        lost_records: how many of them the truncation deletes.
        missing: offsets at which the other one has no record although it goes on after them, and
            was not compacted there.
        compacted_records: records that the cleaner may have removed from the other one. They do not
            count as a difference.
        unreadable_records: records at offsets that damage took from the other one. Likewise.
    """

    cut_from: int | None
    records: int = 0
    control_records: int = 0
    lost_records: int = 0
    missing: OffsetRanges = field(default_factory=OffsetRanges)
    compacted_records: int = 0
    unreadable_records: int = 0

    def add(self, first_offset: Column, count: Column, is_control_record: Flags) -> None:
        """Add records, or batches of so many records."""
        self.records += int(count.sum())
        self.control_records += int(count[is_control_record].sum())
        if self.cut_from is not None:
            self.lost_records += int(count[first_offset >= self.cut_from].sum())


class Parting(Struct):
    """Where two replicas part.

    Attributes:
        by_epoch: the first offset that they have in different leader epochs; None if there is none.
        by_content: the first offset with different records, or with a record in one of them.
        corrupt: offsets with different records in the same leader epoch.
        corrupt_records: how many.
        same_records: how many records are the same.
    """

    by_epoch: int | None = None
    by_content: int | None = None
    corrupt: OffsetRanges = field(default_factory=OffsetRanges)
    corrupt_records: int = 0
    same_records: int = 0

    @property
    def offset(self) -> int | None:
        """The first offset that is not the same; None if there is none."""
        return min(
            (each for each in (self.by_epoch, self.by_content) if each is not None), default=None
        )


class ComparedLog(Struct, frozen=True):
    """A log to compare.

    Attributes:
        dropped: the offsets of records that a starting broker drops from it.
    """

    log: ReplicaLog
    dropped: Sequence[OffsetRange] = ()


class _Rows(Struct):
    """The records of one replica among the offsets of all.

    Attributes:
        rows: the records; None if there are none.
        row: for each offset the row in them, or -1.
        is_ended: at which offsets the log has ended.
        is_unreadable: which offsets damage took.
        is_before: which offsets lie before the start of the log.
        is_cleaned: which offsets the cleaner has passed.
    """

    rows: RecordRows | None
    row: Column
    is_ended: Flags
    is_unreadable: Flags
    is_before: Flags
    is_cleaned: Flags

    @property
    def has(self) -> Flags:
        found: Flags = (self.row != _ABSENT) & ~self.is_before
        return found

    @property
    def is_compacted(self) -> Flags:
        """Where the cleaner may have removed a record."""
        found: Flags = self.is_cleaned & ~(self.has | self.is_ended | self.is_unreadable)
        return found

    @property
    def is_hole(self) -> Flags:
        """Where a record is missing, and nothing explains it."""
        found: Flags = ~(self.has | self.is_ended | self.is_unreadable)
        return found & ~(self.is_before | self.is_cleaned)

    def columns(self, at: Flags) -> RecordRows:
        assert self.rows is not None
        return self.rows.take(self.row[at])


class Comparison:
    """Compares logs; the results are complete after :meth:`run`.

    Attributes:
        partings: by the numbers of two replicas, the smaller one first.
        only: by the numbers of two replicas: what the first has and the second has not.
        lost_if_leading: for each replica, how many records are lost if all others truncate to what
            a starting broker leaves of it, as far as they can be read. Its own count, too.
    """

    def __init__(
        self,
        logs: Sequence[ComparedLog],
        cut_from: Mapping[tuple[int, int], int | None],
        on_records: OnRecords | None = None,
    ) -> None:
        """Begin.

        Args:
            logs: at least two.
            cut_from: by the numbers of two replicas, the offset to which the first truncates as
                the follower of the second; None if unknown.
            on_records: takes the records that one replica has and another has not.
        """
        self._logs = [each.log for each in logs]
        self._dropped = [each.dropped for each in logs]
        numbers = range(len(logs))
        self.partings = {pair: Parting() for pair in itertools.combinations(numbers, 2)}
        self.only = {pair: OnlyOnOne(cut_from[pair]) for pair in itertools.permutations(numbers, 2)}
        self.lost_if_leading = [0 for _ in numbers]
        self._on_records = on_records

    @property
    def is_different(self) -> bool:
        """Whether something differs, or cannot be read."""
        return (
            any(each.offset is not None for each in self.partings.values())
            or any(each.records for each in self.only.values())
            or any(log.damage_count for log in self._logs)
        )

    def run(self) -> None:
        """Read all logs to their ends.

        Raises:
            OSError: a log cannot be read.
        """
        done = 0
        while True:
            ends = [end for end in (log.read_end for log in self._logs) if end is not None]
            end = min(ends, default=MAX_OFFSET)
            self._match([log.take(end) for log in self._logs])
            while done < end:
                done = min(log.rows_end(end) for log in self._logs)
                self._compare([log.take_rows(done) for log in self._logs])
            for log in self._logs:
                log.forget(end)
            if not ends:
                return

    def _match(self, taken: list[Batches | None]) -> None:
        """Count the batches that need not be decoded; have all others decoded."""
        found = [
            None if batches is None else self._candidates(number, batches, taken)
            for number, batches in enumerate(taken)
        ]
        decided = [None if each is None else each.is_known.copy() for each in found]
        for each, is_known in zip(found, decided, strict=True):
            for other, same in {} if each is None else each.same.items():
                candidates = found[other]
                if candidates is not None and is_known is not None:
                    # All logs must treat a batch alike.
                    is_known[same.is_same] &= candidates.is_known[same.row[same.is_same]]
        for number, (batches, each, is_known) in enumerate(zip(taken, found, decided, strict=True)):
            if batches is not None and each is not None and is_known is not None:
                self._count(number, batches, each, is_known)
                if not is_known.all():
                    self._logs[number].expand(batches.rows(~is_known))

    def _candidates(
        self, number: int, batches: Batches, taken: Sequence[Batches | None]
    ) -> _Candidates:
        """Find the batches that every other log has, or cannot have."""
        columns = batches.window.batches
        first, last = batches.first_offset, columns.last_offset
        is_known = first >= self._logs[number].start_offset
        must_count = inside(self._dropped[number], last, last)
        found: dict[int, _SameBatches] = {}
        for other, theirs in enumerate(taken):
            if other == number:
                continue
            log = self._logs[other]
            is_before = last < log.start_offset
            is_ended, is_unreadable = self._is_ended(other, first), inside(log.recent, first, last)
            found[other] = _same_batches(batches, theirs, is_ended, is_unreadable)
            is_known &= (first >= log.start_offset) | is_before
            is_known &= found[other].is_same | is_ended | is_unreadable | is_before
            must_count |= is_ended | is_unreadable | inside(self._dropped[other], last, last)
        # The header of a compressed set has no count.
        can_count = (columns.magic >= 2) & (self._on_records is None)
        return _Candidates(is_known & (can_count | ~must_count), found)

    def _count(self, number: int, batches: Batches, found: _Candidates, is_known: Flags) -> None:
        """Count those batches that are not decoded."""
        columns = batches.window.batches
        counts, is_marker = columns.records_count, is_control(columns)
        is_first_holder = np.ones(len(counts), np.bool_)
        for other, same in found.same.items():
            if other < number:
                is_first_holder &= ~same.is_same
        last, is_counted = columns.last_offset, is_known & is_first_holder
        is_lost = is_counted & inside(self._dropped[number], last, last)
        self.lost_if_leading[number] += int(counts[is_lost].sum())
        for other, same in found.same.items():
            only = self.only[number, other]
            at = is_known & same.is_ended
            only.add(batches.first_offset[at], counts[at], is_marker[at])
            only.unreadable_records += int(counts[is_known & same.is_unreadable].sum())
            is_lacking = same.is_ended | same.is_unreadable
            is_lacking |= same.is_same & inside(self._dropped[other], last, last)
            is_lost = is_counted & is_lacking
            self.lost_if_leading[other] += int(counts[is_lost].sum())
            if other > number:
                is_common = is_known & same.is_same
                self._note_same(self.partings[number, other], columns, same, is_common)

    @staticmethod
    def _note_same(
        parting: Parting, columns: BatchColumns, same: _SameBatches, is_common: Flags
    ) -> None:
        """Count batches that two logs have, and notice where their epochs part."""
        parting.same_records += int(columns.records_count[is_common].clip(min=0).sum())
        epoch = columns.partition_leader_epoch
        has_parted = is_common & (epoch >= 0) & (same.epoch >= 0) & (epoch != same.epoch)
        if parting.by_epoch is None and has_parted.any():
            parting.by_epoch = int(columns.base_offset[np.argmax(has_parted)])

    def _is_ended(self, number: int, offsets: Column) -> Flags:
        log = self._logs[number]
        if not log.is_done:
            return np.zeros(len(offsets), np.bool_)
        found: Flags = offsets >= log.end_offset
        return found

    def _compare(self, taken: list[RecordRows | None]) -> None:
        """Compare records of all logs, which are all that these have in a range of offsets."""
        found = [rows.offset for rows in taken if rows is not None]
        if not found:
            return
        offsets = np.unique(np.concatenate(found))
        each = [self._placed(number, rows, offsets) for number, rows in enumerate(taken)]
        for number, rows in enumerate(each):
            # Its broker may have removed them before they were reached.
            if rows.is_hole.any() and self._logs[number].look_again():
                each[number] = self._placed(number, taken[number], offsets)
        holder = [np.where(rows.has, number, _ABSENT) for number, rows in enumerate(each)]
        for left, right in self.partings:
            is_same = self._compare_two(left, right, offsets, each[left], each[right])
            holder[right] = np.where(
                is_same & (holder[right] == right), holder[left], holder[right]
            )
        for leader, rows in enumerate(each):
            is_dropped = inside(self._dropped[leader], offsets, offsets)
            kept = np.where(is_dropped, _ABSENT, holder[leader])
            can_lack = ~(rows.is_before | rows.is_compacted)
            for other, first_holder in enumerate(holder):
                # Of replicas with the same record only the first one counts.
                is_lost = can_lack & (first_holder == other) & (kept != other)
                self.lost_if_leading[leader] += int(is_lost.sum())

    def _placed(self, number: int, rows: RecordRows | None, offsets: Column) -> _Rows:
        log = self._logs[number]
        row = np.full(len(offsets), _ABSENT, np.int64)
        if rows is not None:
            row[np.searchsorted(offsets, rows.offset)] = np.arange(len(rows.offset))
        return _Rows(
            rows,
            row,
            self._is_ended(number, offsets),
            inside(log.recent, offsets, offsets),
            offsets < log.start_offset,
            offsets < log.cleaned_to,
        )

    def _compare_two(
        self, left: int, right: int, offsets: Column, mine: _Rows, theirs: _Rows
    ) -> Flags:
        """Compare two replicas at ``offsets``; returns where they have the same record."""
        parting = self.partings[left, right]
        in_both = mine.has & theirs.has
        is_same = np.zeros(len(offsets), np.bool_)
        if in_both.any():
            left_rows, right_rows = mine.columns(in_both), theirs.columns(in_both)
            is_same[in_both] = same = same_records(left_rows, right_rows)
            has_epochs = (left_rows.leader_epoch >= 0) & (right_rows.leader_epoch >= 0)
            differ = has_epochs & (left_rows.leader_epoch != right_rows.leader_epoch)
            if parting.by_epoch is None and differ.any():
                parting.by_epoch = int(left_rows.offset[np.argmax(differ)])
            is_corrupt = ~same & has_epochs & ~differ
            corrupt = left_rows.offset[
                is_corrupt & self._is_before_parting(parting, left_rows.offset)
            ]
            parting.corrupt.add_offsets(corrupt)
            parting.corrupt_records += len(corrupt)
            parting.same_records += int(same.sum())
        is_other = in_both & ~is_same
        for number, other, rows, others in (
            (left, right, mine, theirs),
            (right, left, theirs, mine),
        ):
            self._only(self.only[number, other], parting, offsets, rows, others, is_other)
            if self._on_records is not None:
                listed = rows.has & (is_other | others.is_ended | others.is_hole)
                if listed.any():
                    self._on_records(number, other, rows.columns(listed))
        if parting.by_content is None:
            hole = (mine.has & theirs.is_hole) | (theirs.has & mine.is_hole) | is_other
            if hole.any():
                parting.by_content = int(offsets[np.argmax(hole)])
        return is_same

    def _only(
        self,
        only: OnlyOnOne,
        parting: Parting,
        offsets: Column,
        rows: _Rows,
        others: _Rows,
        is_other: Flags,
    ) -> None:
        """Count what one replica has at ``offsets`` and the other has not."""
        has = rows.has & ~others.is_before
        lacks = rows.has & others.is_hole
        counted = is_other | lacks | (has & others.is_ended)
        if counted.any():
            columns = rows.columns(counted)
            only.add(columns.offset, np.ones(len(columns.offset), np.int64), columns.is_control)
        missing = offsets[lacks]
        only.missing.add_offsets(missing[self._is_before_parting(parting, missing)])
        is_absent = has & ~others.has & ~others.is_ended
        only.unreadable_records += int((is_absent & others.is_unreadable).sum())
        only.compacted_records += int((has & others.is_compacted).sum())

    @staticmethod
    def _is_before_parting(parting: Parting, offsets: Column) -> Flags:
        found: Flags = np.ones(len(offsets), np.bool_)
        return found if parting.by_epoch is None else offsets < parting.by_epoch


class _SameBatches(Struct, frozen=True):
    """What another log has of some batches.

    Attributes:
        is_same: whether it has each of them.
        row: where, if it has.
        epoch: the leader epoch there; -1 if it has none.
        is_ended: whether it ends before the batch.
        is_unreadable: whether damage took the offsets of the batch from it.
    """

    is_same: Flags
    row: Column
    epoch: Column
    is_ended: Flags
    is_unreadable: Flags


class _Candidates(Struct, frozen=True):
    """Batches that perhaps need not be decoded.

    Attributes:
        is_known: whether every other log has the batch, or cannot have it.
        same: what the other logs have, by their numbers.
    """

    is_known: Flags
    same: Mapping[int, _SameBatches]


def _same_batches(
    mine: Batches, theirs: Batches | None, is_ended: Flags, is_unreadable: Flags
) -> _SameBatches:
    left = mine.window.batches
    if theirs is None:
        nothing = np.full(left.count, -1, np.int64)
        return _SameBatches(nothing >= 0, nothing, nothing, is_ended, is_unreadable)
    right = theirs.window.batches
    if left is right:
        everything = np.ones(left.count, np.bool_)
        return _SameBatches(
            everything,
            np.arange(left.count),
            left.partition_leader_epoch,
            is_ended,
            is_unreadable,
        )
    row = np.searchsorted(right.base_offset, left.base_offset).clip(max=right.count - 1)
    is_same = np.ones(left.count, np.bool_)
    for name in ("base_offset", "last_offset_delta", "size_bytes", "magic", "crc"):
        is_same &= getattr(left, name) == getattr(right, name)[row]
    epoch = np.where(is_same, right.partition_leader_epoch[row], -1)
    return _SameBatches(is_same, row, epoch, is_ended, is_unreadable)
