"""Read the records of a window of batches of magic 2, as columns.

Batches that are not compressed are decoded where they are. Compressed ones are decompressed and
decoded several at a time, and batches that are too large for that in pieces.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Final

import numpy as np

from kdump.formats import record_batch
from kdump.formats.compression import Codec, decompress
from kdump.formats.errors import FormatError
from kdump.formats.record_batch import LARGEST_RECORD_BYTES
from kdump.scan.batches import LARGEST_WINDOW_BYTES, PADDING_BYTES, BatchColumns, Window
from kdump.scan.giant_batches import stream_records
from kdump.scan.records import (
    LEAST_RECORD_BYTES,
    MOST_RECORDS,
    RecordColumns,
    Sections,
    decode_sections,
)

ARENA_BYTES: Final = 2 << 20
"""Compressed batches are decoded together once this much is decompressed."""


def read_records(
    window: Window, largest_record_bytes: int = LARGEST_RECORD_BYTES
) -> Iterator[RecordColumns]:
    """Decode the records of ``window``, whose batches must all be magic 2.

    Args:
        largest_record_bytes: larger records of compressed batches are not decoded, nor the ones
            after them; the problem of the batch is then an :class:`OverLimitError`.

    Yields:
        Columns for all batches in order, :data:`MOST_RECORDS` at a time. A batch that is too large
        to hold, or has more records, comes in pieces, without other batches.
    """
    if window.is_giant:
        yield from stream_records(window, 0, largest_record_bytes)
        return
    batches = window.batches
    is_plain = (batches.attributes & record_batch.CODEC_MASK) == Codec.NONE
    if is_plain.all() and int(batches.records_count.clip(min=0).sum()) <= MOST_RECORDS:
        yield _decode_plain(window)
        return
    yield from _decode_gathered(window, is_plain.tolist(), largest_record_bytes)


def _decode_plain(window: Window) -> RecordColumns:
    starts = window.batches.position - window.start
    sections = Sections.of(
        starts + record_batch.HEADER_BYTES,
        starts + window.batches.size_bytes,
        window.batches.records_count,
    )
    return decode_sections(window.data, window.batches, sections)


def _decode_gathered(
    window: Window, is_plain: list[bool], largest_record_bytes: int
) -> Iterator[RecordColumns]:
    """Collect the decompressed records of several batches, and decode them together."""
    bodies: list[bytes | memoryview] = []
    held_bytes = held_records = first = 0
    batches = window.batches
    view = memoryview(window.data)
    begins = (batches.position - window.start + record_batch.HEADER_BYTES).tolist()
    ends = (batches.next_position - window.start).tolist()
    attributes = batches.attributes.tolist()
    for row, count in enumerate(batches.records_count.tolist()):
        body: bytes | memoryview | None = view[begins[row] : ends[row]]
        if count and not is_plain[row]:
            body = _decompress(attributes[row], view[begins[row] : ends[row]])
        is_held = body is not None and (
            count <= MOST_RECORDS or len(body) < LEAST_RECORD_BYTES * MOST_RECORDS
        )
        if is_held and body is not None:
            bodies.append(body)
            held_bytes += len(body)
            held_records += min(max(count, 0), MOST_RECORDS)
        if bodies and (not is_held or held_bytes >= ARENA_BYTES or held_records >= MOST_RECORDS):
            last = first + len(bodies)
            yield _decode_arena(bodies, batches.rows(slice(first, last)))
            bodies, held_bytes, held_records, first = [], 0, 0, last
        if not is_held:
            yield from stream_records(window, row, largest_record_bytes)
            first = row + 1
    if bodies:
        yield _decode_arena(bodies, batches.rows(slice(first, None)))


def _decompress(attributes: int, body: memoryview) -> bytes | None:
    """Decompress the records of a batch; None if it must be streamed to find the damage."""
    try:
        codec = _codec(attributes & record_batch.CODEC_MASK)
        return decompress(codec, body, limit_bytes=LARGEST_WINDOW_BYTES)
    except FormatError:
        return None


_codec: Final = functools.cache(Codec.of_attributes)
"""Cached, because making an enum member takes as long as decoding a small batch."""


def _decode_arena(bodies: list[bytes | memoryview], batches: BatchColumns) -> RecordColumns:
    arena = np.frombuffer(b"".join([*bodies, bytes(PADDING_BYTES)]), np.uint8)
    sizes = np.fromiter(map(len, bodies), np.int64, len(bodies))
    ends = np.cumsum(sizes)
    return decode_sections(arena, batches, Sections.of(ends - sizes, ends, batches.records_count))
