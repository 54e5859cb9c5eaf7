"""Find the next batch after damage.

Nothing there says where a batch begins. A header counts if its fields agree with each other and
its checksum matches the bytes that its length covers.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kdump.formats import message_set, record_batch
from kdump.scan.batches import PADDING_BYTES, Bytes, Column, Flags
from kdump.scan.header_columns import HEADER_DTYPE
from kdump.scan.last_block import LastBlock
from kdump.scan.source import next_data, read_at
from kdump.storage.byte_source import ByteSource

LARGEST_BATCH_BYTES: Final = 64 << 20
"""A larger batch does not count: a random length is usually large."""

_FIRST_STEP_BYTES: Final = 2 << 10
"""Usually only a batch or two are damaged, and the next one is near."""
_STEP_BYTES: Final = 1 << 20
_KNOWN_ATTRIBUTES: Final = 0x7F
_KNOWN_LEGACY_ATTRIBUTES: Final = 0x0F


def find_batch(source: ByteSource, start: int, end: int | None = None) -> int | None:
    """Find the first valid batch, of any magic, at or after byte ``start``.

    Args:
        source: the segment.
        start: byte to begin at.
        end: byte at which the file counts as ended; None for its real end.

    Returns:
        Its position; None if there is none before ``end``.

    Raises:
        OSError: reading fails.
    """
    end = source.size_bytes if end is None else min(end, source.size_bytes)
    step, position = _FIRST_STEP_BYTES, start
    while position < end:
        # A header is never all zeroes, so none is in a hole, which can be a terabyte long.
        data_start = next_data(source, position) - record_batch.HEADER_BYTES
        if data_start > position:
            position = data_start
            continue
        # The header of a batch that begins in this step may extend into the next.
        size = min(step + record_batch.HEADER_BYTES, end - position)
        data = np.frombuffer(read_at(source, position, size) + bytes(PADDING_BYTES), np.uint8)
        # Most of a preallocated file is zeroes that were written.
        if data.any():
            for candidate in _candidates(data, min(step, size), position, end):
                if is_valid_batch(source, candidate, end):
                    return candidate
        position += step
        step = min(step * 4, _STEP_BYTES)
    return None


def is_valid_batch(source: ByteSource, position: int, end: int) -> bool:
    """Whether a whole batch is at ``position`` and its checksum is right."""
    prefix = read_at(source, position, record_batch.HEADER_BYTES)
    if len(prefix) <= record_batch.PREFIX_BYTES:
        return False
    length = int.from_bytes(prefix[8:12], "big", signed=True)
    size = record_batch.LOG_OVERHEAD_BYTES + length
    if length < record_batch.MIN_LENGTH_BYTES or position + size > end:
        return False
    if size > LARGEST_BATCH_BYTES:
        return False
    if prefix[record_batch.MAGIC_START] in (0, 1) and not _is_filled(
        source, prefix, position, size
    ):
        return False
    if prefix[record_batch.MAGIC_START] not in (0, 1) and (
        prefix[record_batch.MAGIC_START] != 2 or size < record_batch.HEADER_BYTES
    ):
        return False
    if isinstance(source, LastBlock):
        return _has_right_checksum(source, prefix, position, size)
    batch = read_at(source, position, size)
    if batch[record_batch.MAGIC_START] in (0, 1):
        return message_set.is_valid(batch)
    return record_batch.has_right_crc(batch)


def _has_right_checksum(source: LastBlock, prefix: bytes, position: int, size: int) -> bool:
    """The same, in time that grows with the file and not with what its headers claim."""
    if prefix[record_batch.MAGIC_START] in (0, 1):
        stored = int.from_bytes(prefix[message_set.CHECKED_START - 4 :][:4], "big")
        return stored == source.crc32(position + message_set.CHECKED_START, position + size)
    stored = int.from_bytes(prefix[record_batch.CRC_START :][:4], "big")
    return stored == source.crc32c(position + record_batch.CHECKED_START, position + size)


def _is_filled(source: ByteSource, prefix: bytes, position: int, size: int) -> bool:
    """Whether key and value of a message of magic 0 or 1 fill its ``size`` exactly.

    This takes eight bytes to check, while a checksum takes everything that the length covers.
    """
    at = (
        message_set.KEY_SIZE_START_V1
        if prefix[record_batch.MAGIC_START]
        else message_set.KEY_SIZE_START_V0
    )
    for _ in ("key", "value"):
        field = read_at(source, position + at, 4)
        at += len(field) + max(0, int.from_bytes(field, signed=True))
    return at == size


def _candidates(data: Bytes, count: int, position: int, end: int) -> list[int]:
    """Return the positions in the first ``count`` bytes where a batch header is possible."""
    at = np.flatnonzero(data[record_batch.MAGIC_START : record_batch.MAGIC_START + count] <= 2)
    # Offsets and lengths have their highest bit clear: this alone rules out most positions.
    at = at[(data[at] < 0x80) & (data[at + record_batch.LENGTH_START] < 0x80)]
    # A length is not zero: this rules out most of what was never written.
    length_bytes = [data[at + record_batch.LENGTH_START + step] for step in range(4)]
    at = at[np.bitwise_or.reduce(length_bytes) != 0]
    headers = data[at[:, None] + np.arange(record_batch.HEADER_BYTES)]
    fields = headers.view(HEADER_DTYPE)[:, 0]
    length = fields["length"].astype(np.int64)
    remaining = np.minimum(end - position - at, LARGEST_BATCH_BYTES)
    is_possible = (length >= record_batch.MIN_LENGTH_BYTES) & (
        length + record_batch.LOG_OVERHEAD_BYTES <= remaining
    )
    is_agreed = (
        (fields["attributes"] & ~_KNOWN_ATTRIBUTES == 0)
        & (fields["last_offset_delta"] >= 0)
        & (fields["records_count"] >= 0)
        & (fields["records_count"].astype(np.int64) - 1 <= fields["last_offset_delta"])
    )
    is_possible &= np.where(fields["magic"] < 2, _is_legacy(headers, length), is_agreed)
    return [int(found) + position for found in at[is_possible]]


def _is_legacy(headers: Bytes, length: Column) -> Flags:
    """Whether the fields are possible for a message of magic 0 or 1."""
    key_size = np.where(
        headers[:, record_batch.MAGIC_START] == 0,
        _int32(headers, message_set.KEY_SIZE_START_V0),
        _int32(headers, message_set.KEY_SIZE_START_V1),
    )
    attributes = headers[:, record_batch.MAGIC_START + 1]
    is_agreed: Flags = (attributes <= _KNOWN_LEGACY_ATTRIBUTES) & (key_size >= -1)
    return is_agreed & (key_size < length)


def _int32(headers: Bytes, start: int) -> Column:
    field = np.ascontiguousarray(headers[:, start : start + 4])
    return field.view(">i4")[:, 0].astype(np.int64)
