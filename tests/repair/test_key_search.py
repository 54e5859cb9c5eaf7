"""Erased keys are found at any position, whatever is around them, and nothing else is."""

from __future__ import annotations

import gzip
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.batches import batch, record
from builders.message_sets import message
from builders.messages import varint
from kdump.formats import message_set, record_batch
from kdump.formats.compression import Codec, compress
from kdump.repair.erase.key_search import (
    LEAST_BYTES,
    FoundKeys,
    KeyPatterns,
    KeySearch,
)
from kdump.repair.erase.key_standing import Standing
from kdump.repair.erase.named_records import NamedRecords
from kdump.storage.local_disk import local

FEW_BYTES = st.binary(max_size=40).map(lambda data: bytes(b"ab\0\xff"[each % 4] for each in data))


@given(
    data=FEW_BYTES,
    keys=st.sets(FEW_BYTES.filter(lambda key: len(key) >= LEAST_BYTES), max_size=6),
    prefixes=st.sets(FEW_BYTES.filter(lambda key: len(key) >= LEAST_BYTES), max_size=2),
)
def test_every_occurrence_is_found(data: bytes, keys: set[bytes], prefixes: set[bytes]) -> None:
    taken = {data[at : at + size] for at in range(len(data)) for size in (4, 8, 11)}
    every = keys | {each for each in sorted(taken)[::3] if len(each) >= LEAST_BYTES}

    patterns = KeyPatterns(frozenset(every), frozenset(prefixes))

    assert sorted(patterns.places(np.frombuffer(data, np.uint8))) == sorted(
        (at, key) for key in every | prefixes for at in range(len(data)) if data.startswith(key, at)
    )


def found_in(
    tmp_path: Path, content: bytes, *keys: bytes, name: str = f"{0:020d}.log"
) -> FoundKeys:
    path = tmp_path / name
    path.write_bytes(content)
    return KeySearch(NamedRecords(frozenset(keys))).file(local(str(path)), {name})


@pytest.mark.parametrize(
    ("value", "mentions"),
    [
        (b"alice", 1),
        (b'"alice"', 1),
        (b"tenant/alice/1", 1),
        (b"alice,alice", 2),
        (b"alice-4711", 1),
        (b"malice", 0),
        (b"alices", 0),
        (b"alice\xc3\xa9", 0),
        (b"Alice", 0),
    ],
)
@pytest.mark.parametrize("codec", Codec)
def test_a_word_counts_where_it_stands_alone(
    tmp_path: Path, value: bytes, mentions: int, codec: Codec
) -> None:
    log = batch([record(0, b"k", value), record(1, b"k", b"v" * 300)], codec=codec)

    found = found_in(tmp_path, log, b"alice")

    assert (found.records, found.mentions, found.raw) == (0, mentions, 0)


TRACE = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("headers", "mentions"),
    [
        ([(b"by", b"1234")], 1),
        ([(b"1234", b"")], 1),
        ([(b"traceparent", TRACE.replace(b"3577", b"1234"))], 0),
        ([(b"traceparent", TRACE), (b"null", None), (b"for", b"/of/1234")], 1),
        ([(b"x1234", b"")], 0),
    ],
)
@pytest.mark.parametrize("codec", Codec)
def test_a_word_in_a_header_counts_where_it_stands_alone(
    tmp_path: Path, headers: list[tuple[bytes, bytes | None]], mentions: int, codec: Codec
) -> None:
    before = record(0, b"k", b"v", [(b"traceparent", TRACE)])
    log = batch([before, record(1, b"k", b"v"), record(2, b"k", b"v", headers)], codec=codec)

    found = found_in(tmp_path, log, b"1234")

    assert (found.mentions, found.possible, found.raw) == (mentions, 0, 0)


