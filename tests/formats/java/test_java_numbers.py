"""Numbers in text are exactly what Java parses as numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.formats.java.java_numbers import parse_double, parse_int, parse_long


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("+7", 7),
        ("007", 7),
        ("-2147483648", -(2**31)),
        ("2147483647", 2**31 - 1),
        ("\N{ARABIC-INDIC DIGIT THREE}", 3),
    ],
)
def test_what_java_reads(text: str, value: int) -> None:
    assert parse_int(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "+",
        " 1",
        "1 ",
        "1_0",
        "0x1",
        "1.0",
        "2147483648",
        "\N{MATHEMATICAL BOLD DIGIT ONE}",
        "1\n",
    ],
)
def test_what_java_refuses(text: str) -> None:
    assert parse_int(text) is None


def test_a_long_has_64_bits() -> None:
    assert parse_long("9223372036854775807") == 2**63 - 1
    assert parse_long("9223372036854775808") is None
    assert parse_long("-9223372036854775808") == -(2**63)
    assert parse_long("-9223372036854775809") is None


def test_any_number_of_leading_zeroes_is_allowed() -> None:
    assert parse_long("0" * 10_000 + "5") == 5
    assert parse_long("-" + "0" * 10_000 + "5") == -5
    assert parse_long("1" * 10_000) is None


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_long_is_read_back(value: int) -> None:
    assert parse_long(str(value)) == value


@given(st.text())
def test_any_text_is_a_number_or_none(text: str) -> None:
    value = parse_int(text)
    assert value is None or -(2**31) <= value < 2**31


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5", 0.5),
        ("+.5", 0.5),
        ("1.", 1.0),
        ("5e-1f", 0.5),
        ("0x1.8p1D", 3.0),
        ("\t0.25\x00", 0.25),
        ("1e999", float("inf")),
        ("-0x1p9999", float("-inf")),
        ("-Infinity", float("-inf")),
    ],
)
def test_a_double_may_have_a_suffix_an_exponent_and_hexadecimal_digits(
    text: str, value: float
) -> None:
    assert parse_double(text) == value


@pytest.mark.parametrize(
    "text", ["", ".", "1e", "0x1", "0x.p1", "1_0", "nan", "inf", "NaNd", "\u0661", "\xa01", "1ff"]
)
def test_other_text_is_no_double(text: str) -> None:
    assert parse_double(text) is None
