"""For any bytes a decoder returns a value or raises FormatError, and nothing else."""

from __future__ import annotations

import base64
import itertools
import json
import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.batches import batch, record
from builders.message_sets import encode_message, message_07
from builders.samples import at_some_or_all
from kdump.formats import (
    checkpoints,
    clean_shutdown,
    internal_topics,
    kafka07,
    message_set,
    meta_properties,
    names,
    offset_index,
    partition_metadata,
    producer_snapshot,
    quorum_state,
    record_batch,
    time_index,
    transaction_index,
)
from kdump.formats.compression import Codec, compress, decompress, decompress_chunks
from kdump.formats.errors import FormatError
from kdump.formats.java import properties

Read = Callable[[bytes], object]
"""Decodes everything in the bytes of a file or a record."""

LIMIT_BYTES = 1 << 20


# ---- How each format is read ----


def read_batches(data: bytes) -> None:
    """Read all batches without their checksums, which would keep damage from the decoders."""
    position = 0
    while position < len(data):
        header = record_batch.decode_header(data, position)
        end = position + 12 + header.length
        if header.length < 49 or end > len(data):
            raise FormatError("batch does not fit", position=position)
        body = data[position + 61 : end]
        codec = Codec.of_attributes(header.attributes)
        exhaust(
            record_batch.decode_records(header, decompress(codec, body, limit_bytes=LIMIT_BYTES))
        )
        position = end


def read_message_set(data: bytes) -> None:
    position = 0
    while position < len(data):
        message = message_set.decode_message(data, position)
        if message.codec is Codec.NONE:
            assert isinstance(message.value, bytes | None)
        else:
            for inner in message_set.inner_messages(message, largest_bytes=LIMIT_BYTES):
                assert isinstance(inner.value, bytes | None)
        position += message.size_bytes


def read_0_7_log(data: bytes) -> None:
    for found in kafka07.walk(data):
        if isinstance(found, kafka07.Message07) and found.codec is not Codec.NONE:
            exhaust(kafka07.inner_messages(found, largest_bytes=LIMIT_BYTES))


def read_offset_index(data: bytes) -> None:
    index = offset_index.decode(data, 100)
    offset_index.sanity_problem(index)
    for target in (0, 100, 150, 2**62):
        offset_index.lookup(index, target)


def read_time_index(data: bytes) -> None:
    index = time_index.decode(data, 100)
    time_index.sanity_problem(index)
    for target in (-1, 0, 2**62):
        time_index.lookup(index, target)


def read_transaction_index(data: bytes) -> None:
    index = transaction_index.decode(data)
    transaction_index.version_problem(index)
    transaction_index.trailing_problem(index)


def read_producer_snapshot(data: bytes) -> None:
    both_checked_and_not = (producer_snapshot.decode, producer_snapshot.read)
    raised = [raises_format_error(read, data) for read in both_checked_and_not]
    if any(raised):
        raise FormatError("one of the two says so")


def raises_format_error(read: Read, data: bytes) -> bool:
    try:
        read(data)
    except FormatError:
        return True
    return False


def read_compressed_pieces(codec: Codec, data: bytes) -> None:
    exhaust(decompress_chunks(codec, data, chunk_bytes=16))


def exhaust(items: Iterable[object]) -> None:
    for _ in items:
        pass


# ---- A small valid sample of each ----


def sample_batch(codec: Codec) -> bytes:
    rows = [
        record(7, b"k1", b"one", headers=[(b"h", b"x"), (b"", None)]),
        record(8, None, b""),
        record(11, b"", None),
    ]
    return batch(rows, codec=codec, producer_id=5, producer_epoch=1, base_sequence=2**31 - 2)


def sample_message_set(magic: int, codec: Codec) -> bytes:
    inner = b"".join(encode_message(offset, b"k", b"value", magic=magic) for offset in range(2))
    if codec is Codec.NONE:
        return inner
    packed = compress(codec, inner, magic=magic)
    return encode_message(1, None, packed, magic=magic, attributes=codec)


def sample_0_7_log(magic: int, codec: Codec) -> bytes:
    inner = b"".join(message_07(b"value", magic=magic) for _ in range(2))
    if codec is Codec.NONE:
        return inner
    return message_07(compress(codec, inner, magic=1), magic=1, attributes=codec)


TEXT = b"abcabcabcabd" * 5

SNAPSHOT = producer_snapshot.encode(
    producer_snapshot.decode(bytes.fromhex("0001 00000000 00000001") + bytes(range(46))).entries
)

