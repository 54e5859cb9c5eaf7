from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.formats.dynamic_voter import DynamicVoter, parse_dynamic_voter
from kdump.formats.uuids import parse_uuid

DIRECTORY = "3uBS1g4vRcqYYZx6dtYV6Q"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1@localhost:9093", DynamicVoter(1, "localhost", 9093)),
        ("0@[::1]:0", DynamicVoter(0, "::1", 0)),
        (
            f"3001@c1.example.com:65535:{DIRECTORY}",
            DynamicVoter(3001, "c1.example.com", 65535, parse_uuid(DIRECTORY)),
        ),
        (f" 7@h:1:{DIRECTORY}== ", DynamicVoter(7, "h", 1, parse_uuid(DIRECTORY))),
    ],
)
def test_a_voter_is_parsed(text: str, expected: DynamicVoter) -> None:
    assert parse_dynamic_voter(text) == expected
    assert parse_dynamic_voter(str(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "h:1", "@h:1", "-1@h:1", "x@h:1", "1@h", "1@:1", "1@h:x", "1@h:-1", "1@h:65536"),
        *("1@::1:9", "1@[::1:9", "1@h:1:", "1@h:1:x", "2147483648@h:1", "٣@h:1", "1@h:1 :a"),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not "):
        parse_dynamic_voter(text)


@given(st.text(alphabet="01@[]:.hA-_ \n", max_size=40))
def test_any_text_is_a_voter_that_prints_as_it_is_parsed_or_a_value_error(text: str) -> None:
    try:
        voter = parse_dynamic_voter(text)
    except ValueError:
        return
    assert parse_dynamic_voter(str(voter)) == voter
