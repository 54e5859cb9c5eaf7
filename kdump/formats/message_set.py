"""Message sets of magic 0 and 1, the formats that Kafka wrote from 0.8 to 0.10.

A set is a sequence of entries, each an offset, a size that counts the bytes after itself, and a
message. The checksum is CRC-32 (zlib's) over everything from ``magic`` on::

    offset: int64
    size: int32
    crc: uint32
    magic: int8
    attributes: int8              bits 0-2 codec, bit 3 log-append time (magic 1)
    timestamp: int64              only magic 1
    keySize: int32                negative is null
    key
    valueSize: int32              negative is null
    value

A message whose codec is not none is a wrapper: its value is another set, compressed. The
wrapper's offset is that of the last message in it. Inner offsets are absolute in magic 0; in
magic 1 they count from the first message in the wrapper, so that a broker can set the wrapper's
offset without changing the rest. If a magic 1 wrapper has log-append time, its timestamp is that of
every message in it.

Follows ``LegacyRecord`` and ``AbstractLegacyRecordBatch``.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from kdump.formats.buffer import Buffer
from kdump.formats.compression import Codec, decompress_chunks
from kdump.formats.errors import FormatError, OverLimitError
from kdump.formats.fixed_layout import field_start, layout
from kdump.formats.record_batch import wrap_int64

HEADER_FIELDS: Final = (
    ("offset", "q"),
    ("size", "i"),
    ("crc", "I"),
    ("magic", "b"),
    ("attributes", "b"),
)
"""What an entry of either magic begins with: name and struct format of each field."""

HEADER_FIELDS_V1: Final = (*HEADER_FIELDS, ("timestamp", "q"))
"""What an entry of magic 1 begins with."""

_HEADER: Final = layout(HEADER_FIELDS)
_HEADER_V1: Final = layout(HEADER_FIELDS_V1)
_OFFSET_AND_SIZE: Final = layout(HEADER_FIELDS[:2])
_BODY: Final = layout(HEADER_FIELDS[2:])
_TIMESTAMP: Final = layout(HEADER_FIELDS_V1[-1:])
_INT32: Final = struct.Struct(">i")

LOG_OVERHEAD_BYTES: Final = field_start(HEADER_FIELDS, "crc")
"""Offset and size: what ``size`` does not count (``Records.LOG_OVERHEAD``)."""
CHECKED_START: Final = field_start(HEADER_FIELDS, "magic")
"""First byte of an entry that its checksum covers."""
_MAGIC_START: Final = field_start(HEADER_FIELDS, "magic")
KEY_SIZE_START_V0: Final = _HEADER.size
"""Position of the key size in an entry of magic 0."""
KEY_SIZE_START_V1: Final = _HEADER_V1.size

MIN_SIZE: Final = _HEADER.size - LOG_OVERHEAD_BYTES + 2 * _INT32.size
"""The least ``size`` of a message (``LegacyRecord.RECORD_OVERHEAD_V0``)."""

LOG_APPEND_TIME_FLAG: Final = 0x08
NO_TIMESTAMP: Final = -1

_CHUNK_BYTES: Final = 1 << 20
_HELD_BYTES: Final = 8 << 20
_ENTRY_OVERHEAD_BYTES: Final = 160  # roughly what the objects take besides the bytes
LARGEST_INNER_BYTES: Final = 128 << 20
"""A compressed set with a larger message is taken for a decompression bomb."""


class TimestampType(enum.Enum):
    """Whose clock set a timestamp; the value is Kafka's name for it."""

    NO_TIMESTAMP_TYPE = "NoTimestampType"
    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class MessageHeader(msgspec.Struct, frozen=True):
    """The header of an entry; only its presence is checked."""

    offset: int
    size: int
    crc: int
    magic: int
    attributes: int
    timestamp: int
    """Epoch milliseconds; -1 in magic 0."""

    @property
    def size_bytes(self) -> int:
        """Of the whole entry, offset and size included."""
        return LOG_OVERHEAD_BYTES + self.size

    @property
    def timestamp_type(self) -> TimestampType:
        return _timestamp_type(self.magic, self.attributes)


