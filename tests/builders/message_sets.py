"""Valid messages of old formats: message sets of magic 0 and 1, and Kafka 0.7."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence

from kdump.formats.compression import Codec, compress
from kdump.formats.message_set import CHECKED_START, LOG_OVERHEAD_BYTES
from kdump.formats.record_batch import NO_TIMESTAMP

TIMESTAMP_MS = 1_467_331_200_000


def encode_message(
    offset: int,
    key: bytes | None,
    value: bytes | None,
    *,
    magic: int,
    timestamp: int = NO_TIMESTAMP,
    attributes: int = 0,
) -> bytes:
    """Encode one entry of a set of ``magic`` 0 or 1, with the right size and checksum.

    For a wrapper, ``attributes`` has the codec's number and ``value`` the compressed set.
    """
    checked = bytearray(struct.pack(">bb", magic, attributes))
    if magic > 0:
        checked += struct.pack(">q", timestamp)
    for content in (key, value):
        checked += struct.pack(">i", -1 if content is None else len(content))
        checked += content or b""
    size = CHECKED_START - LOG_OVERHEAD_BYTES + len(checked)
    return struct.pack(">qiI", offset, size, zlib.crc32(checked)) + checked


def message(
    offset: int,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
    *,
    magic: int = 1,
    timestamp: int = TIMESTAMP_MS,
    attributes: int = 0,
) -> bytes:
    """Encode one entry of a message set."""
    return encode_message(
        offset, key, value, magic=magic, timestamp=timestamp, attributes=attributes
    )


def wrapper(
    entries: Iterable[bytes],
    codec: Codec = Codec.GZIP,
    *,
    offset: int,
    magic: int = 1,
    timestamp: int = TIMESTAMP_MS,
    attributes: int = 0,
) -> bytes:
    """Encode one entry that holds ``entries`` compressed, with their offsets unchanged."""
    return encode_message(
        offset,
        None,
        compress(codec, b"".join(entries), magic=magic),
        magic=magic,
        timestamp=timestamp,
        attributes=attributes | codec,
    )


def wrapped_values(
    values: Sequence[bytes], codec: Codec = Codec.GZIP, *, first_offset: int = 0, magic: int = 1
) -> bytes:
    """Encode a wrapper of messages as a broker does: with relative offsets in magic 1."""
    first_inner = 0 if magic == 1 else first_offset
    return wrapper(
        (message(first_inner + i, None, value, magic=magic) for i, value in enumerate(values)),
        codec,
        offset=first_offset + len(values) - 1,
        magic=magic,
    )


def message_07(payload: bytes = b"payload", *, magic: int = 1, attributes: int = 0) -> bytes:
    """Encode one entry of a Kafka 0.7 log, with the right size and checksum.

    For a wrapper, ``attributes`` has the codec's number and ``payload`` the compressed entries.
    """
    rest = struct.pack(
        ">bI" if magic == 0 else ">bbI", magic, *[attributes][:magic], zlib.crc32(payload)
    )
    return struct.pack(">i", len(rest) + len(payload)) + rest + payload


def wrapper_07(entries: Iterable[bytes], codec: Codec = Codec.GZIP) -> bytes:
    """Encode one entry of a Kafka 0.7 log that holds ``entries`` compressed."""
    return message_07(compress(codec, b"".join(entries)), attributes=codec)


def damaged(sample: bytes) -> Iterator[bytes]:
    """Yield every truncation of ``sample``, and every change of one of its bits."""
    for at in range(len(sample)):
        yield sample[:at]
        for bit in range(8):
            yield sample[:at] + bytes([sample[at] ^ 1 << bit]) + sample[at + 1 :]
