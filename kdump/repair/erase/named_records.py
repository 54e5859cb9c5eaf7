"""The records that somebody named to be erased, by key or by offset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdump.scan.arrow import gather_bytes
from kdump.scan.batches import Column, Flags, is_among
from kdump.scan.control_batches import is_control
from kdump.scan.records import RecordColumns


@dataclass(frozen=True, slots=True)
class NamedRecords:
    """What was asked for: a record is named if any of these names it.

    A record without a key is named by its offset only; an empty key is a key like any other.
    Control records are never named.

    Attributes:
        keys: keys as bytes; only a whole key matches.
        prefixes: what a key begins with; none is empty.
        offsets: rising offsets, by ``TOPIC-PARTITION``.
    """

    keys: frozenset[bytes] = frozenset()
    prefixes: tuple[bytes, ...] = ()
    offsets: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def matcher(self, partition: str) -> RecordMatcher:
        """What finds them in the logs of ``partition``, a ``TOPIC-PARTITION``."""
        return RecordMatcher(self, partition)


class RecordMatcher:
    """Finds named records of one partition among the columns of many."""

    def __init__(self, named: NamedRecords, partition: str) -> None:
        keys = sorted(named.keys)
        self._keys = pa.array(keys, pa.large_binary())
        self._key_sizes = np.array(sorted({len(key) for key in keys}), np.int64)
        self._prefixes = named.prefixes
        self._own_offsets = frozenset(named.offsets.get(partition, ()))
        self._own_keys = named.keys
        self._offsets = np.array(named.offsets.get(partition, ()), np.int64)

    def named(self, columns: RecordColumns) -> Flags:
        """Which records are named."""
        found = is_among(columns.offset, self._offsets)
        found |= self._has_key(columns)
        for prefix in self._prefixes:
            found |= _begins_with(columns, prefix)
        if found.any():
            found &= ~is_control(columns.batches)[columns.batch]
        return found

    def names(self, offset: int, key: bytes | None) -> bool:
        """Whether a single record is named."""
        if offset in self._own_offsets:
            return True
        return key is not None and (key in self._own_keys or key.startswith(self._prefixes))

    def _has_key(self, columns: RecordColumns) -> Flags:
        found = np.zeros(columns.count, np.bool_)
        # Most records have a key of another size, and need no look at its bytes.
        rows = np.flatnonzero(is_among(columns.key_size, self._key_sizes))
        if len(rows):
            keys = _bytes_of(columns, rows, columns.key_size[rows])
            found[rows] = pc.is_in(keys, value_set=self._keys).to_numpy(zero_copy_only=False)
        return found


def _begins_with(columns: RecordColumns, prefix: bytes) -> Flags:
    found = np.zeros(columns.count, np.bool_)
    rows = np.flatnonzero(columns.key_size >= len(prefix))
    if len(rows):
        starts = _bytes_of(columns, rows, np.full(len(rows), len(prefix), np.int64))
        is_equal = pc.equal(starts, pa.scalar(prefix, pa.large_binary()))
        found[rows] = is_equal.to_numpy(zero_copy_only=False)
    return found


def _bytes_of(columns: RecordColumns, rows: Column, size: Column) -> pa.Array:
    """The first ``size`` bytes of the keys of some records."""
    start = columns.key_start[rows]
    return gather_bytes(columns.data, start, size, np.ones(len(rows), np.bool_))
