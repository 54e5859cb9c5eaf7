"""Batch headers of one segment, one at a time, by small reads.

For the questions that a few headers answer: where does this log end, when does it begin. Records
are not looked at; a read is a page, in which the headers of several small batches may stand.
Whole segments are walked by ``kdump.scan``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kdump.formats import message_set, record_batch
from kdump.formats.errors import FormatError
from kdump.formats.message_set import TimestampType
from kdump.scan.source import read_at
from kdump.storage.byte_source import ByteSource

_PAGE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """What a header says of its batch's place: nothing is checked but that it can be.

    Attributes:
        position: byte of the file at which the batch begins.
        size_bytes: of the batch.
        base_offset: first offset; of a wrapper of magic 0 or 1, which does not say it, the last.
        last_offset: last offset.
        first_timestamp_ms: of the first record; None where the header does not tell: in magic 0,
            in a compressed message of magic 1, and behind a delete horizon, which has its place.
        max_timestamp_ms: the largest; None in magic 0, or where the header has none.
    """

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    first_timestamp_ms: int | None
    max_timestamp_ms: int | None

    @property
    def next_position(self) -> int:
        return self.position + self.size_bytes


def batch_span_at(source: ByteSource, position: int) -> BatchSpan | None:
    """The batch that begins at ``position``; None if no whole one can be there.

    Raises:
        OSError: when reading fails.
    """
    data = read_at(source, position, record_batch.HEADER_BYTES)
    return _span_in(data, 0, position, source.size_bytes)


def batch_spans(
    source: ByteSource, position: int = 0, least_offset: int = 0
) -> Iterator[BatchSpan]:
    """The batches from ``position`` on, for as long as each can stand behind the one before.

    Args:
        source: the segment's log.
        position: byte at which a batch begins.
        least_offset: what the first batch's base offset is at least; each one's last offset is
            above those before it.

    Raises:
        OSError: when reading fails.
    """
    page, start = b"", position
    while True:
        if position + record_batch.HEADER_BYTES > start + len(page):
            page, start = read_at(source, position, _PAGE_BYTES), position
        span = _span_in(page, position - start, position, source.size_bytes)
        if span is None or span.base_offset < least_offset:
            return
        yield span
        position = span.next_position
        least_offset = span.last_offset + 1


def _span_in(data: bytes, at: int, position: int, file_bytes: int) -> BatchSpan | None:
    """The batch whose header begins at ``data[at]``, and at ``position`` of its file."""
    if len(data) - at < record_batch.PREFIX_BYTES:
        return None
    try:
        if data[at + record_batch.MAGIC_START] in (0, 1):
            span = _message_span(message_set.decode_header(data, at), position)
        else:
            span = _batch_span(record_batch.decode_header(data, at), position)
    except FormatError:
        return None
    return span if span is not None and span.next_position <= file_bytes else None


def _batch_span(header: record_batch.BatchHeader, position: int) -> BatchSpan | None:
    if (
        header.magic != 2
        or header.size_bytes < record_batch.HEADER_BYTES
        or header.base_offset < 0
        or header.last_offset_delta < 0
        or header.last_offset < header.base_offset
    ):
        return None
    if header.is_log_append_time:
        first_timestamp: int | None = header.max_timestamp
    elif header.delete_horizon_ms is not None:
        first_timestamp = None
    else:
        first_timestamp = header.base_timestamp
    return BatchSpan(
        position=position,
        size_bytes=header.size_bytes,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        first_timestamp_ms=_or_none(first_timestamp),
        max_timestamp_ms=_or_none(header.max_timestamp),
    )


def _message_span(header: message_set.MessageHeader, position: int) -> BatchSpan | None:
    if header.size < message_set.MIN_SIZE or header.offset < 0:
        return None
    is_exact = (
        not header.attributes & record_batch.CODEC_MASK
        or header.timestamp_type is TimestampType.LOG_APPEND_TIME
    )
    return BatchSpan(
        position=position,
        size_bytes=header.size_bytes,
        base_offset=header.offset,
        last_offset=header.offset,
        first_timestamp_ms=_or_none(header.timestamp) if is_exact else None,
        max_timestamp_ms=_or_none(header.timestamp),
    )


def _or_none(timestamp_ms: int | None) -> int | None:
    return None if timestamp_ms == record_batch.NO_TIMESTAMP else timestamp_ms
