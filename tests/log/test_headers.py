"""Batches are found one after another, up to the first that is impossible."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.batches import BASE_TIMESTAMP_MS, batch, batches, record
from builders.message_sets import message, wrapped_values
from kdump.log.headers import BatchSpan, batch_span_at, batch_spans
from kdump.storage.local_disk import local


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs") / "log"


def spans(scratch: Path, log: bytes, least_offset: int = 0) -> list[BatchSpan]:
    scratch.write_bytes(log)
    with local(scratch).open_file() as source:
        return list(batch_spans(source, 0, least_offset))


def test_every_batch_is_found_in_its_place(scratch: Path) -> None:
    parts = batches(3, 2, base_offset=10)
    found = spans(scratch, b"".join(parts))
    assert [(span.base_offset, span.last_offset) for span in found] == [
        (10, 11),
        (12, 13),
        (14, 15),
    ]
    assert [span.position for span in found] == [0, len(parts[0]), len(parts[0]) + len(parts[1])]
    assert found[-1].next_position == sum(map(len, parts))


def test_the_times_are_those_of_the_header(scratch: Path) -> None:
    (span,) = spans(scratch, batch([record(0), record(1)]))
    assert span.first_timestamp_ms == BASE_TIMESTAMP_MS
    assert span.max_timestamp_ms == BASE_TIMESTAMP_MS + 1


def test_with_log_append_time_all_records_have_the_largest_timestamp(scratch: Path) -> None:
    (span,) = spans(scratch, batch([record(0)], attributes=0x08, max_timestamp=99))
    assert span.first_timestamp_ms == span.max_timestamp_ms == 99


def test_a_delete_horizon_hides_the_first_time(scratch: Path) -> None:
    (span,) = spans(scratch, batch([record(0)], attributes=0x40))
    assert span.first_timestamp_ms is None
    assert span.max_timestamp_ms == BASE_TIMESTAMP_MS


def test_a_missing_timestamp_is_none(scratch: Path) -> None:
    (span,) = spans(scratch, batch([record(0, timestamp=-1)]))
    assert (span.first_timestamp_ms, span.max_timestamp_ms) == (None, None)


def test_messages_of_magic_0_have_no_time(scratch: Path) -> None:
    found = spans(scratch, message(5, magic=0) + message(6, magic=0))
    assert [(span.last_offset, span.max_timestamp_ms) for span in found] == [(5, None), (6, None)]


def test_the_first_timestamp_of_a_wrapper_of_magic_1_is_unknown(scratch: Path) -> None:
    plain, wrapper = spans(
        scratch, message(0, timestamp=7) + wrapped_values([b"a", b"b"], first_offset=1)
    )
    assert plain.first_timestamp_ms == 7
    assert wrapper.first_timestamp_ms is None
    assert wrapper.max_timestamp_ms is not None


@pytest.mark.parametrize("tail", [b"", b"\0", bytes(100), b"\xff" * 100], ids=repr)
def test_bytes_that_are_not_a_batch_end_the_search(scratch: Path, tail: bytes) -> None:
    assert len(spans(scratch, batch([record(0)]) + tail)) == 1


def test_a_torn_batch_ends_the_search(scratch: Path) -> None:
    first, second = batches(2)
    for size in range(len(second)):
        assert len(spans(scratch, first + second[:size])) == 1


def test_decreasing_offsets_end_the_search(scratch: Path) -> None:
    assert len(spans(scratch, batch([record(5), record(6)]) + batch([record(6)]))) == 1
    assert spans(scratch, batch([record(5)]), least_offset=6) == []


@pytest.mark.parametrize(
    ("position", "field"),
    [(0, ">q"), (8, ">i"), (16, ">b"), (23, ">i")],
    ids=["base offset", "length", "magic", "last offset delta"],
)
def test_an_impossible_header_ends_the_search(scratch: Path, position: int, field: str) -> None:
    log = bytearray(batch([record(0)]))
    struct.pack_into(field, log, position, -1)
    assert spans(scratch, bytes(log)) == []


@pytest.mark.slow
@given(data=st.binary(max_size=200), position=st.integers(0, 250))
def test_random_bytes_give_a_batch_within_them_or_none(
    scratch: Path, data: bytes, position: int
) -> None:
    scratch.write_bytes(data)
    with local(scratch).open_file() as source:
        span = batch_span_at(source, position)
    assert span is None or position < span.next_position <= len(data)
