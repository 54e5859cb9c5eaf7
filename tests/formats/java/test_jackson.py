from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.formats.java.jackson import double_text, message_node, node_text, string_text
from kdump.formats.schema import Scalar, array, field, message, struct

nodes = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(nodes)
def test_a_node_is_json_that_others_can_read(node: object) -> None:
    assert json.loads(node_text(node)) == node


def test_there_are_no_blanks_between_members() -> None:
    assert node_text({"a": [1, None, True], "b": {}}) == '{"a":[1,null,true],"b":{}}'


def test_bytes_are_base64_with_padding() -> None:
    assert node_text(b"\xfb\xff\xfe\x00") == '"+//+AA=="'


def test_what_is_not_a_node_is_refused() -> None:
    with pytest.raises(TypeError, match="set"):
        node_text([{1}])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('say "a\\b"', '"say \\"a\\\\b\\""'),
        ("\b\t\n\f\r", '"\\b\\t\\n\\f\\r"'),
        ("\x00\x1f", '"\\u0000\\u001F"'),
        ("/\x7f\u2028é日\U0001f600", '"/\x7f\u2028é日\U0001f600"'),
    ],
)
def test_only_what_must_be_escaped_is(text: str, expected: str) -> None:
    assert string_text(text) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (-2.5, "-2.5"),
        (1048576.0, "1048576.0"),
        (9999999.5, "9999999.5"),
        (1e7, "1.0E7"),
        (123456789.125, "1.23456789125E8"),
        (0.001, "0.001"),
        (0.000999, "9.99E-4"),
        (1e23, "1.0E23"),
        (4.9e-324, "4.9E-324"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (math.nan, '"NaN"'),
        (math.inf, '"Infinity"'),
        (-math.inf, '"-Infinity"'),
    ],
)
def test_doubles_are_written_as_java_writes_them(value: float, expected: str) -> None:
    assert double_text(value) == expected


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_text_of_a_double_is_that_double(value: float) -> None:
    assert float(double_text(value)) == value


PAIR = struct("Pair", field("left", Scalar.INT32), field("right", Scalar.INT32, tag=0, default=7))
SCHEMA = message(
    "Sample",
    field("early", Scalar.INT32, "0-1"),
    field("label", Scalar.STRING, nullable=True, tag=1, default=None),
    field("late", Scalar.INT32, "2+"),
    field("names", array(Scalar.STRING), nullable=True, tag=0),
    field("pairs", array(PAIR)),
    field("pair", PAIR, tag=2),
    field("id", Scalar.UUID),
    field("data", Scalar.BYTES, nullable=True),
    versions="0-2",
)
SAMPLE: dict[str, Any] = {
    "early": 1,
    "label": None,
    "late": 2,
    "names": [],
    "pairs": [],
    "pair": {"left": 0, "right": 7},
    "id": "A" * 22,
    "data": None,
}


def test_a_message_has_the_fields_of_its_version_in_the_order_of_its_schema() -> None:
    assert list(message_node(SCHEMA, SAMPLE, 1)) == ["early", "pairs", "id", "data"]
    assert list(message_node(SCHEMA, SAMPLE, 2)) == ["late", "pairs", "id", "data"]


def test_a_tagged_field_is_left_out_when_it_has_its_default() -> None:
    assert message_node(SCHEMA, SAMPLE, 2).keys() & {"label", "names", "pair"} == set()


@pytest.mark.parametrize(
    ("name", "value"),
    [("label", ""), ("names", None), ("names", ["a"]), ("pair", {"left": 1, "right": 8})],
)
def test_a_tagged_field_is_there_when_it_has_another_value(name: str, value: object) -> None:
    assert message_node(SCHEMA, SAMPLE | {name: value}, 2)[name] == value


def test_the_structs_in_an_array_follow_the_same_rules() -> None:
    pairs = [{"left": 1, "right": 7}, {"left": 2, "right": 8}]
    node = message_node(SCHEMA, SAMPLE | {"pairs": pairs}, 2)
    assert node["pairs"] == [{"left": 1}, {"left": 2, "right": 8}]


def test_a_field_that_was_not_read_is_printed_as_its_default() -> None:
    read_as_version_1 = {name: value for name, value in SAMPLE.items() if name != "late"}
    assert message_node(SCHEMA, read_as_version_1, 2)["late"] == 0


def test_unknown_tagged_fields_are_not_printed() -> None:
    unknown = {"_unknownTaggedFields": [{"tag": 9, "data": b"x"}]}
    assert message_node(SCHEMA, SAMPLE | unknown, 2) == message_node(SCHEMA, SAMPLE, 2)
