"""Which partition goes to which log directory, by bytes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.storage.location import Location


class Move(Struct, frozen=True):
    """A partition, and the log directories that it leaves and enters."""

    partition: Partition
    source: LogDirectory
    target: LogDirectory

    @property
    def name(self) -> str:
        """Of its directory."""
        return self.partition.path.name

    @property
    def way(self) -> tuple[Location, Location]:
        """The log directories that it leaves and enters."""
        return self.source.path, self.target.path


class Room(Struct):
    """How much space a target has.

    Attributes:
        free_bytes: on its file system.
        used_bytes: of the partitions in it.
    """

    free_bytes: int
    used_bytes: int = 0


def placed(
    partitions: Iterable[tuple[LogDirectory, Partition]],
    targets: Sequence[LogDirectory],
    rooms: Sequence[Room],
) -> list[Move]:
    """Spread partitions over targets: the largest first, each to the target with the most space.

    Args:
        partitions: with the log directory of each.
        targets: the log directories.
        rooms: their space, in the same order; targets on one file system share one.

    Returns:
        The moves in the order of ``partitions``.
    """
    every = list(partitions)
    found: dict[int, Move] = {}
    by_size = sorted(range(len(every)), key=lambda at: -every[at][1].total_bytes)
    used = [0] * len(targets)
    for at in by_size:
        source, partition = every[at]
        best = max(
            range(len(targets)), key=lambda each: (rooms[each].free_bytes, -used[each], -each)
        )
        rooms[best].free_bytes -= partition.total_bytes
        used[best] += partition.total_bytes
        found[at] = Move(partition, source, targets[best])
    return [found[at] for at in range(len(every))]


def balanced(
    candidates: Mapping[int, Sequence[Partition]], directories: Sequence[LogDirectory]
) -> list[Move]:
    """Even out log directories by bytes: from the fullest to the emptiest, while that helps.

    A partition moves at most once. The moves are not the fewest possible; each makes the difference
    between two directories smaller.

    Args:
        candidates: the partitions that may move, by position of their directory.
        directories: the log directories; all their partitions count.
    """
    used = [sum(each.total_bytes for each in directory.partitions) for directory in directories]
    # By size, then by position among the candidates: every partition is found by bisection.
    left = {
        at: sorted((each.total_bytes, index) for index, each in enumerate(candidates.get(at, ())))
        for at in range(len(directories))
    }
    moves: list[Move] = []
    while True:
        found = _next(used, left)
        if found is None:
            return moves
        source, target, at = found
        size_bytes, index = left[source].pop(at)
        used[source] -= size_bytes
        used[target] += size_bytes
        moves.append(Move(candidates[source][index], directories[source], directories[target]))


def _next(
    used: Sequence[int], left: Mapping[int, Sequence[tuple[int, int]]]
) -> tuple[int, int, int] | None:
    """The next source, target, and position of a partition; None if no move helps."""
    target = min(range(len(used)), key=lambda at: (used[at], at), default=0)
    for source in sorted(range(len(used)), key=lambda at: (-used[at], at)):
        gap = used[source] - used[target]
        sizes = left[source]
        # The size nearest to half of the gap; it has to be smaller than the gap.
        at = bisect_left(sizes, (gap // 2, -1))
        nearest = [each for each in (at - 1, at) if 0 <= each < len(sizes)]
        useful = [each for each in nearest if 0 < sizes[each][0] < gap]
        if useful:
            return source, target, min(useful, key=lambda each: abs(2 * sizes[each][0] - gap))
    return None
