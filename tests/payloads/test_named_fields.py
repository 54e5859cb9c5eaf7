"""Fields that name records: how they are written, and which payloads have them."""

from __future__ import annotations

import pytest

from kdump.payloads.named_fields import FieldMatcher, NamedField
from kdump.state.schema_registry import SchemaRegistry


@pytest.mark.parametrize(
    ("expression", "field"),
    [
        ("value.id=4711", NamedField(False, ("id",), "4711")),
        ("  key.customer.id = alice 4711 ", NamedField(True, ("customer", "id"), "alice 4711")),
        ('value.note = " = "', NamedField(False, ("note",), " = ")),
        ("value.a=b=c", NamedField(False, ("a",), "b=c")),
        ("value.größe-x = ü", NamedField(False, ("größe-x",), "ü")),
        ('value."a.b =".c = x', NamedField(False, ("a.b =", "c"), "x")),
        ('key.a."\\"" = "\\""', NamedField(True, ("a", '"'), '"')),
        ('value.a = "', NamedField(False, ("a",), '"')),
    ],
)
def test_a_field_is_read(expression: str, field: NamedField) -> None:
    assert NamedField.parse(expression) == field


@pytest.mark.parametrize(
    "expression", ["", "value", "value=x", "value.=x", "value.a", "value.a=", "header.a=x", "a=x"]
)
def test_what_is_no_field_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"expected key\.FIELD = TEXT"):
        NamedField.parse(expression)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('value.a = "x" "y"', "a JSON string in double quotes"),
        ('value.a = "\\x"', "a JSON string in double quotes"),
        ('value."\\x" = a', "a JSON string in double quotes"),
        ("value.a = \udcff", "UTF-8"),
    ],
)
def test_what_is_no_text_is_refused(expression: str, expected: str) -> None:
    with pytest.raises(ValueError, match=f"^expected {expected}$"):
        NamedField.parse(expression)


def test_a_field_is_the_same_however_it_is_written() -> None:
    written = ("value.a.b=x", 'value."a".b = "x"', ' value."\\u0061"."b"="\\u0078"')
    others = ("key.a.b=x", 'value."a.b"=x', "value.a=x", "value.a.b=y", "value.a.b.x=x")
    (one,) = {NamedField.parse(each).identity for each in written}
    assert len({one, *(NamedField.parse(each).identity for each in others)}) == 6


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4711", "4711"),
        ("4711", '"4711"'),
        ("true", "true"),
        ("x", '["y", "x"]'),
        ("x", '[["x"]]'),
        ("", '""'),
        ("-0.50", "-0.50"),
        ("-0", "-0"),
        ("1e2", "1e2"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("x", '"y", "b": "x"'),
        ("x", '"x", "\\u0062": "y"'),
        ("ü", '"\\u00fc"'),
    ],
)
def test_a_field_says_what_json_says(text: str, value: str) -> None:
    matcher = FieldMatcher([NamedField(False, ("a", "b"), text)], SchemaRegistry())
    payload = f'[{{"a": {{"b": {value}}}}}]'.encode()
    assert matcher.find_in(None, payload) is True
    assert matcher.find_in(payload, None) is False


@pytest.mark.parametrize(
    "payload", ['{"a": null}', '{"a": {"b": {"b": "x"}}}', '{"b": "x"}', '"x"', "[]", "{}"]
)
def test_other_payloads_do_not_have_it(payload: str) -> None:
    for text in ("x", "null", ""):
        matcher = FieldMatcher([NamedField(False, ("a", "b"), text)], SchemaRegistry())
        assert matcher.find_in(None, payload.encode()) is False


def test_lists_in_lists_are_looked_through_or_cannot_be_decoded() -> None:
    matcher = FieldMatcher([NamedField(False, ("a",), "x")], SchemaRegistry())
    found = [matcher.find_in(None, b"[" * n + b'{"a":"x"}' + b"]" * n) for n in range(1, 1200)]
    assert found == sorted(found, key=lambda each: each is None)
    assert (found[0], found[-1]) == (True, None)


@pytest.mark.parametrize("payload", [b"{", b"\xff", b"plain", b"\0\0\0\0\1x", b"[" * 100_000])
def test_what_is_no_json_cannot_be_decoded(payload: bytes) -> None:
    matcher = FieldMatcher([NamedField(True, ("a",), "x")], SchemaRegistry())
    assert matcher.find_in(payload, None) is None
    assert matcher.find_in(None, payload) is False