@pytest.mark.parametrize("magic", [1, 2])
def test_a_field_is_looked_at_once_however_often_a_key_is_in_it(tmp_path: Path, magic: int) -> None:
    value = b" d1234" * 50_000  # d is the size of four bytes in CBOR
    log = batch([record(0, b"k", value)]) if magic == 2 else message(0, key=b"k", value=value)

    begin = time.process_time()
    found = found_in(tmp_path, log, b"1234")

    assert found.is_clean
    assert found.possible
    assert time.process_time() - begin < 5


UUID = b"1b4e28ba-2fa1-11d2-883f-0016d3cca427"


@pytest.mark.parametrize(
    ("value", "is_mentioned"),
    [
        (b"\x48" + UUID + b"\x06bob", True),  # Avro: twice the size, an H
        (b"\x06bob\x48" + UUID, True),
        (b"\x14alice-4711\x30" + b"b" * 24, True),  # the size of the next is a digit
        (b"\x0a\x0aalice-4711\x32\x03bob", True),  # Protobuf: field 6 is called 2
        (b"\0\x0balice-4711\0", True),  # Kafka: one more than the size
        (b"\0\x0balice-4711a\0b", False),  # or Protobuf
        (b"\x81\xa2id\xaaalice-4711", True),  # MessagePack
        (b"\xa1\x62id\x6aalice-4711", True),  # CBOR
        (b"by jalice-4711", False),
        (b"\x16malice-4711", False),
        (b"\x16alice-47112", False),
        (b"\xabmalice-4711", False),
        (b"\0\0\0\0\1\x48user-4711-0123-0123-0123-012345678901", True),
        (b"\0\0\0\0\1\x4csuperuser-4711-0123-0123-0123-01234567", False),
        (b"Huser-4711-0123-0123-0123-012345678901", False),
    ],
)
def test_sizes_of_strings_are_no_part_of_a_word(
    tmp_path: Path, value: bytes, is_mentioned: bool
) -> None:
    log = batch([record(0, b"k", value)])
    (path := tmp_path / f"{0:020d}.log").write_bytes(log)
    named = NamedRecords(frozenset({b"alice-4711", UUID}), (b"user-",))

    assert KeySearch(named).file(local(path), {path.name}).mentions == is_mentioned


SHA256 = b"5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8"


@pytest.mark.parametrize(
    ("value", "is_possible"),
    [
        (b"H" + UUID[::-1] + b"H" + UUID, True),  # Avro: two strings, and no byte that is no text
        (b"c" + UUID, True),  # Smile
        (b"jalice-4711", True),  # CBOR, or an identifier
        (b"by jalice-4711", True),
        (b'{"by":"jalice-4711"}', False),
        (b'\0\0\0\0\1["jalice-4711"]', False),
        (b'{"by":"jalice-4711"', True),
        (b"by malice-4711", False),
        (b"\x08\x01alice-4711\xa3\xb1\xff\0", True),  # a hash of some bytes follows
        (b"\x8aalice-4711\x8cb", True),  # Ion
        (b"\x0balice-47112\0", True),  # Kafka, or Protobuf
        (b"\x0calice-471122\0", False),  # a longer string in Protobuf
        (b"\x0bmalice-4711\0", False),
        (b"\xa1\x62id\x6balice-47112", False),
        (b"\x0c\0\0\0alice-47112a\0", False),
        (b"\xd8\x04" + b"at alice-47112" + b"." * 286 + b"\x02", False),
        (b"\x0dalice-47112\0", True),
        (b"Huser-4711-0123-0123-0123-012345678901", True),
        (b'{"by":"Huser-4711-0123-0123-0123-012345678901"}', False),
    ],
)
@pytest.mark.parametrize("magic", [1, 2])
def test_a_place_that_may_be_a_whole_string_is_counted_apart(
    tmp_path: Path, value: bytes, is_possible: bool, magic: int
) -> None:
    log = batch([record(9, b"k", value)]) if magic == 2 else message(9, key=b"k", value=value)
    (path := tmp_path / f"{0:020d}.log").write_bytes(log)
    named = NamedRecords(frozenset({b"alice-4711", UUID}), (b"user-",))

    found = KeySearch(named).file(local(path), {path.name})

    assert (found.mentions, found.possible) == (0, is_possible)
    assert found.is_clean
    assert found.offsets == (9,) * is_possible


