"""Avro payloads of Confluent's serializer, and hostile ones."""

from __future__ import annotations

import datetime as dt
import io
import json
import time
import uuid
from decimal import Decimal
from typing import Any, Final

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from hypothesis import given
from hypothesis import strategies as st

from builders.schema_topic import context, new_client, registry_of, registry_with
from kdump.payloads.payload_decoder import Decoded, PayloadDecoder
from kdump.payloads.payload_format import PayloadFormat
from kdump.state.schema_registry import AVRO, StoredSchema

Json = dict[str, Any]


def record_schema(name: str, /, **types: Any) -> Json:
    fields = [{"name": field, "type": kind} for field, kind in types.items()]
    return {"type": "record", "name": name, "fields": fields}


EVERYTHING: Final = record_schema(
    "Everything",
    nothing="null",
    flag="boolean",
    small="int",
    large="long",
    single="float",
    double="double",
    text="string",
    raw="bytes",
    choice=["null", "string", record_schema("Part", n="int")],
    suit={"type": "enum", "name": "Suit", "symbols": ["SPADES", "HEARTS"]},
    digest={"type": "fixed", "name": "Digest", "size": 3},
    numbers={"type": "array", "items": "long"},
    counts={"type": "map", "values": "int"},
)
VALUE: Final = {
    "nothing": None,
    "flag": True,
    "small": -7,
    "large": 2**62 + 1,
    "single": 0.5,
    "double": 1e-300,
    "text": 'a "quoted" line\nключ',
    "raw": b"\xff\x00",
    "choice": {"n": 3},
    "suit": "HEARTS",
    "digest": b"abc",
    "numbers": [1, -2, 2**40],
    "counts": {"a": 1},
}


def decoded(schema: object, value: object) -> Any:
    """Serialize with Confluent's client, and decode."""
    client = new_client()
    inner = {"type": "array", "items": schema}
    payload = AvroSerializer(client, json.dumps(inner))([value], context("t"))
    found = PayloadDecoder(PayloadFormat.AVRO, registry_with(client)).decode(payload)
    assert found.problem is None
    assert found.text is not None
    (only,) = json.loads(found.text)
    return only


