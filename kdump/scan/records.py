"""Decode the records of many batches of magic 2 at once, as columns.

The start of a record is known only from the record before it, so all batches of a window are
stepped through in parallel: one vector of positions, one varint for each record index. When only
a few batches still have records, these are stepped through one by one. Once every start is known,
each field of all records is one array operation.

Columns have positions in the bytes, not copies; a null has size -1. Batches that do not decode
are decoded again by the plain decoder (``record_batch.decode_records``), which keeps the records
before the damage and says what is wrong.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from kdump.formats import record_batch
from kdump.formats.compression import CODEC_MASK, Codec, decompress, decompress_chunks
from kdump.formats.cursor import MAX_VARINT_BYTES, Cursor
from kdump.formats.errors import FillError, FormatError, OverLimitError
from kdump.formats.record_batch import RecordHeader
from kdump.scan.batches import (
    LARGEST_WINDOW_BYTES,
    PADDING_BYTES,
    BatchColumns,
    Bytes,
    Column,
    Flags,
    Window,
    read_chunks,
)
from kdump.scan.varint_columns import advance, beyond, varint, varlong

LOCKSTEP_LANES: Final = 32
"""With fewer parallel batches than this, stepping one record at a time is faster."""
MOST_RECORDS: Final = 1 << 15
"""The most records decoded at once: the columns of a record take some 130 bytes."""
STREAM_CHUNK_BYTES: Final = 1 << 20
"""A batch that is too large to hold is decoded in pieces of about this size."""
ARENA_BYTES: Final = 2 << 20
"""Compressed batches are decoded together once this much is decompressed."""
_LEAST_RECORD_BYTES: Final = 7
LARGEST_EXPANSION: Final = 16
"""A record may be this many times as large as its compressed batch, or"""
LARGEST_RECORD_BYTES: Final = 16 << 20
"""this large, whichever is more; larger ones are not decoded unless the limit is raised."""


@dataclass(frozen=True, slots=True)
class RecordColumns:
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


@dataclass(frozen=True, slots=True)
class _Sections:
    """The position of each batch's decompressed records, and how many to decode."""

    start: Column
    end: Column
    count: Column
    must_fill: Flags
    """Whether the last record must end where the section ends."""

    @classmethod
    def of(cls, start: Column, end: Column, count: Column) -> _Sections:
        """Return sections that their records must fill."""
        return cls(start, end, count.copy(), np.ones(len(start), np.bool_))


def read_records(
    window: Window, largest_record_bytes: int = LARGEST_RECORD_BYTES
) -> Iterator[RecordColumns]:
    """Decode the records of ``window``, whose batches must all be magic 2.

    Args:
        window: the batches.
        largest_record_bytes: larger records of compressed batches are not decoded, nor the ones
            after them; the problem of the batch is then an :class:`OverLimitError`.

    Yields:
        Columns for all batches in order, :data:`MOST_RECORDS` at a time. A batch that is too large
        to hold, or has more records, comes in pieces, without other batches.
    """
    if window.is_giant:
        yield from _stream(window, 0, largest_record_bytes)
        return
    batches = window.batches
    is_plain = (batches.attributes & record_batch.CODEC_MASK) == Codec.NONE
    if is_plain.all() and int(batches.records_count.clip(min=0).sum()) <= MOST_RECORDS:
        yield _decode_plain(window)
        return
    yield from _decode_gathered(window, is_plain.tolist(), largest_record_bytes)


def _decode_plain(window: Window) -> RecordColumns:
    starts = window.batches.position - window.start
    sections = _Sections.of(
        starts + record_batch.HEADER_BYTES,
        starts + window.batches.size_bytes,
        window.batches.records_count,
    )
    return _decode(window.data, window.batches, sections)


def _decode_gathered(
    window: Window, is_plain: list[bool], largest_record_bytes: int
) -> Iterator[RecordColumns]:
    """Collect the decompressed records of several batches, and decode them together."""
    bodies: list[bytes | memoryview] = []
    held_bytes = held_records = first = 0
    batches = window.batches
    view = memoryview(window.data)
    begins = (batches.position - window.start + record_batch.HEADER_BYTES).tolist()
    ends = (batches.next_position - window.start).tolist()
    attributes = batches.attributes.tolist()
    for row, count in enumerate(batches.records_count.tolist()):
        body: bytes | memoryview | None = view[begins[row] : ends[row]]
        if count and not is_plain[row]:
            body = _decompress(attributes[row], view[begins[row] : ends[row]])
        is_held = body is not None and (
            count <= MOST_RECORDS or len(body) < _LEAST_RECORD_BYTES * MOST_RECORDS
        )
        if is_held and body is not None:
            bodies.append(body)
            held_bytes += len(body)
            held_records += min(max(count, 0), MOST_RECORDS)
        if bodies and (not is_held or held_bytes >= ARENA_BYTES or held_records >= MOST_RECORDS):
            last = first + len(bodies)
            yield _decode_arena(bodies, batches.rows(slice(first, last)))
            bodies, held_bytes, held_records, first = [], 0, 0, last
        if not is_held:
            yield from _stream(window, row, largest_record_bytes)
            first = row + 1
    if bodies:
        yield _decode_arena(bodies, batches.rows(slice(first, None)))


