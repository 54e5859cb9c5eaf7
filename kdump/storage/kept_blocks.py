"""Bytes of files that were asked for, kept for the run: headers and indexes are read repeatedly."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, NamedTuple

from kdump.storage.request_buffers import LARGEST_REQUEST_BYTES

LARGEST_KEPT_BYTES: Final = 1 << 20
"""Of one block; larger ones are of logs that are read once, from front to back."""
_KEPT_BYTES: Final = 64 << 20
_MOST_KEPT: Final = 20_000
_ZEROES: Final = memoryview(bytes(LARGEST_REQUEST_BYTES))
"""Pages that nobody writes take no memory."""
_STEP_BYTES: Final = 1 << 16


class Block(NamedTuple):
    """Bytes of a file from a position on."""

    start: int
    data: memoryview

    @property
    def end(self) -> int:
        """The position after them."""
        return self.start + len(self.data)

    def covers(self, position: int) -> bool:
        return self.start <= position < self.start + len(self.data)


NO_BLOCK: Final = Block(0, memoryview(b""))


class KeptBlocks:
    """The last small blocks of this process, by file; the oldest go first. Threads may share it.

    Blocks of zeroes are kept whatever their size: preallocated space is megabytes, and several
    readers ask where it begins.
    """

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

    def keep(self, file: Hashable, block: Block) -> Block:
        """Keep a block, unless it is large; zeroes at its end are kept in any case.

        Returns:
            The block; one of zeroes alone has other memory.
        """
        data = block.data
        end = _end_of_data(data)
        if end < len(data):
            zeroes = Block(block.start + end, _ZEROES[: len(data) - end])
            self._add(file, zeroes)
            if not end:
                return zeroes
            data = memoryview(bytes(data[:end]))  # the memory of the zeroes is not kept
        if end <= LARGEST_KEPT_BYTES:
            self._add(file, Block(block.start, data))
        return block

    def _add(self, file: Hashable, block: Block) -> None:
        with self._lock:
            if (file, block.start) in self._blocks:
                return
            self._blocks[file, block.start] = block
            self._starts.setdefault(file, []).append(block.start)
            self._bytes += _memory_of(block)
            while self._bytes > _KEPT_BYTES or len(self._blocks) > _MOST_KEPT:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        (file, start), dropped = self._blocks.popitem(last=False)
        self._bytes -= _memory_of(dropped)
        self._starts[file].remove(start)
        if not self._starts[file]:
            del self._starts[file]


def _memory_of(block: Block) -> int:
    return 0 if block.data.obj is _ZEROES.obj else len(block.data)


def _end_of_data(data: memoryview) -> int:
    """Where only zeroes follow, to within a step."""
    end = len(data)
    if end > len(_ZEROES) or not end or data[-1]:
        return end
    while end:
        start = max(0, end - _STEP_BYTES)
        # Bytes are compared much faster than memoryviews.
        if bytes(data[start:end]) != bytes(_ZEROES[: end - start]):
            return end
        end = start
    return 0
