"""What several occurrences of a table need together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kdump.pipeline.sql.statement_needs import EVERYTHING, TableNeeds, either
from kdump.tables.kafka_log.pushed_filters import Interval, PushedFilters

BOUNDS = st.none() | st.integers(-2, 6)
INTERVALS = st.builds(Interval, BOUNDS, BOUNDS)
TOPICS = ("a", "ab", "b")
FILTERS = st.builds(
    PushedFilters,
    offsets=INTERVALS,
    base_offsets=INTERVALS,
    last_offsets=INTERVALS,
    timestamps_ms=INTERVALS,
    partitions=INTERVALS,
    topics=st.none() | st.frozensets(st.sampled_from(TOPICS)),
    topic_prefixes=st.sampled_from([(), ("a",), ("a", "ab")]),
)
NEEDS = st.builds(
    TableNeeds, st.none() | st.frozensets(st.sampled_from(["key", "offset"])), FILTERS
)
Row = tuple[str, int, int, int, int, int]
ROWS = st.tuples(st.sampled_from(TOPICS), *([st.integers(-3, 7)] * 5))


def lets_through(filters: PushedFilters, row: Row) -> bool:
    topic, partition, offset, base_offset, last_offset, timestamp_ms = row
    return (
        filters.has_topic(topic)
        and filters.has_partition(partition)
        and filters.offsets.has(offset)
        and filters.base_offsets.has(base_offset)
        and filters.last_offsets.has(last_offset)
        and filters.timestamps_ms.has(timestamp_ms)
    )


@given(FILTERS, FILTERS, ROWS)
def test_a_row_that_one_needs_is_let_through(
    one: PushedFilters, other: PushedFilters, row: Row
) -> None:
    if lets_through(one, row) or lets_through(other, row):
        assert lets_through(either(one, other), row)


@given(NEEDS, NEEDS, ROWS)
def test_what_is_covered_is_let_through(one: TableNeeds, other: TableNeeds, row: Row) -> None:
    if one.covers(other):
        assert one.columns is None or (other.columns or frozenset()) <= one.columns
        assert lets_through(one.filters, row) or not lets_through(other.filters, row)


@given(NEEDS, NEEDS)
def test_both_together_cover_each(one: TableNeeds, other: TableNeeds) -> None:
    assert (one | other).covers(one)
    assert (one | other).covers(other)
    assert EVERYTHING.covers(one)
