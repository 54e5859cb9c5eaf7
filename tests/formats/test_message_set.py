from __future__ import annotations

import base64
import json
import struct
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.message_sets import (
    TIMESTAMP_MS,
    damaged,
    encode_message,
    message,
    wrapped_values,
    wrapper,
)
from kdump.formats import message_set
from kdump.formats.compression import Codec, compress
from kdump.formats.errors import FormatError
from kdump.formats.message_set import (
    Message,
    TimestampType,
    decode_header,
    decode_message,
    inner_messages,
)

MIB = 1 << 20
LOG_APPEND_TIME = message_set.LOG_APPEND_TIME_FLAG

magics = pytest.mark.parametrize("magic", [0, 1])
codecs = pytest.mark.parametrize(
    "codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4], ids=lambda codec: codec.label
)
contents = st.none() | st.binary(max_size=50)


def unwrapped(entry: bytes) -> list[Message]:
    return list(inner_messages(decode_message(entry)))


def everything(data: bytes) -> Iterator[Message]:
    """Return every message of a set, also those in wrappers; ends at an incomplete entry."""
    position = 0
    while position < len(data):
        outer = decode_message(data, position)
        if outer.codec is Codec.NONE:
            yield outer
        else:
            yield from inner_messages(outer)
        position += outer.size_bytes


def with_sound_checksum(entry: bytes) -> bytes:
    checked = entry[message_set.CHECKED_START :]
    return entry[:12] + struct.pack(">I", zlib.crc32(checked)) + checked


# one message ------------------------------------------------------------------------------


@given(
    magic=st.sampled_from([0, 1]),
    offset=st.integers(-(2**63), 2**63 - 1),
    key=contents,
    value=contents,
    timestamp=st.integers(-(2**63), 2**63 - 1),
    attributes=st.integers(-128, 127),
)
def test_what_is_encoded_decodes_to_the_same(
    magic: int,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    timestamp: int,
    attributes: int,
) -> None:
    entry = encode_message(
        offset, key, value, magic=magic, timestamp=timestamp, attributes=attributes
    )
    found = decode_message(b"before" + entry + b"behind", 6)
    assert (found.offset, found.key, found.value) == (offset, key, value)
    assert (found.magic, found.attributes) == (magic, attributes)
    assert found.timestamp == (timestamp if magic else -1)
    assert (found.position, found.size_bytes) == (6, len(entry))
    assert found.is_valid


@magics
def test_the_header_has_the_fields_of_the_message(magic: int) -> None:
    entry = message(7, magic=magic, attributes=LOG_APPEND_TIME)
    header, whole = decode_header(entry), decode_message(entry)
    assert header.size_bytes == whole.size_bytes == len(entry)
    for name in ("offset", "crc", "magic", "attributes", "timestamp", "timestamp_type"):
        assert getattr(header, name) == getattr(whole, name), name


def test_a_message_of_magic_0_has_no_timestamp() -> None:
    found = decode_message(message(0, magic=0, attributes=LOG_APPEND_TIME))
    assert (found.timestamp, found.timestamp_type) == (-1, TimestampType.NO_TIMESTAMP_TYPE)


@pytest.mark.parametrize(
    ("attributes", "timestamp_type"),
    [(0, TimestampType.CREATE_TIME), (LOG_APPEND_TIME, TimestampType.LOG_APPEND_TIME)],
)
def test_the_fourth_bit_of_magic_1_says_which_clock_set_the_time(
    attributes: int, timestamp_type: TimestampType
) -> None:
    found = decode_message(message(0, attributes=attributes))
    assert found.timestamp_type is timestamp_type


@magics
def test_null_and_empty_are_different(magic: int) -> None:
    null = decode_message(message(0, None, None, magic=magic))
    empty = decode_message(message(0, b"", b"", magic=magic))
    assert (null.key, null.value, null.key_size_bytes, null.value_size_bytes) == (
        None,
        None,
        -1,
        -1,
    )
    assert (empty.key, empty.value) == (b"", b"")


def test_any_negative_size_is_null_and_kept_unchanged() -> None:
    entry = message(0, None, None, magic=0)
    found = decode_message(with_sound_checksum(entry[:18] + struct.pack(">ii", -5, -9)))
    assert (found.key, found.key_size_bytes) == (None, -5)
    assert (found.value, found.value_size_bytes) == (None, -9)