class Message(msgspec.Struct, frozen=True):
    """One message, plain or wrapping a set, as an entry of a segment or of a wrapper holds it.

    Attributes:
        offset: absolute, also for a message in a wrapper.
        position: byte at which its entry begins in the decoded data; for a message in a wrapper, in
            the decompressed set.
        magic: 0 or 1. In a wrapper Kafka accepts other values and reads them as 1.
        attributes: one byte, signed.
        timestamp: epoch milliseconds, -1 if there is none.
        timestamp_type: in a wrapper of magic 1, the wrapper's.
        key_size_bytes: as stored; any negative value is a null key.
        crc: the checksum as stored.
        body: the bytes after ``size``, from the checksum on.
    """

    offset: int
    position: int
    magic: int
    attributes: int
    timestamp: int
    timestamp_type: TimestampType
    key_size_bytes: int
    crc: int
    body: bytes

    @property
    def size_bytes(self) -> int:
        """Of the whole entry, offset and size included."""
        return LOG_OVERHEAD_BYTES + len(self.body)

    @property
    def computed_crc(self) -> int:
        """The checksum that the message should have."""
        return zlib.crc32(memoryview(self.body)[CHECKED_START - LOG_OVERHEAD_BYTES :])

    @property
    def is_valid(self) -> bool:
        """Whether the checksum holds (``LegacyRecord.isValid``)."""
        return self.crc == self.computed_crc

    @property
    def codec(self) -> Codec:
        """How the wrapped set is compressed; none in a message that wraps nothing.

        Raises:
            FormatError: the attributes name a codec that Kafka does not have.
        """
        return Codec.of_attributes(self.attributes)

    @property
    def _value_start(self) -> int:
        return _key_size_start(self.magic) + 2 * _INT32.size + max(self.key_size_bytes, 0)

    @property
    def value_size_bytes(self) -> int:
        """As stored; any negative value is a null value.

        Raises:
            FormatError: the key reaches past the message. What is before the key can be read then,
                as Kafka does.
        """
        start = self._value_start - _INT32.size
        if start + _INT32.size > len(self.body):
            key_size_start = _key_size_start(self.magic)
            raise FormatError(
                "key reaches past its message",
                position=self.position + LOG_OVERHEAD_BYTES + key_size_start,
                expected=f"at most {len(self.body) - key_size_start - 2 * _INT32.size} bytes",
                found=self.key_size_bytes,
            )
        return int(_INT32.unpack_from(self.body, start)[0])

    @property
    def key(self) -> bytes | None:
        """The key; None is null.

        Raises:
            FormatError: it reaches past the message.
        """
        if self.key_size_bytes < 0:
            return None
        start = _key_size_start(self.magic) + _INT32.size
        if start + self.key_size_bytes > len(self.body):
            _ = self.value_size_bytes
        return self.body[start : start + self.key_size_bytes]

    @property
    def value(self) -> bytes | None:
        """The value; None is null.

        Raises:
            FormatError: it or the key reaches past the message. Everything else can be read then,
                as Kafka does.
        """
        size_bytes = self.value_size_bytes
        if size_bytes < 0:
            return None
        start = self._value_start
        end = start + size_bytes
        if end > len(self.body):
            raise FormatError(
                "value reaches past its message",
                position=self.position + LOG_OVERHEAD_BYTES + start - _INT32.size,
                expected=f"at most {len(self.body) - start} bytes",
                found=size_bytes,
            )
        return self.body[start:end]

    @property
    def rest(self) -> bytes:
        """The bytes after the value, which nothing uses.

        Raises:
            FormatError: as for :attr:`value`.
        """
        value = self.value
        return self.body[self._value_start + (0 if value is None else len(value)) :]


def decode_header(data: Buffer, position: int = 0) -> MessageHeader:
    """Read the header of the entry at ``position`` of ``data``.

    Raises:
        FormatError: the bytes end before the header does, or the magic is neither 0 nor 1.
    """
    _need(data, position, len(data), _HEADER.size)
    offset, size, crc, magic, attributes = _HEADER.unpack_from(data, position)
    if magic == 0:
        return MessageHeader(offset, size, crc, magic, attributes, NO_TIMESTAMP)
    if magic != 1:
        raise FormatError(
            "not a message of magic 0 or 1", position=position + _MAGIC_START, found=magic
        )
    _need(data, position, len(data), _HEADER_V1.size)
    return MessageHeader(*_HEADER_V1.unpack_from(data, position))


