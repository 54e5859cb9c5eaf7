"""Find the valid batches of a log, wherever damage has moved them, and the damaged ranges.

Every byte of a file belongs to a valid batch or to a damaged range. After an invalid batch, the
next one is searched from its second byte on. So a header with a wrong length costs only its own
batch, whether the length is too large or too small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Self

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kdump.formats import record_batch
from kdump.formats.record_batch import GREATEST_OFFSET
from kdump.log.batch_validity import without_false_claims
from kdump.scan.batches import BatchColumns, Column, Flags, Window
from kdump.scan.header_columns import increment_sequences
from kdump.scan.resync import find_batch
from kdump.scan.source import read_at
from kdump.scan.walk import Skipped, walk_windows
from kdump.state.transactions.markers import marker_rows, read_markers
from kdump.storage.byte_source import ByteSource

_LARGEST_MAGIC: Final = 2


class DamagedRange(Struct, frozen=True):
    """Bytes that are not a valid batch; ``batch`` is the header at their start, if there is one."""

    start: int
    end: int
    reason: str
    batch: record_batch.BatchHeader | None = None


class ValidBatches(Struct, frozen=True):
    """The valid batches of a log, as columns in the order of the file.

    A row is one batch, or, when :meth:`collapsed`, a run of batches.

    Attributes:
        batches: number of batches in each row.
        position: of each, in the file.
        size_bytes: of each.
        first_offset: the lower of the first and last offset in its header.
        last_offset: the higher of those.
        records_count: of each; -1 if counting needs decompression, and for a run.
        crc: of each, as stored; of a run, that of its first batch.
        producer_id: of each; -1 for none, and for a run.
        producer_epoch: of each; -1 likewise.
        base_sequence: of each; -1 likewise.
        last_sequence: of each; -1 likewise.
        leader_epoch: of each; -1 likewise.
        attributes: of each; 0 for a run.
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
    damaged: tuple[DamagedRange, ...] = ()

    @classmethod
    def of_columns(cls, batches: BatchColumns) -> Self:
        """One row for each of these batches, which are valid."""
        base_offset, last_offset = batches.base_offset, batches.last_offset
        is_plain = (batches.attributes & record_batch.CODEC_MASK) == 0
        is_single = (batches.magic < _LARGEST_MAGIC) & is_plain
        return cls(
            batches=np.ones(batches.count, np.int64),
            position=batches.position,
            size_bytes=batches.size_bytes,
            first_offset=np.minimum(base_offset, last_offset),
            last_offset=np.maximum(base_offset, last_offset),
            records_count=np.where(is_single, 1, batches.records_count),
            crc=batches.crc,
            producer_id=batches.producer_id,
            producer_epoch=batches.producer_epoch,
            base_sequence=batches.base_sequence,
            last_sequence=np.where(
                batches.base_sequence >= 0,
                increment_sequences(batches.base_sequence, batches.last_offset_delta),
                record_batch.NO_SEQUENCE,
            ),
            leader_epoch=batches.partition_leader_epoch,
            attributes=batches.attributes,
        )

    @classmethod
    def joined(cls, parts: Sequence[Self], damaged: Sequence[DamagedRange]) -> Self:
        """The rows of all parts, in order, with these damaged ranges."""
        empty = np.empty(0, np.int64)
        columns = {
            name: np.concatenate([empty, *(getattr(each, name) for each in parts)])
            for name in cls._column_names()
        }
        return cls(**columns, damaged=tuple(damaged))

    @classmethod
    def _column_names(cls) -> list[str]:
        return [name for name in cls.__struct_fields__ if name != "damaged"]

    @property
    def count(self) -> int:
        """How many rows."""
        return len(self.position)

    @property
    def is_collapsed(self) -> bool:
        """Whether a row is more than one batch."""
        return bool((self.batches > 1).any())

    def chosen(self, rows: Column | slice) -> Self:
        """The batches of some rows, in the same order, with all damaged ranges."""
        return replace(self, **{name: getattr(self, name)[rows] for name in self._column_names()})

    def collapsed(self) -> Self:
        """The same with one row for each run: adjacent batches with rising offsets.

        There are about as many runs as damaged ranges, so they take little memory, however many
        batches a log has.
        """
        breaks = (self.position[1:] != (self.position + self.size_bytes)[:-1]) | (
            self.first_offset[1:] <= self.last_offset[:-1]
        )
        starts = np.concatenate(([0], np.flatnonzero(breaks) + 1))
        if not self.count or len(starts) == self.count:
            return self
        ends = np.append(starts[1:], self.count)
        is_run = ends - starts > 1
        unknown = np.full(len(starts), -1, np.int64)
        of_one: dict[str, Any] = {
            name: np.where(is_run, unknown, getattr(self, name)[starts])
            for name in (
                "records_count",
                "producer_id",
                "producer_epoch",
                "base_sequence",
                "last_sequence",
                "leader_epoch",
            )
        }
        return replace(
            self,
            batches=np.add.reduceat(self.batches, starts),
            position=self.position[starts],
            size_bytes=np.add.reduceat(self.size_bytes, starts),
            first_offset=self.first_offset[starts],
            last_offset=self.last_offset[ends - 1],
            crc=self.crc[starts],
            attributes=np.where(is_run, 0, self.attributes[starts]),
            **of_one,
        )


