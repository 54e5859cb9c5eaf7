"""Decode the records of many batches of magic 2 at once, as columns.

The start of a record is known only from the record before it, so all batches of a window are
stepped through in parallel: one vector of positions, one varint for each record index. When only
a few batches still have records, these are stepped through one by one. Once every start is known,
each field of all records is one array operation.

The compiled loop does the same record by record where there is one, which takes a third of the time
for the columns of short records, and half for what reads them.

Columns have positions in the bytes, not copies; a null has size -1. Batches that do not decode
are decoded again by the plain decoder (``record_batch.decode_records``), which keeps the records
before the damage and says what is wrong.
"""

from __future__ import annotations

import functools
import itertools
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from kdump.formats import record_batch
from kdump.formats.cursor import Cursor
from kdump.formats.errors import FormatError
from kdump.formats.record_batch import RecordHeader
from kdump.scan import compiled_loops
from kdump.scan.batches import (
    BatchColumns,
    Bytes,
    Column,
    Flags,
)
from kdump.scan.compiled_loops import RecordFields
from kdump.scan.header_columns import increment_sequences
from kdump.scan.varint_columns import advance, beyond, varint, varlong

LOCKSTEP_LANES: Final = 32
"""With fewer parallel batches than this, stepping one record at a time is faster."""
MOST_RECORDS: Final = 1 << 15
"""The most records decoded at once: the columns of a record take some 130 bytes."""
LEAST_RECORD_BYTES: Final = 7


class RecordColumns(Struct, frozen=True):
    """Records of consecutive batches, in order; each column is int64 of shape (n,).

    Attributes:
        data: the bytes that positions point into, then :data:`PADDING_BYTES` zeroes.
        batches: the batches, also those without records.
        batch: for each record, the row of its batch in ``batches``.
        offset: absolute.
        timestamp: epoch milliseconds; the log append time if the batch says so.
        sequence: -1 if the batch has none.
        attributes: of the record itself; no Kafka gives them a meaning yet.
        key_start: of its bytes in ``data``; likewise for the value.
        key_size: in bytes, -1 for null.
        headers_start: of the first header in ``data``.
        headers_count: how many headers.
        end: position in ``data`` after the last byte of the record.
        problems: by row of ``batches``, why its records end early.
        is_continued: whether the first batch began in the columns before these.
    """

    data: Bytes
    batches: BatchColumns
    batch: Column
    offset: Column
    timestamp: Column
    sequence: Column
    attributes: Column
    key_start: Column
    key_size: Column
    value_start: Column
    value_size: Column
    headers_start: Column
    headers_count: Column
    end: Column
    problems: dict[int, FormatError] = field(default_factory=dict)
    is_continued: bool = False

    @property
    def count(self) -> int:
        """How many records."""
        return len(self.offset)

    def key(self, row: int) -> bytes | None:
        return self._bytes(self.key_start, self.key_size, row)

    def value(self, row: int) -> bytes | None:
        return self._bytes(self.value_start, self.value_size, row)

    def _bytes(self, start: Column, size: Column, row: int) -> bytes | None:
        length = int(size[row])
        begin = int(start[row])
        return None if length < 0 else self.data[begin : begin + length].tobytes()

    def headers(self, row: int) -> tuple[RecordHeader, ...]:
        count = int(self.headers_count[row])
        if not count:
            return ()
        cursor = Cursor(memoryview(self.data), int(self.headers_start[row]))
        return tuple(record_batch.decode_record_header(cursor) for _ in range(count))


class Sections(Struct, frozen=True):
    """The position of each batch's decompressed records, and how many to decode."""

    start: Column
    end: Column
    count: Column
    must_fill: Flags
    """Whether the last record must end where the section ends."""

    @classmethod
    def of(cls, start: Column, end: Column, count: Column) -> Sections:
        """Return sections that their records must fill."""
        return cls(start, end, count.copy(), np.ones(len(start), np.bool_))


def decode_sections(data: Bytes, batches: BatchColumns, sections: Sections) -> RecordColumns:
    """Decode ``sections``, one for each batch; damage ends a section early."""
    problems: dict[int, FormatError] = {}
    # An impossible count must not become an allocation.
    most = (sections.end - sections.start) // LEAST_RECORD_BYTES
    is_impossible = (sections.count < 0) | (sections.count > most)
    for row in np.flatnonzero(is_impossible).tolist():
        _cut_at_damage(data, batches, row, sections, problems)
    columns, bad_rows = _decode_columns(data, batches, sections)
    if bad_rows:
        for row in bad_rows:
            _cut_at_damage(data, batches, row, sections, problems)
        columns, bad_rows = _decode_columns(data, batches, sections)
        assert not bad_rows, "the plain decoder accepts what the columns do not"
    columns.problems.update(problems)
    return columns


