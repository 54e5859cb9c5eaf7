"""Rewrite batches of magic 2 without the records that compaction removes.

Follows ``MemoryRecords.buildRetainedRecordsInto`` and ``MemoryRecordsBuilder``. Works on columns:
the bytes of a record from its key on are copied unchanged.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import field

from kdump.broker.cleaner.record_retention import NO_HORIZON
from kdump.formats import record_batch
from kdump.formats.compression import Codec, compress
from kdump.formats.cursor import MAX_VARLONG_BYTES
from kdump.formats.errors import FormatError, OverLimitError
from kdump.formats.record_batch import LARGEST_RECORD_BYTES, Record
from kdump.scan.arrow import gather_bytes
from kdump.scan.batches import BatchColumns, Bytes, Column, Flags, Window
from kdump.scan.header_columns import HEADER_DTYPE
from kdump.scan.records import RecordColumns
from kdump.scan.window_records import read_records
from kdump.target.refusal import Refused

IsKept = Callable[[RecordColumns, Column], Flags]
"""Which records stay, given the row in the window of each batch."""
Replaced = Callable[[RecordColumns], Mapping[int, Record]]
"""The rows of records that others are written for, with the same offsets and times."""

_BINARY: Final = pa.large_binary()
_CRC: Final = struct.Struct(">I")
_KEPT_FLAGS: Final = (
    record_batch.LOG_APPEND_TIME_FLAG | record_batch.TRANSACTIONAL_FLAG | record_batch.CONTROL_FLAG
)


class NewBatch(msgspec.Struct, frozen=True):
    """A batch as it is written."""

    data: bytes
    max_timestamp: int


class _Body(msgspec.Struct):
    """The records of one batch so far.

    Attributes:
        base_timestamp: of the batch; None before the first record.
        max_timestamp: the largest so far.
        count: number of records.
        pieces: their bytes, in order.
    """

    base_timestamp: int | None = None
    max_timestamp: int = record_batch.NO_TIMESTAMP
    count: int = 0
    pieces: list[bytes | memoryview] = field(default_factory=list)


def refused_records(problem: FormatError, log_name: str, position: int) -> Refused:
    """The refusal of a batch whose records cannot be decoded.

    Args:
        position: byte at which the batch begins.
    """
    if isinstance(problem, OverLimitError):
        reason = f"{problem.what} (raise it with --max-record-bytes)"
        return Refused(reason, log_name, "refused by kdump", position)
    return Refused(problem.what, log_name, "InvalidRecordException", position)


def rebuilt_batches(
    window: Window,
    horizon_ms: Column,
    is_kept: IsKept,
    log_name: str,
    *,
    largest_record_bytes: int = LARGEST_RECORD_BYTES,
    replaced: Replaced | None = None,
) -> list[NewBatch]:
    """Rewrite every batch of ``window`` with the records that stay; each has at least one.

    Args:
        window: the batches, all of magic 2.
        horizon_ms: the delete horizon of each; :data:`NO_HORIZON` for none.
        is_kept: which records stay.
        log_name: for refusals.
        replaced: records that are written with other keys, values and headers; compaction has none.

    Raises:
        Refused: Kafka's cleaner fails on one of them.
    """
    _require_producers(window.batches, log_name)
    bodies = [
        _Body() if horizon < 0 else _Body(base_timestamp=horizon) for horizon in horizon_ms.tolist()
    ]
    following = 0
    for columns in read_records(window, largest_record_bytes):
        first = following - 1 if columns.is_continued else following
        following = first + columns.batches.count
        rows = np.arange(first, following)
        for row, problem in columns.problems.items():
            position = int(columns.batches.position[row])
            raise refused_records(problem, log_name, position)
        kept = np.flatnonzero(is_kept(columns, rows))
        if len(kept):
            others = {} if replaced is None else replaced(columns)
            _add(bodies[first:following], columns, kept, others, log_name)
    return [_finished(window.batches, row, bodies[row], horizon_ms) for row in range(len(bodies))]


def emptied_batches(batches: BatchColumns) -> list[NewBatch]:
    """The headers of ``batches``, with a record count of 0."""
    found = []
    for row in range(batches.count):
        header = _header(batches, row, 0)
        header["base_timestamp"] = record_batch.NO_TIMESTAMP
        header["max_timestamp"] = batches.max_timestamp[row]
        found.append(NewBatch(_sealed(header, b""), int(batches.max_timestamp[row])))
    return found


def _require_producers(batches: BatchColumns, log_name: str) -> None:
    """Refuse what no producer can have written, as ``MemoryRecordsBuilder`` does."""
    has_producer = batches.producer_id >= 0
    flags = batches.attributes
    is_transactional = (flags & record_batch.TRANSACTIONAL_FLAG) != 0
    is_control = (flags & record_batch.CONTROL_FLAG) != 0
    is_bad = is_transactional & (batches.producer_id == record_batch.NO_PRODUCER_ID)
    is_bad |= has_producer & (batches.producer_epoch == record_batch.NO_PRODUCER_EPOCH)
    is_bad |= has_producer & (batches.base_sequence < 0) & ~is_control
    if is_bad.any():
        raise Refused(
            "a batch has impossible producer fields: no id, or an id without an epoch or sequence",
            log_name,
            "IllegalArgumentException",
            int(batches.position[int(np.argmax(is_bad))]),
        )


def _add(
    bodies: list[_Body],
    columns: RecordColumns,
    kept: Column,
    others: Mapping[int, Record],
    log_name: str,
) -> None:
    """Add the records ``kept`` of ``columns``, or ``others``, to the bodies of their batches."""
    batch = columns.batch[kept]
    timestamp = columns.timestamp[kept]
    is_bad = timestamp < record_batch.NO_TIMESTAMP
    if is_bad.any():
        row = int(batch[int(np.argmax(is_bad))])
        raise Refused(
            f"a record has the timestamp {int(timestamp[int(np.argmax(is_bad))])}",
            log_name,
            "IllegalArgumentException",
            int(columns.batches.position[row]),
        )
    present, first, count = np.unique(batch, return_index=True, return_counts=True)
    base_timestamp = np.zeros(len(bodies), np.int64)
    for row, at in zip(present.tolist(), first.tolist(), strict=True):
        body = bodies[row]
        if body.base_timestamp is None:
            body.base_timestamp = int(timestamp[at])
        base_timestamp[row] = body.base_timestamp
    data, edges = _encoded(columns, kept, others, timestamp - base_timestamp[batch])
    largest = np.maximum.reduceat(timestamp, first)
    for row, begin, own, maximum in zip(
        present.tolist(), first.tolist(), count.tolist(), largest.tolist(), strict=True
    ):
        body = bodies[row]
        body.pieces.append(data[edges[begin] : edges[begin + own]])
        body.count += own
        body.max_timestamp = max(body.max_timestamp, maximum)


def _encoded(
    columns: RecordColumns,
    kept: Column,
    others: Mapping[int, Record],
    timestamp_delta: Column,
) -> tuple[memoryview, Column]:
    """The concatenated bytes of records, and the edges between them."""
    offset_delta = columns.offset[kept] - columns.batches.base_offset[columns.batch[kept]]
    key_start, key_size = columns.key_start[kept], columns.key_size[kept]
    tail_size = columns.end[kept] - key_start
    tails = gather_bytes(columns.data, key_start, tail_size, np.ones(len(kept), np.bool_))
    if others:
        tails, tail_size, key_size = _with_others(kept, others, tails, tail_size, key_size)
    fields = [_varints(timestamp_delta), _varints(offset_delta), _varints(key_size)]
    attributes = np.zeros((len(kept), 1), np.uint8), np.ones(len(kept), np.int64)
    length = 1 + sum(size for _, size in fields) + tail_size
    prefixes = _joined_columns([_varints(length), attributes, *fields])
    joined = pc.binary_join_element_wise(prefixes, tails, pa.scalar(b"", _BINARY))
    _, edges, data = joined.buffers()
    return memoryview(data), np.frombuffer(edges, np.int64, len(kept) + 1, 8 * joined.offset)


def _with_others(
    kept: Column,
    others: Mapping[int, Record],
    tails: pa.Array,
    tail_size: Column,
    key_size: Column,
) -> tuple[pa.Array, Column, Column]:
    """The bytes from the key on, their sizes and those of the keys, of other records for some."""
    at = np.flatnonzero(np.isin(kept, np.array(list(others), np.int64)))
    found = [others[row] for row in kept[at].tolist()]
    new = [(each.key or b"") + record_batch.encode_value_and_headers(each) for each in found]
    source = np.arange(len(kept))
    source[at] = len(kept) + np.arange(len(at))
    tail_size, key_size = tail_size.copy(), key_size.copy()
    tail_size[at] = [len(each) for each in new]
    key_size[at] = [-1 if each.key is None else len(each.key) for each in found]
    both = pa.concat_arrays([tails, pa.array(new, _BINARY)])
    return both.take(pa.array(source)), tail_size, key_size


def _varints(values: Column) -> tuple[Bytes, Column]:
    """Zig-zag varints: a row of bytes for each value, and how many of them are used."""
    raw = ((values << 1) ^ (values >> 63)).view(np.uint64)
    size = np.ones(len(values), np.int64)
    for step in range(1, MAX_VARLONG_BYTES):
        is_longer = raw >= np.uint64(1 << (7 * step))
        if not is_longer.any():
            break
        size += is_longer
    width = int(size.max(initial=1))
    shift = np.arange(0, 7 * width, 7, dtype=np.uint64)
    rows = ((raw[:, None] >> shift) & np.uint64(0x7F)).astype(np.uint8)
    rows[np.arange(width) < size[:, None] - 1] |= 0x80
    return rows, size


def _joined_columns(fields: list[tuple[Bytes, Column]]) -> pa.Array:
    """Concatenate the fields of each row, as a large_binary array."""
    rows = np.concatenate([row for row, _ in fields], axis=1)
    used = np.concatenate([np.arange(row.shape[1]) < size[:, None] for row, size in fields], axis=1)
    edges = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(used.sum(axis=1), out=edges[1:])
    content = rows[used]
    return pa.Array.from_buffers(
        _BINARY, len(rows), [None, pa.py_buffer(edges), pa.py_buffer(content)]
    )


def _finished(batches: BatchColumns, row: int, body: _Body, horizon_ms: Column) -> NewBatch:
    header = _header(batches, row, body.count)
    max_timestamp = body.max_timestamp
    if batches.attributes[row] & record_batch.LOG_APPEND_TIME_FLAG:
        max_timestamp = int(batches.max_timestamp[row])
    header["base_timestamp"] = body.base_timestamp
    header["max_timestamp"] = max_timestamp
    codec = Codec.of_attributes(int(batches.attributes[row]))
    header["attributes"] |= int(codec)
    if horizon_ms[row] > NO_HORIZON:
        header["attributes"] |= record_batch.DELETE_HORIZON_FLAG
    content: bytes | memoryview = body.pieces[0] if len(body.pieces) == 1 else b"".join(body.pieces)
    if codec is not Codec.NONE:
        content = compress(codec, content)
    return NewBatch(_sealed(header, content), max_timestamp)


def _header(batches: BatchColumns, row: int, records_count: int) -> npt.NDArray[np.void]:
    """The header of a batch without its record count, timestamps, size and checksum."""
    header = np.zeros((), HEADER_DTYPE)
    for name in (
        "base_offset",
        "partition_leader_epoch",
        "magic",
        "last_offset_delta",
        "producer_id",
        "producer_epoch",
        "base_sequence",
    ):
        header[name] = getattr(batches, name)[row]
    header["attributes"] = batches.attributes[row] & _KEPT_FLAGS
    header["records_count"] = records_count
    return header


def _sealed(header: npt.NDArray[np.void], content: bytes | memoryview) -> bytes:
    """Join header and content, and set size and checksum."""
    header["length"] = record_batch.HEADER_BYTES - record_batch.LOG_OVERHEAD_BYTES + len(content)
    batch = bytearray(header.tobytes())
    batch += content
    _CRC.pack_into(batch, record_batch.CRC_START, record_batch.compute_crc(batch))
    return bytes(batch)
