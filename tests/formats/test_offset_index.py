from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.index_files import offset_index_bytes
from kdump.formats import offset_index
from kdump.formats.errors import FormatError
from kdump.formats.offset_index import ENTRY_BYTES, OffsetIndex

INT64 = st.integers(-(2**63), 2**63 - 1)


def test_an_entry_is_a_relative_offset_and_a_position_of_four_bytes_each() -> None:
    index = offset_index.decode(bytes.fromhex("00000005 00001000"), base_offset=100)
    assert (index.offset.tolist(), index.position.tolist()) == ([105], [4096])


@given(st.binary(max_size=100), INT64)
def test_any_bytes_are_entries_and_are_encoded_to_the_same_bytes(data: bytes, base: int) -> None:
    index = offset_index.decode(data, base)
    assert index.size_bytes == len(data)
    assert offset_index.encode(index) == data[: len(data) // ENTRY_BYTES * ENTRY_BYTES]


def test_every_index_of_a_broker_is_encoded_to_the_same_bytes(fixtures: Path) -> None:
    paths = sorted(fixtures.glob("out/**/*.index"))
    assert paths
    for path in paths:
        data = path.read_bytes()
        assert offset_index.encode(offset_index.decode(data, int(path.stem))) == data


@pytest.mark.parametrize(("offset", "position"), [(2**31, 0), (-(2**31) - 1, 0), (1, 2**31)])
def test_what_does_not_fit_an_entry_is_refused(offset: int, position: int) -> None:
    columns = np.array([1, offset], np.int64), np.array([0, position], np.int64)
    with pytest.raises(FormatError, match="cannot be stored") as refused:
        offset_index.encode(OffsetIndex(0, *columns))
    assert refused.value.position == ENTRY_BYTES


def test_the_largest_entry_at_or_below_an_offset_is_looked_up() -> None:
    index = offset_index.decode(offset_index_bytes([(105, 4096), (109, 8192)], 100), 100)
    assert offset_index.lookup(index, 108) == (105, 4096)


def test_below_the_first_entry_the_log_is_read_from_its_start() -> None:
    index = offset_index.decode(offset_index_bytes([(105, 4096)], 100), 100)
    assert offset_index.lookup(index, 104) == (100, 0)


def test_without_entries_the_log_is_read_from_its_start() -> None:
    assert offset_index.lookup(offset_index.decode(b"", 100), 104) == (100, 0)


def test_a_valid_index_passes_the_sanity_check() -> None:
    index = offset_index.decode(offset_index_bytes([(105, 4096)], 100), 100)
    assert offset_index.sanity_problem(index) is None


def test_padding_passes_the_sanity_check() -> None:
    assert offset_index.sanity_problem(offset_index.decode(bytes(80), 100)) is None


def test_a_last_offset_below_the_base_fails_the_sanity_check() -> None:
    index = offset_index.decode(offset_index_bytes([(105, 1), (99, 2)], 100), 100)
    problem = offset_index.sanity_problem(index)
    assert problem is not None
    assert (problem.position, problem.found) == (8, 99)


def test_a_partial_entry_fails_the_sanity_check() -> None:
    problem = offset_index.sanity_problem(offset_index.decode(bytes(13), 0))
    assert problem is not None
    assert (problem.position, problem.found) == (8, "5 bytes more")


def test_entries_end_where_the_base_offset_comes_again() -> None:
    offset = np.array([100, 105, 100, 109], np.int64)
    assert offset_index.count_before_restart(offset, 100) == 2


@pytest.mark.parametrize(
    ("data", "padding"),
    [
        (b"", 0),
        (bytes(8), 0),
        (bytes(24), 3),
        (offset_index_bytes([(5, 1)]) + bytes(16), 2),
        (offset_index_bytes([(5, 1)]) + bytes(20), 2),
        (offset_index_bytes([(0, 256)]) + bytes(16), 2),
        (offset_index_bytes([(0, 0), (5, 1)]), 0),
    ],
)
def test_padding_is_the_zero_entries_at_the_end(data: bytes, padding: int) -> None:
    assert offset_index.count_padding(data, ENTRY_BYTES) == padding
