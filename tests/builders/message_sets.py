"""Valid messages of old formats: message sets of magic 0 and 1, and Kafka 0.7."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kdump.formats import kafka07, message_set
from kdump.formats.compression import Codec, compress

TIMESTAMP_MS = 1_467_331_200_000


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
    return message_set.encode_message(
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
    return message_set.encode_message(
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
    """Encode one entry of a Kafka 0.7 log."""
    return kafka07.encode_message(payload, magic=magic, attributes=attributes)


def wrapper_07(entries: Iterable[bytes], codec: Codec = Codec.GZIP) -> bytes:
    """Encode one entry of a Kafka 0.7 log that holds ``entries`` compressed."""
    return message_07(compress(codec, b"".join(entries)), attributes=codec)


def damaged(sample: bytes) -> Iterator[bytes]:
    """Yield every truncation of ``sample``, and every change of one of its bits."""
    for at in range(len(sample)):
        yield sample[:at]
        for bit in range(8):
            yield sample[:at] + bytes([sample[at] ^ 1 << bit]) + sample[at + 1 :]
