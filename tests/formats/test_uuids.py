"""Kafka's text form of UUIDs."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.formats.uuids import ZERO_UUID, format_uuid, parse_uuid


def test_the_metadata_topics_id() -> None:
    assert format_uuid(uuid.UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"


def test_padding_is_allowed_and_not_written() -> None:
    assert parse_uuid("AAAAAAAAAAAAAAAAAAAAAA==") == ZERO_UUID
    assert format_uuid(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"


@pytest.mark.parametrize(
    "text",
    ["", "A" * 21, "A" * 23, "A" * 22 + "=", "A" * 21 + "+", "A" * 21 + "/", "A" * 21 + " "],
)
def test_what_is_not_a_uuid(text: str) -> None:
    assert parse_uuid(text) is None


@given(st.uuids())
def test_every_uuid_is_read_back(value: uuid.UUID) -> None:
    assert parse_uuid(format_uuid(value)) == value
