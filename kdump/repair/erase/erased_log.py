"""A log without the records that were named, or with them masked.

A batch with a named record is rewritten as the log cleaner rewrites it: offsets, timestamps,
leader epoch, producer, sequences and codec stay. A batch whose records are all named stays as a
header without records, so that neither the end of the log nor the last sequence of a producer nor
the start of a transaction is lost. A message of magic 0 or 1 that is named, or has a named one in
it, becomes a batch of magic 2, as in the log cleaner; its offsets stay. All other batches stay byte
for byte. The result for a batch depends on that batch alone, so equal replicas stay equal.
What is written for masked records: :mod:`kdump.repair.erase.mask`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from msgspec import Struct

from kdump.broker.cleaner.cleaned_segment import offset_overflow
from kdump.broker.cleaner.compaction_parts import Amount
from kdump.broker.cleaner.compaction_rewrite import Chunk, as_written, content_of
from kdump.broker.cleaner.legacy_compaction import emptied, rewritten
from kdump.broker.cleaner.rebuilt_batches import (
    NewBatch,
    emptied_batches,
    rebuilt_batches,
    refused_records,
)
from kdump.broker.cleaner.record_retention import NO_HORIZON
from kdump.formats import record_batch
from kdump.formats.errors import FormatError
from kdump.formats.message_set import Message
from kdump.formats.record_batch import LARGEST_RECORD_BYTES, Record
from kdump.repair.erase.erased_list import Erased
from kdump.repair.erase.mask import Mask
from kdump.repair.erase.named_records import RecordMatcher
from kdump.scan.batches import Column, Flags, StopReason, Window, read_windows
from kdump.scan.records import RecordColumns
from kdump.scan.walk import MessageSet, expand_window
from kdump.scan.window_records import read_records
from kdump.storage.location import Location
from kdump.target.refusal import Refusal, Refused
from kdump.target.target_file import CopiedFrom
from kdump.target.virtual_directory import BytesSource

_BY_KDUMP: Final = "refused by kdump"


class MatchedAmount(Struct, frozen=True):
    """How much of a log, or of a part of it, is named.

    Attributes:
        records: all its records.
        erased_records: those that are named.
        rewritten_batches: batches that lose some of their records, or all; or have masked ones.
        emptied_batches: those that lose all.
        undecoded_records: those in which a named field may hide, because they cannot be decoded.
    """

    records: int = 0
    erased_records: int = 0
    rewritten_batches: int = 0
    emptied_batches: int = 0
    undecoded_records: int = 0

    def __add__(self, other: MatchedAmount) -> MatchedAmount:
        return MatchedAmount(
            self.records + other.records,
            self.erased_records + other.erased_records,
            self.rewritten_batches + other.rewritten_batches,
            self.emptied_batches + other.emptied_batches,
            self.undecoded_records + other.undecoded_records,
        )


class Matched(Struct, frozen=True):
    """What was found in a log, or in a part of it.

    Attributes:
        amount: how much is named.
        misfit: why its segment cannot be rewritten; None if nothing is known against it.
    """

    amount: MatchedAmount
    misfit: Refusal | None = None


class LogToErase(Struct, frozen=True):
    """A log, or a part of it, and what to erase.

    Attributes:
        matcher: finds the records.
        start: byte where a batch begins.
        end: byte after the last batch; None for the end of the file.
        mask: what masks the named records; None if they go.
    """

    path: Location
    matcher: RecordMatcher
    start: int = 0
    end: int | None = None
    largest_record_bytes: int = LARGEST_RECORD_BYTES
    mask: Mask | None = None

    def amount(self) -> MatchedAmount:
        """How much of it is named.

        Raises:
            Refused: it is damaged, so that named records may hide in it, or cannot be rewritten.
            OSError: it cannot be read.
        """
        total = MatchedAmount()
        for run in self._runs():
            total += run.amount
        return total

    def matched(self, base_offset: int) -> Matched:
        """The same, and whether the segment at ``base_offset`` can be rewritten.

        Raises:
            Refused: as for :meth:`amount`.
            OSError: it cannot be read.
        """
        total, misfit = MatchedAmount(), None
        for run in self._runs():
            total += run.amount
            misfit = misfit or offset_overflow(run.window.batches, base_offset, self.path.name)
        return Matched(total, misfit)

    def erased(self) -> Erased:
        """The records that are named.

        Raises:
            Refused: as for :meth:`amount`.
            OSError: it cannot be read.
        """
        found = Erased()
        for run in self._runs():
            if not run.named.any():
                continue
            if run.messages is not None:
                for each in run.messages.messages:
                    if self._names(each):
                        found.add(each.offset, self.matcher.searched_key(each.offset, each.key))
                continue
            for columns in read_records(run.window.rows(run.named > 0), self.largest_record_bytes):
                for row in np.flatnonzero(self.matcher.named(columns)).tolist():
                    offset = int(columns.offset[row])
                    found.add(offset, self.matcher.searched_key(offset, columns.key(row)))
        return found

    def chunks(self) -> Iterator[Chunk]:
        """What is written instead, in order.

        Raises:
            Refused: as for :meth:`amount`.
            OSError: it cannot be read.
        """
        for run in self._runs():
            yield self._chunk(run)

    def _runs(self) -> Iterator[_Run]:
        with self.path.open_file() as source:
            for window in read_windows(source, self.start, self.end):
                yield from self._runs_in(window)
                if window.stop is not None and window.stop.reason is not StopReason.END:
                    raise Refused(
                        "the log has bytes after its last batch in which records may hide",
                        self.path.name,
                        _BY_KDUMP,
                        window.stop.position,
                    )

    def _runs_in(self, window: Window) -> Iterator[_Run]:
        if not window.batches.is_valid.all():
            row = int(np.argmin(window.batches.is_valid))
            raise Refused(
                "a batch is damaged, and records may hide in it",
                self.path.name,
                _BY_KDUMP,
                int(window.batches.position[row]),
            )
        if not window.batches.count:
            return
        for run in expand_window(window, with_records=False):
            assert isinstance(run, Window)
            if run.batches.magic[0] < 2:
                yield from self._legacy_runs(run)
            else:
                yield self._run(run)

    def _run(self, window: Window) -> _Run:
        """Batches of magic 2, and how many records of each are named."""
        named = np.zeros(window.batches.count, np.int64)
        undecoded = 0
        for columns, rows in _records_of(window, self.largest_record_bytes, self.path.name):
            look = self.matcher.look(columns)
            undecoded += int(np.count_nonzero(look.undecoded))
            if look.named.any():
                named += np.bincount(rows[columns.batch[look.named]], minlength=len(named))
        return _Run(
            window,
            named,
            window.batches.records_count,
            stays=self.mask is not None,
            undecoded=undecoded,
        )

    def _legacy_runs(self, window: Window) -> Iterator[_Run]:
        """Messages of magic 0 and 1, each with those that are compressed in it."""
        for found in expand_window(
            window, with_records=True, largest_record_bytes=self.largest_record_bytes
        ):
            assert isinstance(found, MessageSet)
            position = int(found.window.batches.position[0])
            if found.problem is not None:
                raise refused_records(found.problem, self.path.name, position)
            try:
                names = [self._names(each) for each in found.messages]
            except FormatError as problem:
                raise refused_records(problem, self.path.name, position) from problem
            yield _Run(
                found.window,
                np.array([names.count(True)]),
                np.array([len(found.messages)]),
                found,
                stays=self.mask is not None,
                undecoded=names.count(None),
            )

    def _chunk(self, run: _Run) -> Chunk:
        window, amount = run.window, run.amount
        batches = window.batches
        before = Amount(int(batches.size_bytes.sum()), batches.count, amount.records)
        if not amount.rewritten_batches:
            start, end = int(batches.position[0]), int(batches.next_position[-1])
            return Chunk(before, CopiedFrom(self.path.name, start, end), batches, amount.records)
        records = amount.records if run.stays else amount.records - amount.erased_records
        if run.messages is not None:
            data = self._legacy(run.messages).data
            (written,) = read_windows(BytesSource(data), checksums=False)
            return Chunk(before, data, written.batches, records)
        new = self._new_batches(run)
        every = np.arange(batches.count)
        piece = content_of(window, every, new, self.path.name)
        return Chunk(before, piece, as_written(batches, every, new), records)

    def _legacy(self, found: MessageSet) -> NewBatch:
        """A batch of magic 2 instead of messages of magic 0 or 1: brokers write nothing else."""
        if self.mask is not None:
            every = found.messages
            return rewritten(
                found, every, NO_HORIZON, self.path.name, written=self._masked_if_named
            )
        kept = [each for each in found.messages if not self._names(each)]
        if not kept:
            return emptied(found)
        return rewritten(found, kept, NO_HORIZON, self.path.name, keeps_offsets=True)

    def _masked_if_named(self, record: Record) -> Record:
        return self.mask.record(record) if self.mask is not None and self._names(record) else record

    def _names(self, record: Record | Message) -> bool | None:
        return self.matcher.names(record.offset, record.key, record.value)

    def _new_batches(self, run: _Run) -> dict[int, NewBatch]:
        """The batches that change, by row."""
        emptied = np.flatnonzero(run.is_emptied)
        new = dict(
            zip(emptied.tolist(), emptied_batches(run.window.batches.rows(emptied)), strict=True)
        )
        is_rebuilt = (run.named > 0) & ~run.is_emptied
        if is_rebuilt.any():
            batches = run.window.batches.rows(is_rebuilt)
            has_horizon = (batches.attributes & record_batch.DELETE_HORIZON_FLAG) != 0
            rebuilt = rebuilt_batches(
                run.window.rows(is_rebuilt),
                np.where(has_horizon, batches.base_timestamp, NO_HORIZON),
                self._stays,
                self.path.name,
                largest_record_bytes=self.largest_record_bytes,
                replaced=self._masked,
            )
            new.update(zip(np.flatnonzero(is_rebuilt).tolist(), rebuilt, strict=True))
        return new

    def _stays(self, columns: RecordColumns, _rows: Column) -> Flags:
        if self.mask is not None:
            return np.ones(columns.count, np.bool_)
        stays: Flags = ~self.matcher.named(columns)
        return stays

    def _masked(self, columns: RecordColumns) -> dict[int, Record]:
        if self.mask is None:
            return {}
        rows = np.flatnonzero(self.matcher.named(columns)).tolist()
        return {row: self.mask.record(_record(columns, row)) for row in rows}


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive batches of one format, and how many records of each there are and are named.

    Attributes:
        window: the batches.
        named: for each batch, how many records are named.
        records: for each batch, how many there are.
        messages: those of a single message of magic 0 or 1; None for batches of magic 2.
        stays: whether named records stay, masked.
        undecoded: how many others cannot be decoded.
        is_emptied: which batches lose all records.
    """

    window: Window
    named: Column
    records: Column
    messages: MessageSet | None = None
    stays: bool = False
    undecoded: int = 0
    is_emptied: Flags = field(init=False)

    def __post_init__(self) -> None:
        loses_all = (self.named > 0) & (self.named == self.records)
        object.__setattr__(self, "is_emptied", loses_all & (not self.stays))

    @property
    def amount(self) -> MatchedAmount:
        return MatchedAmount(
            int(self.records.sum()),
            int(self.named.sum()),
            int((self.named > 0).sum()),
            int(self.is_emptied.sum()),
            self.undecoded,
        )


def _record(columns: RecordColumns, row: int) -> Record:
    return Record(
        int(columns.offset[row]),
        int(columns.timestamp[row]),
        record_batch.NO_SEQUENCE,
        columns.key(row),
        columns.value(row),
        columns.headers(row),
    )


def _records_of(
    window: Window, largest_record_bytes: int, log_name: str
) -> Iterator[tuple[RecordColumns, Column]]:
    """The records of ``window``, and the row in it of each of their batches.

    Raises:
        Refused: some cannot be decoded.
    """
    following = 0
    for columns in read_records(window, largest_record_bytes):
        first = following - 1 if columns.is_continued else following
        following = first + columns.batches.count
        for row, problem in columns.problems.items():
            raise refused_records(problem, log_name, int(columns.batches.position[row]))
        yield columns, np.arange(first, following)
