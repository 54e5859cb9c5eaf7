"""Decode batches that are too large to hold in pieces.

Such a batch is read, or decompressed, a chunk at a time. The whole records at the start of what is
held are decoded as a section of their own, and dropped. So neither the batch nor its decompressed
records are ever in memory at once, except for a compressed batch as it is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from msgspec.structs import replace

from kdump.formats import record_batch
from kdump.formats.compression import Codec, decompress_chunks
from kdump.formats.cursor import MAX_VARINT_BYTES, Cursor
from kdump.formats.errors import FillError, FormatError, OverLimitError
from kdump.scan.batches import LARGEST_WINDOW_BYTES, PADDING_BYTES, Window, read_chunks
from kdump.scan.records import MOST_RECORDS, RecordColumns, Sections, decode_sections

STREAM_CHUNK_BYTES: Final = 1 << 20
"""A batch that is too large to hold is decoded in pieces of about this size."""
LARGEST_EXPANSION: Final = 16
"""A record may be this many times as large as its compressed batch, even over the limit."""


def stream_records(window: Window, row: int, largest_record_bytes: int) -> Iterator[RecordColumns]:
    """Decode one batch in pieces, so that neither it nor its decompressed records are held."""
    batches = window.batches.rows(slice(row, row + 1))
    header = batches.header(0)
    chunks = _body_chunks(window, row, header)
    largest = _largest_record(window, row, header, largest_record_bytes)
    can_be_valid = bool(window.batches.is_valid[row]) and header.codec_id != Codec.NONE
    error = OverLimitError if can_be_valid else FormatError
    held = bytearray()
    read = consumed = whole = 0
    is_continued = False
    problem = None
    if header.records_count < 0:
        problem = FormatError(
            "batch has a negative count of records",
            expected="0 or more",
            found=header.records_count,
        )
    while problem is None and read < header.records_count:
        # More records may be held than are yielded at once.
        chunk: bytes | memoryview = b""
        if len(held) < STREAM_CHUNK_BYTES or not whole:
            try:
                chunk = next(chunks, b"")
            except FormatError as failure:
                problem = failure.as_value()
        held += chunk
        most = min(header.records_count - read, MOST_RECORDS)
        whole, size, refused = _whole_records(held, most, largest, error)
        if problem is None and refused is not None:
            problem = refused.shifted(consumed)
        if problem is None and not chunk and not whole:
            problem = FillError(
                "batch ends before its last record",
                position=consumed + size,
                expected=f"{header.records_count} records",
                found=read + whole,
            )
        if not whole:
            continue
        data = np.zeros(size + PADDING_BYTES, np.uint8)
        data[:size] = memoryview(held)[:size]
        columns = decode_sections(data, batches, _section(size, whole))
        if columns.problems:
            problem = columns.problems.pop(0).shifted(consumed)
        yield replace(columns, is_continued=is_continued)
        is_continued = True
        read += whole
        consumed += size
        del held[:size]
    if problem is None:
        problem = _bytes_after_records(header, held, chunks, consumed)
    if problem is not None or not is_continued:
        nothing = decode_sections(np.zeros(PADDING_BYTES, np.uint8), batches, _section(0, 0))
        problems = {} if problem is None else {0: problem}
        yield replace(nothing, is_continued=is_continued, problems=problems)


def _section(size: int, count: int) -> Sections:
    """Return a single section at the start of the data."""
    return Sections.of(*(np.array([each], np.int64) for each in (0, size, count)))


def _largest_record(
    window: Window, row: int, header: record_batch.BatchHeader, largest_record_bytes: int
) -> int:
    """Return the largest record to accept in a batch, in bytes."""
    if not window.batches.is_valid[row]:
        return largest_record_bytes
    if header.codec_id == Codec.NONE:
        return header.size_bytes
    return max(largest_record_bytes, LARGEST_EXPANSION * header.size_bytes)


def _whole_records(
    held: bytearray, most: int, largest: int, error: type[FormatError]
) -> tuple[int, int, FormatError | None]:
    """Count the whole records at the start of ``held``, at most ``most``.

    Returns their number, their size in bytes, and why no further record is possible, if known.
    """
    cursor = Cursor(held)
    count = size = 0
    while count < most and cursor.remaining >= MAX_VARINT_BYTES:
        try:
            length = cursor.varint()
        except FormatError as refused:
            return count, size, refused.as_value()
        if length > largest and error is OverLimitError:
            too_large = OverLimitError(
                "not decoded: a record is over the limit",
                position=size,
                expected=f"at most {largest} bytes (see --max-record-bytes)",
                found=length,
            )
            return count, size, too_large
        if not 0 <= length <= largest:
            unbelievable = FormatError(
                "record length is impossible",
                position=size,
                expected=f"0 to {largest}",
                found=length,
            )
            return count, size, unbelievable
        if length > cursor.remaining:
            break
        cursor.position += length
        size = cursor.position
        count += 1
    return count, size, None


def _bytes_after_records(
    header: record_batch.BatchHeader,
    held: bytearray,
    chunks: Iterator[bytes | memoryview],
    consumed: int,
) -> FormatError | None:
    if header.records_count == 0:
        return None
    try:
        more = len(held) or len(next(chunks, b""))
    except FormatError as failure:
        return failure.as_value()
    if not more:
        return None
    return FillError(
        "batch has bytes after its last record",
        position=consumed,
        expected=f"{header.records_count} records that end with the batch",
        found=f"{more} bytes more",
    )


def _body_chunks(
    window: Window, row: int, header: record_batch.BatchHeader
) -> Iterator[bytes | memoryview]:
    """Yield the decompressed bytes after the header, in pieces."""
    position = int(window.batches.position[row])
    start = position + record_batch.HEADER_BYTES
    end = position + header.size_bytes
    if header.codec_id == Codec.NONE:
        yield from read_chunks(window.source, start, end, STREAM_CHUNK_BYTES)
        return
    codec = Codec.of_attributes(header.attributes)
    if window.is_giant and not window.batches.is_valid[row]:
        # Its length cannot be trusted, and decompressing takes all of it in memory.
        raise FormatError(
            "batch is too large to be decompressed while its checksum is wrong",
            expected=f"at most {LARGEST_WINDOW_BYTES} bytes",
            found=header.size_bytes,
        )
    body = b"".join(read_chunks(window.source, start, end))
    yield from decompress_chunks(codec, body, chunk_bytes=STREAM_CHUNK_BYTES)
