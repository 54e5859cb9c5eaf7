"""The log of Kafka 0.7, from before there were offsets that count messages.

A file ``<base offset>.kafka`` is a sequence of entries, each a size and a message. An offset is a
byte position in the stream of everything that was written to the partition. An entry's offset is
the file's base offset plus its position in the file; the base offset is where the file before ends.
The checksum is CRC-32 (zlib's) over the payload alone: magic and attributes are outside it::

    size: int32                   of what follows
    magic: int8                   0 or 1
    attributes: int8              only magic 1; bits 0-1 codec
    crc: uint32
    payload

A message whose codec is gzip or snappy is a wrapper: its payload is another sequence of entries,
compressed together. The messages in it have no offsets of their own. With each message a 0.7
consumer got the offset to continue from, :attr:`Message07.next_offset`. For all but the last
message in a wrapper that is the wrapper's own offset, so a consumer that stopped in the middle read
the wrapper again.

Follows the 0.7 design and, where that is silent, the classes ``Message``, ``FileMessageSet`` and
``ByteBufferMessageSet`` of Kafka 0.7.2.
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.formats.buffer import Buffer
from kdump.formats.compression import Codec, decompress_chunks
from kdump.formats.errors import FormatError
from kdump.formats.fixed_layout import layout
from kdump.formats.message_set import LARGEST_INNER_BYTES, NO_TIMESTAMP, TimestampType

HEADER_FIELDS_V0: Final = (
    ("size", "i"),
    ("magic", "b"),
    ("crc", "I"),
)
"""What an entry of magic 0 begins with: name and struct format of each field."""

HEADER_FIELDS_V1: Final = (
    ("size", "i"),
    ("magic", "b"),
    ("attributes", "b"),
    ("crc", "I"),
)
"""What an entry of magic 1 begins with."""

_SIZE: Final = layout(HEADER_FIELDS_V0[:1])
_HEADERS: Final = (layout(HEADER_FIELDS_V0), layout(HEADER_FIELDS_V1))

LOG_OVERHEAD_BYTES: Final = _SIZE.size
"""The size itself, which it does not count (``MessageSet.LogOverhead``)."""
MIN_SIZE: Final = _HEADERS[0].size - LOG_OVERHEAD_BYTES
"""The least ``size`` of a message (``Message.MinHeaderSize``)."""
CODEC_MASK: Final = 0x03

MAX_NESTING: Final = 4
"""How deeply nested wrappers are read; Kafka set no limit, and wrote one level."""

_CHUNK_BYTES: Final = 1 << 20


class StopReason07(enum.Enum):
    """Why the walk over the entries of a file ended."""

    END = "end"
    """Exactly at the end of the file."""
    ZERO_FILL = "zero fill"
    """Only zeroes follow: space that was preallocated, or lost, and never written."""
    SHORT_TAIL = "short tail"
    """Bytes are left, but not enough for a size."""
    TORN_TAIL = "torn tail"
    """The last entry claims more bytes than the file has."""
    BAD_LENGTH = "bad length"
    """A size that no message can have."""
    BAD_MAGIC = "bad magic"
    """An entry that fits, and is not a message of 0.7."""


class Stop07(Struct, frozen=True):
    """Where a walk ended and why; ``problem`` is None only at a clean end."""

    position: int
    reason: StopReason07
    problem: FormatError | None = None


class Message07(Struct, frozen=True):
    """One message, plain or wrapping others.

    Attributes:
        offset: of its entry in the partition's stream of bytes; for a message in a wrapper, the
            wrapper's.
        next_offset: the offset that a consumer continued from after this message.
        position: byte at which its entry begins in the decoded data; for a message in a wrapper, in
            the decompressed entries.
        magic: 0 or 1.
        attributes: one byte, signed; 0 in magic 0, which has none.
        crc: the checksum as stored.
        payload: the bytes that the producer gave, or the compressed entries.
    """

    offset: int
    next_offset: int
    position: int
    magic: int
    attributes: int
    crc: int
    payload: bytes

    @property
    def size_bytes(self) -> int:
        """Of the whole entry, its size included."""
        return _HEADERS[self.magic].size + len(self.payload)

    @property
    def computed_crc(self) -> int:
        """The checksum that the message should have."""
        return zlib.crc32(self.payload)

    @property
    def is_valid(self) -> bool:
        """Whether the checksum holds."""
        return self.crc == self.computed_crc

    @property
    def codec(self) -> Codec:
        """How the wrapped entries are compressed; none in a message that wraps nothing.

        Raises:
            FormatError: the attributes name a codec that 0.7 does not have.
        """
        number = self.attributes & CODEC_MASK
        if number > Codec.SNAPPY:
            raise FormatError(
                "unknown compression codec",
                position=self.position + LOG_OVERHEAD_BYTES + 1,
                expected="0 to 2",
                found=number,
            )
        return Codec(number)

    @property
    def key(self) -> None:
        """Messages had no keys; with :attr:`value`, what the later formats call it."""
        return

    @property
    def value(self) -> bytes:
        return self.payload

    @property
    def timestamp(self) -> int:
        return NO_TIMESTAMP

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.NO_TIMESTAMP_TYPE


def decode_entry(data: Buffer, position: int = 0, *, base_offset: int = 0) -> Message07 | Stop07:
    """Decode the message whose entry begins at ``position`` of ``data``, or say why it cannot.

    Args:
        data: a whole file, or the entries of a wrapper.
        position: where to look.
        base_offset: the offset of ``data[0]``, for a file its name.

    The checksum is not compared: :attr:`Message07.is_valid` does.
    """
    view = memoryview(data)
    left_bytes = len(view) - position
    if left_bytes < LOG_OVERHEAD_BYTES:
        return _stop_at_tail(view, position)
    (size,) = _SIZE.unpack_from(view, position)
    if size == 0 and _is_zero(view[position:]):
        return Stop07(position, StopReason07.ZERO_FILL, _problem("zeroes to the end", position))
    if size < MIN_SIZE:
        return _bad_length(position, MIN_SIZE, size)
    end = position + LOG_OVERHEAD_BYTES + size
    if end > len(view):
        return Stop07(
            position,
            StopReason07.TORN_TAIL,
            _problem("message ends early", position, f"{end - position} bytes", left_bytes),
        )
    magic = view[position + LOG_OVERHEAD_BYTES]
    if magic >= len(_HEADERS):
        return Stop07(
            position,
            StopReason07.BAD_MAGIC,
            _problem("not a message of Kafka 0.7", position, "magic 0 or 1", f"magic {magic}"),
        )
    header = _HEADERS[magic]
    payload = position + header.size
    if payload > end:
        return _bad_length(position, header.size - LOG_OVERHEAD_BYTES, size)
    fields = header.unpack_from(view, position)
    return Message07(
        offset=base_offset + position,
        next_offset=base_offset + end,
        position=position,
        magic=magic,
        attributes=fields[2] if magic else 0,
        crc=fields[-1],
        payload=bytes(view[payload:end]),
    )


def walk(data: Buffer, *, base_offset: int = 0, position: int = 0) -> Iterator[Message07 | Stop07]:
    """Yield every message of a file from ``position`` on, then one :class:`Stop07`.

    A message with a wrong checksum is yielded too: its size leads to the next.
    """
    while True:
        found = decode_entry(data, position, base_offset=base_offset)
        yield found
        if isinstance(found, Stop07):
            return
        position += found.size_bytes


def inner_messages(
    wrapper: Message07, *, largest_bytes: int = LARGEST_INNER_BYTES, max_nesting: int = MAX_NESTING
) -> Iterator[Message07]:
    """Yield the messages that ``wrapper`` holds compressed, those in nested wrappers too.

    Messages before damage are yielded. An incomplete last entry is skipped silently, as consumers
    did.

    Args:
        wrapper: a message with a codec.
        largest_bytes: the most that one message may have.
        max_nesting: how deeply nested wrappers are read.

    Raises:
        FormatError: the payload does not decompress, the codec is none or unknown, an entry is
            no message of 0.7, is larger than ``largest_bytes``, is incomplete and the only one,
            or has a wrong checksum; or wrappers are nested deeper than ``max_nesting``. The
            position counts in the innermost decompressed entries.
    """
    if max_nesting < 1:
        raise FormatError("compressed messages are nested too deep", position=wrapper.position)
    codec = wrapper.codec
    if codec is Codec.NONE:
        raise FormatError(
            "message wraps no others",
            position=wrapper.position,
            expected="gzip or snappy",
            found=codec.label,
        )
    last: Message07 | None = None
    chunks = decompress_chunks(codec, wrapper.payload, chunk_bytes=_CHUNK_BYTES, magic=1)
    for entry in _entries(chunks, largest_bytes):
        if not entry.is_valid:
            raise _problem(
                "message has a wrong checksum", entry.position, entry.computed_crc, entry.crc
            )
        within = replace(entry, offset=wrapper.offset, next_offset=wrapper.offset)
        nested: Iterable[Message07] = (within,)
        if entry.codec is not Codec.NONE:
            nested = inner_messages(
                within, largest_bytes=largest_bytes, max_nesting=max_nesting - 1
            )
        for message in nested:
            if last is not None:
                yield last
            last = message
    if last is not None:
        yield replace(last, next_offset=wrapper.next_offset)


def _entries(chunks: Iterable[bytes], largest_bytes: int) -> Iterator[Message07]:
    """Decode the complete entries in ``chunks``; their offsets have no meaning."""
    pending = bytearray()
    pending_start = 0
    for chunk in chunks:
        pending += chunk
        position = 0
        while len(pending) - position >= LOG_OVERHEAD_BYTES:
            (size,) = _SIZE.unpack_from(pending, position)
            end = position + LOG_OVERHEAD_BYTES + max(size, 0)
            if end > len(pending):
                break
            found = decode_entry(bytes(pending[position:end]))
            if isinstance(found, Stop07):
                problem = found.problem or _problem("not a message of Kafka 0.7", 0)
                raise problem.shifted(pending_start + position)
            yield replace(found, position=pending_start + position)
            position = end
        del pending[:position]
        pending_start += position
        if len(pending) > largest_bytes:
            raise _problem(
                "message in a compressed set is too large",
                pending_start,
                f"at most {largest_bytes} bytes",
            )
    if pending_start == 0 and len(pending) >= LOG_OVERHEAD_BYTES:
        raise _problem("message ends early", 0, found=len(pending))


def _stop_at_tail(view: memoryview, position: int) -> Stop07:
    tail = view[position:]
    if not tail:
        return Stop07(position, StopReason07.END)
    if _is_zero(tail):
        return Stop07(position, StopReason07.ZERO_FILL, _problem("zeroes to the end", position))
    problem = _problem("message ends early", position, f"{LOG_OVERHEAD_BYTES} bytes", len(tail))
    return Stop07(position, StopReason07.SHORT_TAIL, problem)


def _bad_length(position: int, least: int, size: int) -> Stop07:
    problem = _problem(
        "message is smaller than any can be", position, f"a size of at least {least}", size
    )
    return Stop07(position, StopReason07.BAD_LENGTH, problem)


def _problem(
    what: str, position: int, expected: object | None = None, found: object | None = None
) -> FormatError:
    return FormatError(what, position=position, expected=expected, found=found)


def _is_zero(view: memoryview) -> bool:
    parts = (view[start : start + _CHUNK_BYTES] for start in range(0, len(view), _CHUNK_BYTES))
    return all(bytes(part).count(0) == len(part) for part in parts)
