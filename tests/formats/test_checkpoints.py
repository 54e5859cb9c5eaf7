"""Checkpoint files are read and refused where Kafka reads and refuses them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.formats.checkpoints import (
    EpochEntry,
    OffsetEntry,
    decode_leader_epoch_checkpoint,
    decode_offset_checkpoint,
    encode_leader_epoch_checkpoint,
    encode_offset_checkpoint,
)
from kdump.formats.errors import FormatError
from kdump.formats.names import TopicPartition

TOPICS = st.from_regex(r"\A[a-zA-Z0-9._-]{1,40}\Z")
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
OFFSET_ENTRIES = st.lists(
    st.builds(OffsetEntry, st.builds(TopicPartition, TOPICS, INT32), INT64), max_size=5
)


def entry(topic: str, partition: int, offset: int) -> OffsetEntry:
    return OffsetEntry(TopicPartition(topic, partition), offset)


def test_a_file_is_version_count_and_lines() -> None:
    data = b"0\n2\norders 0 1093\norders 1 0\n"
    entries = [entry("orders", 0, 1093), entry("orders", 1, 0)]
    assert decode_offset_checkpoint(data) == entries
    assert encode_offset_checkpoint(entries) == data


def test_an_epochs_file_is_too() -> None:
    data = b"0\n2\n0 0\n2 406\n"
    assert decode_leader_epoch_checkpoint(data) == [EpochEntry(0, 0), EpochEntry(2, 406)]
    assert encode_leader_epoch_checkpoint([EpochEntry(0, 0), EpochEntry(2, 406)]) == data


@given(OFFSET_ENTRIES)
def test_offsets_are_read_back(entries: list[OffsetEntry]) -> None:
    assert decode_offset_checkpoint(encode_offset_checkpoint(entries)) == entries


@given(st.lists(st.builds(EpochEntry, INT32, INT64), max_size=5))
def test_epochs_are_read_back(entries: list[EpochEntry]) -> None:
    assert decode_leader_epoch_checkpoint(encode_leader_epoch_checkpoint(entries)) == entries


@pytest.mark.parametrize(
    "data", [b"", b"0", b"0\n", b"0\n0", b"0\n0\n", b"0\r\n0\r\n", b"00\n+0\n"]
)
def test_a_file_may_have_no_entries(data: bytes) -> None:
    assert decode_offset_checkpoint(data) == []


@pytest.mark.parametrize(
    "line", ["a 0 1", "a\t0\t1", "a  0 \t 1", "a 0 1   ", "a +0 01", "a 0 1\r", "a\x0b0\x0c1"]
)
def test_any_blanks_separate_the_fields(line: str) -> None:
    assert decode_offset_checkpoint(f"0\n1\n{line}\n".encode()) == [entry("a", 0, 1)]


def test_a_leading_blank_is_an_empty_field() -> None:
    assert decode_offset_checkpoint(b"0\n1\n 0 1\n") == [entry("", 0, 1)]
    with pytest.raises(FormatError):
        decode_offset_checkpoint(b"0\n1\n a 0 1\n")


def test_of_a_partition_that_is_listed_twice_the_last_line_counts() -> None:
    entries = decode_offset_checkpoint(b"0\n2\na 0 1\na 0 2\n")
    assert dict(entries) == {TopicPartition("a", 0): 2}


@pytest.mark.parametrize(
    ("data", "line", "position"),
    [
        (b"\n", 1, 0),
        (b"1\n0\n", 1, 0),
        (b" 0\n0\n", 1, 0),
        (b"0\nx\n", 2, 2),
        (b"0\n-1\n", 2, 2),
        (b"0\n1\na 0\n", 3, 4),
        (b"0\n1\na 0 1 2\n", 3, 4),
        (b"0\r\n1\r\na x 1\r\n", 3, 6),
        (b"0\n1\na 2147483648 1\n", 3, 4),
        (b"0\n1\na 0 9223372036854775808\n", 3, 4),
        (b"0\n1\na 0 1\n\n", 4, 10),
        (b"0\n2\na 0 1\n\xff 0 1\n", 4, 10),
    ],
)
def test_a_malformed_line_is_named(data: bytes, line: int, position: int) -> None:
    with pytest.raises(FormatError, match=f"malformed in line {line} ") as raised:
        decode_offset_checkpoint(data)
    assert raised.value.position == position


@pytest.mark.parametrize("data", [b"0\n2\na 0 1\n", b"0\n0\na 0 1\n", b"0\n2147483647\na 0 1\n"])
def test_the_count_must_be_that_of_the_lines(data: bytes) -> None:
    with pytest.raises(FormatError, match="does not have the number of entries"):
        decode_offset_checkpoint(data)