def decode_message(data: Buffer, position: int = 0) -> Message:
    """Decode the message whose entry begins at ``position``.

    The checksum is not compared: :attr:`Message.is_valid` does. Bytes after the value, which the
    size counts and nothing uses, are ignored, as in Kafka.

    Raises:
        FormatError: the entry reaches past the end, the magic is neither 0 nor 1, or the entry
            is too small for its magic.
    """
    header = decode_header(data, position)
    if header.size < MIN_SIZE:
        raise _too_small(header.size, position)
    _need(data, position, len(data), header.size_bytes)
    body = bytes(memoryview(data)[position + LOG_OVERHEAD_BYTES : position + header.size_bytes])
    return _message(header.offset, position, body)


def is_valid(entry: Buffer) -> bool:
    """Whether ``entry``, from its offset to its last byte, is a message whose checksum holds.

    ``LegacyRecord.isValid``; takes any number of bytes.
    """
    if len(entry) < LOG_OVERHEAD_BYTES + MIN_SIZE:
        return False
    crc = int.from_bytes(entry[LOG_OVERHEAD_BYTES:CHECKED_START], "big")
    return crc == zlib.crc32(memoryview(entry)[CHECKED_START:])


def update_crc(data: Buffer, crc: int = 0) -> int:
    """Continue a message's checksum over ``data``; ``crc`` is that of the bytes before."""
    return zlib.crc32(data, crc)


def inner_messages(
    wrapper: Message,
    *,
    held_bytes: int = _HELD_BYTES,
    largest_bytes: int = LARGEST_INNER_BYTES,
) -> Iterator[Message]:
    """Yield the messages that ``wrapper`` holds compressed, with their absolute offsets.

    As in Kafka's iterator the whole set is read first: of a set that cannot be split into entries
    nothing is yielded. An entry that is not a message, or is itself compressed, ends the set there.
    An incomplete last entry is skipped silently.

    Args:
        wrapper: a message with a codec.
        held_bytes: a set that takes more memory than this is decompressed twice instead of being
            kept, and at most its largest message and a chunk are in memory at once.
        largest_bytes: the most that one message may have.

    Raises:
        FormatError: the value is null or does not decompress, the codec is none, unknown or
            zstd (younger than these formats), the set is empty or holds an entry that is too
            small or too large, the wrapper's offset is less than the last inner one, a message is
            itself compressed, or its key reaches past it. Positions count in the data that
            ``wrapper`` was decoded from until the set is decompressed, from then on in the set.
    """
    held: list[_Entry] | None = []
    held_size = 0
    last_offset: int | None = None
    for entry in _stored_entries(wrapper, largest_bytes):
        last_offset = entry.offset
        if held is not None:
            held.append(entry)
            held_size += len(entry.body) + _ENTRY_OVERHEAD_BYTES
            if held_size > held_bytes:
                held = None
    if last_offset is None:
        raise FormatError("compressed message set is empty", position=wrapper.position)

    base_offset = 0
    # Some versions of librdkafka left the wrapper's offset at 0.
    if wrapper.magic > 0 and wrapper.offset != 0:
        if wrapper.offset < last_offset:
            raise FormatError(
                "wrapper's offset is less than that of its last message",
                position=wrapper.position,
                expected=f"at least {last_offset}, or 0",
                found=wrapper.offset,
            )
        base_offset = wrapper.offset - last_offset
    for entry in _stored_entries(wrapper, largest_bytes) if held is None else held:
        _, _, attributes = _BODY.unpack_from(entry.body)
        codec = Codec.of_attributes(attributes)
        if codec is not Codec.NONE:
            raise FormatError(
                "message in a compressed set is itself compressed",
                position=entry.position,
                found=codec.label,
            )
        message = _message(wrap_int64(base_offset + entry.offset), entry.position, entry.body)
        yield _with_wrappers_time(message, wrapper)


