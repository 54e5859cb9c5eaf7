"""Java's properties files."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.formats.errors import FormatError
from kdump.formats.java.properties import decode_properties, encode_properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        (b"", {}),
        (b"a=1\nb=2", {"a": "1", "b": "2"}),
        (b"a=1\ra=2\r\n", {"a": "2"}),
        (b"#a=1\n  ! b=2\n\n \t\n", {}),
        (b"  a  =  1 ", {"a": "1 "}),
        (b"a:1", {"a": "1"}),
        (b"a 1", {"a": "1"}),
        (b"a = : 1", {"a": ": 1"}),
        (b"a", {"a": ""}),
        (b"=1", {"": "1"}),
        (b"a\\=b=1", {"a=b": "1"}),
        (b"a\\ b 1", {"a b": "1"}),
        (b"a=\\t\\n\\r\\f\\x\\\\", {"a": "\t\n\r\fx\\"}),
        (b"a=one\\\n   two", {"a": "onetwo"}),
        (b"a=one\\\\\nb=two", {"a": "one\\", "b": "two"}),
        (b"a=one\\\n#two", {"a": "one#two"}),
        (b"a=one\\", {"a": "one"}),
        (b"a=\\u0041\\u00e9", {"a": "A\xe9"}),
        (b"a=\\ud83d\\ude00", {"a": "\U0001f600"}),
        (b"a=\xe9", {"a": "\xe9"}),
    ],
)
def test_what_java_reads(text: bytes, properties: dict[str, str]) -> None:
    assert decode_properties(text) == properties


@pytest.mark.parametrize("text", [b"a=\\u12", b"a=\\u", b"\\uxxxx=1", b"a=\\u+123"])
def test_a_malformed_unicode_escape_is_refused(text: bytes) -> None:
    with pytest.raises(FormatError, match="malformed"):
        decode_properties(text)


def test_the_line_of_a_malformed_escape_is_where_it_begins() -> None:
    with pytest.raises(FormatError) as raised:
        decode_properties(b"a=1\nb=\\u12\n")
    assert raised.value.position == 4


@given(st.text("\\u0d8=: \n#a1", max_size=20))
def test_any_escapes_are_properties_or_a_format_error(text: str) -> None:
    with contextlib.suppress(FormatError):
        decode_properties(text.encode())


@given(st.dictionaries(st.text(), st.text()))
def test_what_is_written_is_what_is_read(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties
