"""Globs over topics and over partitions select the same partitions for every command."""

from __future__ import annotations

import pytest

from kdump.formats.names import TopicPartition
from kdump.log.selection import EVERYTHING, PartitionSelection

ORDERS = TopicPartition("orders", 3)


@pytest.mark.parametrize(
    ("topics", "partitions", "is_selected"),
    [
        ("", "", True),
        ("orders", "", True),
        ("ord*", "", True),
        ("Orders", "", False),
        ("orders-3", "", False),
        ("", "orders-3", True),
        ("", "*-3", True),
        ("", "orders", False),
        ("", "*-[0-2]", False),
        ("payments orders", "", True),
        ("", "*-1 *-3", True),
        ("orders", "*-3", True),
        ("orders", "*-1", False),
        ("payments", "*-3", False),
        ("", "3", True),
        ("orders", "2 3", True),
        ("payments", "3", False),
        ("", "33", False),
        ("", "[3]", False),
    ],
)
def test_globs_of_one_option_are_alternatives_and_the_two_options_narrow_each_other(
    topics: str, partitions: str, is_selected: bool
) -> None:
    selection = PartitionSelection(tuple(topics.split()), tuple(partitions.split()))
    assert selection.matches("orders-3", ORDERS) is is_selected


@pytest.mark.parametrize("glob", ["orders-3", "*-future", "orders-3.*"])
def test_a_partition_glob_matches_the_partition_and_the_name_of_its_directory(glob: str) -> None:
    selection = PartitionSelection(partitions=(glob,))
    assert selection.matches(f"orders-3.{'0' * 32}-future", ORDERS)


@pytest.mark.parametrize(
    ("topics", "partitions", "may_be"),
    [
        ("", "", True),
        ("orders-of-all", "", True),
        ("ord", "", False),
        ("payments", "", False),
        ("orders-*", "", True),
        ("o*", "", True),
        ("*", "", True),
        ("payments*", "", False),
        ("", "orders-of-all-3", True),
        ("", "payments-3", False),
        ("", "3", True),
        ("", "4", False),
        ("", "*-delete", True),
        ("orders-of-all", "4", False),
    ],
)
def test_a_topic_that_is_cut_short_may_be_any_that_begins_so(
    topics: str, partitions: str, may_be: bool
) -> None:
    selection = PartitionSelection(tuple(topics.split()), tuple(partitions.split()))
    assert selection.may_match_cut("orders-3.0-delete", ORDERS) is may_be


@pytest.mark.parametrize(
    ("selection", "is_selected"),
    [
        (EVERYTHING, True),
        (PartitionSelection(partitions=("copy*",)), True),
        (PartitionSelection(topics=("*",)), False),
    ],
)
def test_a_copy_that_is_named_after_no_partition_has_no_topic(
    selection: PartitionSelection, is_selected: bool
) -> None:
    assert selection.matches("copy of orders", None) is is_selected


@pytest.mark.parametrize(
    ("selection", "is_named"),
    [
        (PartitionSelection(("orders",)), True),
        (PartitionSelection((), ("orders-3",)), True),
        (PartitionSelection(("*",), ("orders-3",)), True),
        (PartitionSelection(("orders",), ("*-3",)), True),
        (PartitionSelection(("ord*",)), False),
        (PartitionSelection((), ("*-3",)), False),
        (EVERYTHING, False),
    ],
)
def test_a_partition_is_named_by_an_exact_name_only(
    selection: PartitionSelection, is_named: bool
) -> None:
    assert selection.names(ORDERS) is is_named
