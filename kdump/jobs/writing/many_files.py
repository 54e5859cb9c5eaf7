"""Many files that are written to a disk of this machine: together, and synced together.

Most of the time of a small file would be its sync, and its way to a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Generic, TypeVar

ItemT = TypeVar("ItemT")

SPACE_BYTES_PER_FILE: Final = 4096
"""What a file takes besides its bytes."""
_TOGETHER_FILES: Final = 64
_TOGETHER_BYTES: Final = 8 << 20
_SYNCED_FILES: Final = 512
_SYNCED_BYTES: Final = 64 << 20


def put_together(
    items: Iterable[ItemT], size_of: Callable[[ItemT], int]
) -> Iterator[Sequence[ItemT]]:
    """Put small files together, each group as one piece of work; a large one is alone.

    Args:
        size_of: the bytes of one.
    """
    together: list[ItemT] = []
    size_bytes = 0
    for each in items:
        own_bytes = size_of(each)
        is_full = len(together) >= _TOGETHER_FILES or size_bytes + own_bytes > _TOGETHER_BYTES
        if together and is_full:
            yield together
            together, size_bytes = [], 0
        together.append(each)
        size_bytes += own_bytes
    if together:
        yield together


class UnsyncedWork(Generic[ItemT]):
    """What workers have written, until there is enough of it to be synced together.

    Args:
        place: syncs what was written, and gives it its names.
    """

    def __init__(self, place: Callable[[Sequence[ItemT]], None]) -> None:
        self._place = place
        self._items: list[ItemT] = []
        self._files = 0
        self._size_bytes = 0

    def add(self, item: ItemT, files: int, size_bytes: int) -> None:
        """Add what one worker has written: how many files, and their bytes."""
        self._items.append(item)
        self._files += files
        self._size_bytes += size_bytes
        if self._files >= _SYNCED_FILES or self._size_bytes >= _SYNCED_BYTES:
            self.place_all()

    def place_all(self) -> None:
        """Place all that was added since the last call."""
        items, self._items = self._items, []
        self._files = self._size_bytes = 0
        self._place(items)