SAMPLES: dict[str, tuple[Read, bytes]] = {
    **{f"batch, {codec.label}": (read_batches, sample_batch(codec)) for codec in Codec},
    **{
        f"message set, magic {magic}, {codec.label}": (
            read_message_set,
            sample_message_set(magic, codec),
        )
        for magic in (0, 1)
        for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
    },
    **{
        f"0.7 log, magic {magic}, {codec.label}": (read_0_7_log, sample_0_7_log(magic, codec))
        for magic, codec in [
            (0, Codec.NONE),
            (1, Codec.NONE),
            (1, Codec.GZIP),
            (1, Codec.SNAPPY),
        ]
    },
    "offset index": (
        read_offset_index,
        bytes.fromhex("00000005 00000100 00000009 00000200 00000000 00000000"),
    ),
    "time index": (
        read_time_index,
        bytes.fromhex("0000019b76e52800 00000005 0000019b76e52900 00000009"),
    ),
    "transaction index": (
        read_transaction_index,
        bytes.fromhex("0000" + "00000000000003e8" * 2 + "00000000000003f0" * 2),
    ),
    "producer snapshot": (read_producer_snapshot, SNAPSHOT),
    "offset checkpoint": (
        checkpoints.decode_offset_checkpoint,
        b"0\n2\ntopic-a 0 15\ntopic-b 12 9223372036854775807\n",
    ),
    "leader epoch checkpoint": (
        checkpoints.decode_leader_epoch_checkpoint,
        b"0\n2\n0 0\n5 1234\n",
    ),
    "clean shutdown marker": (
        clean_shutdown.decode_clean_shutdown,
        b'{"version":0,"brokerEpoch":12}',
    ),
    "partition.metadata": (
        partition_metadata.decode_partition_metadata,
        b"version: 0\ntopic_id: FhPzZyzqQYGQ_0X0Sk3oNA",
    ),
    "meta.properties": (
        meta_properties.decode_meta_properties,
        (
            b"#\n#Sat Nov 21 05:46:45 UTC 2026\nnode.id=1\nversion=1\n"
            b"directory.id=zTTKFz9FQ2uFmGxMGQfjRw\ncluster.id=c\\u0041\n"
        ),
    ),
    "properties": (properties.decode_properties, b"a=b\\\n c\n! no\nk\\ ey : \\u00e9\\t\n"),
    "quorum-state": (
        quorum_state.decode_quorum_state,
        (
            b'{"leaderId":1,"leaderEpoch":7,"votedId":-1,'
            b'"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
        ),
    ),
    "control record key": (
        lambda data: internal_topics.control_record_text(data, bytes(6)),
        bytes.fromhex("00000001"),
    ),
    "end transaction marker": (
        lambda data: internal_topics.control_record_text(bytes.fromhex("00000000"), data),
        bytes.fromhex("000000000007"),
    ),
    "leader change": (
        lambda data: internal_topics.control_record_text(bytes.fromhex("00000002"), data),
        bytes.fromhex("0000 00000001 02 00000001 00 02 00000001 00 00"),
    ),
    "voters": (
        lambda data: internal_topics.control_record_text(bytes.fromhex("00000006"), data),
        bytes.fromhex("0000 02 00000001")
        + bytes(16)
        + bytes.fromhex("02 0243 0268 2384 00 00000001 00 00 00"),
    ),
    **{
        f"compressed data, {codec.label}": (
            partial(decompress, codec, limit_bytes=LIMIT_BYTES),
            compress(codec, TEXT),
        )
        for codec in Codec
    },
    **{
        f"compressed data in pieces, {codec.label}": (
            partial(read_compressed_pieces, codec),
            compress(codec, TEXT),
        )
        for codec in Codec
    },
}


SOME_DIFFERENCES = (0x01, 0x08, 0x40, 0x80, 0xFF)


def single_byte_changes(sample: bytes, *, is_all: bool) -> Iterator[bytes]:
    """Return ``sample`` with one byte changed, in some or all of the 255 ways at each position."""
    changed = bytearray(sample)
    for position, sound in enumerate(sample):
        for difference in range(1, 256) if is_all else SOME_DIFFERENCES:
            changed[position] = sound ^ difference
            yield bytes(changed)
        changed[position] = sound


def gives_value_or_format_error(read: Read, data: bytes) -> None:
    problem = None
    try:
        read(data)
    except FormatError as error:
        problem = error
    except Exception as error:
        raise AssertionError(f"{error!r} from {data.hex()}") from error
    if problem is not None:
        assert problem.what, data.hex()
        assert problem.position >= 0, data.hex()


@pytest.mark.parametrize("name", SAMPLES)
def test_a_valid_sample_is_read_without_an_error(name: str) -> None:
    read, sample = SAMPLES[name]
    read(sample)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_truncation_gives_a_value_or_a_format_error(name: str) -> None:
    read, sample = SAMPLES[name]
    for size in range(len(sample)):
        gives_value_or_format_error(read, sample[:size])


@pytest.mark.slow
@at_some_or_all
@pytest.mark.parametrize("name", SAMPLES)
def test_every_change_of_one_byte_gives_a_value_or_a_format_error(name: str, is_all: bool) -> None:
    read, sample = SAMPLES[name]
    for changed in single_byte_changes(sample, is_all=is_all):
        gives_value_or_format_error(read, changed)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
