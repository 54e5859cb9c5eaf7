from __future__ import annotations

import contextlib
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.messages import encode, message_values, varint
from builders.samples import examples
from kdump.formats.cursor import Cursor
from kdump.formats.errors import FormatError
from kdump.formats.message_decoder import UNKNOWN_TAGGED_FIELDS, SchemaError, decode, java_message
from kdump.formats.schema import MessageSchema, RecordType, Scalar, array, field, message, struct
from kdump.formats.schemas import (
    consumer_protocol,
    control,
    group_coordinator,
    metadata,
    remote_storage,
    share,
    transaction,
)


def all_schemas() -> list[MessageSchema]:
    families = [group_coordinator, transaction, share, metadata, remote_storage, control]
    record_types: list[RecordType] = [
        record_type for family in families for record_type in family.RECORD_TYPES.values()
    ]
    return [
        *(record_type.value for record_type in record_types),
        *(record_type.key for record_type in record_types if record_type.key is not None),
        consumer_protocol.CONSUMER_PROTOCOL_SUBSCRIPTION,
        consumer_protocol.CONSUMER_PROTOCOL_ASSIGNMENT,
    ]


ALL_VERSIONS = [
    pytest.param(schema, version, id=f"{schema.name}-{version}")
    for schema in dict.fromkeys(all_schemas())
    for version in range(schema.versions.lowest, schema.versions.highest + 1)
]


def decoded(schema: MessageSchema, data: bytes, version: int = 0) -> dict[str, Any]:
    return decode(schema, Cursor(data), version)


@pytest.mark.hypothesis
@pytest.mark.slow
@pytest.mark.parametrize(("schema", "version"), ALL_VERSIONS)
def test_every_schema_is_read_back_as_it_was_written(schema: MessageSchema, version: int) -> None:
    @settings(max_examples=examples(0.2))
    @given(message_values(schema, version))
    def check(value: dict[str, Any]) -> None:
        cursor = Cursor(encode(schema, value, version))
        assert decode(schema, cursor, version) == value
        assert cursor.remaining == 0

    check()


@pytest.mark.hypothesis
@pytest.mark.slow
@pytest.mark.parametrize(("schema", "version"), ALL_VERSIONS)
def test_any_bytes_give_a_value_or_a_format_error(schema: MessageSchema, version: int) -> None:
    @settings(max_examples=examples(0.2))
    @given(message_values(schema, version), st.integers(min_value=0), st.binary(max_size=2))
    def check(value: dict[str, Any], place: int, put_there: bytes) -> None:
        damaged = bytearray(encode(schema, value, version) + b"\x00")
        place %= len(damaged)
        damaged[place : place + 1] = put_there
        with contextlib.suppress(FormatError):
            decoded(schema, bytes(damaged), version)

    check()


def test_the_scalars_have_kafkas_encodings() -> None:
    schema = message(
        "Scalars",
        field("bool", Scalar.BOOL),
        field("int8", Scalar.INT8),
        field("int16", Scalar.INT16),
        field("uint16", Scalar.UINT16),
        field("int32", Scalar.INT32),
        field("int64", Scalar.INT64),
        field("float64", Scalar.FLOAT64),
        field("string", Scalar.STRING),
        field("bytes", Scalar.BYTES),
        field("uuid", Scalar.UUID),
        flexible="none",
    )
    data = bytes.fromhex(
        "02 ff fffe fffe fffffffd fffffffffffffffc 4004000000000000 0002c3a9 00000001ff"
        "fbefbefbefbefbefbefbefbefbefbefb"
    )
    assert decoded(schema, data) == {
        "bool": True,
        "int8": -1,
        "int16": -2,
        "uint16": 65534,
        "int32": -3,
        "int64": -4,
        "float64": 2.5,
        "string": "é",
        "bytes": b"\xff",
        "uuid": "----------------------"[:21] + "w",
    }


def test_lengths_are_varints_in_flexible_versions() -> None:
    schema = message("S", field("s", Scalar.STRING), versions="0-1", flexible="1+")
    assert decoded(schema, b"\x00\x02hi", 0) == {"s": "hi"}
    assert decoded(schema, b"\x03hi\x00", 1) == {"s": "hi"}


def test_a_field_is_there_in_its_versions_only() -> None:
    schema = message(
        "S",
        field("a", Scalar.INT8, "1"),
        field("b", Scalar.INT8, "2+"),
        versions="0-3",
        flexible="none",
    )
    data = b"\x05\x06"
    assert [decoded(schema, data, version) for version in range(4)] == [
        {},
        {"a": 5},
        {"b": 5},
        {"b": 5},
    ]


@pytest.mark.parametrize("kind", [Scalar.STRING, Scalar.BYTES, array(Scalar.INT32)])
def test_a_negative_length_is_null_where_null_is_allowed(kind: Any) -> None:
    nullable = message("N", field("f", kind, nullable=True), flexible="none")
    assert decoded(nullable, b"\xff\xff\xff\xff") == {"f": None}
    with pytest.raises(SchemaError, match="non-nullable field f was serialized as null"):
        decoded(message("N", field("f", kind), flexible="none"), b"\xff\xff\xff\xff")


