"""Record batches of magic 2, the format that Kafka has written since 0.11.

A segment is a sequence of batches. Each begins with a header of 61 bytes. The first 17 have the
same layout in every magic (:data:`PREFIX`). ``length`` counts the bytes after itself. The checksum
is CRC-32C over everything from ``attributes`` on: base offset, length, leader epoch and magic are
outside it, so that a broker can set them without computing it again.

The records follow the header, compressed together if the batch is compressed. A record is a
zig-zag-coded length and a body::

    length: varint
    attributes: int8              always 0
    timestampDelta: varlong       against the header's base timestamp
    offsetDelta: varint           against the header's base offset
    keyLength: varint             -1 is null
    key
    valueLength: varint           -1 is null
    value
    headersCount: varint
    headers: [keyLength varint, key (UTF-8), valueLength varint (-1 is null), value]

Follows ``DefaultRecordBatch`` and ``DefaultRecord``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from kdump.formats.checksum import crc32c
from kdump.formats.cursor import Cursor, write_varlong
from kdump.formats.errors import FillError, FormatError
from kdump.formats.fixed_layout import field_start, layout

HEADER_FIELDS: Final = (
    ("base_offset", "q"),
    ("length", "i"),
    ("partition_leader_epoch", "i"),
    ("magic", "b"),
    ("crc", "I"),
    ("attributes", "h"),
    ("last_offset_delta", "i"),
    ("base_timestamp", "q"),
    ("max_timestamp", "q"),
    ("producer_id", "q"),
    ("producer_epoch", "h"),
    ("base_sequence", "i"),
    ("records_count", "i"),
)
"""The header, in the order of the bytes: name and struct format of each field."""

HEADER_LAYOUT: Final = layout(HEADER_FIELDS)
HEADER_BYTES: Final = HEADER_LAYOUT.size

LENGTH_START: Final = field_start(HEADER_FIELDS, "length")
LOG_OVERHEAD_BYTES: Final = field_start(HEADER_FIELDS, "partition_leader_epoch")
"""Offset and length: what ``length`` does not count (``Records.LOG_OVERHEAD``)."""
MAGIC_START: Final = field_start(HEADER_FIELDS, "magic")
CRC_START: Final = field_start(HEADER_FIELDS, "crc")
CHECKED_START: Final = field_start(HEADER_FIELDS, "attributes")
"""First byte that the checksum covers."""
PREFIX_BYTES: Final = CRC_START
"""The header of every magic (``Records.HEADER_SIZE_UP_TO_MAGIC``)."""

MIN_LENGTH_BYTES: Final = 14
"""The least ``length`` that any magic can have (``LegacyRecord.RECORD_OVERHEAD_V0``)."""

CODEC_MASK: Final = 0x07
"""The bits of a batch's or a message's attributes that hold the codec's number."""
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40
OF_TRANSACTIONS: Final = TRANSACTIONAL_FLAG | CONTROL_FLAG
"""A batch with one of these is part of a transaction, or ends one."""

LARGEST_RECORD_BYTES: Final = 16 << 20
"""Larger records of compressed batches are not decoded, unless the limit is raised or the batch is
large itself."""

NEWEST_MAGIC: Final = 2
GREATEST_OFFSET: Final = 2**63 - 2
"""Offsets have 64 bits, and the end offset of a log is one above its last offset."""

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_PARTITION_LEADER_EPOCH: Final = -1

_INT32_MAX: Final = 2**31 - 1


class RecordHeader(Struct, frozen=True):
    """A header of a record: name (as stored; Kafka reads it as UTF-8) and value (None is null)."""

    key: bytes
    value: bytes | None


class Record(Struct, frozen=True):
    """One record with its deltas resolved; times in epoch milliseconds."""

    offset: int
    timestamp: int
    sequence: int
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...] = ()
    attributes: int = 0


class BatchHeader(Struct, frozen=True):
    """The header of a batch; only its presence is checked."""

    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        """Of the whole batch, header included."""
        return LOG_OVERHEAD_BYTES + self.length

    @property
    def last_offset(self) -> int:
        return wrap_int64(self.base_offset + self.last_offset_delta)

    @property
    def last_sequence(self) -> int:
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def codec_id(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)


