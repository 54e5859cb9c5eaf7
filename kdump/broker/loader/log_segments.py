"""The segments of a log that is being loaded."""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from kdump.broker.loader.load_context import IndexSettings
from kdump.broker.loader.loaded_segment import LoadedSegment
from kdump.formats.names import FileKind
from kdump.log.partition import Partition
from kdump.target.virtual_directory import VirtualDirectory, Written, file_name


class LogSegments:
    """The segments of a log by base offset (``LogSegments``)."""

    def __init__(self) -> None:
        self._by_base: dict[int, LoadedSegment] = {}
        self._bases: list[int] = []

    def __len__(self) -> int:
        return len(self._bases)

    @property
    def bases(self) -> list[int]:
        return list(self._bases)

    def last_bases(self, count: int) -> list[int]:
        """The base offsets of the last ``count`` segments."""
        return self._bases[-count:]

    @property
    def first(self) -> LoadedSegment:
        return self._by_base[self._bases[0]]

    @property
    def last(self) -> LoadedSegment:
        return self._by_base[self._bases[-1]]

    def all(self) -> list[LoadedSegment]:
        return [self._by_base[base] for base in self._bases]

    def __contains__(self, base_offset: int) -> bool:
        return base_offset in self._by_base

    def add(self, segment: LoadedSegment) -> None:
        if segment.base_offset not in self._by_base:
            insort(self._bases, segment.base_offset)
        self._by_base[segment.base_offset] = segment

    def remove(self, base_offset: int) -> None:
        if self._by_base.pop(base_offset, None) is not None:
            self._bases.remove(base_offset)

    def clear(self) -> None:
        self._by_base.clear()
        self._bases.clear()

    @contextlib.contextmanager
    def only_looked_at(self) -> Iterator[None]:
        """Let nothing that is loaded of them meanwhile count as loaded by the broker."""
        with contextlib.ExitStack() as stack:
            for segment in self.all():
                stack.enter_context(segment.only_looked_at())
            yield

    def floor(self, offset: int) -> LoadedSegment | None:
        """The last segment whose base offset is at or below ``offset``."""
        at = bisect_right(self._bases, offset)
        return self._by_base[self._bases[at - 1]] if at else None

    def between(self, start: int, end: int) -> list[LoadedSegment]:
        """From the segment that contains ``start`` to the last with a base offset below ``end``."""
        if start == end:
            return []
        low = max(0, bisect_right(self._bases, start) - 1)
        return [self._by_base[base] for base in self._bases[low : bisect_left(self._bases, end)]]


def unindexed_segments(
    partition: Partition, directory: VirtualDirectory, settings: IndexSettings
) -> LogSegments:
    """All segments of ``partition``, with empty offset indexes, to be read without trusting them.

    Args:
        directory: its directory, which is not changed.

    Raises:
        Refused: a log is larger than Kafka accepts.
    """
    apart = directory.copy()
    segments = LogSegments()
    for segment in partition.segments:
        apart.put(file_name(segment.base_offset, FileKind.OFFSET_INDEX), Written(b""))
        segments.add(LoadedSegment(apart, segment.base_offset, settings))
    return segments
