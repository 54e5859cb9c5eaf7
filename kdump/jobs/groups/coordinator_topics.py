"""How many partitions a coordinator's topic has, and which of them could not be read."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct

from kdump.formats.java.java_text import coordinator_partition
from kdump.state.metadata.cluster import ClusterImage

_MOST_PARTITIONS: Final = 10_000
"""The most partitions that ``__consumer_offsets`` is expected to have."""
MOST_MISSING: Final = 10_000
"""The most missing partitions that are listed: a forged name may claim that there are billions."""


class PartitionCount(Struct, frozen=True):
    """How many partitions a coordinator's topic has.

    Attributes:
        count: how many; at least that many if the metadata does not say it.
        is_known: whether the cluster's metadata says it.
        read: those that could be read.
        unreadable: those with replicas that cannot be read.
    """

    count: int
    is_known: bool
    read: frozenset[int]
    unreadable: tuple[int, ...]

    @property
    def missing(self) -> tuple[int, ...]:
        """The first :data:`MOST_MISSING` that could not be read."""
        found = (number for number in range(self.count) if number not in self.read)
        return tuple(itertools.islice(found, MOST_MISSING))

    @property
    def missing_count(self) -> int:
        """How many could not be read."""
        return self.count - len(self.read)

    def is_missing(self, group_id: str) -> bool:
        """Whether the partition of a group could not be read, or no partition is there."""
        return not self.count or coordinator_partition(group_id, self.count) not in self.read

    def why_missing(self, group_id: str) -> str:
        """Why it is not known whether a group exists."""
        is_there = self.count and coordinator_partition(group_id, self.count) in self.unreadable
        what = "cannot be read" if is_there else "is missing"
        return f"its partition of __consumer_offsets {what}"


def count_partitions(
    topic: str,
    image: ClusterImage | None,
    present: Collection[int],
    read: Collection[int],
    places: Sequence[tuple[str, int]],
) -> PartitionCount:
    """Count the partitions of a coordinator's topic.

    Args:
        topic: its name.
        image: the cluster's metadata; None if there is none. Then the result is the least number
            that fits the partitions on disk, and those in which groups were found.
        present: the partitions with a replica.
        read: those of them that could be read.
        places: names of groups, each with the partition in which it was found.
    """
    listed = None if image is None else image.topics.get(topic)
    if listed is not None and listed.partitions:
        count, is_known = max(listed.partitions) + 1, True
    else:
        count, is_known = _least_count(max(present, default=-1) + 1, places), False
    unreadable = sorted(number for number in set(present) - set(read) if number < count)
    return PartitionCount(
        count, is_known, frozenset(number for number in read if number < count), tuple(unreadable)
    )


def _least_count(least: int, places: Sequence[tuple[str, int]]) -> int:
    """The least number of partitions that puts each group where it was found."""
    if not least:
        return 0
    fitting = (
        count
        for count in range(least, _MOST_PARTITIONS)
        if all(coordinator_partition(name, count) == partition for name, partition in places)
    )
    return next(fitting, least)
