"""The producer snapshots of a directory by offset, as a producer state manager knows them.

Kafka lists them each time it creates a state manager, which is once for every segment that it
recovers. Here listing them, and finding the newest or those out of range, stays cheap with tens of
thousands of snapshots.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

from kdump.formats.java.java_numbers import parse_long
from kdump.target.refusal import Refused


class SnapshotListing:
    """File names by offset; of two names with one offset, the later one (``ConcurrentMap``).

    Args:
        names: in the order in which the file system lists them.

    Raises:
        Refused: a name has no offset.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: dict[int, str] = {_required_offset(name): name for name in names}
        self._offsets = sorted(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def copy(self) -> SnapshotListing:
        """An independent copy."""
        copied = SnapshotListing()
        copied._names = self._names.copy()
        copied._offsets = self._offsets.copy()
        return copied

    @property
    def offsets(self) -> list[int]:
        """All offsets, rising."""
        return list(self._offsets)

    @property
    def newest_offset(self) -> int | None:
        """The greatest offset; None if there is no snapshot."""
        return self._offsets[-1] if self._offsets else None

    def name_at(self, offset: int) -> str:
        """Name of the snapshot at ``offset``, which must exist."""
        return self._names[offset]

    def outside(self, above: int, to: int) -> list[int]:
        """Offsets at or below ``above``, and those above ``to``; rising."""
        low = bisect_right(self._offsets, above)
        return self._offsets[:low] + self._offsets[max(low, bisect_right(self._offsets, to)) :]

    def at_or_below(self, offset: int) -> Iterator[str]:
        """Names of the snapshots at or below ``offset``, the newest first."""
        for at in range(bisect_right(self._offsets, offset) - 1, -1, -1):
            yield self._names[self._offsets[at]]

    def put(self, offset: int, name: str) -> None:
        """Add ``name``, replacing another one at its offset."""
        if offset not in self._names:
            insort(self._offsets, offset)
        self._names[offset] = name

    def try_put(self, name: str) -> bool:
        """Add ``name`` at the offset in it; returns whether it has one."""
        offset = _parse_offset(name)
        if offset is not None:
            self.put(offset, name)
        return offset is not None

    def forget(self, offset: int) -> str | None:
        """Remove the snapshot at ``offset``; returns its name, if there was one."""
        name = self._names.pop(offset, None)
        if name is not None:
            del self._offsets[bisect_left(self._offsets, offset)]
        return name

    def forget_name(self, name: str) -> None:
        """Remove the snapshot ``name``, if it is listed."""
        offset = _parse_offset(name)
        if offset is not None and self._names.get(offset) == name:
            self.forget(offset)


def _parse_offset(name: str) -> int | None:
    return parse_long(name.partition(".")[0])


def _required_offset(name: str) -> int:
    offset = _parse_offset(name)
    if offset is None:
        raise Refused("a snapshot has a name without an offset", name, "NumberFormatException")
    return offset