def _need(data: Buffer, position: int, end: int, size_bytes: int) -> None:
    if size_bytes > end - position:
        raise FormatError(
            "message ends early",
            position=position,
            expected=f"{size_bytes} bytes",
            found=max(end - position, 0),
        )


def _too_small(size: int, position: int) -> FormatError:
    return FormatError(
        "message is smaller than any can be",
        position=position,
        expected=f"a size of at least {MIN_SIZE}",
        found=size,
    )


def _timestamp_type(magic: int, attributes: int) -> TimestampType:
    if magic == 0:
        return TimestampType.NO_TIMESTAMP_TYPE
    if attributes & LOG_APPEND_TIME_FLAG:
        return TimestampType.LOG_APPEND_TIME
    return TimestampType.CREATE_TIME


def _key_size_start(magic: int) -> int:
    """Position of the key size in a message's body."""
    return (_HEADER if magic == 0 else _HEADER_V1).size - LOG_OVERHEAD_BYTES


def _message(offset: int, position: int, body: bytes) -> Message:
    """Parse ``body``, at least :data:`MIN_SIZE` bytes; every magic but 0 is read as 1."""
    crc, magic, attributes = _BODY.unpack_from(body)
    key_size_start = _key_size_start(magic)
    key_start = key_size_start + _INT32.size
    if key_start + _INT32.size > len(body):
        raise FormatError(
            "message of magic 1 is smaller than any can be",
            position=position,
            expected=f"a size of at least {key_start + _INT32.size}",
            found=len(body),
        )
    timestamp = NO_TIMESTAMP
    if magic != 0:
        (timestamp,) = _TIMESTAMP.unpack_from(body, key_size_start - _TIMESTAMP.size)
    (key_size,) = _INT32.unpack_from(body, key_size_start)
    return Message(
        offset=offset,
        position=position,
        magic=magic,
        attributes=attributes,
        timestamp=timestamp,
        timestamp_type=_timestamp_type(magic, attributes),
        key_size_bytes=key_size,
        crc=crc,
        body=body,
    )


class _Entry(NamedTuple):
    """An entry of a decompressed set: position, stored offset, and the rest."""

    position: int
    offset: int
    body: bytes


def _stored_entries(wrapper: Message, largest_bytes: int) -> Iterator[_Entry]:
    """Yield every complete entry of the set in ``wrapper``, not yet parsed."""
    codec = wrapper.codec
    if codec in (Codec.NONE, Codec.ZSTD):
        raise FormatError(
            "message does not wrap a compressed set",
            position=wrapper.position,
            expected="gzip, snappy or lz4",
            found=codec.label,
        )
    value = wrapper.value
    if value is None:
        raise FormatError("compressed message set is null", position=wrapper.position)
    pending = bytearray()
    pending_start = 0
    for chunk in decompress_chunks(codec, value, chunk_bytes=_CHUNK_BYTES, magic=wrapper.magic):
        pending += chunk
        position = 0
        while len(pending) - position >= LOG_OVERHEAD_BYTES:
            offset, size = _OFFSET_AND_SIZE.unpack_from(pending, position)
            if size < MIN_SIZE:
                raise _too_small(size, pending_start + position)
            body = position + LOG_OVERHEAD_BYTES
            if size > len(pending) - body:
                break
            yield _Entry(pending_start + position, offset, bytes(pending[body : body + size]))
            position = body + size
        del pending[:position]
        pending_start += position
        if len(pending) > largest_bytes:
            raise OverLimitError(
                "not decoded: a message in a compressed set is over the limit",
                position=pending_start,
                expected=f"at most {largest_bytes} bytes (see --max-record-bytes)",
            )


def _with_wrappers_time(message: Message, wrapper: Message) -> Message:
    """Give a message of magic 1 its wrapper's timestamp type, and timestamp for log-append time."""
    if message.magic != 1:
        return message
    if wrapper.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return replace(message, timestamp=wrapper.timestamp, timestamp_type=wrapper.timestamp_type)
    if message.timestamp_type is not wrapper.timestamp_type:
        return replace(message, timestamp_type=wrapper.timestamp_type)
    return message
