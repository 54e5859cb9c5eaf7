from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from builders.index_files import time_index_bytes
from kdump.formats import time_index
from kdump.formats.time_index import ENTRY_BYTES, NO_TIMESTAMP

INT64 = st.integers(-(2**63), 2**63 - 1)


def test_an_entry_is_a_timestamp_of_eight_bytes_and_a_relative_offset_of_four() -> None:
    index = time_index.decode(bytes.fromhex("0000000000000100 00000005"), base_offset=100)
    assert (index.timestamp.tolist(), index.offset.tolist()) == ([256], [105])


@given(st.binary(max_size=100), INT64)
def test_any_bytes_are_entries_and_are_encoded_to_the_same_bytes(data: bytes, base: int) -> None:
    index = time_index.decode(data, base)
    assert index.size_bytes == len(data)
    assert time_index.encode(index) == data[: len(data) // ENTRY_BYTES * ENTRY_BYTES]


def test_every_index_of_a_broker_is_encoded_to_the_same_bytes(fixtures: Path) -> None:
    paths = sorted(fixtures.glob("out/**/*.timeindex"))
    assert paths
    for path in paths:
        data = path.read_bytes()
        assert time_index.encode(time_index.decode(data, int(path.stem))) == data


def test_the_latest_entry_at_or_before_a_timestamp_is_looked_up() -> None:
    index = time_index.decode(time_index_bytes([(1_000, 3), (2_000, 7)]), 0)
    assert time_index.lookup(index, 1_999) == (1_000, 3)


def test_before_the_first_entry_there_is_no_timestamp() -> None:
    index = time_index.decode(time_index_bytes([(1_000, 103)], 100), 100)
    assert time_index.lookup(index, 999) == (NO_TIMESTAMP, 100)


def test_a_valid_index_passes_the_sanity_check() -> None:
    index = time_index.decode(time_index_bytes([(1_000, 3), (1_000, 7)]), 0)
    assert time_index.sanity_problem(index) is None


def test_an_index_without_entries_passes_the_sanity_check() -> None:
    assert time_index.sanity_problem(time_index.decode(b"", 0)) is None


def test_padding_after_entries_fails_the_sanity_check() -> None:
    index = time_index.decode(time_index_bytes([(1_000, 3)]) + bytes(24), 0)
    problem = time_index.sanity_problem(index)
    assert problem is not None
    assert (problem.position, problem.found) == (24, 0)


def test_a_last_offset_below_the_base_fails_the_sanity_check() -> None:
    index = time_index.decode(time_index_bytes([(1_000, 103), (2_000, 99)], 100), 100)
    problem = time_index.sanity_problem(index)
    assert problem is not None
    assert (problem.position, problem.found) == (12, 99)


def test_a_partial_entry_fails_the_sanity_check() -> None:
    problem = time_index.sanity_problem(time_index.decode(bytes(13), 0))
    assert problem is not None
    assert problem.position == 12
