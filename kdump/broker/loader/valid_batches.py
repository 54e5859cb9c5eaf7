"""Find the valid batches of a log, wherever damage has moved them, and the damaged ranges.

Every byte of a file belongs to a valid batch or to a damaged range. After an invalid batch, the
next one is searched from its second byte on. So a header with a wrong length costs only its own
batch, whether the length is too large or too small.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np

from kdump.formats import record_batch
from kdump.scan.batches import BatchColumns, Column, Flags, Window
from kdump.scan.header_columns import increment_sequences
from kdump.scan.resync import find_batch
from kdump.scan.walk import Skipped, walk_windows
from kdump.state.transactions.markers import marker_rows, read_markers
from kdump.storage.byte_source import ByteSource

_LARGEST_MAGIC: Final = 2
_LEAST_TO_COLLAPSE: Final = 2
_COLUMNS: Final = (
    "position",
    "size_bytes",
    "base_offset",
    "last_offset",
    "records_count",
    "crc",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "last_offset_delta",
    "partition_leader_epoch",
    "attributes",
    "magic",
)


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """Bytes that are not a valid batch; ``batch`` is the header at their start, if there is one."""

    start: int
    end: int
    reason: str
    batch: record_batch.BatchHeader | None = None


@dataclass(frozen=True, slots=True)
class ValidBatches:
    """The valid batches of a log, as columns in the order of the file.

    A row is one batch, or, when :meth:`collapsed`, a whole log without damage.

    Attributes:
        batches: number of batches in each row.
        position: of each, in the file.
        size_bytes: of each.
        first_offset: the lower of the first and last offset in its header.
        last_offset: the higher of those.
        records_count: of each; -1 if counting needs decompression.
        crc: of each, as stored.
        producer_id: of each; -1 for none.
        producer_epoch: of each; -1 for none.
        base_sequence: of each; -1 for none.
        last_sequence: of each; -1 for none.
        leader_epoch: of each; -1 for none.
        attributes: of each.
        damaged: the other bytes of the file, in order; no two ranges are adjacent.
    """

    batches: Column
    position: Column
    size_bytes: Column
    first_offset: Column
    last_offset: Column
    records_count: Column
    crc: Column
    producer_id: Column
    producer_epoch: Column
    base_sequence: Column
    last_sequence: Column
    leader_epoch: Column
    attributes: Column
    damaged: tuple[DamagedRange, ...]

    @property
    def count(self) -> int:
        """How many rows."""
        return len(self.position)

    @property
    def is_collapsed(self) -> bool:
        return self.count == 1 and bool(self.batches[0] > 1)

    def chosen(self, rows: Column) -> ValidBatches:
        """The batches of some rows, in the same order, with all damaged ranges."""
        columns = {
            each.name: getattr(self, each.name)[rows]
            for each in fields(self)
            if each.name != "damaged"
        }
        return replace(self, **columns)

    def collapsed(self) -> ValidBatches:
        """All batches as one row, if nothing is damaged and offsets rise; else unchanged.

        Nearly all logs are like that, and their batches need not be held in memory.
        """
        rises = bool((self.first_offset[1:] > self.last_offset[:-1]).all())
        if self.damaged or not rises or self.count < _LEAST_TO_COLLAPSE:
            return self
        return replace(
            self,
            batches=np.array([self.count], np.int64),
            position=self.position[:1].copy(),
            size_bytes=self.size_bytes.sum(keepdims=True),
            first_offset=self.first_offset[:1].copy(),
            last_offset=self.last_offset[-1:].copy(),
            records_count=np.array([-1], np.int64),
            crc=self.crc[:1].copy(),
            producer_id=np.array([-1], np.int64),
            producer_epoch=np.array([-1], np.int64),
            base_sequence=np.array([-1], np.int64),
            last_sequence=np.array([-1], np.int64),
            leader_epoch=np.array([-1], np.int64),
            attributes=np.array([0], np.int64),
        )


def find_valid_batches(source: ByteSource) -> ValidBatches:
    """Find the valid batches of a whole log.

    A batch is valid if its checksum is correct, its magic is known, its offsets are not negative,
    and, if it is a marker, Kafka can parse it.

    Raises:
        OSError: reading fails.
    """
    finder = _Finder(source)
    finder.find(0, source.size_bytes)
    return finder.finish()


class _Finder:
    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._valid: dict[str, list[Column]] = {name: [] for name in _COLUMNS}
        self._damaged: list[DamagedRange] = []

    def find(self, start: int, end: int) -> None:
        """Search the bytes from ``start`` to ``end``; a batch should start at ``start``."""
        for step in walk_windows(self._source, start, end, follow_bad=True):
            if isinstance(step, Skipped):
                self._add_damaged(DamagedRange(step.start, step.end, step.problem.what))
            elif isinstance(step, Window):
                self._take(step)

    def finish(self) -> ValidBatches:
        columns = {
            name: np.concatenate([np.empty(0, np.int64), *parts])
            for name, parts in self._valid.items()
        }
        base_offset, last_offset = columns["base_offset"], columns["last_offset"]
        is_plain = (columns["attributes"] & record_batch.CODEC_MASK) == 0
        is_single = (columns["magic"] < _LARGEST_MAGIC) & is_plain
        return ValidBatches(
            batches=np.ones(len(base_offset), np.int64),
            position=columns["position"],
            size_bytes=columns["size_bytes"],
            first_offset=np.minimum(base_offset, last_offset),
            last_offset=np.maximum(base_offset, last_offset),
            records_count=np.where(is_single, 1, columns["records_count"]),
            crc=columns["crc"],
            producer_id=columns["producer_id"],
            producer_epoch=columns["producer_epoch"],
            base_sequence=columns["base_sequence"],
            last_sequence=np.where(
                columns["base_sequence"] >= 0,
                increment_sequences(columns["base_sequence"], columns["last_offset_delta"]),
                record_batch.NO_SEQUENCE,
            ),
            leader_epoch=columns["partition_leader_epoch"],
            attributes=columns["attributes"],
            damaged=tuple(self._damaged),
        )

    def _take(self, window: Window) -> None:
        batches = window.batches
        is_valid_batch, reasons = _judge(window)
        begin = 0
        for row in np.flatnonzero(~is_valid_batch).tolist():
            self._add_valid(batches, slice(begin, row))
            self._search_within(batches, row, reasons.get(row, "its checksum does not match"))
            begin = row + 1
        self._add_valid(batches, slice(begin, None))

    def _add_valid(self, batches: BatchColumns, rows: slice) -> None:
        for name, parts in self._valid.items():
            parts.append(getattr(batches, name)[rows])

    def _search_within(self, batches: BatchColumns, row: int, reason: str) -> None:
        """Record an invalid batch as damage, up to a valid batch inside it."""
        start, end = int(batches.position[row]), int(batches.next_position[row])
        header = batches.header(row) if batches.magic[row] == _LARGEST_MAGIC else None
        found = None
        if not batches.is_valid[row]:
            found = find_batch(self._source, start + 1, end)
        until = end if found is None else found
        self._add_damaged(DamagedRange(start, until, reason, header if found is None else None))
        if found is not None:
            self.find(found, end)

    def _add_damaged(self, damaged: DamagedRange) -> None:
        last = self._damaged[-1] if self._damaged else None
        if last is not None and last.end == damaged.start:
            self._damaged[-1] = DamagedRange(last.start, damaged.end, last.reason)
        else:
            self._damaged.append(damaged)


def _judge(window: Window) -> tuple[Flags, dict[int, str]]:
    """Which batches of ``window`` are valid, and why others with a correct checksum are not."""
    batches = window.batches
    reasons: dict[int, str] = {}
    is_known = (batches.magic >= 0) & (batches.magic <= _LARGEST_MAGIC)
    is_offset = (batches.base_offset >= 0) & (batches.last_offset >= 0)
    is_valid_batch = batches.is_valid & is_known & is_offset
    if not is_valid_batch.all():
        for row in np.flatnonzero(batches.is_valid & ~is_valid_batch).tolist():
            reasons[row] = "its magic is unknown" if not is_known[row] else "its offset is negative"
    rows = marker_rows(batches)
    for row, problem in read_markers(window, "", rows[is_valid_batch[rows]]).problems.items():
        reasons[row] = str(problem)
        is_valid_batch[row] = False
    return is_valid_batch, reasons