@pytest.mark.parametrize(
    ("value", "mentions", "possible"),
    [
        (rb'{"text": "Dear\nalice, hello"}', 1, 0),
        (rb'["\talice"]', 1, 0),
        (rb'["\u0020alice"]', 1, 0),
        (rb'["\u00a0alice"]', 1, 0),
        (rb'["C:\\nalice"]', 0, 1),  # a path, or JSON in JSON
        (rb'["m\u0061alice"]', 0, 0),
        (rb'["\u00e9alice"]', 0, 0),
        (rb'["\nalice2"]', 0, 0),
        (rb'["unalice"]', 0, 0),
        (rb"a line\nalice", 0, 1),  # or a path of Windows
        (rb'{"url": "/of?to=mailto%3Aalice"}', 0, 1),
        (rb"/of?to=mailto%3aalice", 0, 1),
        (rb"/of?to=mailto%3aalice2", 0, 0),
        (rb"/of?to=%C3%A9alice", 0, 1),
        (rb"/of?to=%6dalice", 0, 0),
        (rb"99%alice", 1, 0),
        (rb"0%3xalice", 0, 0),
    ],
)
def test_what_is_escaped_before_a_key_is_no_letter(
    tmp_path: Path, value: bytes, mentions: int, possible: int
) -> None:
    found = found_in(tmp_path, batch([record(0, b"k", value)]), b"alice")

    assert (found.mentions, found.possible) == (mentions, possible)


@pytest.mark.parametrize(
    ("text", "mentions", "possible"),
    [
        ("by \u201calice\u201d", 1, 0),
        ("by\u00a0alice\u2026", 1, 0),
        ('{"by": "\u00abalice\u00bb"}', 1, 0),
        ("\u7528\u6237alice\u767b\u5f55", 0, 1),  # between words of Chinese is nothing
        ("\u00e9alice", 0, 0),
        ("alice\u00e9", 0, 0),
        ("\u201calices\u201d", 0, 0),
        ("\u0436alice", 0, 0),
    ],
)
def test_only_letters_beside_a_key_make_a_longer_word(
    tmp_path: Path, text: str, mentions: int, possible: int
) -> None:
    found = found_in(tmp_path, batch([record(0, b"k", text.encode())]), b"alice")

    assert (found.mentions, found.possible) == (mentions, possible)


def test_a_key_of_chinese_may_be_a_word_of_a_text(tmp_path: Path) -> None:
    text = "\u7528\u6237\u738b\u5c0f\u660e\u767b\u5f55"

    found = found_in(tmp_path, batch([record(0, b"k", text.encode())]), text[2:5].encode())

    assert (found.mentions, found.possible) == (0, 1)


def test_punctuation_beside_a_key_in_a_longer_string_of_a_binary_format(tmp_path: Path) -> None:
    text = "\u201calice\u201d said".encode()
    value = b"\0\x01" + bytes([2 * len(text)]) + text + b"\xff"

    assert found_in(tmp_path, batch([record(0, b"k", value)]), b"alice").mentions == 1


def test_an_identifier_with_a_letter_more_is_only_a_possible_place(tmp_path: Path) -> None:
    found = found_in(tmp_path, batch([record(0, b"e12345", b"v")]), b"12345")

    assert (found.records, found.mentions, found.possible) == (0, 0, 1)


@pytest.mark.parametrize(
    "value",
    [b"\x80\x01" + SHA256 + b"Hb", b"\x40" + SHA256 + b"b", b"\0\0\0\x40" + SHA256 + b"b\0"],
)
def test_a_size_of_several_bytes_is_one(tmp_path: Path, value: bytes) -> None:
    found = found_in(tmp_path, batch([record(0, b"k", value + b"\0")]), SHA256)

    assert (found.mentions, found.possible) == (1, 0)