def _cut_at_damage(
    data: Bytes,
    batches: BatchColumns,
    row: int,
    sections: Sections,
    problems: dict[int, FormatError],
) -> None:
    """Lower the count of a section to the records before the damage, and note the problem."""
    header = replace(batches.header(row), records_count=int(sections.count[row]))
    body = memoryview(data)[int(sections.start[row]) : int(sections.end[row])]
    good = 0
    try:
        for _ in record_batch.decode_records(header, body):
            good += 1
    except FormatError as problem:
        problems[row] = problem.as_value()
    sections.count[row] = good
    sections.must_fill[row] = False


def _decode_columns(
    data: Bytes, batches: BatchColumns, sections: Sections
) -> tuple[RecordColumns, list[int]]:
    """Decode all sections; returns the columns, and the rows of damaged sections."""
    fields = compiled_loops.record_fields(
        data, sections.start, sections.end, sections.count, sections.must_fill
    )
    bad_rows: list[int] = []
    if fields is None:
        fields, bad_rows = record_fields(data, sections)
    batch, offset_delta = fields.batch, fields.offset_delta
    if (batches.base_sequence < 0).all():
        sequence = np.full(len(batch), record_batch.NO_SEQUENCE, np.int64)
    else:
        base_sequence = batches.base_sequence[batch]
        sequence = np.where(
            base_sequence >= 0,
            increment_sequences(base_sequence, offset_delta),
            record_batch.NO_SEQUENCE,
        )
    is_append_time = (batches.attributes & record_batch.LOG_APPEND_TIME_FLAG) != 0
    timestamp = batches.base_timestamp[batch] + fields.timestamp_delta
    if is_append_time.any():
        timestamp = np.where(is_append_time[batch], batches.max_timestamp[batch], timestamp)
    columns = RecordColumns(
        data=data,
        batches=batches,
        batch=batch,
        offset=batches.base_offset[batch] + offset_delta,
        timestamp=timestamp,
        sequence=sequence,
        attributes=fields.attributes,
        key_start=fields.key_start,
        key_size=fields.key_size,
        value_start=fields.value_start,
        value_size=fields.value_size,
        headers_start=fields.headers_start,
        headers_count=fields.headers_count,
        end=fields.end,
    )
    return columns, bad_rows


def record_fields(data: Bytes, sections: Sections) -> tuple[RecordFields, list[int]]:
    """Decode the fields of all records; also returns the rows of damaged sections."""
    end, count = sections.end, sections.count
    batch = np.repeat(np.arange(len(count)), count)
    start, reached = _record_starts(data, sections.start, end, count)
    is_bad = sections.must_fill & (count > 0) & (reached != end)

    length, at = varint(data, start)
    body_end = at + length
    attributes = data[at].astype(np.int8).astype(np.int64)
    timestamp_delta, at = varlong(data, at + 1)
    offset_delta, at = varint(data, at)
    key_size, key_start = varint(data, at)
    at = advance(data, key_start, key_size)
    value_size, value_start = varint(data, at)
    at = advance(data, value_start, value_size)
    headers_count, headers_start = varint(data, at)
    at = _skip_headers(data, headers_start, headers_count, body_end)

    is_odd = (at != body_end) | (headers_count < 0)
    if is_odd.any():
        is_bad[np.unique(batch[is_odd])] = True
    fields = RecordFields(
        batch=batch,
        attributes=attributes,
        timestamp_delta=timestamp_delta,
        offset_delta=offset_delta,
        key_start=key_start,
        key_size=np.maximum(key_size, -1),
        value_start=value_start,
        value_size=np.maximum(value_size, -1),
        headers_start=headers_start,
        headers_count=headers_count,
        end=body_end,
    )
    return fields, np.flatnonzero(is_bad).tolist()


def _record_starts(data: Bytes, first: Column, end: Column, count: Column) -> tuple[Column, Column]:
    """Find where each record begins, and where the last record of each section ends.

    If the lengths lead out of a section, the end is anything but the end of the section.
    """
    starts = np.full(int(count.sum()), beyond(data), np.int64)
    reached = np.where(count > 0, -1, first)
    order = np.argsort(-count, kind="stable")
    slots = (np.cumsum(count) - count)[order]
    counts = count[order]
    position = first[order]
    ends = end[order]
    steps = int(counts[0]) if len(counts) else 0
    # How many sections have a record of each index: a step touches only these.
    lanes_at = np.searchsorted(-counts, -np.arange(steps), "left")
    steps_by_pair = _steps_by_pair()
    pairs = np.ndarray(len(data) - 1, np.uint16, data, strides=(1,))
    step = 0
    for lanes, still in itertools.pairwise([*lanes_at.tolist(), 0]):
        if lanes < LOCKSTEP_LANES:
            break
        position, slots = position[:lanes], slots[:lanes]
        starts[slots] = position
        # A position that has left its section cannot return to the end of the section.
        position = _following(data, pairs, steps_by_pair, position)
        slots += 1
        step += 1
        if still < lanes:
            reached[order[still:lanes]] = position[still:lanes]
    view = memoryview(data)
    for lane in np.flatnonzero(counts > step).tolist():
        if position[lane] <= ends[lane]:
            slot = int(slots[lane])
            rest = starts[slot : slot + int(counts[lane]) - step]
            reached[order[lane]] = _hop(view, int(position[lane]), int(ends[lane]), rest)
    return starts, reached


