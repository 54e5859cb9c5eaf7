"""Records as columns that can be compared: whatever codec and batches they were stored in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from kdump.formats.errors import FormatError
from kdump.formats.record_batch import CONTROL_FLAG, OF_TRANSACTIONS
from kdump.scan.arrow import gather_bytes
from kdump.scan.batches import Column, Flags, Window
from kdump.scan.records import RecordColumns
from kdump.scan.walk import ALL, MessageSet, expand_window

_BINARY = pa.large_binary()

_NOT_RISING = "the offsets of its records do not rise from its first to its last"


class EndedEarly(NamedTuple):
    """A batch whose records cannot all be read.

    Attributes:
        position: of the batch.
        end_offset: after its last readable record; 0 if it has none.
        problem: why.
    """

    position: int
    end_offset: int
    problem: FormatError | str


class RecordRows(Struct, frozen=True):
    """Records whose offsets rise; each column has shape (n,), int64 or large_binary.

    Attributes:
        offset: absolute.
        timestamp: epoch milliseconds.
        leader_epoch: of the batch; -1 if it has none.
        magic: of the batch.
        producer_id: of the batch.
        producer_epoch: of the batch.
        flags: whether it is transactional, or a control record.
        key: null for no key.
        value: null for no value.
        headers: as stored: names and values, each after its length.
    """

    offset: Column
    timestamp: Column
    leader_epoch: Column
    magic: Column
    producer_id: Column
    producer_epoch: Column
    flags: Column
    key: pa.Array
    value: pa.Array
    headers: pa.Array

    @property
    def is_control(self) -> Flags:
        found: Flags = (self.flags & CONTROL_FLAG) != 0
        return found

    def slice(self, start: int, end: int) -> RecordRows:
        """Return the rows from ``start`` to ``end``, exclusive."""
        return RecordRows(*(getattr(self, name)[start:end] for name in self.__struct_fields__))

    def take(self, rows: Column) -> RecordRows:
        """Return some rows of each column."""
        index = pa.array(rows)
        return RecordRows(
            *(
                column[rows] if isinstance(column, np.ndarray) else column.take(index)
                for column in (getattr(self, name) for name in self.__struct_fields__)
            )
        )


def same_records(left: RecordRows, right: RecordRows) -> Flags:
    """Which records are the same, row by row; both have the same number.

    The codec, the layout of the batches, their sequence numbers and leader epochs do not count.
    Producers count where both batches have them: the cleaner keeps them.
    """
    same: Flags = left.offset == right.offset
    same &= left.timestamp == right.timestamp
    is_older = (left.magic < 2) | (right.magic < 2)
    for name in ("producer_id", "producer_epoch", "flags"):
        same &= is_older | (getattr(left, name) == getattr(right, name))
    for name in ("key", "value", "headers"):
        same &= _same_bytes(getattr(left, name), getattr(right, name))
    return same


def _same_bytes(left: pa.Array, right: pa.Array) -> Flags:
    equal = pc.equal(left, right).fill_null(False)
    both_null = pc.and_(left.is_null(), right.is_null())
    same: Flags = pc.or_(equal, both_null).to_numpy(zero_copy_only=False)
    return same


def rows_of(
    window: Window, largest_record_bytes: int
) -> Iterator[tuple[RecordRows, list[EndedEarly]]]:
    """Yield the records of ``window`` in pieces, and which batches end early in each."""
    cut_at = -1
    for step in expand_window(
        window,
        ALL,
        with_records=True,
        largest_record_bytes=largest_record_bytes,
        only_valid=True,
    ):
        if isinstance(step, MessageSet):
            yield _of_messages(step)
        elif isinstance(step, RecordColumns):
            position = int(step.batches.position[0])
            if step.is_continued and position == cut_at:
                continue
            rows, cuts = _of_columns(step)
            cut_at = cuts[-1].position if cuts else -1
            yield rows, cuts


def _of_columns(columns: RecordColumns) -> tuple[RecordRows, list[EndedEarly]]:
    batches, batch = columns.batches, columns.batch
    everything = np.ones(columns.count, np.bool_)
    rows = RecordRows(
        offset=columns.offset,
        timestamp=columns.timestamp,
        leader_epoch=batches.partition_leader_epoch[batch],
        magic=batches.magic[batch],
        producer_id=batches.producer_id[batch],
        producer_epoch=batches.producer_epoch[batch],
        flags=batches.attributes[batch] & OF_TRANSACTIONS,
        key=gather_bytes(columns.data, columns.key_start, columns.key_size, columns.key_size >= 0),
        value=gather_bytes(
            columns.data, columns.value_start, columns.value_size, columns.value_size >= 0
        ),
        headers=gather_bytes(
            columns.data, columns.headers_start, columns.end - columns.headers_start, everything
        ),
    )
    cuts = dict[int, FormatError | str](columns.problems)
    is_kept = np.ones(columns.count, np.bool_)
    is_bad = columns.offset > batches.last_offset[batch]
    is_bad |= columns.offset < batches.base_offset[batch]
    is_bad[1:] |= (batch[1:] == batch[:-1]) & (columns.offset[1:] <= columns.offset[:-1])
    for record in np.flatnonzero(is_bad).tolist():
        row = int(batch[record])
        cuts.setdefault(row, _NOT_RISING)
        is_kept[record:] &= batch[record:] != row
    if not cuts:
        return rows, []
    found = []
    for row, problem in sorted(cuts.items()):
        kept = columns.offset[is_kept & (batch == row)]
        end = int(kept[-1]) + 1 if len(kept) else 0
        found.append(EndedEarly(int(batches.position[row]), end, problem))
    return rows if is_kept.all() else rows.take(np.flatnonzero(is_kept)), found


def _of_messages(found: MessageSet) -> tuple[RecordRows, list[EndedEarly]]:
    batches = found.window.batches
    last_offset = int(batches.last_offset[0])
    problem: FormatError | str | None = found.problem
    kept: list[tuple[int, int, bytes | None, bytes | None]] = []
    for message in found.messages:
        if message.offset > last_offset or (kept and message.offset <= kept[-1][0]):
            problem = _NOT_RISING
            break
        try:
            kept.append((message.offset, message.timestamp, message.key, message.value))
        except FormatError as damage:
            problem = damage.as_value()
            break
    offsets, timestamps, keys, values = zip(*kept, strict=True) if kept else ((), (), (), ())
    none = np.full(len(kept), -1, np.int64)
    rows = RecordRows(
        offset=np.array(offsets, np.int64),
        timestamp=np.array(timestamps, np.int64),
        leader_epoch=none,
        magic=np.full(len(kept), int(batches.magic[0]), np.int64),
        producer_id=none,
        producer_epoch=none,
        flags=np.zeros(len(kept), np.int64),
        key=pa.array(keys, _BINARY),
        value=pa.array(values, _BINARY),
        headers=pa.array([b""] * len(kept), _BINARY),
    )
    end = offsets[-1] + 1 if offsets else 0
    position = int(batches.position[0])
    return rows, [] if problem is None else [EndedEarly(position, end, problem)]
