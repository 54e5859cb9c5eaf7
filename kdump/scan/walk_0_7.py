"""Read the messages of a Kafka 0.7 log one by one, and find the next one after damage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kdump.formats import kafka07
from kdump.formats.errors import FormatError
from kdump.formats.kafka07 import Message07, Stop07, StopReason07
from kdump.scan.source import read_at
from kdump.storage.byte_source import ByteSource

LARGEST_MESSAGE_BYTES: Final = 64 << 20
"""Larger messages are not searched for: a random size is usually large."""
_STEP_BYTES: Final = 1 << 20
_HEADER_BYTES: Final = 10


class Skipped07(Struct, frozen=True):
    """Bytes without a valid message.

    Attributes:
        start: the first byte.
        end: the byte after the last one.
        problem: why no message begins at ``start``.
    """

    start: int
    end: int
    problem: FormatError


def read_entry(source: ByteSource, position: int) -> Message07 | Stop07:
    """Return the message at byte ``position``, whatever its checksum, or the stop if there is none.

    No more memory is used than the file has bytes.
    """
    size = int.from_bytes(read_at(source, position, kafka07.LOG_OVERHEAD_BYTES), signed=True)
    if size == 0:
        size = source.size_bytes - position  # zeroes to the end are not an entry
    data = read_at(source, position, kafka07.LOG_OVERHEAD_BYTES + max(size, 0))
    entry = kafka07.decode_entry(data)
    if isinstance(entry, Message07):
        return replace(entry, offset=position, next_offset=position, position=position)
    problem = None if entry.problem is None else entry.problem.shifted(position)
    return Stop07(position, entry.reason, problem)


def valid_messages(source: ByteSource, start: int = 0) -> Iterator[Message07 | Skipped07]:
    """Yield all valid messages from byte ``start`` on in order, and the bytes between them."""
    position: int | None = start
    while position is not None:
        entry = read_entry(source, position)
        if isinstance(entry, Message07) and entry.is_valid:
            yield entry
            position += entry.size_bytes
            continue
        if isinstance(entry, Stop07) and entry.reason is StopReason07.END:
            return
        start = position
        position = find_message(source, start + 1)
        end = source.size_bytes if position is None else position
        yield Skipped07(start, end, _problem(entry))


def find_message(source: ByteSource, start: int) -> int | None:
    """Find the first valid message at or after byte ``start``; None if there is none."""
    for position in range(start, source.size_bytes, _STEP_BYTES):
        data = read_at(source, position, _STEP_BYTES + _HEADER_BYTES)
        for candidate in _candidates(data, source.size_bytes - position):
            entry = read_entry(source, position + candidate)
            if isinstance(entry, Message07) and entry.is_valid:
                return position + candidate
    return None


def _candidates(data: bytes, left_bytes: int) -> list[int]:
    """Return where an entry could begin in the first step of ``data``, by its size and magic."""
    bytes_ = np.frombuffer(data + bytes(_HEADER_BYTES), np.uint8)
    count = min(_STEP_BYTES, len(data))
    magic = bytes_[kafka07.LOG_OVERHEAD_BYTES : kafka07.LOG_OVERHEAD_BYTES + count]
    at = np.flatnonzero((magic <= 1) & (bytes_[:count] < 0x80))
    sizes = np.ascontiguousarray(bytes_[at[:, None] + np.arange(4)]).view(">i4")[:, 0]
    largest = np.minimum(left_bytes - at - kafka07.LOG_OVERHEAD_BYTES, LARGEST_MESSAGE_BYTES)
    is_possible = (sizes >= kafka07.MIN_SIZE) & (sizes <= largest)
    return [int(found) for found in at[is_possible]]


def _problem(entry: Message07 | Stop07) -> FormatError:
    if isinstance(entry, Stop07):
        assert entry.problem is not None, "only a clean end has no problem"
        return entry.problem
    return FormatError(
        "message has a wrong checksum",
        position=entry.position,
        expected=entry.computed_crc,
        found=entry.crc,
    )