_SIZES: dict[str, Callable[[int], bytes]] = {
    "Protobuf": varint,
    "Avro": lambda size: varint(2 * size),
    "Kafka": lambda size: varint(size + 1),
    "Java": lambda size: size.to_bytes(2),
    "MessagePack": lambda size: bytes([0xA0 + size] if size < 32 else [0xD9, size]),
    "CBOR": lambda size: bytes([0x60 + size] if size < 24 else [0x78, size]),
    "Smile": lambda size: bytes([0x3F + size]),
    "BSON": lambda size: (size + 1).to_bytes(4, "little"),
}


@given(data=st.data(), size_of=st.sampled_from(sorted(_SIZES)))
def test_no_string_of_a_binary_format_is_missed(data: st.DataObject, size_of: str) -> None:
    """In any place of a composite key or value, whatever text is around it."""
    word = st.text("abcXYZ0129-:é", min_size=1, max_size=40).map(str.encode)
    strings = data.draw(st.lists(word.filter(lambda each: len(each) <= 64), max_size=4))
    key = data.draw(st.text("abcXYZ0129-", min_size=4, max_size=64)).encode()
    at = data.draw(st.integers(0, len(strings)))
    strings.insert(at, key)
    value = b"".join(_SIZES[size_of](len(each)) + each for each in strings)
    patterns = KeyPatterns(frozenset({key}), frozenset())
    place = sum(len(_SIZES[size_of](len(each)) + each) for each in strings[: at + 1]) - len(key)

    assert patterns.standing(key, value, place) is not Standing.IN_WORD


def test_holes_are_not_read(tmp_path: Path) -> None:
    """A key of zeroes is in them, and one may begin and end in them."""
    key, path = bytes(6) + b"\1" + bytes(4), tmp_path / "notes"
    with path.open("wb") as file:
        file.truncate(1 << 40)
        file.seek(1 << 39)
        file.write(b"\1")
    search = KeySearch(NamedRecords(frozenset({key, bytes(8)})))

    begin = time.process_time()
    assert search.file(local(path), {path.name}).raw == 1

    assert time.process_time() - begin < 5


@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("name", [f"{0:020d}.index", f"{0:020d}.txnindex", f"{0:020d}.snapshot"])
def test_binary_numbers_in_indexes_are_no_keys(tmp_path: Path, size: int, name: str) -> None:
    number = (12).to_bytes(size)

    assert found_in(tmp_path, b"\1" + number + b"\2", number, name=name).is_clean
    assert found_in(tmp_path, b"\1" + number + b"\2", number, name="notes").raw


def test_a_number_of_four_bytes_in_a_field_is_a_possible_place(tmp_path: Path) -> None:
    number = (1).to_bytes(4)
    rows = [record(0, b"k", b"\0" + number + b"value with schema 1")]
    rows += [record(1, b"k", b"v", [(b"by", number)]), record(2, number)]

    found = found_in(tmp_path, batch(rows), number)

    assert (found.records, found.mentions, found.possible) == (1, 0, 2)
    name = b"00000000000000000001.log"
    assert found_in(tmp_path, name, number, name="journal").is_clean


@pytest.mark.parametrize("topic", ["__transaction_state", "__consumer_offsets", "orders", None])
@pytest.mark.parametrize("magic", [1, 2])
def test_numbers_in_topics_of_kafka_are_possible_places(
    tmp_path: Path, topic: str | None, magic: int
) -> None:
    """A producer id, or an offset, is no key of *LongSerializer*; a text is one anywhere."""
    number, value = (42).to_bytes(8), b"\0\1" + (42).to_bytes(8) + b"\0\5alice\0"
    log = batch([record(0, b"k", value)]) if magic == 2 else message(0, key=b"k", value=value)
    (path := tmp_path / f"{0:020d}.log").write_bytes(log)
    is_kafkas = topic is not None and topic.startswith("__")

    def found(key: bytes) -> FoundKeys:
        return KeySearch(NamedRecords(frozenset({key}))).file(local(path), {path.name}, topic)

    assert (found(number).mentions, found(number).possible) == (not is_kafkas, is_kafkas)
    assert found(b"alice").mentions == 1


