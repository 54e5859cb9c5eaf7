"""The records that somebody named to be erased, by key, by offset or by a field."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from kdump.payloads.named_fields import FieldMatcher, NamedField
from kdump.scan.arrow import gather_bytes
from kdump.scan.batches import Column, Flags, is_among
from kdump.scan.control_batches import is_control
from kdump.scan.distinct_keys import LONGEST_HASHED_BYTES, hashes_of
from kdump.scan.records import RecordColumns
from kdump.state.schema_registry import SchemaRegistry

_FILTER_BITS: Final = 21
"""Of the hashes: with a hundred thousand keys, one in twenty others passes the filter."""


class NamedRecords(Struct, frozen=True):
    """What was asked for: a record is named if any of these names it.

    A record without a key is not named by a key; an empty key is a key like any other. Control
    records are never named.

    Attributes:
        keys: keys as bytes; only a whole key matches.
        prefixes: what a key begins with; none is empty.
        offsets: rising offsets, by ``TOPIC-PARTITION``.
        fields: what the decoded key or value has.
        registry: the schemas by which they are decoded.
    """

    keys: frozenset[bytes] = frozenset()
    prefixes: tuple[bytes, ...] = ()
    offsets: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    fields: tuple[NamedField, ...] = ()
    registry: SchemaRegistry = field(default_factory=SchemaRegistry)

    def matcher(self, partition: str) -> RecordMatcher:
        """What finds them in the logs of ``partition``, a ``TOPIC-PARTITION``."""
        return RecordMatcher(self, partition)


class Look(NamedTuple):
    """What was found among some records.

    Attributes:
        named: which are named.
        undecoded: which others cannot be decoded, or only in part: a field may hide in them.
    """

    named: Flags
    undecoded: Flags


class RecordMatcher:
    """Finds named records of one partition among the columns of many."""

    def __init__(self, named: NamedRecords, partition: str) -> None:
        self._keys = _key_set(named.keys)
        self._prefixes = named.prefixes
        self._own_offsets = frozenset(named.offsets.get(partition, ()))
        self._own_keys = named.keys
        self._offsets = np.array(named.offsets.get(partition, ()), np.int64)
        self._fields = FieldMatcher(named.fields, named.registry) if named.fields else None

    def look(self, columns: RecordColumns) -> Look:
        """Which records are named, and which cannot be decoded."""
        found = is_among(columns.offset, self._offsets)
        found |= self._has_key(columns)
        for prefix in self._prefixes:
            found |= _begins_with(columns, prefix)
        undecoded = np.zeros(columns.count, np.bool_)
        if self._fields is not None:
            has_field, undecoded = self._fields.find(columns)
            found |= has_field
            undecoded &= ~found
        if found.any() or undecoded.any():
            is_data = ~is_control(columns.batches)[columns.batch]
            found &= is_data
            undecoded &= is_data
        return Look(found, undecoded)

    def named(self, columns: RecordColumns) -> Flags:
        """Which records are named."""
        return self.look(columns).named

    def names(self, offset: int, key: bytes | None, value: bytes | None = None) -> bool | None:
        """Whether a single record is named; None if it cannot be decoded."""
        if self._is_named_without_fields(offset, key):
            return True
        return self._fields is not None and self._fields.find_in(key, value)

    def searched_key(self, offset: int, key: bytes | None) -> bytes | None:
        """The key by which copies of a named record are searched for; None if by none.

        The key of a record that is named by a field can be that of many others.
        """
        return key if self._is_named_without_fields(offset, key) else None

    def _is_named_without_fields(self, offset: int, key: bytes | None) -> bool:
        if offset in self._own_offsets:
            return True
        return key is not None and (key in self._own_keys or key.startswith(self._prefixes))

    def _has_key(self, columns: RecordColumns) -> Flags:
        found = np.zeros(columns.count, np.bool_)
        # Most records have a key of another size, and need no look at its bytes.
        rows = np.flatnonzero(is_among(columns.key_size, self._keys.sizes))
        if len(rows):
            found[rows] = self._keys.has(_bytes_of(columns, rows, columns.key_size[rows]))
        return found


class _KeySet:
    """Finds any of many keys: for each window, Arrow would hash all of them again.

    Attributes:
        sizes: the lengths of the keys, rising.
    """

    def __init__(self, keys: frozenset[bytes]) -> None:
        found = pa.array(keys, pa.large_binary(), size=len(keys))
        hashes = hashes_of(found)
        order = np.argsort(hashes)
        self.sizes = np.array(sorted(set(map(len, keys))), np.int64)
        self._keys = found.take(pa.array(order))
        self._hashes = hashes[order]
        # With a longer key, all keys beside it have hashes that they have nowhere else.
        is_long = self.sizes[-1:] > LONGEST_HASHED_BYTES
        is_twice = self._hashes[1:] == self._hashes[:-1]
        self._is_hashed = not (is_long.any() or is_twice.any())
        self._may_be = np.zeros(1 << _FILTER_BITS, np.bool_)
        self._may_be[_filtered_by(hashes)] = True

    def has(self, keys: pa.Array) -> Flags:
        """Which of ``keys``, a large_binary array, are among them."""
        if not self._is_hashed:
            found: Flags = pc.is_in(keys, value_set=self._keys).to_numpy(zero_copy_only=False)
            return found
        hashes = hashes_of(keys)
        found = self._may_be[_filtered_by(hashes)]
        rows = np.flatnonzero(found)
        at = np.minimum(np.searchsorted(self._hashes, hashes[rows]), len(self._hashes) - 1)
        is_equal = pc.equal(keys.take(pa.array(rows)), self._keys.take(pa.array(at)))
        found[rows] = is_equal.to_numpy(zero_copy_only=False)
        return found


_key_set: Final = functools.lru_cache(maxsize=1)(_KeySet)
"""Each part of each log is searched for the same keys."""


def _filtered_by(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    return hashes >> np.uint64(64 - _FILTER_BITS)


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
