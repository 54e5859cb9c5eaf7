"""The records that stay, as compressed bitmaps: the same as sets of offsets, in little memory."""

from __future__ import annotations

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kdump.broker.cleaner.live_records import LiveRecords
from kdump.scan.batches import Column

OFFSETS = st.one_of(
    st.integers(0, 60),
    st.integers(2**32 - 30, 2**32 + 30),
    st.integers(2**63 - 30, 2**63 - 2),
)
RECORDS = st.dictionaries(OFFSETS, st.booleans(), max_size=40)


def live_records(records: dict[int, bool]) -> LiveRecords:
    offsets = sorted(records)
    is_tombstone = np.array([records[offset] for offset in offsets], np.bool_)
    return LiveRecords.of(np.array(offsets, np.int64), is_tombstone)


def column(*values: int) -> Column:
    return np.array(values, np.int64)


@given(st.lists(RECORDS, max_size=4), OFFSETS, OFFSETS)
def test_a_range_of_joined_records_is_that_of_their_offsets(
    parts: list[dict[int, bool]], start: int, end: int
) -> None:
    live = LiveRecords.joined(live_records(part) for part in parts)

    own = pickle.loads(pickle.dumps(live.between(start, end)))

    offsets = {offset for part in parts for offset in part if start <= offset < end}
    tombstones = {offset for part in parts for offset in part if part[offset]} & offsets
    assert own.offsets.column().tolist() == sorted(offsets)
    assert own.tombstones.column().tolist() == sorted(tombstones)
    assert live.offsets.count_between(start, end) == len(offsets)


@given(RECORDS, st.lists(st.tuples(OFFSETS, OFFSETS), max_size=5), st.lists(OFFSETS, max_size=10))
def test_columns_of_live_records_count_and_find_them(
    records: dict[int, bool], ranges: list[tuple[int, int]], sought: list[int]
) -> None:
    live = live_records(records).columns_between(0, 2**63)
    ranges = [(min(each), max(each)) for each in ranges]

    count, tombstones = live.count_between(
        column(*(start for start, _ in ranges)), column(*(end for _, end in ranges))
    )

    inside = [[at for at in records if start <= at < end] for start, end in ranges]
    assert count.tolist() == [len(own) for own in inside]
    assert tombstones.tolist() == [sum(records[at] for at in own) for own in inside]
    assert live.has(column(*sought)).tolist() == [offset in records for offset in sought]


def test_no_live_records_are_an_empty_column() -> None:
    live = LiveRecords.joined([]).columns_between(0, 100)

    assert live.offset.dtype == np.int64
    assert live.offset.size == 0
    assert not live.has(column(1, 2)).any()


def test_ten_million_records_that_stay_take_few_bytes() -> None:
    every_offset = np.arange(10_000_000)
    some = every_offset[::11]

    dense = LiveRecords.of(every_offset, np.zeros(len(every_offset), np.bool_))
    sparse = LiveRecords.of(some, np.ones(len(some), np.bool_))

    assert len(pickle.dumps(dense)) < 10_000_000 / 8 * 1.1
    assert len(pickle.dumps(sparse)) < 2 * 2 * len(some) * 1.1