def test_bytes_that_are_no_words_count_anywhere(tmp_path: Path) -> None:
    log = batch([record(0, b"k", b"a" + (4711).to_bytes(8) + b"b")])

    assert found_in(tmp_path, log, (4711).to_bytes(8)).mentions == 1


@pytest.mark.parametrize("codec", Codec)
def test_a_record_is_found_by_its_whole_key_however_short(tmp_path: Path, codec: Codec) -> None:
    log = batch([record(4, b"7", b"7 7"), record(5, b"77", b"7"), record(6, None)], codec=codec)

    found = found_in(tmp_path, log, b"7")

    assert (found.records, found.mentions, found.offsets) == (1, 0, (4,))


def test_old_formats_are_searched(tmp_path: Path) -> None:
    plain = message(0, b"alice", b"v", magic=1, timestamp=1)
    plain += message(1, b"k", b"of alice", magic=0, timestamp=-1)

    assert found_in(tmp_path, plain, b"alice") == FoundKeys(
        len(plain), records=1, mentions=1, offsets=(0, 1)
    )


def test_a_damaged_batch_is_searched_all_the_same(tmp_path: Path) -> None:
    log = bytearray(batch([record(0, b"alice")]) + batch([record(1, b"bob")]))
    log[20] ^= 1  # its checksum

    found = found_in(tmp_path, bytes(log), b"alice")

    assert found.records + found.raw >= 1
    assert not found.is_clean


@pytest.mark.parametrize("log", [batch([record(0, b"alice")]), message(0, b"alice", b"v")])
def test_a_flipped_bit_may_be_in_a_key(tmp_path: Path, log: bytes) -> None:
    damaged = log.replace(b"alice", b"alicf")

    found = found_in(tmp_path, damaged, b"alice")

    assert (found.records, found.raw, found.unreadable_batches) == (0, 0, 1)


@pytest.mark.parametrize(("largest_bytes", "is_read"), [(1 << 20, False), (64 << 20, True)])
def test_a_message_over_the_limit_may_hide_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, largest_bytes: int, is_read: bool
) -> None:
    monkeypatch.setattr(message_set, "LARGEST_INNER_BYTES", 1 << 20)
    held = gzip.compress(message(0, b"bob", bytes(20 << 20), magic=1), compresslevel=0)
    (path := tmp_path / f"{0:020d}.log").write_bytes(message(0, b"k", held, attributes=Codec.GZIP))

    search = KeySearch(NamedRecords(frozenset({b"alice"})), largest_bytes)

    found = search.file(local(path), {path.name})
    assert found.unreadable_batches == (not is_read)


@pytest.mark.parametrize("magic", [0, 1])
def test_the_key_of_a_message_that_holds_others_is_found(tmp_path: Path, magic: int) -> None:
    held = compress(Codec.GZIP, message(0, b"bob", magic=magic), magic=magic)
    log = message(0, b"alice", held, magic=magic, attributes=Codec.GZIP)

    assert found_in(tmp_path, log, b"alice").records == 1


