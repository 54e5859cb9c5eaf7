"""Group neighbours by size, so that each group is worth its overhead and none is too large."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def size_groups(
    items: Sequence[Item],
    size_bytes: Callable[[Item], int],
    most_bytes: int,
    *,
    most_items: int | None = None,
    least_groups: int = 0,
) -> Iterator[list[Item]]:
    """Yield all items, in order, in groups of neighbours.

    Args:
        most_bytes: the largest size of a group, unless a single item is larger.
        most_items: the largest number of items in a group; None for no limit.
        least_groups: the smallest number of groups, if there are as many items.
    """
    group: list[Item] = []
    group_bytes = groups = 0
    for index, item in enumerate(items):
        own_bytes = size_bytes(item)
        is_full = group_bytes + own_bytes > most_bytes or len(group) == most_items
        if group and (is_full or len(items) - index < least_groups - groups):
            yield group
            groups += 1
            group, group_bytes = [], 0
        group.append(item)
        group_bytes += own_bytes
    if group:
        yield group