@given(data=st.binary(max_size=300))
def test_any_bytes_give_a_value_or_a_format_error(name: str, data: bytes) -> None:
    gives_value_or_format_error(SAMPLES[name][0], data)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
@given(edits=st.data())
def test_many_edits_of_a_valid_sample_give_a_value_or_a_format_error(
    name: str, edits: st.DataObject
) -> None:
    read, sample = SAMPLES[name]
    changed = bytearray(sample)
    for _ in range(edits.draw(st.integers(1, 6))):
        if not changed:
            break
        start = edits.draw(st.integers(0, len(changed) - 1))
        removed = edits.draw(st.integers(0, 4))
        changed[start : start + removed] = edits.draw(st.binary(max_size=6))
    gives_value_or_format_error(read, bytes(changed))


# ---- Internal topics, as a broker wrote them ----

PARSERS = {
    "__consumer_offsets": internal_topics.parse_offsets,
    "__transaction_state": internal_topics.parse_transaction_log,
    "__share_group_state": internal_topics.parse_share_group_state,
}


def records_of_each_type(fixtures: Path, topic: str) -> Iterator[tuple[bytes, bytes | None]]:
    """Return the smallest fixture record of each type and of each version of its value."""
    smallest: dict[bytes, tuple[bytes, bytes | None]] = {}
    for path in sorted(fixtures.glob(f"out/expected*/{topic}-*.uncommitted.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            key = base64.b64decode(row["key"])
            value = None if row["value"] is None else base64.b64decode(row["value"])
            kind = key[:2] + (value[:2] if value else b"")
            known = smallest.get(kind)
            if known is None or len(key) + len(value or b"") < len(known[0]) + len(known[1] or b""):
                smallest[kind] = (key, value)
    assert smallest
    yield from smallest.values()


@pytest.mark.slow
@pytest.mark.parametrize("topic", PARSERS)
def test_damaged_internal_records_are_text_or_a_format_error(fixtures: Path, topic: str) -> None:
    parse = PARSERS[topic]
    rng = random.Random(topic)
    for key, value in records_of_each_type(fixtures, topic):
        assert parse(key, value, 0).error is None
        for damaged in some_damages(rng, key):
            gives_value_or_format_error(partial(parse, value=value, offset=0), damaged)
        for damaged in some_damages(rng, value or b""):
            gives_value_or_format_error(partial(parse, key, offset=0), damaged)


def some_damages(rng: random.Random, sample: bytes) -> Iterator[bytes]:
    """Return every truncation, every flipped bit, and a few hundred random changes of bytes."""
    yield from (sample[:size] for size in range(len(sample)))
    for position, bit in itertools.product(range(len(sample)), range(8)):
        changed = bytearray(sample)
        changed[position] ^= 1 << bit
        yield bytes(changed)
    for _ in range(300 if sample else 0):
        changed = bytearray(sample)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        yield bytes(changed)


@given(data=st.binary(max_size=200))
def test_any_bytes_are_text_to_the_metadata_decoders(data: bytes) -> None:
    for parse in (
        internal_topics.parse_cluster_metadata,
        internal_topics.parse_remote_log_metadata,
    ):
        assert parse(None, data, 3).payload_text


@given(frame=st.integers(0, 30), version=st.integers(0, 4), body=st.binary(max_size=120))
def test_any_body_of_a_known_type_is_text_to_the_metadata_decoders(
    frame: int, version: int, body: bytes
) -> None:
    data = bytes((1, frame, version)) + body
    assert internal_topics.parse_cluster_metadata(None, data, 3).payload_text
    assert internal_topics.parse_remote_log_metadata(None, data, 3).payload_text


# ---- Names ----


@given(name=st.text(max_size=80))
def test_any_text_is_a_name_of_some_kind_or_none(name: str) -> None:
    names.parse_offset_file_name(name)
    names.parse_metadata_snapshot_name(name)
    names.parse_0_7_directory_name(name)
    try:
        names.parse_partition_directory_name(name)
    except FormatError:
        return


# ---- Claims ----


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_what_decompresses_to_more_than_the_limit_is_an_error(codec: Codec) -> None:
    bomb = compress(codec, bytes(8 << 20))
    with pytest.raises(FormatError):
        decompress(codec, bomb, limit_bytes=1 << 20)


@pytest.mark.parametrize("claim", [2**31 - 1, 2**24, 1001])
def test_a_batch_cannot_make_the_reader_take_more_memory_than_its_bytes(claim: int) -> None:
    data = bytearray(sample_batch(Codec.NONE))
    data[57:61] = claim.to_bytes(4, "big")
    with pytest.raises(FormatError):
        read_batches(bytes(data))