def lengthened(entry: bytes, more: bytes) -> bytes:
    """Return a message with bytes after its value, which its size counts."""
    body = entry[16:] + more
    return entry[:8] + struct.pack(">iI", 4 + len(body), zlib.crc32(body)) + body


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("key", [b"alice", b"alice-4711"])
@pytest.mark.parametrize("value", [None, b"v"])
def test_what_follows_the_value_of_a_message_is_searched(
    tmp_path: Path, magic: int, key: bytes, value: bytes | None
) -> None:
    entry = lengthened(message(0, b"bob", value, magic=magic), key)
    held = compress(Codec.GZIP, entry, magic=magic)
    wrapped = message(0, None, held, magic=magic, attributes=Codec.GZIP)
    plain = message(0, None, compress(Codec.GZIP, message(0, b"bob")), attributes=Codec.GZIP)

    assert found_in(tmp_path, entry, key).mentions == 1
    assert found_in(tmp_path, wrapped, key).mentions == 1
    assert found_in(tmp_path, lengthened(plain, key), key).mentions == 1


@pytest.mark.parametrize("codec", [each for each in Codec if each is not Codec.NONE])
def test_what_follows_compressed_data_is_searched(tmp_path: Path, codec: Codec) -> None:
    log = bytearray(batch([record(0, b"bob", b"malice-4711 " * 30)], codec=codec))
    assert found_in(tmp_path, bytes(log), b"alice-4711").is_clean
    log += b"carol-4711"
    log[8:12] = (len(log) - 12).to_bytes(4)
    crc = record_batch.compute_crc(log)
    log[record_batch.CRC_START : record_batch.CHECKED_START] = crc.to_bytes(4)

    assert found_in(tmp_path, bytes(log) + batch([record(1)]), b"carol-4711").raw >= 1


def test_a_message_whose_value_reaches_past_it_may_hide_records(tmp_path: Path) -> None:
    log = bytearray(message(0, b"alice", b"v"))
    log[-2] = 99  # the size of the value

    found = found_in(tmp_path, bytes(log), b"alice")

    assert (found.records, found.raw, found.unreadable_batches) == (0, 1, 1)


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_that_says_it_is_empty_may_hide_records(tmp_path: Path, codec: Codec) -> None:
    log = bytearray(batch([record(0, b"alice", b"v" * 300)], codec=codec))
    log[record_batch.HEADER_BYTES - 4 : record_batch.HEADER_BYTES] = bytes(4)
    crc = record_batch.compute_crc(log)
    log[record_batch.CRC_START : record_batch.CHECKED_START] = crc.to_bytes(4, "big")
    assert record_batch.has_right_crc(log)

    assert found_in(tmp_path, bytes(log), b"alice").unreadable_batches == 1


@pytest.mark.parametrize("name", [f"{0:020d}.log", f"{0:020d}.index", "anything"])
def test_bytes_that_are_no_records_are_searched(tmp_path: Path, name: str) -> None:
    content = bytes(3000) + b"alice" + bytes(3000)

    assert found_in(tmp_path, content, b"alice", name=name).raw == 1


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "leader-epoch-checkpoint"])
def test_numbers_of_kafka_are_no_keys(tmp_path: Path, name: str) -> None:
    content = b"0\n1\norders-7 0 471100\n"

    assert found_in(tmp_path, content, b"471100", name=name).is_clean
    assert found_in(tmp_path, content, b"orders-7", name=name).raw == 1
    assert found_in(tmp_path, content, b"471100", name="notes").raw == 1


