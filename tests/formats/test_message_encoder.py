"""Messages are written as they are read, and only what a version can hold is written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.messages import message_values
from builders.samples import examples
from formats.test_message_decoder import ALL_VERSIONS, TAGGED
from kdump.formats.cursor import Cursor
from kdump.formats.java.jackson import message_node, node_text
from kdump.formats.message_decoder import UNKNOWN_TAGGED_FIELDS, decode
from kdump.formats.message_encoder import EncodingError, encode
from kdump.formats.message_json import MessageJsonError, fields_from_json
from kdump.formats.schema import MessageSchema, Scalar, array, field, message
from kdump.formats.schemas.metadata import RECORD_TYPES


@pytest.mark.hypothesis
@pytest.mark.slow
@pytest.mark.parametrize(("schema", "version"), ALL_VERSIONS)
def test_every_schema_is_read_back_from_its_bytes_and_from_the_json_that_is_printed(
    schema: MessageSchema, version: int
) -> None:
    @settings(max_examples=examples(0.1))
    @given(message_values(schema, version))
    def check(value: dict[str, Any]) -> None:
        cursor = Cursor(encode(schema, value, version))
        assert decode(schema, cursor, version) == value
        assert cursor.remaining == 0
        printed = node_text(message_node(schema, value, version))
        assert fields_from_json(schema, version, json.loads(printed)) == value

    check()


PARTITION = RECORD_TYPES[3].value


def test_tagged_fields_at_their_default_are_left_out() -> None:
    value = {"first": -1, "plain": 7, "list": [], "inner": {"n": 0}}
    assert encode(TAGGED, value, 0) == b"\x07\x00"


def test_missing_fields_have_their_default() -> None:
    assert encode(TAGGED, {"plain": 7}, 0) == b"\x07\x00"


def test_unknown_tagged_fields_are_written_in_the_order_of_tags() -> None:
    unknown = {UNKNOWN_TAGGED_FIELDS: [{"tag": 99, "data": b"ab"}]}
    encoded = encode(TAGGED, {"plain": 7, "list": [4], **unknown}, 0)
    assert encoded == b"\x07\x02" + b"\x01\x02\x02\x04" + b"\x63\x02ab"


def test_a_field_that_the_version_lacks_has_to_be_at_its_default() -> None:
    record: dict[str, Any] = {"directories": [], "eligibleLeaderReplicas": None}
    assert encode(PARTITION, record, 0) == encode(PARTITION, {}, 0)
    with pytest.raises(EncodingError, match="no field eligibleLeaderReplicas in version 1"):
        encode(PARTITION, {"eligibleLeaderReplicas": []}, 1)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"name": "a" * 0x8000}, "name: longer than 32767 bytes"),
        ({"name": None}, "name: must not be null"),
        ({"name": 5}, "name: not a value"),
        ({"topicId": "AAAA"}, "topicId: 'AAAA' is not an ID"),
        ({"topicId": "?" * 22}, "topicId: not a value"),
        ({"topic": "a"}, "TopicRecord has no field topic"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error(value: dict[str, Any], message: str) -> None:
    with pytest.raises(EncodingError, match=message):
        encode(RECORD_TYPES[2].value, value, 0)


def test_a_number_out_of_range_is_an_error() -> None:
    with pytest.raises(EncodingError, match="leader: not a value"):
        encode(PARTITION, {"leader": 1 << 31}, 0)


def test_an_unknown_version_is_an_error() -> None:
    with pytest.raises(EncodingError, match="no version 3 of PartitionRecord"):
        encode(PARTITION, {}, 3)
    with pytest.raises(MessageJsonError, match="no version 3 of PartitionRecord"):
        fields_from_json(PARTITION, 3, {})


SCHEMA = message(
    "M",
    field("number", Scalar.INT8),
    field("name", Scalar.STRING, nullable=True),
    field("secret", Scalar.BYTES),
    field("ids", array(Scalar.UUID), "1+"),
    versions="0-1",
)
VALID = {"number": 1, "name": "a", "secret": "AQI="}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"number": 128}, "number: must be from -128 to 127, not 128"),
        ({"number": True}, "number: must be a whole number, not True"),
        ({"number": 1.5}, "number: must be a whole number"),
        ({"name": 5}, "name: must be a string, not 5"),
        ({"name": "\ud800"}, "name: must be valid Unicode"),
        ({"number": None}, "number: must not be null"),
        ({"secret": "hush"[:3]}, "secret: must be base64$"),
        ({"secret": [1, 2]}, "secret: must be base64$"),
        ({"ids": []}, "ids: M has no such field in version 0"),
    ],
)
def test_json_that_is_not_of_the_schema_is_an_error_with_the_field(
    change: dict[str, Any], message: str
) -> None:
    assert fields_from_json(SCHEMA, 0, VALID)["secret"] == b"\x01\x02"
    with pytest.raises(MessageJsonError, match=message):
        fields_from_json(SCHEMA, 0, VALID | change)


def test_the_place_of_an_error_within_arrays_and_objects_is_said() -> None:
    with pytest.raises(MessageJsonError, match=r"ids\[1\]: must be an ID, not 'x'"):
        fields_from_json(SCHEMA, 1, VALID | {"ids": ["A" * 22, "x"]})
    with pytest.raises(MessageJsonError, match="name: is missing"):
        fields_from_json(SCHEMA, 0, {"number": 1, "secret": ""})
    with pytest.raises(MessageJsonError, match="M: must be an object"):
        fields_from_json(SCHEMA, 0, [])


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["number", "name", "secret", "ids", "x"]), JSON_VALUES))
def test_any_json_gives_a_value_that_can_be_encoded_or_an_error(node: dict[str, Any]) -> None:
    try:
        value = fields_from_json(SCHEMA, 1, node)
    except MessageJsonError:
        return
    assert decode(SCHEMA, Cursor(encode(SCHEMA, value, 1)), 1) == value


@pytest.mark.parametrize("wrong", [[], [1.5], {}, True, "one", 10**400])
def test_what_is_no_number_is_an_error(wrong: object) -> None:
    schema = message("M", field("share", Scalar.FLOAT64), versions="0")
    with pytest.raises(MessageJsonError, match="share: must be a number"):
        fields_from_json(schema, 0, {"share": wrong})
