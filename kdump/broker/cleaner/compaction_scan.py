"""Scan a part of a log for compaction: its keys and transactions; refuse damage.

The outcome depends on that part of one segment alone, so parts can be scanned in parallel.

Follows ``Cleaner.buildOffsetMapForSegment``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from kdump.broker.cleaner.cleaned_transactions import TxnBatches, txn_batches
from kdump.broker.cleaner.compaction_keys import NO_RECORDS, KeyedRecords, LastOffsets
from kdump.broker.cleaner.compaction_parts import Extents
from kdump.broker.cleaner.rebuilt_batches import refused_records
from kdump.formats.errors import FormatError
from kdump.formats.message_set import Message
from kdump.formats.record_batch import LARGEST_RECORD_BYTES
from kdump.scan.arrow import gather_bytes
from kdump.scan.batches import (
    WINDOW_BYTES,
    Column,
    Flags,
    Stop,
    Window,
    is_among,
    new_buffer,
    read_windows,
)
from kdump.scan.control_batches import is_control
from kdump.scan.distinct_keys import KEY_TYPE
from kdump.scan.records import RecordColumns
from kdump.scan.walk import MessageSet, expand_window
from kdump.storage.location import Location
from kdump.target.refusal import Refusal, Refused

_NOT_MAPPED: Final = 2**63 - 1


class PartToScan(Struct, frozen=True):
    """A part of a segment's log.

    Attributes:
        start: position of a batch.
        end: end of the last batch, exclusive; None for the end of the file.
        mapped_position: position of the first dirty batch; None if there is none.
        first_dirty_offset: records below it do not replace others.
        aborted: base offsets of dirty batches whose transactions were aborted, rising; they do not
            count.
    """

    path: Location
    start: int = 0
    end: int | None = None
    mapped_position: int | None = None
    first_dirty_offset: int = 0
    aborted: Column = field(default_factory=lambda: np.empty(0, np.int64))


class ScannedPart(Struct, frozen=True):
    """The scan of a part of a segment's log.

    Attributes:
        mapped: the last dirty record of each key.
        unmapped: the other records with a key.
        txn_batches: its transactional and control batches.
        extents: positions and amounts of its batches.
        records_without_key: number of data records without a key.
        tombstones: number of records without a value.
    """

    mapped: KeyedRecords
    unmapped: KeyedRecords
    txn_batches: TxnBatches
    extents: Extents
    records_without_key: int
    tombstones: int

    def without_keys(self) -> ScannedPart:
        """The same without keys, which take most of the memory, once live records are known."""
        return replace(self, mapped=NO_RECORDS, unmapped=NO_RECORDS)


def scan_part(
    part: PartToScan, largest_record_bytes: int = LARGEST_RECORD_BYTES
) -> ScannedPart | Refusal:
    """Scan all batches and records of ``part``.

    Returns:
        The scan; or why the part cannot be compacted: it is damaged, or Kafka's cleaner fails on
        it.

    Raises:
        OSError: the log cannot be read.
    """
    scan = _Scan(part, largest_record_bytes)
    try:
        for window in _windows(part):
            scan.add(window)
        return scan.finish()
    except Refused as refused:
        return refused.refusal


def survey_part(part: PartToScan) -> TxnBatches | Refusal:
    """Find only the transactional and control batches of ``part``, by their headers.

    Raises:
        OSError: the log cannot be read.
    """
    try:
        return TxnBatches.joined(txn_batches(window, part.path.name) for window in _windows(part))
    except Refused as refused:
        return refused.refusal


def _windows(part: PartToScan) -> Iterator[Window]:
    buffer = new_buffer(WINDOW_BYTES)
    with part.path.open_file() as source:
        for window in read_windows(source, part.start, part.end, buffer=buffer):
            _require_valid(window, part.path.name)
            yield window


def _require_valid(window: Window, log_name: str) -> None:
    """Refuse damaged batches: compaction would give them a valid checksum.

    Raises:
        Refused: a batch is damaged, or the file does not end with a batch.
    """
    batches = window.batches
    if not batches.is_valid.all():
        position = int(batches.position[int(np.argmin(batches.is_valid))])
        raise Refused("a batch is damaged", log_name, "CorruptRecordException", position)
    unknown = np.flatnonzero((batches.magic < 0) | (batches.magic > 2))
    if unknown.size:
        raise Refused(
            f"a batch has the unknown magic {int(batches.magic[unknown[0]])}",
            log_name,
            "CorruptRecordException",
            int(batches.position[unknown[0]]),
        )
    if window.stop is not None and window.stop.problem is not None:
        raise _refused_stop(window.stop, window.stop.problem, log_name)


def _refused_stop(stop: Stop, problem: FormatError, log_name: str) -> Refused:
    return Refused(problem.what, log_name, "CorruptRecordException", stop.position)


class _Scan:
    """A scan in progress."""

    def __init__(self, part: PartToScan, largest_record_bytes: int) -> None:
        self._part = part
        self._largest_record_bytes = largest_record_bytes
        self._name = part.path.name
        first = part.mapped_position
        self._mapped_position = _NOT_MAPPED if first is None else first
        self._mapped = LastOffsets()
        self._unmapped: list[KeyedRecords] = []
        self._txn_batches: list[TxnBatches] = []
        self._extents: list[tuple[int, ...]] = []
        self._last_offset = -1
        self._last_seen = -1
        self._records = self._without_key = self._tombstones = 0

    def add(self, window: Window) -> None:
        batches = window.batches
        if not batches.count:
            return
        self._require_rising(window)
        self._last_offset = int(batches.last_offset[-1])
        before = self._records
        self._txn_batches.append(txn_batches(window, self._name))
        for step in expand_window(
            window, with_records=True, largest_record_bytes=self._largest_record_bytes
        ):
            if isinstance(step, RecordColumns):
                self._add_records(step)
            elif isinstance(step, MessageSet):
                self._add_messages(step)
        start, end = int(batches.position[0]), int(batches.next_position[-1])
        first_offset, records = int(batches.base_offset[0]), self._records - before
        self._extents.append((start, end, first_offset, self._last_offset, batches.count, records))

    def finish(self) -> ScannedPart:
        return ScannedPart(
            mapped=self._mapped.reduced(),
            unmapped=KeyedRecords.joined(self._unmapped),
            txn_batches=TxnBatches.joined(self._txn_batches),
            extents=Extents.of_rows(self._extents),
            records_without_key=self._without_key,
            tombstones=self._tombstones,
        )

    def _require_rising(self, window: Window) -> None:
        """Refuse offsets that do not rise: they would not identify records."""
        batches = window.batches
        previous = np.concatenate(([self._last_offset], batches.last_offset[:-1]))
        bad = np.flatnonzero((batches.base_offset <= previous) | (batches.last_offset_delta < 0))
        if bad.size:
            raise Refused(
                f"the batch at offset {int(batches.base_offset[bad[0]])} follows one that ends"
                f" at {int(previous[bad[0]])}",
                self._name,
                "InvalidOffsetException",
                int(batches.position[bad[0]]),
            )

    def _add_records(self, columns: RecordColumns) -> None:
        batches = columns.batches
        for row, problem in columns.problems.items():
            raise self._damaged(problem, int(batches.position[row]))
        self._records += columns.count
        is_data = ~is_control(batches)
        is_dirty = batches.position >= self._mapped_position
        is_dirty &= ~is_among(batches.base_offset, self._part.aborted)
        is_tombstone = columns.value_size < 0
        has_key = columns.key_size >= 0
        self._require_in_batch(columns)
        self._last_seen = int(batches.last_offset[-1])
        if not is_data.all():
            has_key &= is_data[columns.batch]
            is_tombstone &= is_data[columns.batch]
        self._without_key += int((~has_key & is_data[columns.batch]).sum())
        self._tombstones += int(is_tombstone.sum())
        is_mapped = has_key & is_dirty[columns.batch]
        is_mapped &= columns.offset >= self._part.first_dirty_offset
        if is_mapped.any():
            self._mapped.add(_keyed(columns, is_mapped, is_tombstone))
        is_unmapped = has_key & ~is_mapped
        if is_unmapped.any():
            self._unmapped.append(_keyed(columns, is_unmapped, is_tombstone))

    def _require_in_batch(self, columns: RecordColumns) -> None:
        """Refuse records whose offsets do not rise, or are not in the range of their batch."""
        offset, batches = columns.offset, columns.batches
        is_bad = offset > batches.last_offset[columns.batch]
        is_bad |= offset < batches.base_offset[columns.batch]
        is_bad[1:] |= offset[1:] <= offset[:-1]
        if is_bad.any():
            row = int(columns.batch[int(np.argmax(is_bad))])
            raise Refused(
                "the offsets of the records in a batch do not rise from its first to its last",
                self._name,
                "IllegalArgumentException",
                int(batches.position[row]),
            )

    def _add_messages(self, found: MessageSet) -> None:
        position = int(found.window.batches.position[0])
        if found.problem is not None:
            raise self._damaged(found.problem, position)
        self._records += len(found.messages)
        try:
            messages = [(each.key, each.offset, each.value is None) for each in found.messages]
        except FormatError as problem:
            raise self._damaged(problem, position) from problem
        self._require_rising_messages(found.messages, position)
        keyed = [each for each in messages if each[0] is not None]
        self._without_key += len(messages) - len(keyed)
        self._tombstones += sum(is_tombstone for _, _, is_tombstone in messages)
        is_dirty = position >= self._mapped_position
        for is_mapped in (True, False):
            own = [
                each
                for each in keyed
                if (is_dirty and each[1] >= self._part.first_dirty_offset) is is_mapped
            ]
            if not own:
                continue
            keys, offsets, tombstones = zip(*own, strict=True)
            records = KeyedRecords(
                pa.array(keys, KEY_TYPE), np.array(offsets, np.int64), np.array(tombstones)
            )
            if is_mapped:
                self._mapped.add(records)
            else:
                self._unmapped.append(records)

    def _require_rising_messages(self, messages: list[Message], position: int) -> None:
        offsets = [self._last_seen, *(each.offset for each in messages)]
        if any(after <= before for before, after in itertools.pairwise(offsets)):
            raise Refused(
                "the offsets of wrapped messages do not rise",
                self._name,
                "IllegalArgumentException",
                position,
            )
        self._last_seen = offsets[-1]

    def _damaged(self, problem: FormatError, position: int) -> Refused:
        return refused_records(problem, self._name, position)


def _keyed(columns: RecordColumns, rows: Flags, is_tombstone: Flags) -> KeyedRecords:
    start, size = columns.key_start[rows], columns.key_size[rows]
    return KeyedRecords(
        gather_bytes(columns.data, start, size, np.ones(len(start), np.bool_)),
        columns.offset[rows],
        is_tombstone[rows],
    )
