from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.formats.java.java_text import (
    coordinator_partition,
    java_string_hash,
    java_utf8,
    java_utf8_bytes,
)

any_bytes = st.binary() | st.lists(
    # This way bytes that matter to UTF-8 occur often enough.
    st.sampled_from(bytes.fromhex("41 80 8f 90 9f a0 bf c0 c2 df e0 ed ef f0 f4 f5 ff")),
    max_size=12,
).map(bytes)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_utf8_is_read_unchanged(text: str) -> None:
    assert java_utf8(text.encode()) == text


# What `new String(bytes, UTF_8)` of Java 17 gives.
@pytest.mark.parametrize(
    ("hexadecimal", "text"),
    [
        pytest.param("61 ff 62", "a\ufffdb", id="a byte that is never there"),
        pytest.param("c0 80", "\ufffd\ufffd", id="an over-long form of two bytes"),
        pytest.param("e0 80 80", "\ufffd\ufffd\ufffd", id="an over-long form of three bytes"),
        pytest.param("e2 82 41", "\ufffdA", id="a sequence that another character cuts short"),
        pytest.param("f0 9f 98", "\ufffd", id="a sequence that the end cuts short"),
        pytest.param("f4 90 80 80", "\ufffd\ufffd\ufffd\ufffd", id="above the last code point"),
        pytest.param("ed a0 80", "\ufffd", id="a surrogate"),
        pytest.param("ed a0", "\ufffd", id="a surrogate that the end cuts short"),
        pytest.param("ed bf 41", "\ufffdA", id="a surrogate that another character cuts short"),
        pytest.param("ed a0 bd ed b8 80", "\ufffd\ufffd", id="a pair of surrogates"),
        pytest.param("ed a0 80 80", "\ufffd\ufffd", id="a byte too many behind a surrogate"),
        pytest.param("ed 9f bf", "\ud7ff", id="the last character before the surrogates"),
    ],
)
def test_malformed_bytes_are_replaced_as_java_replaces_them(hexadecimal: str, text: str) -> None:
    assert java_utf8(bytes.fromhex(hexadecimal)) == text


@pytest.mark.parametrize("container", [bytes, bytearray, memoryview])
def test_all_containers_of_bytes_are_read(container: type) -> None:
    assert java_utf8(container(b"a\xed\xa0\x80b")) == "a\ufffdb"


@given(any_bytes)
def test_what_was_read_can_be_written_again(data: bytes) -> None:
    assert java_utf8(java_utf8(data).encode()) == java_utf8(data)


@given(any_bytes)
def test_bytes_to_bytes_is_the_same_conversion(data: bytes) -> None:
    assert bytes(java_utf8_bytes(data)) == java_utf8(data).encode()


@given(any_bytes, any_bytes)
def test_an_ascii_byte_keeps_what_stands_on_its_two_sides_apart(left: bytes, right: bytes) -> None:
    assert java_utf8(left + b"|" + right) == java_utf8(left) + "|" + java_utf8(right)


def test_much_text_is_converted_the_same_wherever_it_is_cut_into_pieces() -> None:
    data = "é日".encode() * 50_000 + b"\xff\xed\xa0\x80" + b"\x80" * 100_000
    assert bytes(java_utf8_bytes(data)) == java_utf8(data).encode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("Aa", 2112), ("BB", 2112), ("/data/topic-0", 3_820_967_772)],
)
def test_strings_hash_as_in_java(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


def test_a_character_outside_the_basic_plane_hashes_as_two() -> None:
    assert java_string_hash("\N{GRINNING FACE}") == 0xD83D * 31 + 0xDE00


@pytest.mark.parametrize(
    ("key", "hashed", "partition"),
    [
        pytest.param("a", 97, 47, id="a positive hash"),
        pytest.param("/data/topic-0", 3_820_967_772, 24, id="a negative hash"),
        pytest.param("polygenelubricants", 1 << 31, 0, id="the hash without an absolute value"),
    ],
)
def test_a_coordinator_is_found_by_the_absolute_value_of_the_hash(
    key: str, hashed: int, partition: int
) -> None:
    assert java_string_hash(key) == hashed
    assert coordinator_partition(key, 50) == partition
