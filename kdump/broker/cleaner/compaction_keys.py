"""Find the last offset of each key of a log.

Works on Arrow columns: each part of a log is reduced to its distinct keys, and consecutive parts
are merged. The keys themselves are compared, where Kafka's ``SkimpyOffsetMap`` compares hashes, and
their number is not limited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kdump.broker.cleaner.live_records import LiveRecords
from kdump.scan.batches import Column, Flags
from kdump.scan.distinct_keys import KEY_TYPE, hashes_of, key_codes, last_rows

MOST_HELD_KEYS: Final = 1 << 20
"""When this many keys are collected, they are reduced to distinct ones."""


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

    def __reduce__(self) -> tuple[Callable[..., KeyedRecords], tuple[Any, ...]]:
        """Be the one :data:`NO_RECORDS` after pickling, too: a log can have thousands of parts."""
        if not self.count:
            return _no_records, ()
        return KeyedRecords, (self.key, self.offset, self.is_tombstone)

    @property
    def count(self) -> int:
        return len(self.offset)

    @classmethod
    def joined(cls, parts: Sequence[KeyedRecords]) -> KeyedRecords:
        """Concatenate those of consecutive parts."""
        if not parts:
            return NO_RECORDS
        return cls(
            pa.concat_arrays([part.key for part in parts]),
            np.concatenate([part.offset for part in parts]),
            np.concatenate([part.is_tombstone for part in parts]),
        )

    def last_of_each_key(self) -> KeyedRecords:
        """The last record of each key, in the order of the first occurrence of the keys."""
        row = last_rows(self.key)
        key = self.key.take(pa.array(row))
        return KeyedRecords(key, self.offset[row], self.is_tombstone[row])

    def in_buckets(self, buckets: int) -> dict[int, KeyedRecords]:
        """Divide the records into ``buckets`` by their keys.

        All records of a key get the same bucket, in every process.
        """
        if not self.count:
            return {}
        if buckets == 1:
            return {0: self}
        hashes = hashes_of(self.key)
        # NumPy sorts two-byte numbers by radix; usually there are few buckets.
        kind = np.uint16 if buckets <= 1 << 16 else np.uint32
        bucket = (hashes % np.uint64(buckets)).astype(kind)
        order = np.argsort(bucket, kind="stable")
        present, first = np.unique(bucket[order], return_index=True)
        found = {}
        for number, rows in zip(present.tolist(), np.split(order, first[1:]), strict=True):
            key = self.key.take(pa.array(rows))
            found[number] = KeyedRecords(key, self.offset[rows], self.is_tombstone[rows])
        return found


NO_RECORDS: Final = KeyedRecords(
    pa.array([], KEY_TYPE), np.empty(0, np.int64), np.empty(0, np.bool_)
)


def _no_records() -> KeyedRecords:
    return NO_RECORDS


class LastOffsets:
    """Collects records in the order of their offsets, and keeps the last one of each key.

    Args:
        most_held_keys: number of collected keys at which they are reduced to distinct ones.
    """

    def __init__(self, most_held_keys: int = MOST_HELD_KEYS) -> None:
        self._most_held_keys = most_held_keys
        self._parts: list[KeyedRecords] = []
        self._held = 0

    def add(self, records: KeyedRecords) -> None:
        self._parts.append(records)
        self._held += records.count
        # If most keys are distinct, they are not reduced again each time.
        if self._held >= max(self._most_held_keys, self._parts[0].count):
            self._parts = [self.reduced()]
            self._held = 0

    def reduced(self) -> KeyedRecords:
        """The last record of each key so far."""
        return KeyedRecords.joined(self._parts).last_of_each_key()


def live_records(
    mapped: Iterable[KeyedRecords], unmapped: Iterable[KeyedRecords]
) -> tuple[LiveRecords, int]:
    """The live records of a log, and how many distinct keys it has.

    Args:
        mapped: the last record of each key, for each dirty part of the log, in order.
        unmapped: the other records with a key: they do not replace others, but can be replaced.
    """
    dirty = list(mapped)
    records = KeyedRecords.joined([*dirty, *unmapped])
    code, keys = key_codes(records.key)
    last = np.full(keys, -1, np.int64)
    # With several values for one index, NumPy keeps the last.
    rows = sum(part.count for part in dirty)
    last[code[:rows]] = records.offset[:rows]
    is_live = records.offset >= last[code]
    offset, is_tombstone = records.offset[is_live], records.is_tombstone[is_live]
    order = np.argsort(offset)
    return LiveRecords.of(offset[order], is_tombstone[order]), keys
