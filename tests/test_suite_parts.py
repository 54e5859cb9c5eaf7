"""The parts of the suite, and the summary at its end."""

from __future__ import annotations

import pytest

from builders.suite_parts import Part, implied_markers, part_of, summary_lines


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


def test_the_summary_lists_skipped_tests_with_their_reasons() -> None:
    results = [((), None), ((), None), ((), "zsh is not installed"), (("differential",), "no Java")]
    assert list(summary_lines(results)) == [
        "lint: not selected",
        "fast: 2 run; 1 skipped: zsh is not installed",
        "slow: not selected",
        "differential: 0 run; 1 skipped: no Java",
        "soak: not selected",
    ]