def find_valid_batches(source: ByteSource) -> ValidBatches:
    """Find the valid batches of a whole log, a row for each.

    A batch is valid if its checksum is correct, its magic is known, its offsets are not negative,
    and, if it is a marker, Kafka can parse it.

    Raises:
        OSError: reading fails.
    """
    return collected(walk_valid_batches(source))


def collected(steps: Iterable[ValidBatches | DamagedRange]) -> ValidBatches:
    """Join what :func:`walk_valid_batches` yields."""
    parts: list[ValidBatches] = []
    damaged: list[DamagedRange] = []
    for step in steps:
        if isinstance(step, ValidBatches):
            parts.append(step)
        elif damaged and damaged[-1].end == step.start:
            damaged[-1] = DamagedRange(damaged[-1].start, step.end, damaged[-1].reason)
        else:
            damaged.append(step)
    return ValidBatches.joined(parts, damaged)


def walk_valid_batches(source: ByteSource) -> Iterator[ValidBatches | DamagedRange]:
    """Yield the valid batches of a log window by window, and the damaged ranges between them.

    Raises:
        OSError: reading fails.
    """
    return _walk(source, 0, source.size_bytes)


def _walk(source: ByteSource, start: int, end: int) -> Iterator[ValidBatches | DamagedRange]:
    """Search the bytes from ``start`` to ``end``; a batch should start at ``start``."""
    for step in walk_windows(source, start, end, follow_bad=True):
        if isinstance(step, Skipped):
            yield DamagedRange(step.start, step.end, step.problem.what)
        elif isinstance(step, Window):
            yield from _walk_window(source, step)


def _walk_window(source: ByteSource, window: Window) -> Iterator[ValidBatches | DamagedRange]:
    is_valid_batch, reasons = _judge(window)
    header = read_at(source, int(window.batches.next_position[-1]), record_batch.LENGTH_START)
    next_offset = int.from_bytes(header, "big", signed=True) if header else GREATEST_OFFSET
    batches = without_false_claims(window, is_valid_batch, next_offset)[0].batches
    begin = 0
    for row in np.flatnonzero(~is_valid_batch).tolist():
        if begin < row:
            yield ValidBatches.of_columns(batches.rows(slice(begin, row)))
        yield from _walk_within(
            source, batches, row, reasons.get(row, "its checksum does not match")
        )
        begin = row + 1
    if begin < batches.count:
        yield ValidBatches.of_columns(batches.rows(slice(begin, None)))


def _walk_within(
    source: ByteSource, batches: BatchColumns, row: int, reason: str
) -> Iterator[ValidBatches | DamagedRange]:
    """Yield an invalid batch as damage, up to a valid batch inside it."""
    start, end = int(batches.position[row]), int(batches.next_position[row])
    header = batches.header(row) if batches.magic[row] == _LARGEST_MAGIC else None
    found = None
    if not batches.is_valid[row]:
        found = find_batch(source, start + 1, end)
    if found is None:
        yield DamagedRange(start, end, reason, header)
        return
    yield DamagedRange(start, found, reason)
    yield from _walk(source, found, end)


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
