"""The choice behind ``kdump retain --free``: which old segments to give up for so many bytes."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from kdump.broker.retention.retention import RetainableLog


@dataclass(frozen=True, slots=True)
class FreeChoice:
    """Which segments to delete.

    Attributes:
        counts: of each log, how many of its first segments go.
        freed_bytes: on disk, of all of them.
        wanted_bytes: how much was asked for.
    """

    counts: tuple[int, ...]
    freed_bytes: int
    wanted_bytes: int

    @property
    def is_enough(self) -> bool:
        """Whether that frees what was asked for: no more can go than what is replicated."""
        return self.freed_bytes >= self.wanted_bytes


def choose_to_free(logs: Sequence[RetainableLog], wanted_bytes: int) -> FreeChoice:
    """The fewest segments that free ``wanted_bytes``, in the order of retention.

    That is the order of the moments at which their age would let them go, if all logs had the
    same ``retention.ms``: each log from its first segment on, and of all first segments the one
    with the oldest of largest timestamps. What is not replicated is not touched.

    Args:
        logs: those that may be shortened; of internal and compacted topics none, unless they are
            meant.
        wanted_bytes: how much to free.
    """
    counts = [0] * len(logs)
    freed_bytes = 0
    waiting: list[tuple[int, int]] = []

    def offer(number: int, least_ms: int) -> None:
        log, at = logs[number], counts[number]
        if at < len(log.segments) and log.is_deletable(at):
            heapq.heappush(waiting, (max(least_ms, log.segments[at].timestamp_ms), number))

    for number, log in enumerate(logs):
        if log.segments:
            offer(number, log.segments[0].timestamp_ms)
    while waiting and freed_bytes < wanted_bytes:
        oldest_ms, number = heapq.heappop(waiting)
        freed_bytes += logs[number].segments[counts[number]].disk_bytes
        counts[number] += 1
        offer(number, oldest_ms)
    return FreeChoice(tuple(counts), freed_bytes, wanted_bytes)
