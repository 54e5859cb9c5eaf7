"""Bytes of files that were asked for, kept for the run: headers and indexes are read repeatedly."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, NamedTuple

LARGEST_KEPT_BYTES: Final = 1 << 20
"""Of one block; larger ones are of logs that are read once, from front to back."""
_KEPT_BYTES: Final = 64 << 20
_MOST_KEPT: Final = 20_000


class Block(NamedTuple):
    """Bytes of a file from a position on."""

    start: int
    data: memoryview

    def covers(self, position: int) -> bool:
        return self.start <= position < self.start + len(self.data)


class KeptBlocks:
    """The last small blocks of this process, by file; the oldest go first. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks: OrderedDict[tuple[Hashable, int], Block] = OrderedDict()
        self._starts: dict[Hashable, list[int]] = {}
        self._bytes = 0

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._blocks.clear()
            self._starts.clear()
            self._bytes = 0

    def find(self, file: Hashable, position: int) -> Block | None:
        """The block of a file that has a position."""
        with self._lock:
            for start in self._starts.get(file, ()):
                block = self._blocks[file, start]
                if block.covers(position):
                    return block
        return None

    def keep(self, file: Hashable, block: Block) -> None:
        """Keep a block, unless it is large."""
        if len(block.data) > LARGEST_KEPT_BYTES:
            return
        with self._lock:
            if (file, block.start) in self._blocks:
                return
            self._blocks[file, block.start] = block
            self._starts.setdefault(file, []).append(block.start)
            self._bytes += len(block.data)
            while self._bytes > _KEPT_BYTES or len(self._blocks) > _MOST_KEPT:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        (file, start), dropped = self._blocks.popitem(last=False)
        self._bytes -= len(dropped.data)
        self._starts[file].remove(start)
        if not self._starts[file]:
            del self._starts[file]
