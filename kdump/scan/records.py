"""The records of magic 2 as columns, decoded many batches at once.

Where a record begins is known only from the one before it, so the batches of a window are
stepped side by side: one vector of positions, one varint step per record index. Where few
batches are left that still have records, the steps are taken one by one instead. With every
start known, each field of all records is one array operation.

Columns hold positions into the bytes, not copies: a null has size -1. What does not decode is
read again by the plain decoder (``record_batch.decode_records``), which keeps the records in
front of the damage and says what is wrong.
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
from kdump.formats.cursor import MAX_VARINT_BYTES, MAX_VARLONG_BYTES, Cursor
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

LOCKSTEP_LANES: Final = 32
"""With fewer batches than this side by side, stepping one record at a time is faster."""
MOST_RECORDS: Final = 1 << 15
"""How many records come together at the most: the columns of one take some 130 bytes."""
STREAM_CHUNK_BYTES: Final = 1 << 20
"""A batch too large to hold is decoded in pieces of about this size."""
ARENA_BYTES: Final = 2 << 20
"""Compressed batches are decoded together once they have expanded to this."""
_LEAST_RECORD_BYTES: Final = 7
_FEW: Final = 4
"""Up to one in so many is picked out, rather than that all are gone through."""
LARGEST_EXPANSION: Final = 16
"""A single record may be this many times as large as the compressed batch that holds it …"""
LARGEST_RECORD_BYTES: Final = 16 << 20
"""… or this large, whichever is more; larger ones are not decoded unless the limit is raised."""


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records of batches in a row, in order; each column is int64 of shape (n,).

    Attributes:
        data: what the positions point into, with :data:`PADDING_BYTES` of zeroes behind.
        batches: the batches; those without a record have no row here.
        batch: for each record, the row of its batch in ``batches``.
        offset: absolute.
        timestamp: epoch milliseconds, of the log's append where the batch says so.
        sequence: -1 where the batch has none.
        attributes: of the record itself; nothing has given them a meaning yet.
        key_start: of its bytes in ``data``; as for the value.
        key_size: in bytes, -1 for null.
        headers_start: of the first header in ``data``.
        headers_count: how many headers.
        end: behind the last byte of the record in ``data``.
        problems: for a row of ``batches``, what ended its records early.
        is_continued: whether the first batch began in columns given before.
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
    """Where the decompressed records of each batch lie in the bytes, and how many to read."""

    start: Column
    end: Column
    count: Column
    must_fill: Flags
    """Whether the last record has to end with the section."""

    @classmethod
    def of(cls, start: Column, end: Column, count: Column) -> _Sections:
        """Sections that their records have to fill."""
        return cls(start, end, count.copy(), np.ones(len(start), np.bool_))


def read_records(
    window: Window, largest_record_bytes: int = LARGEST_RECORD_BYTES
) -> Iterator[RecordColumns]:
    """The records of the batches of ``window`` that are magic 2 (all of them must be).

    Args:
        window: the batches.
        largest_record_bytes: a larger record of a compressed batch is not decoded, nor are those
            after it: the problem of the batch is an :class:`OverLimitError` then.

    Yields:
        Columns that cover all its batches in order, :data:`MOST_RECORDS` at a time; a batch that
        is too large to be held, or has more of them, comes in pieces of itself alone.
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
    """Put the decompressed records of batch after batch into one arena, and decode those."""
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
    """The records of a batch, or None where it has to be streamed, to see how far it is sound."""
    try:
        codec = _codec(attributes & CODEC_MASK)
        return decompress(codec, body, limit_bytes=LARGEST_WINDOW_BYTES)
    except FormatError:
        return None


_codec: Final = functools.cache(Codec.of_attributes)
"""Of the number alone: making an enumeration's member takes as long as a small batch does."""


def _decode_arena(bodies: list[bytes | memoryview], batches: BatchColumns) -> RecordColumns:
    arena = np.frombuffer(b"".join([*bodies, bytes(PADDING_BYTES)]), np.uint8)
    sizes = np.fromiter(map(len, bodies), np.int64, len(bodies))
    ends = np.cumsum(sizes)
    return _decode(arena, batches, _Sections.of(ends - sizes, ends, batches.records_count))


