"""The parts of the suite, and the summary at its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.suite_parts import (
    LONGEST,
    SHARED,
    Part,
    group_of,
    implied_markers,
    part_of,
    rank,
    summary_lines,
)


@pytest.mark.parametrize(
    ("markers", "part"),
    [
        ((), Part.FAST),
        (("parametrize",), Part.FAST),
        (("slow",), Part.SLOW),
        (("differential",), Part.DIFFERENTIAL),
        (("differential", "slow"), Part.DIFFERENTIAL),
        (("soak", "differential", "slow"), Part.SOAK),
        (("lint",), Part.LINT),
    ],
)
def test_each_test_is_in_exactly_one_part(markers: tuple[str, ...], part: Part) -> None:
    assert part_of(markers) is part


def test_a_test_with_kafka_is_differential_and_one_with_spark_is_slow() -> None:
    assert list(implied_markers(["tmp_path"])) == []
    assert list(implied_markers(["java_classpath", "tmp_path"])) == ["differential"]
    assert list(implied_markers(["spark"])) == ["slow"]


def test_files_that_share_a_fixture_are_one_group() -> None:
    assert group_of("tests/cluster/test_reset_quorum.py") == "cluster_disks"
    assert group_of("tests/cluster/test_recovered_cluster.py") == "cluster_disks"
    assert (
        group_of("tests/cluster/test_erased_cluster.py") == "tests/cluster/test_erased_cluster.py"
    )


def test_the_longest_groups_start_first_and_slow_ones_before_the_others() -> None:
    groups = [("a", False), ("b", True), (LONGEST[1], True), (LONGEST[0], False)]
    ranks = [rank(group, is_slow=is_slow) for group, is_slow in groups]
    assert sorted(ranks, reverse=True) == ranks
    assert len(set(ranks)) == len(ranks)


def test_the_longest_groups_are_those_of_files(repository_root: Path) -> None:
    files = {each for each in LONGEST if each not in SHARED}
    assert {each for each in files if not (repository_root / each).is_file()} == set()
    assert {group_of(each) for each in files} == files


def test_the_summary_lists_skipped_tests_with_their_reasons() -> None:
    results = [((), None), ((), None), ((), "zsh is not installed"), (("differential",), "no Java")]
    assert list(summary_lines(results)) == [
        "lint: not selected",
        "fast: 2 run; 1 skipped: zsh is not installed",
        "slow: not selected",
        "differential: 0 run; 1 skipped: no Java",
        "soak: not selected",
    ]
