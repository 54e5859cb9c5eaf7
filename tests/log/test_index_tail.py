"""The last entry of an index is found before any amount of padding."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.log_directories import offset_index, time_index
from kdump.log.index_tail import (
    last_offset_entry,
    last_time_entry,
    offset_entry_at_or_below,
)

pytestmark = pytest.mark.slow


class Bytes:
    """A source of bytes that counts how often it is read."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)
        self.size_bytes = len(data)
        self.reads = 0

    def read_into(self, buffer: memoryview, position: int) -> int:
        self.reads += 1
        self._file.seek(position)
        return self._file.readinto(buffer)


COUNTS = st.one_of(st.integers(0, 5), st.integers(300, 600), st.integers(1000, 5000))


@given(COUNTS, COUNTS, st.integers(0, 7))
def test_the_last_offset_entry_is_found_before_the_padding(
    count: int, padding: int, trailing_bytes: int
) -> None:
    entries = [(3 * slot, 256 * (slot + 1)) for slot in range(count)]
    found = last_offset_entry(
        Bytes(offset_index(*entries, padding=padding) + bytes(trailing_bytes))
    )
    assert found == (entries[-1] if entries else None)


@given(COUNTS, COUNTS)
def test_the_last_time_entry_is_found_before_the_padding(count: int, padding: int) -> None:
    entries = [(256 * (slot + 1), 3 * slot) for slot in range(count)]
    found = last_time_entry(Bytes(time_index(*entries, padding=padding)))
    assert found == (entries[-1] if entries else None)


@pytest.mark.parametrize(
    ("count", "padding", "most"),
    [(1000, 0, 4), (20, 1_310_700, 4), (0, 1_310_720, 4), (600_000, 710_720, 24)],
)
def test_few_reads_are_enough(count: int, padding: int, most: int) -> None:
    source = Bytes(offset_index(*((slot, slot + 1) for slot in range(count)), padding=padding))
    last_offset_entry(source)
    assert source.reads <= most


@given(st.lists(st.integers(0, 50), unique=True), st.integers(-1, 51), st.integers(0, 3))
def test_an_offset_is_looked_up_among_the_entries(
    offsets: list[int], searched: int, padding: int
) -> None:
    entries = [(offset, offset + 1) for offset in sorted(offsets)]
    source = Bytes(offset_index(*entries, padding=padding))
    below = [entry for entry in entries if entry[0] <= searched]
    assert offset_entry_at_or_below(source, searched) == (below[-1] if below else None)


@given(st.binary(max_size=100))
def test_any_bytes_have_an_entry_or_none(data: bytes) -> None:
    for find in (last_offset_entry, last_time_entry):
        assert find(Bytes(data)) is None or any(data)
