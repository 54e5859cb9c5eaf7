from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.index_files import Said
from kdump.dump.offset_pairs import OffsetPairs
from kdump.dump.problems import DumpProblem
from kdump.dump.report import JavaHashOrder
from kdump.storage.local_disk import local

INT64 = st.integers(-(2**63), 2**63 - 1)
PAIRS = st.lists(st.lists(st.tuples(INT64, INT64), max_size=5), max_size=5)


def column(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


def filled(blocks: list[list[tuple[int, int]]]) -> OffsetPairs:
    pairs = OffsetPairs()
    for block in blocks:
        pairs.extend(column(*(key for key, _ in block)), column(*(value for _, value in block)))
    return pairs


def test_an_empty_report_prints_nothing() -> None:
    said = Said()
    assert said.finish() == []
    assert not said.report.damaged


def test_offset_mismatches_are_reported_from_the_last_up() -> None:
    said = Said()
    said.report.offset_mismatches("/a.index", column(5, 9), column(4, 10))
    assert said.finish() == [
        "Mismatches in :/a.index",
        "  Index offset: 9, log offset: 10",
        "  Index offset: 5, log offset: 4",
    ]


def test_of_two_mismatches_at_an_offset_the_later_is_reported() -> None:
    said = Said()
    said.report.offset_mismatches("/a.index", column(5, 5), column(4, 6))
    assert said.finish() == ["Mismatches in :/a.index", "  Index offset: 5, log offset: 6"]


def test_time_index_errors_are_reported_kind_by_kind_in_the_order_of_the_file() -> None:
    said = Said()
    said.report.offsets_not_found("/a", column(9, 5), column(-1, 6))
    said.report.out_of_order_timestamps("/a", column(100), column(200))
    said.report.timestamp_mismatches("/a", column(300), column(301))
    assert said.finish() == [
        "Found timestamp mismatch in :/a",
        "  Index timestamp: 300, log timestamp: 301",
        "Found out of order timestamp in :/a",
        "  Index timestamp: 100, Previously indexed timestamp: 200",
        "The following indexed offsets are not found in :/a",
        "Indexed offset: 9, found log offset: -1",
        "Indexed offset: 5, found log offset: 6",
    ]


def test_non_consecutive_offsets_are_reported_by_offset() -> None:
    said = Said()
    said.report.non_consecutive("/a.log", 9, 5)
    said.report.non_consecutive("/a.log", -1, 7)
    assert said.finish() == [
        "Non-consecutive offsets in /a.log",
        "  -1 is followed by 7",
        "  9 is followed by 5",
    ]


@pytest.mark.parametrize(
    ("previous", "offset", "is_damage"), [(-1, 0, False), (4, 9, False), (4, 4, True), (4, 2, True)]
)
def test_gaps_are_not_damage_but_going_back_is(previous: int, offset: int, is_damage: bool) -> None:
    said = Said()
    said.report.non_consecutive("/a.log", previous, offset)
    assert said.report.damaged is is_damage


def test_an_index_mismatch_is_damage() -> None:
    said = Said()
    said.report.offset_mismatches("/a", column(1), column(2))
    assert said.report.damaged


def test_no_mismatches_are_not_damage() -> None:
    said = Said()
    said.report.offset_mismatches("/a", column(), column())
    assert said.finish() == []
    assert not said.report.damaged


def test_a_problem_is_reported_immediately_on_one_line() -> None:
    said = Said()
    said.report.problem(
        DumpProblem(local("a.log"), 17, "batch length is impossible", "14 or more", "3")
    )
    assert said.lines == [
        "a.log: byte 17: batch length is impossible, expected 14 or more, found 3"
    ]
    assert said.report.damaged


def test_a_problem_of_a_whole_file_names_no_byte() -> None:
    assert (
        str(DumpProblem(local("a.log"), None, "its log is missing")) == "a.log: its log is missing"
    )


@pytest.mark.slow
@given(PAIRS)
def test_pairs_are_returned_in_insertion_order(blocks: list[list[tuple[int, int]]]) -> None:
    assert list(filled(blocks).as_arrived()) == [pair for block in blocks for pair in block]


@pytest.mark.slow
@given(PAIRS)
def test_pairs_are_sorted_as_a_tree_map_sorts_them(blocks: list[list[tuple[int, int]]]) -> None:
    tree = dict(pair for block in blocks for pair in block)
    assert list(filled(blocks).ascending()) == sorted(tree.items())
    assert list(filled(blocks).descending()) == sorted(tree.items(), reverse=True)


def test_a_million_gaps_take_little_memory() -> None:
    pairs = OffsetPairs()
    keys = np.arange(0, 3_000_000, 3, dtype=np.int64)
    for block in np.array_split(keys, 10):
        pairs.extend(block, block + 2)
    assert sum(steps.nbytes for _, steps in pairs._blocks) <= 2 * len(keys)
    assert sum(1 for _ in pairs.ascending()) == len(keys)


def order_of(*keys: str) -> list[str]:
    order = JavaHashOrder()
    for key in keys:
        order.touch(key)
    return list(order)


def test_keys_are_listed_by_bucket() -> None:
    assert order_of("c", "a", "b") == ["a", "b", "c"]


def test_a_new_key_goes_before_those_of_equal_hash() -> None:
    assert order_of("AaAa", "BBBB", "AaBB") == ["AaBB", "BBBB", "AaAa"]


def test_the_thirteenth_key_leaves_sixteen_buckets_and_the_next_call_makes_them_more() -> None:
    # "p" and "@" share a bucket of sixteen, not of thirty-two.
    keys = ["@", "p", *"abcdefghijk"]
    assert order_of(*keys)[:2] == ["p", "@"]
    assert order_of(*keys, "a")[0] == "@"
    assert order_of(*keys, "a")[-1] == "p"
