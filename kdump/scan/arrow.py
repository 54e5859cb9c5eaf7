"""Columns of positions as Arrow arrays, without a loop over records."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdump.scan.batches import Bytes, Column, Flags


def gather_bytes(data: Bytes, start: Column, size: Column, is_valid: Flags) -> pa.Array:
    """The bytes at each ``start``, as a large_binary array; null where not ``is_valid``.

    Positions have to rise: one array is laid over all of ``data`` in which every second element
    is a value and those between are what separates them, and the values are taken from it.
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
    wanted = pa.array(np.arange(0, 2 * count - 1, 2), mask=None if is_valid.all() else ~is_valid)
    return over_all.take(wanted)


def integers_as_text(values: Column) -> pa.Array:
    """Decimal digits of each value, as a large_binary array."""
    return pc.cast(pa.array(values), pa.large_string()).cast(pa.large_binary())
