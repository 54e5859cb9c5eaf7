"""Turn columns of positions into Arrow arrays without a loop over records."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdump.scan.batches import Bytes, Column, Flags


def gather_bytes(data: Bytes, start: Column, size: Column, is_valid: Flags) -> pa.Array:
    """Return the bytes at each ``start`` as a large_binary array; null if not ``is_valid``.

    Positions must rise: one array covers all of ``data``, its even elements are the values and
    its odd ones the bytes between them, and the values are taken from it.
    """
    count = len(start)
    if not count:
        return pa.array([], pa.large_binary())
    edges = np.empty(2 * count, np.int64)
    edges[0::2] = start
    edges[1::2] = start + np.where(is_valid, size, 0)
    over_all = pa.Array.from_buffers(
        pa.large_binary(), 2 * count - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)]
    )
    mask = None if is_valid.all() else ~is_valid
    values = pa.array(np.arange(0, 2 * count - 1, 2), pa.int64(), mask=mask)
    return over_all.take(values)


def integers_as_text(values: Column) -> pa.Array:
    """Return the decimal digits of each value as a large_binary array."""
    return pc.cast(pa.array(values), pa.large_string()).cast(pa.large_binary())