@pytest.mark.parametrize(
    "content",
    [
        b"616c6963652d34373131\n",
        b"616C6963652D34373131\r\n",
        b"YWxpY2UtNDcxMQ==\n",
        b"YWxpY2UtNDcxMQ",
        b'{"format": "kdump-erased"}',
    ],
)
@pytest.mark.parametrize("name", ["ids.txt", f"{0:020d}.log"])
def test_files_of_keys_have_them_in_other_forms(tmp_path: Path, content: bytes, name: str) -> None:
    assert found_in(tmp_path, content, b"alice-4711", name=name).raw == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tenant/alice", rb'{"by":"tenant\/alice"}'),
        ("Zoë Müller", rb'{"by":"Zo\u00eb M\u00fcller"}'),
        ("Zoë Müller", rb'{"by":"Zo\u00EB M\u00FCller"}'),
        ("a&b=c's", rb'{"by":"a\u0026b\u003dc\u0027s"}'),
        ("alice\tsmith", rb'{"by":"alice\tsmith"}'),
        ('alice "al" smith', rb'{"by":"alice \"al\" smith"}'),
        ("alice@example.com", b"GET /users?by=alice%40example.com HTTP/1.1"),
        ("Zoë Müller", b"by=Zo%c3%ab+M%c3%bcller"),
        ("alice-4711", b'{"by":"YWxpY2UtNDcxMQ=="}'),
        ("alice-4711", "by alice-4711".encode("utf-16-le")),
        ("alice-4711", "by alice-4711".encode("utf-16-be")),
    ],
)
@pytest.mark.parametrize("is_record", [True, False])
def test_a_key_is_found_in_other_forms(
    tmp_path: Path, key: str, value: bytes, is_record: bool
) -> None:
    content = batch([record(0, b"k", value)]) if is_record else value
    name = f"{0:020d}.log" if is_record else "notes"

    found = found_in(tmp_path, content, key.encode(), name=name)

    assert found.mentions if is_record else found.raw


def test_the_certificate_of_another_erasure_is_no_list(tmp_path: Path) -> None:
    content = b'{"format": "kdump-erase-certificate"}'

    assert found_in(tmp_path, content, b"alice-4711", name="erased.json").is_clean


TORN = batch([record(0, b"alice", b"v" * 300)], codec=Codec.GZIP)[40:]


@pytest.mark.parametrize(
    ("name", "may_hide"),
    [
        (f"{0:020d}.log.deleted", True),
        (f"{0:020d}-{3:010d}.checkpoint", True),
        (f"damaged-{0:020d}.log-40-90", True),
        (f"{0:020d}.kafka", True),
        (".kdump-7-cut", True),
        ("backup.gz", True),
        ("backup.snapshot", True),
        ("orders.index", True),
        ("leader-epoch-checkpoint", True),
        (f"{0:020d}.timeindex.deleted", False),
        (f"damaged-{0:020d}.index-40-90", False),
        (f"{0:020d}.snapshot", False),
        (f"4711_{'A' * 21}_.index", False),
        (f"0_{'A' * 21}-.txnindex.deleted", False),
        ("4711_orders.index", True),
        (f"{0:020d}-{'A' * 22}.snapshot", False),
    ],
)
def test_a_piece_of_a_batch_may_hide_records_wherever_one_may_be(
    tmp_path: Path, name: str, may_hide: bool
) -> None:
    assert found_in(tmp_path, TORN, b"alice", name=name).unreadable_batches == may_hide


def test_text_of_anybody_hides_nothing(tmp_path: Path) -> None:
    content = "Grüße von Bob\r\n".encode() * 200_000  # several reads

    assert found_in(tmp_path, content, b"alice", name="notes").is_clean
    assert found_in(tmp_path, content + b"\xc3", b"alice", name="notes").unreadable_batches == 1


def test_bytes_between_batches_are_searched_and_said_to_be_unreadable(tmp_path: Path) -> None:
    log = batch([record(0)]) + b"\xff" * 30 + b"alice" + b"\xff" * 30 + batch([record(1)])

    found = found_in(tmp_path, log, b"alice")

    assert (found.raw, found.unreadable_batches) == (1, 1)


def test_preallocated_space_is_no_reason_to_doubt(tmp_path: Path) -> None:
    assert found_in(tmp_path, batch([record(0)]) + bytes(5000), b"alice").is_clean


def test_a_torn_batch_may_hide_records(tmp_path: Path) -> None:
    log = batch([record(0)]) + batch([record(1, b"k", b"v" * 300)], codec=Codec.GZIP)[:-10]

    assert found_in(tmp_path, log, b"alice").unreadable_batches == 1
