"""Confluent's wire format, against the official client's."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka.schema_registry.serde import SchemaId
from hypothesis import given
from hypothesis import strategies as st

from kdump.formats.confluent_wire import (
    KEY_HEADER,
    VALUE_HEADER,
    WirePayload,
    read_headers,
    read_payload,
    split_message,
)
from kdump.formats.errors import FormatError
from kdump.formats.record_batch import RecordHeader

INDEXES = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5)


@given(st.integers(0, 2**31 - 1), INDEXES, st.binary(max_size=20))
def test_the_id_and_the_indexes_are_those_that_the_client_wrote(
    schema_id: int, indexes: list[int], data: bytes
) -> None:
    written = SchemaId("PROTOBUF", schema_id, message_indexes=indexes).id_to_bytes()
    found = read_payload(written + data)
    assert found is not None
    assert found.schema == schema_id
    assert split_message(found) == (tuple(indexes), data)


@given(st.uuids(), INDEXES, st.binary(max_size=20))
def test_a_header_names_the_schema_by_its_guid_and_the_payload_is_all_data(
    guid: uuid.UUID, indexes: list[int], data: bytes
) -> None:
    written = SchemaId("PROTOBUF", guid=str(guid), message_indexes=indexes).guid_to_bytes()
    headers = [RecordHeader(KEY_HEADER, b"other"), RecordHeader(VALUE_HEADER, written)]
    found = read_headers(headers, VALUE_HEADER, data)
    assert found is not None
    assert (found.schema, found.body) == (guid, data)
    assert split_message(found) == (tuple(indexes), data)
    assert read_headers(headers, KEY_HEADER, data) is None


def test_the_first_header_of_a_name_counts() -> None:
    headers = [RecordHeader(KEY_HEADER, None), RecordHeader(KEY_HEADER, b"\0\0\0\0\1")]
    assert read_headers(headers, KEY_HEADER, b"x") is None
    assert read_headers(headers[1:], KEY_HEADER, b"x") == WirePayload(1, b"", True, b"x")


@pytest.mark.parametrize(
    "payload", [b"", b"\0", b"\0\0\0\0", b"\1" + bytes(15), b"text", b"\2" * 30]
)
def test_other_payloads_name_no_schema(payload: bytes) -> None:
    assert read_payload(payload) is None


@given(st.binary(max_size=30))
def test_any_bytes_give_a_value_or_a_format_error(payload: bytes) -> None:
    found = read_payload(payload)
    if found is not None:
        try:
            indexes, _ = split_message(found)
        except FormatError:
            return
        assert indexes
        assert min(indexes) >= 0
