"""Ranges of offsets and of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def joined(ranges: Iterable[range]) -> Iterator[range]:
    """The same numbers, each once, in ranges that rise and do not touch."""
    current: range | None = None
    for each in sorted(ranges, key=lambda each: each.start):
        if current is not None and each.start <= current.stop:
            current = range(current.start, max(current.stop, each.stop))
            continue
        if current is not None:
            yield current
        current = each
    if current is not None:
        yield current