def _decode(data: Bytes, batches: BatchColumns, sections: _Sections) -> RecordColumns:
    """The records of ``sections``, one section a batch; damage ends a section early."""
    problems: dict[int, FormatError] = {}
    # A count beyond what the bytes can hold is a lie, and would otherwise become memory.
    most = (sections.end - sections.start) // _LEAST_RECORD_BYTES
    is_lie = (sections.count < 0) | (sections.count > most)
    for row in np.flatnonzero(is_lie).tolist():
        _cut_at_damage(data, batches, row, sections, problems)
    columns, bad_rows = _decode_sound(data, batches, sections)
    if bad_rows:
        for row in bad_rows:
            _cut_at_damage(data, batches, row, sections, problems)
        columns, bad_rows = _decode_sound(data, batches, sections)
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
    """Lower the count of a section to the records in front of the damage, and note that."""
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


def _decode_sound(
    data: Bytes, batches: BatchColumns, sections: _Sections
) -> tuple[RecordColumns, list[int]]:
    """Columns of all sections, and the rows of those that are not sound."""
    end, count = sections.end, sections.count
    batch = np.repeat(np.arange(len(count)), count)
    start, reached = _record_starts(data, sections.start, end, count)
    is_bad = sections.must_fill & (count > 0) & (reached != end)

    length, at = _varint(data, start)
    body_end = at + length
    attributes = data[at].astype(np.int8).astype(np.int64)
    timestamp_delta, at = _varlong(data, at + 1)
    offset_delta, at = _varint(data, at)
    key_size, key_start = _varint(data, at)
    at = _advance(data, key_start, key_size)
    value_size, value_start = _varint(data, at)
    at = _advance(data, value_start, value_size)
    headers_count, headers_start = _varint(data, at)
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
    """Where each record begins, and where the last one of each section ends.

    Where the lengths lead out of a section, what is given for its end is another place, or -1.
    """
    starts = np.full(int(count.sum()), _beyond(data), np.int64)
    reached = np.where(count > 0, -1, first)
    order = np.argsort(-count, kind="stable")
    slots = (np.cumsum(count) - count)[order]
    counts = count[order]
    position = first[order]
    ends = end[order]
    steps = int(counts[0]) if len(counts) else 0
    # How many sections have a record of each index, so that a step touches only those.
    lanes_at = np.searchsorted(-counts, -np.arange(steps), "left")
    steps_by_pair = _steps_by_pair()
    pairs = np.ndarray(len(data) - 1, np.uint16, data, strides=(1,))
    step = 0
    for lanes, still in itertools.pairwise([*lanes_at.tolist(), 0]):
        if lanes < LOCKSTEP_LANES:
            break
        position, slots = position[:lanes], slots[:lanes]
        starts[slots] = position
        # Whatever has left its section cannot come back to where it ends.
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
    """Where the record behind the one at each ``position`` begins; beyond for a bad length."""
    steps = steps_by_pair[pairs[position]]
    if steps.min() > 0:
        following = position + steps
    else:
        length, body = _varint(data, position)
        following = np.where(length < 0, _beyond(data), body + length)
    np.minimum(following, _beyond(data), out=following)
    return following


@functools.cache
def _steps_by_pair() -> npt.NDArray[np.int16]:
    """For the first two bytes of a record, how far it reaches; 0 where they do not tell.

    They do where its length is a varint of one or two bytes and not negative, which spares the
    steps of decoding it.
    """
    pair = np.arange(1 << 16, dtype=np.uint16)
    first, second = pair.view(np.uint8).reshape(-1, 2).astype(np.int64).T
    is_single = first < 0x80
    raw = np.where(is_single, first, (first & 0x7F) | (second << 7))
    is_known = (raw & 1 == 0) & (is_single | (second < 0x80))
    return np.where(is_known, (raw >> 1) + np.where(is_single, 1, 2), 0).astype(np.int16)


def _hop(view: memoryview, position: int, end: int, starts: Column) -> int:
    """Fill ``starts`` one record after the other; gives the end of the last one, or -1."""
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


