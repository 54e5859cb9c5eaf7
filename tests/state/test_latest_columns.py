"""Of the records of each key, the last one is kept, however the records come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.batches import batch, record
from builders.sources import BytesSource
from kdump.scan.batches import read_windows
from kdump.scan.records import RecordColumns
from kdump.scan.walk import expand_window
from kdump.state.compacted import latest_columns
from kdump.state.compacted.latest_columns import LatestColumns

Written = Sequence[tuple[bytes, bytes]]


def columns_of(written: Written, first_offset: int) -> Iterator[RecordColumns]:
    if not written:
        return
    records = [record(first_offset + at, *each) for at, each in enumerate(written)]
    for window in read_windows(BytesSource(batch(records))):
        if window.batches.count:
            for step in expand_window(window, with_records=True):
                assert isinstance(step, RecordColumns)
                yield step


WRITTEN = st.lists(st.tuples(st.binary(max_size=2), st.binary(max_size=3)), max_size=12)


@given(windows=st.lists(WRITTEN, max_size=6), parted=st.integers(0, 6), limit=st.integers(0, 60))
@settings(deadline=None)
def test_windows_and_parts_add_up_to_the_last_record_of_each_key(
    windows: list[Written], parted: int, limit: int
) -> None:
    expected: dict[bytes, tuple[int, bytes]] = {}
    parts = LatestColumns(), LatestColumns()
    offset = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latest_columns, "_MOST_NEW_BYTES", limit)
        for number, written in enumerate(windows):
            for columns in columns_of(written, offset):
                parts[number >= parted].add(columns, columns.key_size >= 0)
            expected |= {key: (offset + at, value) for at, (key, value) in enumerate(written)}
            offset += len(written)
        parts[1].reduce()
        parts[0].extend(parts[1])
        found = list(parts[0].take())
    assert {key: (at, value) for key, at, value in found} == expected
    assert len(found) == len(expected)
    assert not list(parts[0].take())
