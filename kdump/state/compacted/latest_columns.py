"""Records as columns, reduced to the latest of each key whenever there are many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from kdump.scan.arrow import gather_bytes
from kdump.scan.batches import Column, Flags
from kdump.scan.distinct_keys import last_rows
from kdump.scan.records import RecordColumns

_MOST_NEW_BYTES: Final = 4 << 20
"""How much is added before the records are reduced; more if that many bytes were kept."""
_MOST_JOINED_BYTES: Final = 1 << 20
"""The same for parts that are reduced already, where reports are made in the same process."""


class _Records(NamedTuple):
    """Records copied out of windows: of each key, the last one has the greatest offset."""

    key: pa.Array
    value: pa.Array
    offset: Column

    @property
    def size_bytes(self) -> int:
        return int(self.key.nbytes + self.value.nbytes + self.offset.nbytes)


class LatestColumns(Struct):
    """Records in the order of their offsets; of a key only the last one is kept.

    They stay columns until :meth:`take`: a log has very many records of few keys, and columns are
    small when they are pickled.
    """

    _held: list[_Records] = field(default_factory=list)
    _kept_bytes: int = 0
    _new_bytes: int = 0

    def add(self, columns: RecordColumns, chosen: Flags) -> None:
        """Take the chosen records, which have a key and a value."""
        rows = np.flatnonzero(chosen)
        if not rows.size:
            return
        is_there = np.ones(rows.size, np.bool_)
        data = columns.data
        self._append(
            _Records(
                gather_bytes(data, columns.key_start[rows], columns.key_size[rows], is_there),
                gather_bytes(data, columns.value_start[rows], columns.value_size[rows], is_there),
                columns.offset[rows],
            ),
            _MOST_NEW_BYTES,
        )

    def extend(self, later: LatestColumns) -> None:
        """Take records that all have greater offsets."""
        for each in later._held:
            self._append(each, _MOST_JOINED_BYTES)

    def _append(self, records: _Records, most_bytes: int) -> None:
        self._held.append(records)
        self._new_bytes += records.size_bytes
        if self._new_bytes >= max(most_bytes, self._kept_bytes):
            self.reduce()

    def reduce(self) -> None:
        """Drop all but the last record of each key."""
        if not self._new_bytes:
            return
        key = pa.concat_arrays([each.key for each in self._held])
        value = pa.concat_arrays([each.value for each in self._held])
        offset = np.concatenate([each.offset for each in self._held])
        self._held.clear()
        rows = last_rows(key)
        taken = pa.array(rows)
        kept = _Records(key.take(taken), value.take(taken), offset[rows])
        self._held.append(kept)
        self._kept_bytes, self._new_bytes = kept.size_bytes, 0

    def take(self) -> Iterator[tuple[bytes, int, bytes]]:
        """Yield key, offset and value of the last record of each key, and keep none."""
        self.reduce()
        for key, value, offset in self._held:
            yield from zip(key.to_pylist(), offset.tolist(), value.to_pylist(), strict=True)
        self._held.clear()
        self._kept_bytes = 0