INNER = struct("Inner", field("n", Scalar.INT8))


def test_a_struct_that_may_be_null_says_first_whether_it_is() -> None:
    schema = message("S", field("inner", INNER, nullable=True))
    assert decoded(schema, b"\xff\x00") == {"inner": None}
    assert decoded(schema, b"\x01\x05\x00\x00") == {"inner": {"n": 5}}


TAGGED = message(
    "Tagged",
    field("first", Scalar.INT8, tag=0, default=-1),
    field("plain", Scalar.INT8),
    field("list", array(Scalar.INT8), tag=1),
    field("inner", INNER, tag=2, nullable=True),
    field("new", Scalar.INT8, "1+", tag=3),
    versions="0-1",
)


def test_absent_tagged_fields_are_at_their_default() -> None:
    value = decoded(TAGGED, b"\x07\x00")
    assert value == {"first": -1, "plain": 7, "list": [], "inner": {"n": 0}}
    assert list(value) == ["first", "plain", "list", "inner"]


def test_defaults_that_can_change_are_not_shared_between_messages() -> None:
    decoded(TAGGED, b"\x07\x00")["list"].append(1)
    assert decoded(TAGGED, b"\x07\x00")["list"] == []


def test_tagged_fields_are_found_by_their_tag() -> None:
    data = b"\x07\x03" + b"\x02\x03\x01\x05\x00" + b"\x00\x01\x09" + b"\x01\x02\x02\x04"
    assert decoded(TAGGED, data) == {"first": 9, "plain": 7, "list": [4], "inner": {"n": 5}}


def test_unknown_tagged_fields_are_kept_as_bytes() -> None:
    value = decoded(TAGGED, b"\x07\x02" + b"\x63\x02ab" + b"\x64\x00")
    assert value[UNKNOWN_TAGGED_FIELDS] == [{"tag": 99, "data": b"ab"}, {"tag": 100, "data": b""}]


def test_a_tag_of_a_later_version_is_an_error() -> None:
    data = b"\x07\x01\x03\x01\x09"
    assert decoded(TAGGED, data, 1)["new"] == 9
    with pytest.raises(SchemaError, match="Tag 3 is not valid for version 0"):
        decoded(TAGGED, data, 0)


def test_a_later_version_is_read_as_far_as_kafka_reads_it() -> None:
    schema = message("S", field("n", Scalar.INT8), field("list", array(INNER)), flexible="none")
    assert decoded(schema, b"\x05\x00\x00\x00\x00", 9) == {"n": 5, "list": []}
    with pytest.raises(SchemaError, match="Can't read version 9 of Inner"):
        decoded(schema, b"\x05\x00\x00\x00\x01\x06", 9)


def test_bytes_that_end_within_a_field_have_no_message_in_java() -> None:
    with pytest.raises(FormatError) as caught:
        decoded(message("S", field("n", Scalar.INT64), flexible="none"), bytes(7))
    assert java_message(caught.value) == "null"


LIST = message("L", field("list", array(Scalar.INT8)))
STRINGS = message("L", field("list", array(Scalar.STRING)))


@pytest.mark.parametrize(
    ("schema", "data", "expected"),
    [
        pytest.param(
            message("S", field("s", Scalar.STRING)),
            varint(0x8001) + b"x",
            "string field s had invalid length 32768",
            id="a string that is too long",
        ),
        pytest.param(
            message("S", field("s", Scalar.STRING)),
            varint(9) + b"abc",
            "Error reading byte array of 8 byte(s): only 3 byte(s) available",
            id="a string that reaches past the end",
        ),
        pytest.param(
            LIST,
            varint(6) + b"abc",
            "Tried to allocate a collection of size 5, but there are only 3 bytes remaining.",
            id="an array with more elements than bytes",
        ),
        pytest.param(
            STRINGS,
            b"\x02\x00",
            "non-nullable field list element was serialized as null",
            id="an element that is null",
        ),
        pytest.param(
            LIST,
            b"\xff\xff\xff\xff\xff",
            "Varint is too long, the most significant bit in the 5th byte is set, "
            "converted value: ffffffff",
            id="a varint that does not end",
        ),
        pytest.param(
            message("E"),
            b"\x01\x63" + varint(-3),
            "-3",
            id="an unknown tagged field of negative size",
        ),
    ],
)
def test_errors_have_the_messages_of_kafkas_readers(
    schema: MessageSchema, data: bytes, expected: str
) -> None:
    with pytest.raises(SchemaError) as caught:
        decoded(schema, data)
    assert caught.value.java_message == expected


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(varint(0x7FFFFFFF) + b"\x01", id="elements"),
        pytest.param(b"\x01" + varint(0x7FFFFFFF) + b"\x63", id="tagged fields"),
        pytest.param(b"\x01\x01\x63" + varint(0x7FFFFFFF), id="bytes of an unknown tagged field"),
    ],
)
def test_false_counts_get_no_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            decoded(LIST, data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