def _following(
    data: Bytes,
    pairs: npt.NDArray[np.uint16],
    steps_by_pair: npt.NDArray[np.int16],
    position: Column,
) -> Column:
    """Return where the record after each ``position`` begins; beyond the data for a bad length."""
    steps = steps_by_pair[pairs[position]]
    if np.count_nonzero(steps) == len(steps):
        following = position + steps
    else:
        length, body = varint(data, position)
        following = np.where(length < 0, beyond(data), body + length)
    np.minimum(following, beyond(data), out=following)
    return following


@functools.cache
def _steps_by_pair() -> npt.NDArray[np.int16]:
    """Map the first two bytes of a record to its size; 0 if they do not say it.

    They do if its length is a varint of one or two bytes and not negative, so that most lengths
    need no decoding.
    """
    pair = np.arange(1 << 16, dtype=np.uint16)
    first, second = pair.view(np.uint8).reshape(-1, 2).astype(np.int64).T
    is_single = first < 0x80
    raw = np.where(is_single, first, (first & 0x7F) | (second << 7))
    is_known = (raw & 1 == 0) & (is_single | (second < 0x80))
    return np.where(is_known, (raw >> 1) + np.where(is_single, 1, 2), 0).astype(np.int16)


def _hop(view: memoryview, position: int, end: int, starts: Column) -> int:
    """Fill ``starts`` record by record; returns the end of the last one, or -1."""
    found: list[int] = []
    add = found.append
    steps = _steps_by_pair_listed()
    for _ in range(len(starts)):
        if position >= end:
            return -1
        add(position)
        step = steps[view[position] | view[position + 1] << 8]
        if step:
            position += step
            continue
        try:
            cursor = Cursor(view, position)
            length = cursor.varint()
        except FormatError:
            return -1
        if length < 0:
            return -1
        position = cursor.position + length
        if position > end:
            return -1
    starts[:] = found
    return position if position <= end else -1


@functools.cache
def _steps_by_pair_listed() -> list[int]:
    listed: list[int] = _steps_by_pair().tolist()
    return listed


def _skip_headers(data: Bytes, position: Column, headers_count: Column, body_end: Column) -> Column:
    """Return the position after the headers of each record; -1 if they do not fit its body."""
    rows = np.flatnonzero(headers_count > 0)
    if not rows.size:
        return position
    position = position.copy()
    left = headers_count[rows]
    # A header takes at least two bytes, which limits their number.
    is_impossible = left > (body_end[rows] - position[rows]) // 2
    position[rows[is_impossible]] = -1
    rows, left = rows[~is_impossible], left[~is_impossible]
    while rows.size:
        key_size, at = varint(data, position[rows])
        value_size, at = varint(data, advance(data, at, key_size))
        at = advance(data, at, value_size)
        is_out = (key_size < 0) | (at > body_end[rows])
        position[rows] = np.where(is_out, -1, at)
        left = left - 1
        is_going = (left > 0) & ~is_out
        rows, left = rows[is_going], left[is_going]
    return position


class HeaderColumns(Struct, frozen=True):
    """Headers of records, in order; each column is int64 of shape (n,).

    Attributes:
        key_start: of the name's bytes in the records' ``data``.
        key_size: in bytes.
        value_start: of the value's bytes in ``data``.
        value_size: in bytes, -1 for null.
    """

    key_start: Column
    key_size: Column
    value_start: Column
    value_size: Column


def locate_headers(columns: RecordColumns) -> HeaderColumns:
    """Locate the headers of all records, ``headers_count`` of each record in turn."""
    rows = np.flatnonzero(columns.headers_count > 0)
    left = columns.headers_count[rows]
    slot = np.cumsum(left) - left
    position = columns.headers_start[rows]
    found = np.empty((4, int(left.sum())), np.int64)
    while slot.size:
        key_size, key_start = varint(columns.data, position)
        at = advance(columns.data, key_start, key_size)
        value_size, value_start = varint(columns.data, at)
        found[:, slot] = key_start, key_size, value_start, np.maximum(value_size, -1)
        is_going = left > 1
        position = advance(columns.data, value_start, value_size)[is_going]
        slot, left = slot[is_going] + 1, left[is_going] - 1
    return HeaderColumns(*found)
