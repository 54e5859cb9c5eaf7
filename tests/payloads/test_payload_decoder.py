"""The formats of keys and values, one by one and as columns."""

from __future__ import annotations

import json
import pickle
from typing import Final

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField
from google.type import money_pb2
from hypothesis import given
from hypothesis import strategies as st

from builders.schema_topic import context, new_client, registry_of, registry_with
from kdump.formats.record_batch import RecordHeader
from kdump.payloads.payload_decoder import Decoded, PayloadDecoder
from kdump.payloads.payload_format import PayloadFormat
from kdump.state.schema_registry import AVRO, JSON, StoredSchema

REGISTRY: Final = registry_of(
    [
        StoredSchema("a", 1, 1, AVRO, '"long"'),
        StoredSchema("b", 1, 2, JSON, "{}"),
        StoredSchema("c", 1, 3, "THRIFT", "struct"),
    ]
)


def decode(chosen: PayloadFormat, payload: bytes) -> tuple[str | None, str | None]:
    found = PayloadDecoder(chosen, REGISTRY).decode(payload)
    return found.text, found.problem


@pytest.mark.parametrize(
    ("word", "payload", "text"),
    [
        ("auto", b"\0\0\0\0\1\x02", "1"),
        ("auto", b'\0\0\0\0\2{"a": 1e400, "b": [ ]}', '{"a": 1e400, "b": [ ]}'),
        ("auto", "naïve".encode(), "naïve"),
        ("auto", b"", ""),
        ("auto", b"\0", "\0"),
        ("auto", b"\1" + b"0123456789abcdef", "\x010123456789abcdef"),
        ("avro", b"\0\0\0\0\1\x02", "1"),
        ("json", b"\0\0\0\0\2[]", "[]"),
        ("json", b'{"no": "schema"}', '{"no": "schema"}'),
        ("string", b"\0\0\0\0\1\x02", "\0\0\0\0\1\x02"),
        ("hex", b"\0\0\xff", "0000ff"),
    ],
)
def test_a_payload_is_text_by_its_format(word: str, payload: bytes, text: str) -> None:
    assert decode(PayloadFormat(word), payload) == (text, None)


@pytest.mark.parametrize(
    ("word", "payload", "problem"),
    [
        ("auto", b"\0\0\0\0\x09\x02", "no schema has id 9"),
        ("auto", b"\xff\xfe", "it is not UTF-8 at byte 0"),
        ("auto", b"\0\0\0\0\2no", "schema 2: it is not JSON: Expecting value at character 0"),
        ("auto", b"\0\0\0\0\2\xff", "schema 2: it is not UTF-8 at byte 0"),
        ("auto", b"\0\0\0\0\2" + b"[" * 100_000, "schema 2: it is nested too deeply"),
        ("auto", b"\0\0\0\0\2[NaN]", "schema 2: it is not JSON: NaN"),
        ("auto", b"\0\0\0\0\3x", "schema 3: kdump does not know the type 'THRIFT'"),
        ("avro", b"text", "it does not begin with the id of a schema"),
        ("avro", b"\0\0\0\0\2[]", "schema 2 is JSON Schema, not Avro"),
        ("protobuf", b"\0\0\0\0\1\x02", "schema 1 is Avro, not Protobuf"),
        ("json", b"text", "it is not JSON: Expecting value at character 0"),
        ("string", b"a\xff", "it is not UTF-8 at byte 1"),
    ],
)
def test_what_cannot_be_text_has_a_reason(word: str, payload: bytes, problem: str) -> None:
    assert decode(PayloadFormat(word), payload) == (None, problem)


def as_bytes(value: str | bytes | None) -> bytes:
    assert isinstance(value, bytes)
    return value


@pytest.mark.parametrize("field", [MessageField.KEY, MessageField.VALUE])
def test_a_header_with_the_guid_of_the_schema_is_used(field: MessageField) -> None:
    client, written = new_client(), context("t", field)
    conf = {"schema.id.serializer": header_schema_id_serializer}
    payload = AvroSerializer(client, '"long"', conf=conf)(5, written)
    message = money_pb2.Money(units=3)
    other = context("u", field)
    protobuf = ProtobufSerializer(money_pb2.Money, client, conf)(message, other)
    decoder = PayloadDecoder(
        PayloadFormat.AUTO, registry_with(client), is_key=field is MessageField.KEY
    )
    assert payload == b"\x0a"
    for data, headers, text in ((payload, written.headers, "5"), (protobuf, other.headers, None)):
        assert data is not None
        assert headers is not None
        assert isinstance(headers, list)
        own = [RecordHeader(str(name).encode(), as_bytes(value)) for name, value in headers]
        found = decoder.decode(data, own)
        assert found.problem is None
        if text is None:
            assert json.loads(found.text or "")["units"] == "3"
        else:
            assert found.text == text
        opposite = PayloadDecoder(PayloadFormat.AVRO, decoder.registry, is_key=not decoder.is_key)
        assert opposite.decode(data, own).problem == "it does not begin with the id of a schema"


PAYLOADS = st.one_of(
    st.none(),
    st.binary(max_size=8),
    st.sampled_from(["plain", "naïve", "ключ"]).map(str.encode),
    st.sampled_from([b"\0\0\0\0\1\x02", b"\0\0\0\0\2[]", b"\0\0\0\0\x09", b"\1" * 20, b""]),
)


@given(
    st.sampled_from(PayloadFormat),
    st.lists(PAYLOADS, max_size=8),
    st.integers(0, 3),
    st.sampled_from([pa.binary(), pa.large_binary()]),
)
def test_a_column_has_the_text_of_each_payload(
    chosen: PayloadFormat, payloads: list[bytes | None], skipped: int, kind: pa.DataType
) -> None:
    decoder = PayloadDecoder(chosen, REGISTRY)
    column = pa.array(payloads, kind)[skipped:]
    expected = [each if each is None else decoder.decode(each).text for each in payloads[skipped:]]
    assert decoder.texts(column).column.to_pylist() == expected


def test_a_column_uses_the_headers_of_each_row() -> None:
    decoder = PayloadDecoder(PayloadFormat.AUTO, REGISTRY)
    headers = [[], [RecordHeader(b"__value_schema_id", b"\0\0\0\0\1")]]
    column = pa.array([b"\x02", b"\x02"])
    assert decoder.texts(column, headers.__getitem__).column.to_pylist() == ["\x02", "1"]


def test_a_decoder_can_be_pickled_after_it_was_used() -> None:
    client = new_client()
    serializer = ProtobufSerializer(money_pb2.Money, client)
    payload = serializer(money_pb2.Money(units=3), context("t"))
    assert payload is not None
    decoder = PayloadDecoder(PayloadFormat.AUTO, registry_with(client))
    found = decoder.decode(payload)
    again: PayloadDecoder = pickle.loads(pickle.dumps(decoder))
    assert again.decode(payload) == found != Decoded(None)


def test_half_a_character_in_a_schema_does_not_reach_the_output() -> None:
    schema = json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": "\ud800", "type": "int"}]}
    )
    for text in (schema, '"\\ud800"'):
        registry = registry_of([StoredSchema("a", 1, 1, AVRO, text)])
        found = PayloadDecoder(PayloadFormat.AUTO, registry).decode(b"\0\0\0\0\1\x02")
        (found.text or found.problem or "").encode()
