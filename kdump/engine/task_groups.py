"""Group splits into tasks: a task costs more than a small split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from kdump.engine.job import Split
from kdump.size_groups import size_groups


class TaskLimits(Struct, frozen=True):
    """How much work a task may be.

    Attributes:
        most_bytes: of its splits together, unless it has only one.
        tasks_per_worker: how many tasks each worker gets, if there is enough work for them.
    """

    most_bytes: int
    most_splits: int
    tasks_per_worker: int


def task_groups(splits: Sequence[Split], workers: int, limits: TaskLimits) -> Iterator[list[int]]:
    """Yield the indexes of the splits of each task, in order.

    Args:
        workers: how many share it; with few splits, each still gets one.
    """
    total_bytes = sum(split.size_bytes for split in splits)
    yield from size_groups(
        range(len(splits)),
        lambda index: splits[index].size_bytes,
        min(limits.most_bytes, total_bytes // (workers * limits.tasks_per_worker)),
        most_items=min(limits.most_splits, -(-len(splits) // workers)),
    )
