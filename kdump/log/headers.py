"""Read batch headers of a segment one at a time, by small reads.

For questions that a few headers answer: where does this log end, when does it begin. Records are
not decoded. A read is one page, which may have the headers of several small batches. Use
``kdump.scan`` to walk whole segments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from kdump.formats import message_set, record_batch
from kdump.formats.errors import FormatError
from kdump.formats.message_set import TimestampType
from kdump.scan.source import read_at
from kdump.storage.byte_source import ByteSource

_PAGE_BYTES: Final = 4096


class BatchSpan(NamedTuple):
    """The position, offsets and times in a batch header; nothing is verified.

    Attributes:
        position: byte of the file at which the batch begins.
        base_offset: first offset; of a compressed message of magic 0 or 1, the last one, because
            its header has no other.
        first_timestamp_ms: of the first record; None if the header does not say: in magic 0, in a
            compressed message of magic 1, and if the field has a delete horizon instead.
        max_timestamp_ms: the largest; None in magic 0, or if the header has none.
        leader_epoch: of the leader that appended it; -1 in magic 0 and 1.
        reached_offset: the last offset, or that of the last record if the header counts more
            records than offsets.
    """

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    first_timestamp_ms: int | None
    max_timestamp_ms: int | None
    leader_epoch: int
    reached_offset: int

    @property
    def next_position(self) -> int:
        return self.position + self.size_bytes

    @property
    def largest_timestamp(self) -> int:
        """As ``max_timestamp_ms``; ``NO_TIMESTAMP`` for none, as in Kafka."""
        return record_batch.NO_TIMESTAMP if self.max_timestamp_ms is None else self.max_timestamp_ms


def batch_span_at(source: ByteSource, position: int) -> BatchSpan | None:
    """Read the header of the batch at ``position``; None if no whole batch can be there.

    Raises:
        OSError: reading fails.
    """
    data = read_at(source, position, record_batch.HEADER_BYTES)
    return _span_in(data, 0, position, source.size_bytes)


def batch_spans(
    source: ByteSource, position: int = 0, least_offset: int = 0
) -> Iterator[BatchSpan]:
    """Yield the batches from ``position`` on, up to the first that cannot follow the one before.

    Args:
        source: the segment's log.
        position: byte where a batch begins.
        least_offset: the smallest base offset that the first batch may have; each batch must
            begin after the last offset of the one before.

    Raises:
        OSError: reading fails.
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


def end_after(source: ByteSource, position: int, end_offset: int) -> int:
    """The end of a log as a broker that starts after a clean shutdown finds it.

    Only lengths lead from one batch to the next; the last one decides, whatever its offsets are.
    Follows ``LogSegment.readNextOffset``.

    Args:
        source: the segment's log.
        position: byte where a batch begins.
        end_offset: the end if there is none.

    Raises:
        OSError: reading fails.
    """
    page, start = b"", position
    while True:
        if position + record_batch.HEADER_BYTES > start + len(page):
            page, start = read_at(source, position, _PAGE_BYTES), position
        at = position - start
        if len(page) - at < record_batch.PREFIX_BYTES:
            return end_offset
        length = int.from_bytes(page[at + 8 : at + 12], "big", signed=True)
        following = position + record_batch.LOG_OVERHEAD_BYTES + length
        if length < record_batch.MIN_LENGTH_BYTES or following > source.size_bytes:
            return end_offset
        last_offset = int.from_bytes(page[at : at + 8], "big", signed=True)
        if 2 <= page[at + record_batch.MAGIC_START] < 128:
            if len(page) - at < record_batch.HEADER_BYTES:
                return end_offset
            last_offset += record_batch.HEADER_LAYOUT.unpack_from(page, at)[6]
        # As a long of Java, which wraps.
        end_offset = (last_offset + 1 + 2**63) % 2**64 - 2**63
        position = following


def spans_of_whole(data: bytes, least_offset: int) -> list[BatchSpan] | None:
    """Return the batches of a small log that is in memory; None unless they are all of it.

    Args:
        least_offset: as for :func:`batch_spans`.
    """
    spans = []
    position, file_bytes = 0, len(data)
    while position < file_bytes:
        span = _span_in(data, position, position, file_bytes)
        if span is None or span.base_offset < least_offset:
            return None
        spans.append(span)
        position = span.next_position
        least_offset = span.last_offset + 1
    return spans


def _span_in(data: bytes, at: int, position: int, file_bytes: int) -> BatchSpan | None:
    """Decode the header at ``data[at]``, which is at ``position`` of the file."""
    if len(data) - at < record_batch.PREFIX_BYTES:
        return None
    try:
        if data[at + record_batch.MAGIC_START] in (0, 1):
            span = _message_span(message_set.decode_header(data, at), position)
        else:
            span = _batch_span(data, at, position)
    except FormatError:
        return None
    return span if span is not None and span.next_position <= file_bytes else None


def _batch_span(data: bytes, at: int, position: int) -> BatchSpan | None:
    """Decode a header of magic 2; without a ``BatchHeader``, which takes longer than reading it."""
    if len(data) - at < record_batch.HEADER_BYTES:
        return None
    fields = record_batch.HEADER_LAYOUT.unpack_from(data, at)
    base_offset, length, leader_epoch, magic, _, attributes = fields[:6]
    last_offset_delta, base_timestamp, max_timestamp = fields[6:9]
    size_bytes = record_batch.LOG_OVERHEAD_BYTES + length
    last_offset = base_offset + last_offset_delta
    if (
        magic != 2
        or size_bytes < record_batch.HEADER_BYTES
        or base_offset < 0
        or last_offset_delta < 0
        or last_offset > record_batch.GREATEST_OFFSET
    ):
        return None
    first_timestamp: int | None = base_timestamp
    if attributes & record_batch.LOG_APPEND_TIME_FLAG:
        first_timestamp = max_timestamp
    elif attributes & record_batch.DELETE_HORIZON_FLAG:
        first_timestamp = None
    return BatchSpan(
        position,
        size_bytes,
        base_offset,
        last_offset,
        _or_none(first_timestamp),
        _or_none(max_timestamp),
        leader_epoch,
        max(last_offset, base_offset + fields[-1] - 1),
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
        leader_epoch=record_batch.NO_PARTITION_LEADER_EPOCH,
        reached_offset=header.offset,
    )


def _or_none(timestamp_ms: int | None) -> int | None:
    return None if timestamp_ms == record_batch.NO_TIMESTAMP else timestamp_ms
