from __future__ import annotations

import itertools
import struct
import tracemalloc
import zlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.message_sets import damaged, message_07, wrapper_07
from kdump.formats.compression import Codec, compress
from kdump.formats.errors import FormatError
from kdump.formats.kafka07 import (
    Message07,
    Stop07,
    StopReason07,
    decode_entry,
    inner_messages,
    walk,
)

MIB = 1 << 20

magics = pytest.mark.parametrize("magic", [0, 1])
codecs = pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY], ids=lambda codec: codec.label)


def messages_and_stop(data: bytes, base_offset: int = 0) -> tuple[list[Message07], Stop07]:
    *messages, stop = walk(data, base_offset=base_offset)
    assert isinstance(stop, Stop07)
    return [found for found in messages if isinstance(found, Message07)], stop


def one(entry: bytes) -> Message07:
    found = decode_entry(entry)
    assert isinstance(found, Message07)
    return found


def payloads(messages: Sequence[Message07]) -> list[bytes]:
    return [found.payload for found in messages]


# one message ------------------------------------------------------------------------------


def test_the_layout_of_magic_0_is_that_of_the_design() -> None:
    crc = zlib.crc32(b"hello")
    assert message_07(b"hello", magic=0) == struct.pack(">ibI", 1 + 4 + 5, 0, crc) + b"hello"


def test_magic_1_has_attributes_between_magic_and_checksum() -> None:
    crc = zlib.crc32(b"hello")
    assert message_07(b"hello", attributes=2) == struct.pack(">ibbI", 11, 1, 2, crc) + b"hello"


@given(magic=st.sampled_from([0, 1]), payload=st.binary(), attributes=st.integers(-128, 127))
def test_what_is_encoded_decodes_to_the_same(magic: int, payload: bytes, attributes: int) -> None:
    entry = message_07(payload, magic=magic, attributes=attributes)
    found = decode_entry(b"before" + entry + b"behind", 6, base_offset=1000)
    assert isinstance(found, Message07)
    assert (found.magic, found.payload, found.size_bytes) == (magic, payload, len(entry))
    assert found.attributes == (attributes if magic else 0)
    assert (found.position, found.offset, found.next_offset) == (6, 1006, 1006 + len(entry))
    assert found.is_valid


def test_a_message_reads_like_those_of_later_formats() -> None:
    found = one(message_07(b"hello"))
    assert (found.key, found.value, found.timestamp) == (None, b"hello", -1)
    assert found.timestamp_type.value == "NoTimestampType"


@magics
def test_the_checksum_covers_the_payload_alone(magic: int) -> None:
    entry = message_07(b"hello", magic=magic)
    header_bytes = len(entry) - 5
    for at in range(4 + 1 + magic, len(entry)):
        changed = entry[:at] + bytes([entry[at] ^ 0x40]) + entry[at + 1 :]
        assert not one(changed).is_valid
    if magic == 1:
        assert one(entry[:5] + b"\x40" + entry[6:]).is_valid
    assert header_bytes == 9 + magic


def test_magic_0_has_no_codec() -> None:
    assert one(message_07(magic=0)).codec is Codec.NONE


def test_only_two_bits_hold_the_codec() -> None:
    assert one(message_07(attributes=0b101)).codec is Codec.GZIP


def test_a_codec_that_0_7_did_not_have_is_an_error() -> None:
    with pytest.raises(FormatError, match=r"unknown compression codec .* found 3"):
        _ = one(message_07(attributes=3)).codec


# a file -----------------------------------------------------------------------------------


def test_offsets_are_byte_positions_in_the_stream_of_the_partition() -> None:
    entries = [message_07(b"a", magic=0), message_07(b"bc"), message_07(b"")]
    found, stop = messages_and_stop(b"".join(entries), base_offset=536_870_912)
    starts = [536_870_912, 536_870_922, 536_870_934, 536_870_944]
    assert [m.offset for m in found] == starts[:3]
    assert [m.next_offset for m in found] == starts[1:]
    assert stop == Stop07(32, StopReason07.END)


def test_an_empty_file_ends_at_once() -> None:
    assert messages_and_stop(b"") == ([], Stop07(0, StopReason07.END))


def test_a_walk_may_begin_at_any_message() -> None:
    first, second = message_07(b"a"), message_07(b"b")
    found = next(walk(first + second, base_offset=500, position=len(first)))
    assert isinstance(found, Message07)
    assert (found.offset, found.payload) == (500 + len(first), b"b")


TAILS = {
    "zeroes": (bytes(40), StopReason07.ZERO_FILL),
    "fewer zeroes than a size takes": (bytes(3), StopReason07.ZERO_FILL),
    "fewer bytes than a size takes": (b"\0\0\1", StopReason07.SHORT_TAIL),
    "a message cut short": (message_07(b"hello")[:-1], StopReason07.TORN_TAIL),
    "a size of 2 GiB": (b"\x7f\xff\xff\xff" + bytes(100), StopReason07.TORN_TAIL),
    "a negative size": (b"\xff\xff\xff\xff" + bytes(100), StopReason07.BAD_LENGTH),
    "a size below any message's": (b"\0\0\0\4" + bytes(4), StopReason07.BAD_LENGTH),
    "a size below that of its magic": (b"\0\0\0\5\1" + bytes(4), StopReason07.BAD_LENGTH),
    "zeroes, then something": (bytes(40) + b"x", StopReason07.BAD_LENGTH),
    "a foreign magic": (b"\0\0\0\x0a\2" + bytes(9), StopReason07.BAD_MAGIC),
}


