"""The latest offset of each key, computed in columns and compared with a dictionary."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.broker.cleaner.compaction_keys import (
    NO_RECORDS,
    KeyedRecords,
    LastOffsets,
    live_records,
)
from kdump.scan.distinct_keys import KEY_TYPE

pytestmark = pytest.mark.slow

KEYS = st.binary(max_size=3)
ROWS = st.lists(st.tuples(KEYS, st.booleans()), max_size=40)


def records(rows: list[tuple[bytes, bool]], first_offset: int) -> KeyedRecords:
    return KeyedRecords(
        pa.array([key for key, _ in rows], KEY_TYPE),
        np.arange(first_offset, first_offset + len(rows)),
        np.array([is_tombstone for _, is_tombstone in rows], np.bool_),
    )


@given(st.lists(ROWS, max_size=5), st.integers(1, 50))
def test_the_last_offset_of_each_key_does_not_depend_on_the_parts(
    parts: list[list[tuple[bytes, bool]]], held: int
) -> None:
    last = LastOffsets(most_held_keys=held)
    expected: dict[bytes, tuple[int, bool]] = {}
    offset = 0
    for part in parts:
        last.add(records(part, offset))
        for key, is_tombstone in part:
            expected[key] = (offset, is_tombstone)
            offset += 1

    found = last.reduced()

    rows = zip(found.offset.tolist(), found.is_tombstone.tolist(), strict=True)
    assert dict(zip(found.key.to_pylist(), rows, strict=True)) == expected


@given(ROWS, ROWS)
def test_dirty_records_replace_clean_ones_and_not_the_reverse(
    clean: list[tuple[bytes, bool]], dirty: list[tuple[bytes, bool]]
) -> None:
    mapped = records(dirty, 1000).last_of_each_key()
    live, keys = live_records([mapped], [records(clean, 0)])

    dirty_keys = [key for key, _ in dirty]
    expected = [at for at, (key, _) in enumerate(clean) if key not in dirty_keys]
    expected += sorted(1000 + len(dirty) - 1 - dirty_keys[::-1].index(key) for key in {*dirty_keys})
    assert live.offsets.column().tolist() == expected
    assert keys == len({key for key, _ in clean + dirty})


def test_no_records_give_no_keys() -> None:
    live, keys = live_records([], [])

    assert (len(live.offsets.bitmaps), keys) == (0, 0)
    assert NO_RECORDS.last_of_each_key().count == 0


@given(st.lists(st.binary(max_size=30), max_size=40), st.integers(1, 9), st.integers(0, 40))
def test_all_records_of_a_key_are_in_one_bucket(
    keys: list[bytes], buckets: int, first: int
) -> None:
    found = records([(key, False) for key in keys + keys], 0)
    part = KeyedRecords(found.key[first:], found.offset[first:], found.is_tombstone[first:])

    scattered = part.in_buckets(buckets)

    assert {*scattered} <= {*range(buckets)}
    of_key = [{*each.key.to_pylist()} for each in scattered.values()]
    assert sum(map(len, of_key)) == len(set().union(*of_key))
    rows = [(each.key.to_pylist(), each.offset.tolist()) for each in scattered.values()]
    assert all(offsets == sorted(offsets) for _, offsets in rows)
    assert sorted(
        (offset, key) for each in rows for key, offset in zip(*each, strict=True)
    ) == list(enumerate((keys + keys)[first:], first))


def test_many_keys_are_spread_over_the_buckets() -> None:
    scattered = records([(b"key-%08d" % number, False) for number in range(10_000)], 0)

    assert all(900 < each.count < 1100 for each in scattered.in_buckets(10).values())