@magics
def test_the_checksum_covers_everything_from_the_magic_on(magic: int) -> None:
    entry = message(0, magic=magic)
    for at in range(len(entry)):
        changed = entry[:at] + bytes([entry[at] ^ 0x40]) + entry[at + 1 :]
        assert message_set.is_valid(changed) == (at < 12), at


def test_less_than_a_message_is_not_valid() -> None:
    assert not message_set.is_valid(message(0)[:25])
    assert not message_set.is_valid(b"")


def test_a_checksum_can_be_carried_over_pieces() -> None:
    entry = message(0)
    crc = 0
    for at in range(message_set.CHECKED_START, len(entry)):
        crc = message_set.update_crc(entry[at : at + 1], crc)
    assert crc == decode_message(entry).crc


def test_a_value_that_reaches_past_its_message_leaves_the_rest_readable() -> None:
    entry = bytearray(message(3, b"key", b"value", magic=0))
    entry[25:29] = struct.pack(">i", 6)
    found = decode_message(entry)
    assert (found.offset, found.key, found.value_size_bytes) == (3, b"key", 6)
    with pytest.raises(FormatError, match="value reaches past its message at byte 25") as error:
        _ = found.value
    assert (error.value.expected, error.value.found) == ("at most 5 bytes", 6)


def test_a_key_that_reaches_past_its_message_is_an_error_with_its_place() -> None:
    entry = bytearray(message(0, b"key", b"value", magic=0))
    entry[18:22] = struct.pack(">i", 2**31 - 1)
    found = decode_message(bytes(100) + entry, 100)
    for read in (lambda: found.key, lambda: found.value_size_bytes, lambda: found.value):
        with pytest.raises(FormatError, match="key reaches past its message at byte 118"):
            read()


def test_a_key_that_reaches_past_its_message_leaves_the_rest_readable() -> None:
    entry = bytearray(message(7, b"key", b"value", magic=1))
    entry[26:30] = struct.pack(">i", 99)
    found = decode_message(entry)
    assert (found.offset, found.timestamp, found.key_size_bytes) == (7, TIMESTAMP_MS, 99)


def test_a_length_of_2_gib_in_a_small_file_takes_no_memory() -> None:
    entry = bytearray(message(0))
    entry[8:12] = struct.pack(">i", 2**31 - 1)
    with pytest.raises(FormatError, match="message ends early at byte 0"):
        decode_message(entry)


@pytest.mark.parametrize("magic", [-1, 2, 127])
def test_another_magic_is_an_error(magic: int) -> None:
    entry = bytearray(message(0))
    entry[16:17] = struct.pack(">b", magic)
    with pytest.raises(FormatError, match=f"not a message of magic 0 or 1 .* found {magic}"):
        decode_header(entry)


def test_a_size_below_that_of_any_message_is_an_error() -> None:
    entry = bytearray(message(0, magic=0))
    entry[8:12] = struct.pack(">i", 13)
    with pytest.raises(FormatError, match="smaller than any can be"):
        decode_message(entry)


# compressed sets --------------------------------------------------------------------------


@magics
@codecs
def test_wrapped_messages_have_their_absolute_offsets(magic: int, codec: Codec) -> None:
    entry = wrapped_values([b"a", b"b", b"c"], codec, first_offset=40, magic=magic)
    assert [(m.offset, m.value) for m in unwrapped(entry)] == [(40, b"a"), (41, b"b"), (42, b"c")]


def test_gaps_between_relative_offsets_stay() -> None:
    entry = wrapper([message(0), message(3), message(9)], offset=109)
    assert [m.offset for m in unwrapped(entry)] == [100, 103, 109]


def test_absolute_offsets_of_magic_0_are_kept_whatever_the_wrapper_says() -> None:
    entry = wrapper([message(5, magic=0), message(7, magic=0)], offset=1, magic=0)
    assert [m.offset for m in unwrapped(entry)] == [5, 7]


def test_a_wrapper_offset_of_0_leaves_the_inner_offsets_unchanged() -> None:
    entry = wrapper([message(0), message(1)], offset=0)
    assert [m.offset for m in unwrapped(entry)] == [0, 1]