def _decompress(attributes: int, body: memoryview) -> bytes | None:
    """Decompress the records of a batch; None if it must be streamed to find the damage."""
    try:
        codec = _codec(attributes & CODEC_MASK)
        return decompress(codec, body, limit_bytes=LARGEST_WINDOW_BYTES)
    except FormatError:
        return None


_codec: Final = functools.cache(Codec.of_attributes)
"""Cached, because making an enum member takes as long as decoding a small batch."""


def _decode_arena(bodies: list[bytes | memoryview], batches: BatchColumns) -> RecordColumns:
    arena = np.frombuffer(b"".join([*bodies, bytes(PADDING_BYTES)]), np.uint8)
    sizes = np.fromiter(map(len, bodies), np.int64, len(bodies))
    ends = np.cumsum(sizes)
    return _decode(arena, batches, _Sections.of(ends - sizes, ends, batches.records_count))


def _decode(data: Bytes, batches: BatchColumns, sections: _Sections) -> RecordColumns:
    """Decode ``sections``, one for each batch; damage ends a section early."""
    problems: dict[int, FormatError] = {}
    # An impossible count must not become an allocation.
    most = (sections.end - sections.start) // _LEAST_RECORD_BYTES
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
    sections: _Sections,
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
    data: Bytes, batches: BatchColumns, sections: _Sections
) -> tuple[RecordColumns, list[int]]:
    """Decode all sections; returns the columns, and the rows of damaged sections."""
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
    bad_rows = np.flatnonzero(is_bad).tolist()

    if (batches.base_sequence < 0).all():
        sequence = np.full(len(batch), record_batch.NO_SEQUENCE, np.int64)
    else:
        base_sequence = batches.base_sequence[batch]
        sequence = np.where(
            base_sequence >= 0,
            record_batch.increment_sequences(base_sequence, offset_delta),
            record_batch.NO_SEQUENCE,
        )
    is_append_time = (batches.attributes & record_batch.LOG_APPEND_TIME_FLAG) != 0
    timestamp = batches.base_timestamp[batch] + timestamp_delta
    if is_append_time.any():
        timestamp = np.where(is_append_time[batch], batches.max_timestamp[batch], timestamp)
    columns = RecordColumns(
        data=data,
        batches=batches,
        batch=batch,
        offset=batches.base_offset[batch] + offset_delta,
        timestamp=timestamp,
        sequence=sequence,
        attributes=attributes,
        key_start=key_start,
        key_size=np.maximum(key_size, -1),
        value_start=value_start,
        value_size=np.maximum(value_size, -1),
        headers_start=headers_start,
        headers_count=headers_count,
        end=body_end,
    )
    return columns, bad_rows


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
    if steps.min() > 0:
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


@dataclass(frozen=True, slots=True)
class HeaderColumns:
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


