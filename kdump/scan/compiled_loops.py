"""The compiled loops over batches and records, for columns.

Without them, or where something is not plain, the functions return nothing, and the caller decodes
with NumPy.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kdump.compiled import library
from kdump.formats import record_batch

_Bytes = npt.NDArray[np.uint8]
_Column = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]


class RecordFields(NamedTuple):
    """What records hold, before anything of their batches is added; columns of shape (n,).

    The order is that of ``enum Column`` in ``segments.c``. The meanings are those of
    :class:`~kdump.scan.records.RecordColumns`.
    """

    batch: _Column
    attributes: _Column
    timestamp_delta: _Column
    offset_delta: _Column
    key_start: _Column
    key_size: _Column
    value_start: _Column
    value_size: _Column
    headers_start: _Column
    headers_count: _Column
    end: _Column


def whole_batches(
    data: _Bytes, available: int, checksums: bool
) -> tuple[list[int], list[int], int]:
    """Find the whole batches at the beginning of ``data``, and verify the checksums of magic 2.

    Returns:
        Their starts, the rows with a wrong checksum, and where they end. There may be more.
    """
    loops = library.compiled()
    if loops is None:
        return [], [], 0
    most = available // record_batch.HEADER_BYTES
    # In one array, whose address takes as long as the walk over a few batches.
    found = np.empty(2 * most + 1, np.int64)
    address = found.ctypes.data
    count = loops.kdump_walk(
        data.ctypes.data,
        available,
        checksums,
        most,
        address + found.itemsize,
        address + found.itemsize * (1 + most),
        address,
    )
    is_valid = found[1 + most :].view(np.bool_)[:count]
    return found[1 : 1 + count].tolist(), (~is_valid).nonzero()[0].tolist(), int(found[0])


def record_fields(
    data: _Bytes, start: _Column, end: _Column, count: _Column, must_fill: _Flags
) -> RecordFields | None:
    """Decode the records of all sections; None if not all of them are plain.

    For the arguments see :class:`~kdump.scan.records.Sections`.
    """
    loops = library.compiled()
    if loops is None:
        return None
    rows = int(count.sum())
    # Kept until the call returns, in case they are copies.
    sections = [np.ascontiguousarray(each, np.int64) for each in (start, end, count)]
    is_filled = np.ascontiguousarray(must_fill, np.bool_)
    columns = np.empty((len(RecordFields._fields), rows), np.int64)
    is_plain = loops.kdump_records(
        data.ctypes.data,
        len(data),
        len(start),
        *(each.ctypes.data for each in sections),
        is_filled.ctypes.data,
        rows,
        columns.ctypes.data,
    )
    return RecordFields(*columns) if is_plain else None


def largest_timestamps(data: bytes) -> list[int] | None:
    """Find the largest timestamp of the records of each batch; -1 for a batch without any.

    Args:
        data: the batches, which fill it.

    Returns:
        None if not all of them are plain: whole, of magic 2, not compressed, and with their
        checksums.
    """
    loops = library.compiled()
    if loops is None:
        return None
    most = len(data) // record_batch.HEADER_BYTES
    largest = array("q", bytes(8 * most))
    count = loops.kdump_largest_timestamps(data, len(data), most, largest.buffer_info()[0])
    return None if count < 0 else largest[:count].tolist()