def test_a_wrapper_offset_below_the_last_inner_one_is_an_error() -> None:
    with pytest.raises(FormatError, match=r"wrapper's offset .* expected at least 4, or 0"):
        unwrapped(wrapper([message(0), message(4)], offset=3))


def test_offsets_wrap_around_as_javas_do() -> None:
    lowest = -(2**63)
    entry = wrapper([message(1), message(lowest)], offset=2**63 - 1)
    assert [m.offset for m in unwrapped(entry)] == [0, 2**63 - 1]


def test_log_append_time_of_a_wrapper_is_that_of_every_message_in_it() -> None:
    entry = wrapper(
        [message(0, timestamp=1), message(1, timestamp=2)],
        offset=1,
        timestamp=99,
        attributes=LOG_APPEND_TIME,
    )
    assert [(m.timestamp, m.timestamp_type) for m in unwrapped(entry)] == [
        (99, TimestampType.LOG_APPEND_TIME)
    ] * 2


def test_create_time_of_a_wrapper_leaves_each_message_its_own() -> None:
    inner = [message(0, timestamp=1, attributes=LOG_APPEND_TIME), message(1, timestamp=2)]
    assert [(m.timestamp, m.timestamp_type) for m in unwrapped(wrapper(inner, offset=1))] == [
        (1, TimestampType.CREATE_TIME),
        (2, TimestampType.CREATE_TIME),
    ]


def test_a_message_of_magic_0_in_a_wrapper_of_magic_1_has_no_timestamp() -> None:
    entry = wrapper([message(0, magic=0)], offset=8, attributes=LOG_APPEND_TIME)
    (found,) = unwrapped(entry)
    assert (found.offset, found.timestamp) == (8, -1)
    assert found.timestamp_type is TimestampType.NO_TIMESTAMP_TYPE


def test_a_message_of_magic_1_in_a_wrapper_of_magic_0_keeps_its_timestamp() -> None:
    entry = wrapper([message(6, timestamp=TIMESTAMP_MS)], offset=6, magic=0)
    (found,) = unwrapped(entry)
    assert found.timestamp == TIMESTAMP_MS
    assert found.timestamp_type is TimestampType.NO_TIMESTAMP_TYPE


def test_positions_of_wrapped_messages_count_in_the_decompressed_set() -> None:
    inner = [message(0), message(1, None, None), message(2)]
    found = unwrapped(wrapper(inner, offset=2))
    assert [m.position for m in found] == [0, len(inner[0]), len(inner[0]) + len(inner[1])]
    assert [m.size_bytes for m in found] == [len(entry) for entry in inner]


def test_a_set_too_large_to_be_kept_is_read_twice_with_the_same_outcome() -> None:
    entry = wrapped_values([b"%d" % i for i in range(1000)], first_offset=7)
    outer = decode_message(entry)
    assert list(inner_messages(outer, held_bytes=0)) == list(inner_messages(outer))


@magics
def test_a_wrong_checksum_on_an_lz4_frame_is_skipped_in_magic_0_only(magic: int) -> None:
    wrong_for_1 = compress(Codec.LZ4, message(0, magic=magic), magic=0)
    outer = decode_message(encode_message(0, None, wrong_for_1, magic=magic, attributes=Codec.LZ4))
    if magic == 0:
        assert len(list(inner_messages(outer))) == 1
    else:
        with pytest.raises(FormatError, match="wrong checksum"):
            list(inner_messages(outer))


def test_a_last_entry_that_is_incomplete_is_skipped() -> None:
    assert len(unwrapped(wrapper([message(0), message(1)[:-1]], offset=5))) == 1
    assert len(unwrapped(wrapper([message(0), b"short"], offset=5))) == 1


@magics
def test_an_empty_set_is_an_error(magic: int) -> None:
    with pytest.raises(FormatError, match="compressed message set is empty"):
        unwrapped(wrapper([], offset=0, magic=magic))


def test_a_null_set_is_an_error() -> None:
    entry = message(0, None, None, attributes=Codec.GZIP)
    with pytest.raises(FormatError, match="compressed message set is null"):
        unwrapped(entry)


