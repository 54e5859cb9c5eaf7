"""Which segments of log directories a verification reads, if not all of them.

A part is the segments whose names fall into it: topic, partition and base offset say which part
that is, and nothing else does. So all parts together are everything once, on every broker that has
a replica, and after a log directory was moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from kdump.log.partition import Partition

_DAY_MS: Final = 24 * 60 * 60 * 1000
_HASH_BYTES: Final = 8
_NO_SEGMENT: Final = -1
_NEVER: Final = -1


class Unit(Struct, frozen=True):
    """A segment, or a partition without any.

    Attributes:
        target: the number of its partition.
        base_offset: of the segment; -1 without one.
        size_bytes: how much is to be read.
        number: what decides in which part it is.
        checked_ms: when it was last checked; -1 for never, and without a segment.
    """

    target: int
    base_offset: int
    size_bytes: int
    number: int
    checked_ms: int = -1

    @property
    def is_segment(self) -> bool:
        return self.base_offset != _NO_SEGMENT


class Subset(Struct, frozen=True):
    """A part, a share or an amount of all data: one of the three is given.

    Attributes:
        name: as typed.
        part: which part, and how many there are.
        percent: how much of all bytes.
        size_bytes: how many bytes.
    """

    name: str
    part: tuple[int, int] | None = None
    percent: float | None = None
    size_bytes: int | None = None

    def chosen(self, units: Sequence[Unit], now_ms: int, *, is_oldest: bool = False) -> list[Unit]:
        """The units to read, in the same order.

        A share or an amount is one of as many parts as it takes: each day the next one.

        Args:
            units: in order.
            is_oldest: whether a share or an amount is what was checked longest ago instead.
        """
        if is_oldest and self.part is None:
            return self._oldest(units)
        number, parts = self.part or self._part_of_day(units, now_ms)
        return [each for each in units if each.number % parts == number - 1]

    def _oldest(self, units: Sequence[Unit]) -> list[Unit]:
        left_bytes = self.bytes_of(sum(each.size_bytes for each in units))
        taken: set[tuple[int, int]] = set()
        has_segment = False
        for each in oldest_first(units):
            # One is read in any case: else one that is too large would never be.
            if each.size_bytes > left_bytes and has_segment:
                break
            left_bytes -= each.size_bytes
            has_segment |= each.size_bytes > 0
            taken.add((each.target, each.base_offset))
        return [each for each in units if (each.target, each.base_offset) in taken]

    def _part_of_day(self, units: Iterable[Unit], now_ms: int) -> tuple[int, int]:
        total_bytes = sum(each.size_bytes for each in units)
        parts = max(1, -(-total_bytes // max(1, self.bytes_of(total_bytes))))
        return now_ms // _DAY_MS % parts + 1, parts

    def bytes_of(self, total_bytes: int) -> int:
        """How many of so many bytes are to be read, if it is a share or an amount."""
        if self.percent is not None:
            return int(total_bytes * self.percent / 100)
        assert self.size_bytes is not None
        return self.size_bytes


def oldest_first(units: Iterable[Unit]) -> list[Unit]:
    """The units that were never checked, then those that were checked longest ago."""
    return sorted(units, key=lambda each: each.checked_ms)


def units_of(
    target: int, partition: Partition, checked_ms: Mapping[int, int] = MappingProxyType({})
) -> list[Unit]:
    """The units of a partition, in order.

    Args:
        target: its number.
        partition: as listed.
        checked_ms: when its segments were last checked, by base offset.
    """
    name = str(partition.topic_partition or partition.path.name)
    if not partition.segments:
        return [Unit(target, _NO_SEGMENT, 0, _number(name, _NO_SEGMENT))]
    return [
        Unit(
            target,
            each.base_offset,
            each.data_bytes,
            _number(name, each.base_offset),
            checked_ms.get(each.base_offset, _NEVER),
        )
        for each in partition.segments
    ]


def _number(name: str, base_offset: int) -> int:
    # Imported here, because only a part of the data needs it.
    import hashlib

    # A file name may have bytes that are not UTF-8.
    text = f"{name}/{base_offset}".encode(errors="surrogateescape")
    return int.from_bytes(hashlib.blake2b(text, digest_size=_HASH_BYTES).digest())
