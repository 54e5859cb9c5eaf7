from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kdump.formats import transaction_index
from kdump.formats.transaction_index import ENTRY_BYTES, AbortedTxn

ABORTED = AbortedTxn(producer_id=7, first_offset=10, last_offset=14, last_stable_offset=12)


def test_an_entry_is_34_bytes() -> None:
    assert ENTRY_BYTES == 34


@given(st.binary(max_size=150))
def test_any_bytes_are_entries_and_are_encoded_to_the_same_bytes(data: bytes) -> None:
    index = transaction_index.decode(data)
    assert len(index.entries) * ENTRY_BYTES + index.trailing_bytes == len(data)
    assert transaction_index.encode(index.entries) == data[: len(data) // 34 * 34]


def test_every_index_of_a_broker_is_encoded_to_the_same_bytes(fixtures: Path) -> None:
    paths = sorted(fixtures.glob("out/**/*.txnindex"))
    assert paths
    for path in paths:
        data = path.read_bytes()
        index = transaction_index.decode(data)
        assert transaction_index.encode(index.entries) == data
        assert transaction_index.version_problem(index) is None


def test_entries_are_encoded_in_the_order_of_kafkas_fields() -> None:
    assert transaction_index.encode([ABORTED]).hex(" ", 2) == (
        "0000 0000 0000 0000 0007 0000 0000 0000 000a 0000 0000 0000 000e 0000 0000 0000 000c"
    )


def test_only_the_first_byte_of_the_version_counts() -> None:
    index = transaction_index.decode(bytes.fromhex("0005") + bytes(32))
    assert transaction_index.version_problem(index) is None


def test_a_greater_version_is_refused() -> None:
    data = transaction_index.encode([ABORTED]) + bytes.fromhex("0100") + bytes(32)
    problem = transaction_index.version_problem(transaction_index.decode(data))
    assert problem is not None
    assert (problem.position, problem.found) == (ENTRY_BYTES, 1)


def test_a_negative_version_is_accepted() -> None:
    index = transaction_index.decode(bytes.fromhex("ff00") + bytes(32))
    assert transaction_index.version_problem(index) is None


def test_a_partial_entry_is_reported() -> None:
    index = transaction_index.decode(transaction_index.encode([ABORTED]) + b"\0\0")
    problem = transaction_index.trailing_problem(index)
    assert problem is not None
    assert problem.position == ENTRY_BYTES