@pytest.mark.parametrize(("tail", "reason"), TAILS.values(), ids=TAILS)
def test_a_walk_tells_how_it_ended(tail: bytes, reason: StopReason07) -> None:
    valid = message_07(b"one") + message_07(b"two")
    found, stop = messages_and_stop(valid + tail)
    assert payloads(found) == [b"one", b"two"]
    assert (stop.position, stop.reason) == (len(valid), reason)
    assert stop.problem is not None
    assert stop.problem.position == len(valid)


def test_a_walk_continues_after_a_wrong_checksum() -> None:
    damaged_entry = message_07(b"two")[:-1] + b"O"
    found, stop = messages_and_stop(message_07(b"one") + damaged_entry + message_07(b"three"))
    assert [m.is_valid for m in found] == [True, False, True]
    assert stop.reason is StopReason07.END


# compressed messages ----------------------------------------------------------------------


@codecs
def test_wrapped_messages_are_read(codec: Codec) -> None:
    inner = [message_07(b"a", magic=0), message_07(b"b"), message_07(b"")]
    assert payloads(list(inner_messages(one(wrapper_07(inner, codec))))) == [b"a", b"b", b""]


def test_wrapped_messages_have_the_wrappers_offset_and_only_the_last_continues_after_it() -> None:
    entry = wrapper_07([message_07(b"a"), message_07(b"b"), message_07(b"c")])
    outer = decode_entry(entry, base_offset=700)
    assert isinstance(outer, Message07)
    end = 700 + len(entry)
    found = [(m.offset, m.next_offset) for m in inner_messages(outer)]
    assert found == [(700, 700), (700, 700), (700, end)]


def test_nested_wrappers_are_opened_in_place() -> None:
    nested = wrapper_07([message_07(b"b"), message_07(b"c")], Codec.SNAPPY)
    outer = one(wrapper_07([message_07(b"a"), nested, message_07(b"d")]))
    found = list(inner_messages(outer))
    assert payloads(found) == [b"a", b"b", b"c", b"d"]
    assert [m.next_offset for m in found] == [0, 0, 0, outer.next_offset]


def test_wrappers_nested_too_deep_are_an_error() -> None:
    entry = message_07(b"a")
    for _ in range(5):
        entry = wrapper_07([entry])
    with pytest.raises(FormatError, match="nested too deep"):
        list(inner_messages(one(entry)))


def test_an_empty_wrapper_holds_nothing() -> None:
    assert list(inner_messages(one(wrapper_07([])))) == []


def test_a_last_entry_that_is_incomplete_is_skipped_unless_it_is_the_only_one() -> None:
    whole, cut = message_07(b"a"), message_07(b"b")[:-1]
    assert payloads(list(inner_messages(one(wrapper_07([whole, cut]))))) == [b"a"]
    with pytest.raises(FormatError, match="ends early"):
        list(inner_messages(one(wrapper_07([cut]))))


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (message_07(b"b")[:-1] + b"c", "wrong checksum"),
        (b"\0\0\0\x0a\2" + bytes(9), "not a message of Kafka 0.7"),
        (b"\0\0\0\4" + bytes(4), "smaller than any can be"),
        (b"\xff\xff\xff\xff", "smaller than any can be"),
        (message_07(b"b", attributes=3), "unknown compression codec"),
    ],
)
def test_messages_before_a_damaged_one_are_yielded(entry: bytes, problem: str) -> None:
    messages = inner_messages(one(wrapper_07([message_07(b"x"), message_07(b"a"), entry])))
    assert next(messages).payload == b"x"
    with pytest.raises(FormatError, match=problem):
        list(messages)


def test_a_message_that_wraps_nothing_cannot_be_opened() -> None:
    with pytest.raises(FormatError, match="wraps no others"):
        list(inner_messages(one(message_07())))


# bounds and damage ------------------------------------------------------------------------


def test_a_wrapped_message_larger_than_allowed_is_refused_within_that_memory() -> None:
    outer = one(wrapper_07([message_07(bytes(64 * MIB))]))
    assert outer.size_bytes < 100_000
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="too large"):
            list(inner_messages(outer, largest_bytes=4 * MIB))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * MIB


def read_all(data: bytes) -> None:
    position = 0
    for found in walk(data):
        if isinstance(found, Stop07):
            assert found.position == position
            assert (found.problem is None) == (found.reason is StopReason07.END)
            break
        position += found.size_bytes
        try:
            if found.codec is not Codec.NONE:
                for _ in itertools.islice(inner_messages(found), 1000):
                    pass
        except FormatError:
            pass


@codecs
def test_every_truncation_and_flipped_bit_gives_values_or_a_format_error(codec: Codec) -> None:
    inner = [message_07(b"a"), message_07(b"b", magic=0)]
    for data in damaged(message_07(b"x", magic=0) + wrapper_07(inner, codec)):
        read_all(data)


def test_every_damage_inside_a_wrapper_gives_values_or_a_format_error() -> None:
    for data in damaged(message_07(b"a") + message_07(b"b", magic=0) + wrapper_07([b"c"])):
        read_all(message_07(compress(Codec.GZIP, data), attributes=Codec.GZIP))


@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_give_values_or_a_format_error(data: bytes) -> None:
    read_all(data)
    read_all(struct.pack(">i", len(data)) + data)
    read_all(wrapper_07([data]))