def _stream(window: Window, row: int, largest_record_bytes: int) -> Iterator[RecordColumns]:
    """Decode one batch in pieces, so that neither it nor its decompressed records are held."""
    batches = window.batches.rows(slice(row, row + 1))
    header = batches.header(0)
    chunks = _body_chunks(window, row, header)
    largest = _largest_record(window, row, header, largest_record_bytes)
    can_be_valid = bool(window.batches.is_valid[row]) and header.codec_id != Codec.NONE
    error = OverLimitError if can_be_valid else FormatError
    held = bytearray()
    read = consumed = whole = 0
    is_continued = False
    problem = None
    if header.records_count < 0:
        problem = FormatError(
            "batch has a negative count of records",
            expected="0 or more",
            found=header.records_count,
        )
    while problem is None and read < header.records_count:
        # More records may be held than are yielded at once.
        chunk: bytes | memoryview = b""
        if len(held) < STREAM_CHUNK_BYTES or not whole:
            try:
                chunk = next(chunks, b"")
            except FormatError as failure:
                problem = failure.as_value()
        held += chunk
        most = min(header.records_count - read, MOST_RECORDS)
        whole, size, refused = _whole_records(held, most, largest, error)
        if problem is None and refused is not None:
            problem = refused.shifted(consumed)
        if problem is None and not chunk and not whole:
            problem = FillError(
                "batch ends before its last record",
                position=consumed + size,
                expected=f"{header.records_count} records",
                found=read + whole,
            )
        if not whole:
            continue
        data = np.zeros(size + PADDING_BYTES, np.uint8)
        data[:size] = memoryview(held)[:size]
        columns = _decode(data, batches, _section(size, whole))
        if columns.problems:
            problem = columns.problems.pop(0).shifted(consumed)
        yield replace(columns, is_continued=is_continued)
        is_continued = True
        read += whole
        consumed += size
        del held[:size]
    if problem is None:
        problem = _bytes_after_records(header, held, chunks, consumed)
    if problem is not None or not is_continued:
        nothing = _decode(np.zeros(PADDING_BYTES, np.uint8), batches, _section(0, 0))
        problems = {} if problem is None else {0: problem}
        yield replace(nothing, is_continued=is_continued, problems=problems)


def _section(size: int, count: int) -> _Sections:
    """Return a single section at the start of the data."""
    return _Sections.of(*(np.array([each], np.int64) for each in (0, size, count)))


def _largest_record(
    window: Window, row: int, header: record_batch.BatchHeader, largest_record_bytes: int
) -> int:
    """Return the largest record to accept in a batch, in bytes."""
    if not window.batches.is_valid[row]:
        return largest_record_bytes
    if header.codec_id == Codec.NONE:
        return header.size_bytes
    return max(largest_record_bytes, LARGEST_EXPANSION * header.size_bytes)


def _whole_records(
    held: bytearray, most: int, largest: int, error: type[FormatError]
) -> tuple[int, int, FormatError | None]:
    """Count the whole records at the start of ``held``, at most ``most``.

    Returns their number, their size in bytes, and why no further record is possible, if known.
    """
    cursor = Cursor(held)
    count = size = 0
    while count < most and cursor.remaining >= MAX_VARINT_BYTES:
        try:
            length = cursor.varint()
        except FormatError as refused:
            return count, size, refused.as_value()
        if length > largest and error is OverLimitError:
            too_large = OverLimitError(
                "not decoded: a record is over the limit",
                position=size,
                expected=f"at most {largest} bytes (see --max-record-bytes)",
                found=length,
            )
            return count, size, too_large
        if not 0 <= length <= largest:
            unbelievable = FormatError(
                "record length is impossible",
                position=size,
                expected=f"0 to {largest}",
                found=length,
            )
            return count, size, unbelievable
        if length > cursor.remaining:
            break
        cursor.position += length
        size = cursor.position
        count += 1
    return count, size, None


def _bytes_after_records(
    header: record_batch.BatchHeader,
    held: bytearray,
    chunks: Iterator[bytes | memoryview],
    consumed: int,
) -> FormatError | None:
    if header.records_count == 0:
        return None
    try:
        more = len(held) or len(next(chunks, b""))
    except FormatError as failure:
        return failure.as_value()
    if not more:
        return None
    return FillError(
        "batch has bytes after its last record",
        position=consumed,
        expected=f"{header.records_count} records that end with the batch",
        found=f"{more} bytes more",
    )


def _body_chunks(
    window: Window, row: int, header: record_batch.BatchHeader
) -> Iterator[bytes | memoryview]:
    """Yield the decompressed bytes after the header, in pieces."""
    position = int(window.batches.position[row])
    start = position + record_batch.HEADER_BYTES
    end = position + header.size_bytes
    if header.codec_id == Codec.NONE:
        yield from read_chunks(window.source, start, end, STREAM_CHUNK_BYTES)
        return
    codec = Codec.of_attributes(header.attributes)
    if window.is_giant and not window.batches.is_valid[row]:
        # Its length cannot be trusted, and decompressing takes all of it in memory.
        raise FormatError(
            "batch is too large to be decompressed while its checksum is wrong",
            expected=f"at most {LARGEST_WINDOW_BYTES} bytes",
            found=header.size_bytes,
        )
    body = b"".join(read_chunks(window.source, start, end))
    yield from decompress_chunks(codec, body, chunk_bytes=STREAM_CHUNK_BYTES)
