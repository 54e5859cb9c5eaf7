from __future__ import annotations

from bisect import bisect_right

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.formats.index_search import NO_SLOT, largest_lower_bounds


def search(keys: list[int], *targets: int, entry_bytes: int = 8) -> list[int]:
    columns = np.array(keys, np.int64), np.array(targets, np.int64)
    slots: list[int] = largest_lower_bounds(*columns, entry_bytes).tolist()
    return slots


def test_a_target_between_keys_finds_the_key_before_it() -> None:
    assert search([10, 20, 30], 10, 19, 20, 35) == [0, 0, 1, 2]


def test_a_target_before_all_keys_finds_none() -> None:
    assert search([10, 20], 9) == [NO_SLOT]


def test_without_keys_nothing_is_found() -> None:
    assert search([], 1, 2) == [NO_SLOT, NO_SLOT]


@given(
    st.lists(st.integers(0, 5_000), unique=True, max_size=200).map(sorted),
    st.lists(st.integers(-10, 5_010), max_size=20),
    st.sampled_from([8, 12, 4096]),
)
def test_ascending_keys_are_searched_as_any_binary_search_does(
    keys: list[int], targets: list[int], entry_bytes: int
) -> None:
    expected = [bisect_right(keys, target) - 1 for target in targets]
    assert search(keys, *targets, entry_bytes=entry_bytes) == expected


@pytest.mark.parametrize("padding", [1, 1023, 1024, 5_000])
def test_a_search_that_begins_in_the_padding_ends_there_as_kafkas_does(padding: int) -> None:
    # The last 1024 entries of 8 bytes are searched separately if the first of them is below the
    # target.
    keys = list(range(100, 3_000)) + [0] * padding
    (slot,) = search(keys, 2_500)
    assert slot == kafkas_slot(keys, 2_500, entry_bytes=8)


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=60),
    st.integers(-1, 51),
    st.sampled_from([8192, 2048, 1024]),
)
def test_keys_in_any_order_are_searched_in_kafkas_steps(
    keys: list[int], target: int, entry_bytes: int
) -> None:
    assert search(keys, target, entry_bytes=entry_bytes) == [kafkas_slot(keys, target, entry_bytes)]


def kafkas_slot(keys: list[int], target: int, entry_bytes: int) -> int:
    """One search, step by step."""
    first_warm = max(0, len(keys) - 1 - 8192 // entry_bytes)
    if keys[first_warm] < target:
        low, high = first_warm, len(keys) - 1
    elif keys[0] > target:
        return NO_SLOT
    else:
        low, high = 0, first_warm
    while low < high:
        middle = (low + high + 1) // 2
        if keys[middle] == target:
            return middle
        if keys[middle] > target:
            high = middle - 1
        else:
            low = middle
    return low
