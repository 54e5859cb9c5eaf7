"""Memory for the answers of large requests, used again and again.

New memory for each of them costs as much processor time as copying what comes.
"""

from __future__ import annotations

from typing import Final

LARGEST_REQUEST_BYTES: Final = 4 << 20
_LEAST_BYTES: Final = 1 << 20
"""Memory for less is not used again: small answers are kept."""
_MOST_FREE: Final = 8


class RequestBuffers:
    """Buffers of this process that nobody uses now. Threads may share it."""

    def __init__(self) -> None:
        self._free: list[bytearray] = []

    def take(self, count: int) -> memoryview:
        """A buffer for an answer of so many bytes; what is in it means nothing."""
        if not _LEAST_BYTES < count <= LARGEST_REQUEST_BYTES:
            return memoryview(bytearray(count))
        try:
            buffer = self._free.pop()
        except IndexError:
            buffer = bytearray(LARGEST_REQUEST_BYTES)
        return memoryview(buffer)[:count]

    def give_back(self, data: memoryview) -> None:
        """Use the memory of ``data`` for other answers, if :meth:`take` made it for that."""
        buffer = data.obj
        if not isinstance(buffer, bytearray) or len(buffer) != LARGEST_REQUEST_BYTES:
            return
        if len(self._free) < _MOST_FREE:
            self._free.append(buffer)
