"""Counts in sentences, for every layer that writes one."""

from __future__ import annotations


def counted(count: int, one: str, many: str = "") -> str:
    """So many of something: ``1 segment``, ``1200 segments``.

    Args:
        count: how many.
        one: the noun for a single thing.
        many: its plural; ``one`` with an s if not given.
    """
    return f"{count} {one if count == 1 else many or f'{one}s'}"
