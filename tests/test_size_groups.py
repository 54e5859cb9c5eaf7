"""Groups contain all items in order, and are as large as allowed."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from kdump.engine.job import Split
from kdump.engine.task_groups import TaskLimits, task_groups
from kdump.size_groups import size_groups
from kdump.storage.local_disk import local

SIZES = st.lists(st.integers(0, 9))


@given(SIZES, st.integers(1, 12))
def test_groups_are_as_large_as_allowed(sizes: list[int], most: int) -> None:
    groups = list(size_groups(sizes, int, most))

    assert [size for group in groups for size in group] == sizes
    assert all(len(group) == 1 or sum(group) <= most for group in groups)
    assert all(sum(group) + after[0] > most for group, after in itertools.pairwise(groups))


@given(SIZES, st.integers(1, 12), st.integers(1, 4))
def test_no_group_has_more_items_than_allowed(sizes: list[int], most: int, items: int) -> None:
    groups = list(size_groups(sizes, int, most, most_items=items))

    assert [size for group in groups for size in group] == sizes
    assert all(len(group) <= items for group in groups)


@given(SIZES, st.integers(1, 12), st.integers(1, 12))
def test_there_are_as_many_groups_as_requested(sizes: list[int], most: int, least: int) -> None:
    groups = list(size_groups(sizes, int, most, least_groups=least))

    assert [size for group in groups for size in group] == sizes
    assert len(groups) >= min(least, len(sizes))


@given(SIZES, st.integers(1, 5))
def test_no_task_has_more_splits_than_the_share_of_a_worker(sizes: list[int], workers: int) -> None:
    splits = [Split(local("x"), size_bytes=size) for size in sizes]

    tasks = list(task_groups(splits, workers, TaskLimits(4, 8, 2)))

    assert [index for task in tasks for index in task] == [*range(len(splits))]
    assert all(len(task) <= -(-len(splits) // workers) for task in tasks)