def decode_header(data: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """The header that begins at ``position``.

    Raises:
        FormatError: when fewer than 61 bytes are left.
    """
    if position < 0 or len(data) - position < HEADER_BYTES:
        raise FormatError(
            "batch header ends early",
            position=position,
            expected=f"{HEADER_BYTES} bytes",
            found=max(len(data) - position, 0),
        )
    return BatchHeader(*HEADER_LAYOUT.unpack_from(data, position))


def compute_crc(batch: bytes | bytearray | memoryview) -> int:
    """CRC-32C of a whole batch (header included) as ``DefaultRecordBatch.computeChecksum``."""
    return crc32c(memoryview(batch)[CHECKED_START:])


def has_right_crc(batch: bytes | bytearray | memoryview) -> bool:
    """Whether the checksum in the header of a whole batch is that of its content."""
    return int.from_bytes(batch[CRC_START:CHECKED_START]) == compute_crc(batch)


def decode_records(
    header: BatchHeader, body: bytes | memoryview, position: int = 0
) -> Iterator[Record]:
    """The records of a batch, one by one, from its decompressed ``body``.

    The straightforward decoder. ``kdump.scan.records`` reads columns of many records at once, and
    falls back to this one to say what is wrong and where.

    Args:
        body: the bytes after the header, decompressed.
        position: where in ``body`` to begin.

    Raises:
        FormatError: after the last record that can be read, where Kafka's iterator fails:
            positions count from the start of ``body``.
    """
    if header.records_count < 0:
        raise FormatError(
            "batch has a negative count of records",
            expected="0 or more",
            found=header.records_count,
        )
    if header.records_count == 0:
        return
    cursor = Cursor(body, position)
    for _ in range(header.records_count):
        yield decode_record(header, cursor)
    if cursor.remaining:
        raise FillError(
            "batch has bytes after its last record",
            position=cursor.position,
            expected=f"{header.records_count} records that end with the batch",
            found=f"{cursor.remaining} bytes more",
        )


def decode_record(header: BatchHeader, cursor: Cursor) -> Record:
    """Read the record at ``cursor``, and move past it.

    Raises:
        FormatError: where the record does not fit the bytes or its own length.
    """
    start = cursor.position
    length = cursor.varint()
    body_start = cursor.position
    if length < 0 or length > cursor.remaining:
        raise FormatError(
            "record length does not fit its batch",
            position=start,
            expected=f"0 to {cursor.remaining}",
            found=length,
        )
    attributes = cursor.int8()
    timestamp_delta = cursor.varlong()
    offset_delta = cursor.varint()
    key = _nullable(cursor, "record key")
    value = _nullable(cursor, "record value")
    headers_count = cursor.varint()
    if not 0 <= headers_count <= cursor.remaining:
        raise FormatError(
            "record has an impossible count of headers",
            position=cursor.position,
            expected=f"0 to {cursor.remaining}",
            found=headers_count,
        )
    headers = tuple(decode_record_header(cursor) for _ in range(headers_count))
    if cursor.position - body_start != length:
        raise FormatError(
            "record length contradicts its fields",
            position=start,
            expected=f"{length} bytes",
            found=cursor.position - body_start,
        )
    return Record(
        offset=wrap_int64(header.base_offset + offset_delta),
        timestamp=header.max_timestamp
        if header.is_log_append_time
        else wrap_int64(header.base_timestamp + timestamp_delta),
        sequence=increment_sequence(header.base_sequence, offset_delta)
        if header.base_sequence >= 0
        else NO_SEQUENCE,
        key=key,
        value=value,
        headers=headers,
        attributes=attributes,
    )


def _nullable(cursor: Cursor, name: str) -> bytes | None:
    size = cursor.varint()
    return None if size < 0 else cursor.take(size, name)


def decode_record_header(cursor: Cursor) -> RecordHeader:
    """Read the header at ``cursor``, and move past it.

    Raises:
        FormatError: where it does not fit the bytes.
    """
    key = cursor.take(cursor.varint(), "header key")
    return RecordHeader(key, _nullable(cursor, "header value"))


def encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    """Encode a record for a batch with that base offset and base timestamp."""
    body = bytearray()
    body.append(record.attributes & 0xFF)
    write_varlong(record.timestamp - base_timestamp, body)
    write_varlong(record.offset - base_offset, body)
    _write_nullable(record.key, body)
    body += encode_value_and_headers(record)
    out = bytearray()
    write_varlong(len(body), out)
    return bytes(out + body)


def encode_value_and_headers(record: Record) -> bytes:
    """Encode what follows the key of a record."""
    body = bytearray()
    _write_nullable(record.value, body)
    write_varlong(len(record.headers), body)
    for header in record.headers:
        _write_nullable(header.key, body)
        _write_nullable(header.value, body)
    return bytes(body)


def _write_nullable(value: bytes | None, out: bytearray) -> None:
    if value is None:
        write_varlong(-1, out)
    else:
        write_varlong(len(value), out)
        out += value


def encode_batch(header: BatchHeader, body: bytes) -> bytes:
    """Encode a batch with the right ``length`` and ``crc`` for a compressed ``body``."""
    fields: dict[str, Any] = {name: getattr(header, name) for name, _ in HEADER_FIELDS}
    fields["length"] = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(body)
    batch = bytearray(HEADER_LAYOUT.pack(*fields.values()) + body)
    struct.pack_into(">I", batch, CRC_START, compute_crc(batch))
    return bytes(batch)


def encode_lone_record(
    record: Record,
    partition_leader_epoch: int,
    *,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
) -> bytes:
    """Encode a batch that has nothing but one record, not compressed."""
    header = BatchHeader(
        base_offset=record.offset,
        length=0,
        partition_leader_epoch=partition_leader_epoch,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=0,
        base_timestamp=record.timestamp,
        max_timestamp=record.timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        records_count=1,
    )
    return encode_batch(header, encode_record(record, record.offset, record.timestamp))


def increment_sequence(sequence: int, increment: int) -> int:
    """Producer sequences run from 0 to 2³¹-1 and start again (32-bit arithmetic as Java's)."""
    if sequence > wrap_int32(_INT32_MAX - increment):
        return wrap_int32(increment - (_INT32_MAX - sequence) - 1)
    return wrap_int32(sequence + increment)


def wrap_int32(value: int) -> int:
    """Wrap ``value`` to a Java int."""
    return (value + 2**31) % 2**32 - 2**31


def wrap_int64(value: int) -> int:
    """Wrap ``value`` to a Java long."""
    return (value + 2**63) % 2**64 - 2**63
