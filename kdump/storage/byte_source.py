"""Random access to bytes: what everything that scans a file reads from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable


class ByteSource(Protocol):
    """Random access to bytes that do not change while they are read."""

    @property
    def size_bytes(self) -> int:
        """How many bytes there are."""
        ...

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill ``buffer`` from ``position`` on; return how many bytes there were."""
        ...


@runtime_checkable
class SparseSource(Protocol):
    """A source that knows which of its bytes were never written."""

    def data_ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The ranges between ``start`` and ``end`` that are not holes, in order."""
        ...
