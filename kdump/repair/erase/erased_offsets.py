"""The offsets of erased records: wherever one is a record of its partition again, it is left.

Offsets find records without a key, and those that only a field has named, which no search for keys
finds; so only segments with such records count. A topic that was deleted and created again has
another id, and offsets of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

import numpy as np
from msgspec import Struct, field

from kdump.repair.erase.erased_list import ErasedPartition
from kdump.scan.batches import Column, Flags
from kdump.scan.control_batches import is_control
from kdump.scan.records import RecordColumns

Range = tuple[int, int]


class ErasedOffsets(Struct, frozen=True):
    """What was erased of some partitions, and not masked.

    Attributes:
        ranges: rising ranges, both ends included, by ``TOPIC-PARTITION`` and by the id of the
            topic, which is None where nobody knew it.
    """

    ranges: Mapping[str, Mapping[str | None, tuple[Range, ...]]] = field(default_factory=dict)

    @classmethod
    def of(cls, partitions: Iterable[ErasedPartition]) -> Self:
        """What was erased of some replicas."""
        found: dict[str, dict[str | None, set[Range]]] = {}
        for each in partitions:
            own = found.setdefault(each.partition, {}).setdefault(each.topic_id, set())
            own.update(
                erased
                for segment in each.segments
                if segment.records_without_key
                for erased in segment.erased
            )
        return cls(
            {
                partition: {topic_id: tuple(sorted(own)) for topic_id, own in by_id.items()}
                for partition, by_id in found.items()
            }
        )

    def of_partition(self, partition: str | None, topic_id: str | None) -> ErasedRanges:
        """The offsets that no record of a partition has; none if it is not known.

        Args:
            topic_id: of its topic; None if it is not known, so that it may be any.
        """
        return ErasedRanges(
            each
            for known_id, ranges in self.ranges.get(partition or "", {}).items()
            if known_id is None or topic_id in (None, known_id)
            for each in ranges
        )


class ErasedRanges:
    """Finds offsets in any of some ranges."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        rising = np.array(sorted(ranges), np.int64).reshape(-1, 2)
        self._first = rising[:, 0]
        self._last = np.maximum.accumulate(rising[:, 1])

    def __contains__(self, offset: int) -> bool:
        return bool(self._has(np.array([offset], np.int64))[0])

    def records(self, columns: RecordColumns) -> Flags:
        """Which of some records are in a range; control records never are."""
        found = self._has(columns.offset)
        return found & ~is_control(columns.batches)[columns.batch] if found.any() else found

    def _has(self, offsets: Column) -> Flags:
        if not len(self._first):
            return np.zeros(len(offsets), np.bool_)
        at = np.searchsorted(self._first, offsets, "right") - 1
        found: Flags = (at >= 0) & (offsets <= self._last[np.maximum(at, 0)])
        return found
