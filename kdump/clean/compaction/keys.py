"""Keys with the offsets at which they stand, and which of those are the last.

The last offset of a key is found in Arrow columns: each part of a log is reduced to its distinct
keys, and those of neighbouring parts are merged. Keys are compared as they are, where Kafka's
``SkimpyOffsetMap`` compares hashes, and there may be any number of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdump.scan.batches import Column, Flags

KEY_TYPE: Final = pa.large_binary()
MOST_HELD_KEYS: Final = 1 << 20
"""From so many on, keys that were collected are reduced to distinct ones."""


@dataclass(frozen=True, slots=True)
class KeyedRecords:
    """Records with a key, in the order of their offsets.

    Attributes:
        key: a large_binary array of n keys, none of them null.
        offset: int64 of shape (n,).
        is_tombstone: whether the record has no value; of shape (n,).
    """

    key: pa.Array
    offset: Column
    is_tombstone: Flags

    @property
    def count(self) -> int:
        return len(self.offset)

    @classmethod
    def joined(cls, parts: Sequence[KeyedRecords]) -> KeyedRecords:
        """Those of neighbouring parts, one behind the other."""
        if not parts:
            return NO_RECORDS
        return cls(
            pa.concat_arrays([part.key for part in parts]),
            np.concatenate([part.offset for part in parts]),
            np.concatenate([part.is_tombstone for part in parts]),
        )

    def last_of_each_key(self) -> KeyedRecords:
        """One record for each key, its last; in the order in which the keys come up first."""
        encoded = self.key.dictionary_encode()
        codes = encoded.indices.to_numpy()
        # Of several values for one place, the last one stays.
        row = np.empty(len(encoded.dictionary), np.int64)
        row[codes] = np.arange(len(codes))
        return KeyedRecords(encoded.dictionary, self.offset[row], self.is_tombstone[row])


NO_RECORDS: Final = KeyedRecords(
    pa.array([], KEY_TYPE), np.empty(0, np.int64), np.empty(0, np.bool_)
)


class LastOffsets:
    """Collects records in the order of their offsets, and keeps the last one of each key.

    Args:
        most_held_keys: from so many on, what was collected is reduced.
    """

    def __init__(self, most_held_keys: int = MOST_HELD_KEYS) -> None:
        self._most_held_keys = most_held_keys
        self._parts: list[KeyedRecords] = []
        self._held = 0

    def add(self, records: KeyedRecords) -> None:
        self._parts.append(records)
        self._held += records.count
        if self._held >= self._most_held_keys:
            reduced = self.reduced()
            self._parts = [reduced]
            # What is left does not count, or many distinct keys would be reduced at every turn.
            self._held = 0

    def reduced(self) -> KeyedRecords:
        """The last record of each key so far."""
        return KeyedRecords.joined(self._parts).last_of_each_key()


@dataclass(frozen=True, slots=True)
class LiveRecords:
    """The records with a key that no later one replaces, by offset.

    Attributes:
        offset: int64 of shape (n,), rising.
        is_tombstone: whether the record has no value; of shape (n,).
    """

    offset: Column
    is_tombstone: Flags

    def between(self, start: int, end: int) -> LiveRecords:
        """Only those at or above ``start`` and below ``end``."""
        low, high = np.searchsorted(self.offset, (start, end))
        return LiveRecords(self.offset[low:high], self.is_tombstone[low:high])

    def count_between(self, start: Column, end: Column) -> tuple[Column, Column]:
        """How many are at or above each ``start`` and below its ``end``, and tombstones of them."""
        low = np.searchsorted(self.offset, start)
        high = np.searchsorted(self.offset, end)
        tombstones = np.concatenate(([0], np.cumsum(self.is_tombstone)))
        return high - low, tombstones[high] - tombstones[low]

    def has(self, offset: Column) -> Flags:
        """Whether each ``offset`` is that of one of them."""
        if not len(self.offset):
            return np.zeros(len(offset), np.bool_)
        at = np.searchsorted(self.offset, offset)
        found: Flags = self.offset[np.minimum(at, len(self.offset) - 1)] == offset
        return found


NO_LIVE_RECORDS: Final = LiveRecords(NO_RECORDS.offset, NO_RECORDS.is_tombstone)


def live_records(
    mapped: Iterable[KeyedRecords], unmapped: Iterable[KeyedRecords]
) -> tuple[LiveRecords, int]:
    """The live records of a log, and how many distinct keys it has.

    Args:
        mapped: of each dirty part of the log, in their order, the last record of each key.
        unmapped: the other records that have one: they replace none, but are replaced.
    """
    last = KeyedRecords.joined(list(mapped)).last_of_each_key()
    offsets, tombstones = [last.offset], [last.is_tombstone]
    unknown = []
    for part in unmapped:
        found = pc.index_in(part.key, value_set=last.key)
        is_known = found.is_valid().to_numpy(zero_copy_only=False)
        is_live = ~is_known
        rows = np.flatnonzero(is_known)
        slots = found.drop_null().to_numpy()
        is_live[rows] = part.offset[rows] >= last.offset[slots]
        offsets.append(part.offset[is_live])
        tombstones.append(part.is_tombstone[is_live])
        unknown.append(part.key.filter(pa.array(~is_known)))
    offset = np.concatenate(offsets)
    order = np.argsort(offset, kind="stable")
    keys = last.count
    if unknown:
        keys += pc.count_distinct(pa.concat_arrays(unknown)).as_py()
    return LiveRecords(offset[order], np.concatenate(tombstones)[order]), keys