def _beyond(data: Bytes) -> int:
    """A position behind the data, in the padding, where everything reads as 0.

    Whatever leads out of the data ends up here, and so can never equal a sound position.
    """
    return len(data) - PADDING_BYTES + 1


def _advance(data: Bytes, position: Column, size: Column) -> Column:
    """Behind ``size`` bytes at ``position``; a negative size is a null and takes none."""
    return np.minimum(position + np.maximum(size, 0), _beyond(data))


def _varint(data: Bytes, position: Column) -> tuple[Column, Column]:
    """The 32-bit zig-zag integer at each ``position``, and the position behind it."""
    raw, following = _unsigned(data, position, MAX_VARINT_BYTES)
    raw &= 0xFFFF_FFFF
    return (raw >> 1) ^ -(raw & 1), following


def _varlong(data: Bytes, position: Column) -> tuple[Column, Column]:
    """The 64-bit zig-zag integer at each ``position``, and the position behind it."""
    raw, following = _unsigned(data, position, MAX_VARLONG_BYTES)
    return ((raw >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(raw & 1), following


def _unsigned(data: Bytes, position: Column, most_bytes: int) -> tuple[Column, Column]:
    byte = data[position]
    is_more = byte >= 0x80
    raw = (byte & 0x7F).astype(np.int64)
    following = position + 1
    shift = 7
    if np.count_nonzero(is_more) > len(position) // _FEW:
        # To look at the second byte of all costs less than to pick those that have one.
        byte = data[following]
        raw |= ((byte & 0x7F) * is_more).astype(np.int64) << shift
        following += is_more
        is_more &= byte >= 0x80
        shift += 7
    more = np.flatnonzero(is_more)
    while more.size and shift < 7 * most_bytes:
        at = following[more]
        byte = data[at]
        raw[more] |= (byte & 0x7F).astype(np.int64) << shift
        following[more] = at + 1
        more = more[byte >= 0x80]
        shift += 7
    following[more] = _beyond(data)
    return raw, np.minimum(following, _beyond(data), out=following)


def _skip_headers(data: Bytes, position: Column, headers_count: Column, body_end: Column) -> Column:
    """The position behind the headers of each record; -1 where they do not fit its body."""
    rows = np.flatnonzero(headers_count > 0)
    if not rows.size:
        return position
    position = position.copy()
    left = headers_count[rows]
    # A header takes two bytes at the least: more of them than that cannot be.
    is_lie = left > (body_end[rows] - position[rows]) // 2
    position[rows[is_lie]] = -1
    rows, left = rows[~is_lie], left[~is_lie]
    while rows.size:
        key_size, at = _varint(data, position[rows])
        value_size, at = _varint(data, _advance(data, at, key_size))
        at = _advance(data, at, value_size)
        is_out = (key_size < 0) | (at > body_end[rows])
        position[rows] = np.where(is_out, -1, at)
        left = left - 1
        is_going = (left > 0) & ~is_out
        rows, left = rows[is_going], left[is_going]
    return position


@dataclass(frozen=True, slots=True)
class HeaderColumns:
    """The headers of some records, in order; each column is int64 of shape (n,).

    Attributes:
        key_start: of the name's bytes in the records' ``data``.
        key_size: in bytes.
        value_start: as for the name.
        value_size: in bytes, -1 for null.
    """

    key_start: Column
    key_size: Column
    value_start: Column
    value_size: Column


def locate_headers(columns: RecordColumns) -> HeaderColumns:
    """Where the headers of all records lie: ``headers_count`` of each, one behind the other."""
    rows = np.flatnonzero(columns.headers_count > 0)
    left = columns.headers_count[rows]
    slot = np.cumsum(left) - left
    position = columns.headers_start[rows]
    found = np.empty((4, int(left.sum())), np.int64)
    while slot.size:
        key_size, key_start = _varint(columns.data, position)
        at = _advance(columns.data, key_start, key_size)
        value_size, value_start = _varint(columns.data, at)
        found[:, slot] = key_start, key_size, value_start, np.maximum(value_size, -1)
        is_going = left > 1
        position = _advance(columns.data, value_start, value_size)[is_going]
        slot, left = slot[is_going] + 1, left[is_going] - 1
    return HeaderColumns(*found)


def _stream(window: Window, row: int, largest_record_bytes: int) -> Iterator[RecordColumns]:
    """The records of one batch in pieces, so that neither it nor what it expands to is held."""
    batches = window.batches.rows(slice(row, row + 1))
    header = batches.header(0)
    chunks = _body_chunks(window, row, header)
    largest = _largest_record(window, row, header, largest_record_bytes)
    can_be_valid = bool(window.batches.is_valid[row]) and header.codec_id != Codec.NONE
    error = OverLimitError if can_be_valid else FormatError
    held = bytearray()
    read = behind = whole = 0
    is_continued = False
    problem = None
    if header.records_count < 0:
        problem = FormatError(
            "batch has a negative count of records",
            expected="0 or more",
            found=header.records_count,
        )
    while problem is None and read < header.records_count:
        # More records may be held than are given at once.
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
            problem = refused.shifted(behind)
        if problem is None and not chunk and not whole:
            problem = FillError(
                "batch ends before its last record",
                position=behind + size,
                expected=f"{header.records_count} records",
                found=read + whole,
            )
        if not whole:
            continue
        data = np.zeros(size + PADDING_BYTES, np.uint8)
        data[:size] = memoryview(held)[:size]
        columns = _decode(data, batches, _section(size, whole))
        if columns.problems:
            problem = columns.problems.pop(0).shifted(behind)
        yield replace(columns, is_continued=is_continued)
        is_continued = True
        read += whole
        behind += size
        del held[:size]
    if problem is None:
        problem = _bytes_behind(header, held, chunks, behind)
    if problem is not None or not is_continued:
        nothing = _decode(np.zeros(PADDING_BYTES, np.uint8), batches, _section(0, 0))
        problems = {} if problem is None else {0: problem}
        yield replace(nothing, is_continued=is_continued, problems=problems)


def _section(size: int, count: int) -> _Sections:
    """A single section at the start of the data."""
    return _Sections.of(*(np.array([each], np.int64) for each in (0, size, count)))


def _largest_record(
    window: Window, row: int, header: record_batch.BatchHeader, largest_record_bytes: int
) -> int:
    """How large a record may be before it is taken for a lie, or is too large, in bytes."""
    if not window.batches.is_valid[row]:
        return largest_record_bytes
    if header.codec_id == Codec.NONE:
        return header.size_bytes
    return max(largest_record_bytes, LARGEST_EXPANSION * header.size_bytes)


def _whole_records(
    held: bytearray, most: int, largest: int, error: type[FormatError]
) -> tuple[int, int, FormatError | None]:
    """How many whole records stand at the start of ``held``, at most ``most``, and their size.

    With them, why there can be no further one, if that is known already.
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
                "record length is beyond belief",
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


def _bytes_behind(
    header: record_batch.BatchHeader,
    held: bytearray,
    chunks: Iterator[bytes | memoryview],
    behind: int,
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
        position=behind,
        expected=f"{header.records_count} records that end with the batch",
        found=f"{more} bytes more",
    )


def _body_chunks(
    window: Window, row: int, header: record_batch.BatchHeader
) -> Iterator[bytes | memoryview]:
    """What stands behind the header, decompressed, in pieces."""
    position = int(window.batches.position[row])
    start = position + record_batch.HEADER_BYTES
    end = position + header.size_bytes
    if header.codec_id == Codec.NONE:
        yield from read_chunks(window.source, start, end, STREAM_CHUNK_BYTES)
        return
    codec = Codec.of_attributes(header.attributes)
    if window.is_giant and not window.batches.is_valid[row]:
        # Its length may well be the lie, and decompressing means to hold all of it.
        raise FormatError(
            "batch is too large to be decompressed while its checksum is wrong",
            expected=f"at most {LARGEST_WINDOW_BYTES} bytes",
            found=header.size_bytes,
        )
    body = b"".join(read_chunks(window.source, start, end))
    yield from decompress_chunks(codec, body, chunk_bytes=STREAM_CHUNK_BYTES)
