"""Logs with random malformed batches amid valid ones."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from builders.batches import batch, record
from kdump.formats.checksum import crc32c
from kdump.formats.compression import Codec
from kdump.formats.record_batch import (
    CHECKED_START,
    CONTROL_FLAG,
    CRC_START,
    HEADER_BYTES,
    MAGIC_START,
    decode_header,
    encode_batch,
    encode_record,
)

LAST_OFFSET_DELTA_START: Final = 23
_CODECS: Final = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)


@dataclass(slots=True)
class MalformedLog:
    """The batches of a log in the order of the file.

    Attributes:
        batches: their bytes.
        offsets: of the records of each valid batch; None for a malformed one.
        changes: what was done to make batches malformed.
    """

    batches: list[bytes]
    offsets: list[list[int] | None]
    changes: list[str]

    @property
    def data(self) -> bytes:
        return b"".join(self.batches)


def with_field(data: bytes, start: int, value: int, size: int) -> bytes:
    """Overwrite a field of a batch; the checksum stays as it is."""
    field = (value % (1 << 8 * size)).to_bytes(size, "big")
    return data[:start] + field + data[start + size :]


def rechecked(data: bytes) -> bytes:
    """Give a batch the checksum of its bytes."""
    return data[:CRC_START] + crc32c(data[CHECKED_START:]).to_bytes(4, "big") + data[CHECKED_START:]


def with_offsets(data: bytes, offsets: list[int]) -> bytes:
    """Give the batch of a header uncompressed records with these offsets."""
    header = decode_header(data)
    first = header.base_offset
    rows = [record(offset, timestamp=header.base_timestamp) for offset in offsets]
    body = b"".join(encode_record(row, first, header.base_timestamp) for row in rows)
    attributes = header.attributes & ~0x07
    return encode_batch(replace(header, attributes=attributes, records_count=len(rows)), body)


def malformed_log(rng: random.Random) -> MalformedLog:
    """Make a log from offset 0 on, with one to three malformed batches."""
    batches: list[bytes] = []
    offsets: list[list[int] | None] = []
    offset = 0
    for _ in range(rng.randint(6, 14)):
        own = list(range(offset, offset + rng.randint(1, 5)))
        batches.append(batch([record(each) for each in own], codec=rng.choice(_CODECS)))
        offsets.append(own)
        offset = own[-1] + 1
    log = MalformedLog(batches, offsets, [])
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _change(log, rng)
    return log


def _change(log: MalformedLog, rng: random.Random) -> None:
    at = rng.randrange(len(log.batches))
    data = log.batches[at]
    own = log.offsets[at]
    if own is None:
        return
    first, last = own[0], own[-1]
    change = rng.choice(CHANGES)
    match change:
        case "base offset":
            data = with_field(data, 0, first ^ (1 << rng.randrange(64)), 8)
        case "greatest offset":
            data = with_field(data, 0, 2**63 - rng.randint(1, 8), 8)
        case "magic":
            data = with_field(data, MAGIC_START, rng.choice((3, 9, 127, -1)), 1)
        case "fewer offsets":
            fewer = rng.randrange(-1, len(own))
            data = rechecked(with_field(data, LAST_OFFSET_DELTA_START, fewer, 4))
        case "more offsets":
            more = len(own) + rng.choice((0, 1, 3, 20, 500))
            data = rechecked(with_field(data, LAST_OFFSET_DELTA_START, more, 4))
        case "count":
            count = rng.choice((-1, 0, 1, len(own) + 1, 2**31 - 1))
            data = rechecked(with_field(data, HEADER_BYTES - 4, count, 4))
        case "repeated":
            data = with_offsets(data, [first] * 3)
        case "backward":
            data = with_offsets(data, own[::-1])
        case "leaving":
            data = with_offsets(data, [first, last + rng.choice((1, 2, 40))])
        case "below":
            data = with_offsets(data, [first - 1, first])
        case "control":
            attributes = decode_header(data).attributes | CONTROL_FLAG
            data = rechecked(with_field(data, CHECKED_START, attributes, 2))
        case "codec":
            attributes = rng.randint(1, 7)
            data = rechecked(with_field(data, CHECKED_START, attributes, 2))
        case "empty":
            data = rechecked(with_field(data, HEADER_BYTES - 4, 0, 4))
            attributes = rng.randint(0, 4)
            data = rechecked(with_field(data, CHECKED_START, attributes, 2))
        case "body":
            position = rng.randrange(HEADER_BYTES, len(data))
            data = rechecked(with_field(data, position, rng.randrange(256), 1))
        case "checksum":
            position = rng.randrange(CHECKED_START, len(data))
            data = with_field(data, position, data[position] ^ (1 << rng.randrange(8)), 1)
        case "twice":
            log.batches.insert(at, data)
            log.offsets.insert(at, own)
            at += 1
    log.batches[at] = data
    log.offsets[at] = None
    log.changes.append(f"{change} of batch {at}")


CHANGES: Final = (
    "base offset",
    "base offset",
    "greatest offset",
    "magic",
    "fewer offsets",
    "more offsets",
    "count",
    "repeated",
    "backward",
    "leaving",
    "below",
    "control",
    "codec",
    "empty",
    "body",
    "checksum",
    "twice",
)
