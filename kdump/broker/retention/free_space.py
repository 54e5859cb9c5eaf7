"""Choose the old segments that ``kdump retain --free`` deletes to free space."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from kdump.broker.retention.retention import RetainableLog


def choose_to_free(logs: Sequence[RetainableLog], required_bytes: int) -> tuple[int, ...]:
    """For each log, how many of its first segments to delete to free ``required_bytes``.

    The fewest in the order of retention, or all that may be deleted if these free less.
    That is the order in which their age would delete them if all logs had the same
    ``retention.ms``: each log from its first segment up, and of all first segments the one whose
    largest timestamp is oldest. Segments that are not replicated are never chosen.

    Args:
        logs: the logs to choose from; those of internal and compacted topics only if selected.
        required_bytes: how much to free.
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
    while waiting and freed_bytes < required_bytes:
        oldest_ms, number = heapq.heappop(waiting)
        freed_bytes += logs[number].segments[counts[number]].disk_bytes
        counts[number] += 1
        offer(number, oldest_ms)
    return tuple(counts)