def decode_body(schema: object, body: bytes) -> Decoded:
    """Decode bytes that were written with a schema, or claim to be."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    registry = registry_of([StoredSchema("t-value", 1, 7, AVRO, text)])
    return PayloadDecoder(PayloadFormat.AUTO, registry).decode(b"\0\0\0\0\x07" + body)


def test_every_type_has_the_value_that_the_official_deserializer_returns() -> None:
    client = new_client()
    payload = AvroSerializer(client, json.dumps(EVERYTHING))(VALUE, context("t"))
    official: Any = AvroDeserializer(client)(payload, context("t"))
    found = PayloadDecoder(PayloadFormat.AUTO, registry_with(client)).decode(payload)
    assert found.text is not None
    assert json.loads(found.text) == {**official, "raw": "/wA=", "digest": "YWJj"}


MOMENT: Final = dt.datetime(2026, 11, 22, 5, 4, 3, 21_000, dt.UTC)


@pytest.mark.parametrize(
    ("kind", "logical", "value", "text"),
    [
        ({"type": "bytes", "precision": 8, "scale": 2}, "decimal", Decimal("-12.30"), "-12.30"),
        ({"type": "bytes", "precision": 4, "scale": 0}, "decimal", Decimal(1200), "1200"),
        (
            {"type": "fixed", "name": "F", "size": 4, "precision": 8, "scale": 3},
            "decimal",
            Decimal("0.001"),
            "0.001",
        ),
        ({"type": "string"}, "uuid", uuid.UUID(int=5), str(uuid.UUID(int=5))),
        ({"type": "int"}, "date", dt.date(2026, 1, 2), "2026-01-02"),
        ({"type": "int"}, "time-millis", dt.time(23, 59, 1, 5000), "23:59:01.005"),
        ({"type": "long"}, "time-micros", dt.time(0, 0, 1, 7), "00:00:01.000007"),
        ({"type": "long"}, "timestamp-millis", MOMENT, "2026-11-22T05:04:03.021Z"),
        ({"type": "long"}, "timestamp-micros", MOMENT, "2026-11-22T05:04:03.021000Z"),
        (
            {"type": "long"},
            "local-timestamp-millis",
            MOMENT.replace(tzinfo=None),
            "2026-11-22T05:04:03.021",
        ),
    ],
)
def test_a_logical_type_is_text(kind: Json, logical: str, value: object, text: str) -> None:
    assert decoded({**kind, "logicalType": logical}, value) == text


@pytest.mark.parametrize(
    ("kind", "logical", "number", "shown"),
    [
        ("int", "date", 2**31 - 1, "5881580-07-11"),
        ("long", "timestamp-millis", 2**62, "146140482-04-24T15:36:27.904Z"),
        ("long", "timestamp-nanos", 1, "1970-01-01T00:00:00.000000001Z"),
        ("long", "timestamp-millis", -(2**63), -(2**63)),
        ("long", "time-micros", -1, -1),
        ("int", "a-type-of-our-own", 5, 5),
    ],
)
def test_a_number_that_python_has_no_date_for_is_shown(
    kind: str, logical: str, number: int, shown: object
) -> None:
    body = io.BytesIO()
    fastavro.schemaless_writer(body, kind, number)
    text = decode_body({"type": kind, "logicalType": logical}, body.getvalue()).text
    assert text is not None
    assert json.loads(text) == shown


def test_numbers_that_json_does_not_have_are_text() -> None:
    values = [float("inf"), float("-inf"), float("nan"), 1.5]
    schema = {"type": "array", "items": "double"}
    assert decoded(schema, values) == ["Infinity", "-Infinity", "NaN", 1.5]


def test_references_are_resolved_through_several_subjects() -> None:
    client = new_client()
    city = {**record_schema("City", name="string"), "namespace": "geo"}
    address = {**record_schema("Address", city="geo.City", twin="geo.City"), "namespace": "geo"}
    client.register_schema("city", Schema(json.dumps(city), "AVRO"))
    to_city = SchemaReference("geo.City", "city", 1)
    client.register_schema("address", Schema(json.dumps(address), "AVRO", [to_city]))
    person = record_schema("Person", home="geo.Address", born="geo.City")
    references = [SchemaReference("geo.Address", "address", 1), to_city]
    serializer = AvroSerializer(client, Schema(json.dumps(person), "AVRO", references))
    value = {"home": {"city": {"name": "A"}, "twin": {"name": "B"}}, "born": {"name": "C"}}
    payload = serializer(value, context("t"))
    found = PayloadDecoder(PayloadFormat.AUTO, registry_with(client)).decode(payload)
    assert found == Decoded(json.dumps(value, separators=(",", ":")), None, found.schema)


def test_a_payload_of_bytes_alone_has_no_length() -> None:
    client = new_client()
    payload = AvroSerializer(client, '"bytes"')(b"\x06abc", context("t"))
    found = PayloadDecoder(PayloadFormat.AVRO, registry_with(client)).decode(payload)
    assert found.text == '"BmFiYw=="'


LIST: Final = record_schema("Node", next=["null", "Node"])


@pytest.mark.parametrize(
    ("schema", "body", "why"),
    [
        ('"string"', b"\x80\x80\x80\x80\x08abc", "ends before"),
        ('"string"', b"\x01abcd", "ends before"),
        ('"string"', b"\x02\xff", "utf-8"),
        ('"long"', b"\x02\x02", "1 bytes follow"),
        ('"long"', b"\xff" * 11, ""),
        ('["null", "long"]', b"\x08", "does not fit"),
        (EVERYTHING, b"", "ends before"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\xff\xff\xff\x7f\x02", "ends before"),
        ({"type": "array", "items": "null"}, b"\x80\xa8\xd6\xb9\x07\0", "take no bytes"),
        (
            {"type": "array", "items": record_schema("E")},
            b"\x80\xa8\xd6\xb9\x07\0",
            "take no bytes",
        ),
        (LIST, b"\x02" * 100_000 + b"\0", "nested too deeply"),
        ("[" * 100_000, b"\0", "nested too deeply"),
        ('{"type": "record"}', b"\0", "schema is malformed"),
        ('"geo.City"', b"\0", "geo.City"),
        ("no JSON", b"\0", "schema is malformed"),
        ({"type": "fixed", "name": "F", "size": 2**60}, b"abc", "ends before"),
    ],
)
def test_what_does_not_fit_has_a_reason(schema: object, body: bytes, why: str) -> None:
    found = decode_body(schema, body)
    assert found.text is None
    assert why in (found.problem or "")
    assert len(found.problem or "") < 400


SUIT: Final = {"type": "enum", "name": "Suit", "symbols": ["SPADES", "HEARTS"]}
COUNTRY: Final = {"type": "enum", "name": "Country", "symbols": [f"C{i}" for i in range(200)]}
CHOICE: Final = ["null", "long"]


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        (SUIT, b"\x01"),
        (SUIT, b"\x03"),
        (SUIT, b"\x81\x80\x00"),
        (SUIT, b"\x80" * 64 + b"\x01"),
        (COUNTRY, b"\x8f\x03"),
        (CHOICE, b"\x03"),
        (CHOICE, b"\x01\x02"),
        ({"type": "array", "items": ["null", SUIT]}, b"\x04\x02\x02\x02\x01\0"),
        (record_schema("Node", suit=SUIT, next=["null", "Node"]), b"\0\x03"),
    ],
)
def test_negative_indexes_of_symbols_and_branches_do_not_fit(schema: object, body: bytes) -> None:
    found = decode_body(schema, body)
    assert found.text is None
    assert "does not fit its schema" in (found.problem or "")


@given(st.lists(st.tuples(st.sampled_from([None, *range(-9, 9), 2**62]), st.integers(0, 199))))
def test_odd_bytes_that_are_no_indexes_do_no_harm(pairs: list[tuple[int | None, int]]) -> None:
    values = [{"n": number, "c": f"C{symbol}"} for number, symbol in pairs]
    schema = {"type": "array", "items": record_schema("R", n=["null", "long"], c=COUNTRY)}
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, values)
    assert json.loads(decode_body(schema, body.getvalue()).text or "") == values


def test_a_list_of_moderate_depth_is_decoded() -> None:
    found = decode_body(LIST, b"\x02" * 60 + b"\0")
    assert found.text == '{"next":' * 60 + '{"next":null}' + "}" * 60


def test_records_that_double_with_each_level_are_refused_at_once() -> None:
    schema: Any = record_schema("R0", a="null", b="null")
    for level in range(1, 60):
        schema = record_schema(f"R{level}", a=schema, b=f"R{level - 1}")
    begin = time.process_time()
    assert "take no bytes" in (decode_body(schema, b"").problem or "")
    assert time.process_time() - begin < 2


WIDE: Final = record_schema("Wide", **{f"f{i}": "int" for i in range(100)})
EMPTY: Final = record_schema("Empty", **{f"f{i}": "null" for i in range(50)}, flag="boolean")


def array_of(count: int, item: bytes) -> bytes:
    counted = io.BytesIO()
    fastavro.schemaless_writer(counted, "long", count)
    return counted.getvalue() + item * count + b"\0"


@pytest.mark.parametrize(
    ("items", "item", "count"),
    [
        (EMPTY, b"\x01", 200_000),
        ("string", b"\x02a", 5_000_000),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 999},
            b"\2\1",
            200_000,
        ),
    ],
)
def test_a_payload_that_may_take_far_too_much_memory_is_refused_at_once(
    items: object, item: bytes, count: int
) -> None:
    body = array_of(count, item)
    begin = time.process_time()
    found = decode_body({"type": "array", "items": items}, body)
    assert "may take more than 512 MiB" in (found.problem or "")
    assert time.process_time() - begin < 1


def test_a_payload_of_a_megabyte_is_decoded_if_its_values_take_bytes() -> None:
    found = decode_body(
        {"type": "array", "items": ["null", WIDE]}, array_of(2_000, b"\2" + b"\4" * 100)
    )
    assert len(json.loads(found.text or "")) == 2_000
    text = b"x" * (1 << 24)
    body = io.BytesIO()
    fastavro.schemaless_writer(body, "bytes", text)
    found = decode_body(record_schema("R", text="string"), body.getvalue())
    assert found.text == f'{{"text":"{text.decode()}"}}'


def test_a_decimal_of_many_digits_is_bytes() -> None:
    number = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}
    schema = {"type": "array", "items": number}
    body = io.BytesIO()
    inner = {"type": "array", "items": "bytes"}
    fastavro.schemaless_writer(body, inner, [b"\x7f" * 1_000_000])
    begin = time.process_time()
    text = decode_body(schema, body.getvalue()).text
    assert text is not None
    assert text.startswith('["f39/')
    assert time.process_time() - begin < 2


@given(st.data())
def test_mutated_payloads_and_schemas_give_text_or_a_reason(data: st.DataObject) -> None:
    schema = data.draw(st.sampled_from([EVERYTHING, LIST, {"type": "map", "values": EVERYTHING}]))
    body = io.BytesIO()
    fastavro.schemaless_writer(body, EVERYTHING, VALUE)
    payload = bytearray(body.getvalue())
    for _ in range(data.draw(st.integers(0, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    text = bytearray(json.dumps(schema).encode())
    for _ in range(data.draw(st.integers(0, 2))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(32, 126))
    found = decode_body(text.decode(), bytes(payload))
    assert (found.text is None) != (found.problem is None)