def test_zstd_is_not_a_codec_of_message_sets() -> None:
    with pytest.raises(FormatError, match=r"expected gzip, snappy or lz4, found zstd"):
        unwrapped(wrapper([message(0)], Codec.ZSTD, offset=0))


def test_a_codec_without_a_name_is_an_error() -> None:
    with pytest.raises(FormatError, match="unknown compression codec"):
        unwrapped(message(0, attributes=6))


def test_an_entry_that_no_message_can_be_is_an_error_before_any_message_is_yielded() -> None:
    too_small = struct.pack(">qi", 1, 13) + bytes(13)
    messages = inner_messages(decode_message(wrapper([message(0), too_small], offset=1)))
    with pytest.raises(FormatError, match="smaller than any can be"):
        next(messages)


def test_messages_before_one_that_is_itself_compressed_are_yielded() -> None:
    nested = wrapper([message(0)], offset=1)
    messages = inner_messages(decode_message(wrapper([message(0), nested], offset=1)))
    assert next(messages).offset == 0
    with pytest.raises(FormatError, match="itself compressed"):
        next(messages)


# bounds and damage ------------------------------------------------------------------------


def test_a_wrapped_message_larger_than_allowed_is_refused_within_that_memory() -> None:
    bomb = wrapper([message(0, None, bytes(64 * MIB))], offset=0)
    outer = decode_message(bomb)
    assert len(bomb) < 100_000
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="over the limit"):
            list(inner_messages(outer, largest_bytes=4 * MIB))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * MIB


@pytest.mark.slow
def test_a_set_of_very_many_messages_takes_no_more_memory_than_is_held() -> None:
    outer = decode_message(wrapper([message(0, None, None)] * 40_000, offset=0))
    tracemalloc.start()
    try:
        assert sum(1 for _ in inner_messages(outer, held_bytes=MIB)) == 40_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 * MIB


def read_all(data: bytes) -> None:
    try:
        for found in everything(data):
            assert found.size_bytes > 0
            _ = (found.key, found.value, found.is_valid)
    except FormatError:
        pass


@magics
def test_every_truncation_and_flipped_bit_gives_values_or_a_format_error(magic: int) -> None:
    sample = message(0, magic=magic) + wrapped_values([b"a"], first_offset=1, magic=magic)
    for data in damaged(sample):
        read_all(data)


@magics
def test_every_damage_inside_a_compressed_set_gives_values_or_a_format_error(magic: int) -> None:
    sample = message(0, magic=magic) + message(1, None, b"x", magic=magic)
    for data in damaged(sample):
        read_all(wrapper([data], offset=1, magic=magic))


@given(start=st.binary(max_size=8), data=st.binary(max_size=200))
def test_arbitrary_bytes_give_values_or_a_format_error(start: bytes, data: bytes) -> None:
    read_all(start + data)
    read_all(struct.pack(">qi", 0, len(data)) + data)
    read_all(wrapper([data], offset=0))


# what real brokers wrote ------------------------------------------------------------------


def test_real_logs_hold_what_the_official_consumer_read(fixtures: Path) -> None:
    read: dict[str, int] = {}
    for directory in sorted((fixtures / "out/legacy/logs").glob("v[01]-*")):
        log = (path.read_bytes() for path in sorted(directory.glob("*.log")))
        found = [
            {
                "offset": m.offset,
                "timestamp": m.timestamp,
                "timestampType": m.timestamp_type.value,
                "key": m.key and base64.b64encode(m.key).decode(),
                "value": m.value and base64.b64encode(m.value).decode(),
                "magic": m.magic,
            }
            for data in log
            for m in everything(data)
        ]
        expected_file = fixtures / f"out/expected.legacy/{directory.name}.uncommitted.jsonl"
        expected = [json.loads(line) for line in expected_file.read_text().splitlines()]
        for row in (*found, *expected):
            row["key"], row["value"] = row["key"] or None, row["value"] or None
        assert found == [{name: row[name] for name in found[0]} for row in expected]
        read[directory.name] = len(found)
    assert read.keys() == {
        "v0-lz4-0",
        "v1-logappend-gzip-0",
        "v1-logappend-lz4-0",
        "v1-logappend-none-0",
        "v1-logappend-snappy-0",
        "v1-notimestamp-0",
        "v1-snappy-0",
    }
    assert all(read.values())
