"""Walk the batches of a small log in plain Python, as long as each is as usual.

For a few batches, each of the NumPy calls of :mod:`kdump.scan.batches` costs more than what it
computes. Nothing here says what is wrong with a batch: whoever meets one that is not as usual reads
the log by columns, which does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from kdump.formats import record_batch
from kdump.formats.checksum import crc32c
from kdump.formats.fixed_layout import layout

LARGEST_SMALL_LOG_BYTES: Final = 16 << 10
"""Larger logs may have so many batches that columns are faster."""

_HEADER: Final = layout(record_batch.HEADER_FIELDS)
_LEAST_LENGTH_BYTES: Final = record_batch.HEADER_BYTES - record_batch.LOG_OVERHEAD_BYTES

HeaderFields: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""The fields of a header, in the order of :data:`kdump.formats.record_batch.HEADER_FIELDS`."""


class UnusualError(Exception):
    """Something is not as usual."""


def usual_batches(data: bytes, *, checksums: bool) -> Iterator[tuple[int, int, HeaderFields]]:
    """Yield where each batch begins and ends, and its header; they cover all of ``data``.

    Args:
        data: where batches begin.

    Raises:
        UnusualError: a batch is not whole, not of magic 2, or its checksum is wrong.
    """
    view = memoryview(data)
    size_bytes, at = len(data), 0
    unpack, header_bytes = _HEADER.unpack_from, record_batch.HEADER_BYTES
    overhead, covered = record_batch.LOG_OVERHEAD_BYTES, record_batch.CHECKED_START
    while at < size_bytes:
        if at + header_bytes > size_bytes:
            raise UnusualError
        header: HeaderFields = unpack(data, at)
        end = at + overhead + header[1]
        if (
            header[3] != 2
            or header[1] < _LEAST_LENGTH_BYTES
            or end > size_bytes
            or (checksums and crc32c(view[at + covered : end]) != header[4])
        ):
            raise UnusualError
        yield at, end, header
        at = end
