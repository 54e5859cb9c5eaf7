"""Protobuf messages of Confluent's serializer, and hostile ones."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from google.protobuf import json_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.schema_topic import context, new_client, registry_of, registry_with
from kdump.formats.confluent_wire import MAGIC_ID
from kdump.payloads.payload_decoder import Decoded, PayloadDecoder
from kdump.payloads.payload_format import PayloadFormat
from kdump.payloads.protobuf_imports import known_files
from kdump.processes.proto_compiler import compile_proto
from kdump.state.schema_registry import PROTOBUF, SchemaReference, StoredSchema

COMMON: Final = 'syntax = "proto3"; package shop; message Money { int64 units = 1; string of = 2; }'
ORDER: Final = """
syntax = "proto3";
package shop;
import "common/money.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/wrappers.proto";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
enum Status { NEW = 0; PAID = 1; }
message First { string name = 1; }
message Order {
  int64 order_id = 1 [(confluent.field_meta).doc = "the id"];
  Status status = 2;
  message Line {
    message Note { string text = 1; }
    uint32 count = 1;
    Note note = 2;
  }
  repeated Line lines = 3;
  oneof payment { string card = 4; Money cash = 5; }
  map<string, int32> counts = 6;
  google.protobuf.Timestamp at = 7;
  google.protobuf.Struct more = 8;
  google.protobuf.StringValue maybe = 9;
  optional int32 rank = 10;
  bytes raw = 11;
  double ratio = 12;
  confluent.type.Decimal price = 13;
  message Last { bool flag = 1; }
}
"""
FILES: Final = {"order.proto": ORDER, "common/money.proto": COMMON}


@pytest.fixture(scope="module")
def pool() -> DescriptorPool:
    known = FileDescriptorSet(file=known_files()).SerializeToString()
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(compile_proto(FILES, "order.proto", known)).file:
        pool.Add(file)
    return pool


def new_message(pool: DescriptorPool, name: str, /, **fields: Any) -> Message:
    return json_format.ParseDict(fields, GetMessageClass(pool.FindMessageTypeByName(name))())


VALUES: Final[dict[str, Any]] = {
    "orderId": "9007199254740993",
    "status": "PAID",
    "lines": [{"count": 2, "note": {"text": "gift"}}, {}],
    "cash": {"units": "5", "of": "EUR"},
    "counts": {"a": 1},
    "at": "2026-11-22T05:00:00Z",
    "more": {"x": [1.5, None]},
    "maybe": "",
    "raw": "/wA=",
    "ratio": "NaN",
    "price": {"value": "BNI=", "precision": 4, "scale": 2},
}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("shop.First", {"name": "ünï"}),
        ("shop.Order", {}),
        ("shop.Order", VALUES),
        ("shop.Order.Line", {"count": 3}),
        ("shop.Order.Line.Note", {"text": "t"}),
        ("shop.Order.Last", {"flag": True}),
    ],
)
def test_a_message_is_the_json_of_what_the_official_deserializer_returns(
    name: str, fields: dict[str, Any], pool: DescriptorPool
) -> None:
    client = new_client()
    message = new_message(pool, name, **fields)
    payload = ProtobufSerializer(type(message), client)(message, context("t"))
    official = ProtobufDeserializer(type(message), {}, client)(payload, context("t"))
    found = PayloadDecoder(PayloadFormat.AUTO, registry_with(client)).decode(payload)
    assert found.problem is None
    assert found.text is not None
    assert json.loads(found.text) == json_format.MessageToDict(
        official, always_print_fields_with_no_presence=True
    )


def texts_registry(**more: str) -> list[StoredSchema]:
    """The schemas as a registry stores them: as text."""
    references = (SchemaReference("common/money.proto", "money", 1),)
    return [
        StoredSchema("money", 1, 1, PROTOBUF, COMMON),
        StoredSchema("order", 1, 2, PROTOBUF, ORDER, references),
        *(StoredSchema(name, 1, 3, PROTOBUF, text, references) for name, text in more.items()),
    ]


def test_the_text_of_a_schema_gives_the_same_as_its_descriptor(pool: DescriptorPool) -> None:
    client = new_client()
    message = new_message(pool, "shop.Order", **VALUES)
    payload = ProtobufSerializer(type(message), client)(message, context("t"))
    by_descriptor = PayloadDecoder(PayloadFormat.AUTO, registry_with(client)).decode(payload)
    data = payload[7:]
    assert payload[5:7] == b"\x02\x02"
    by_text = PayloadDecoder(PayloadFormat.PROTOBUF, registry_of(texts_registry())).decode(
        b"\0\0\0\0\x02\x02\x02" + data
    )
    assert by_text.text == by_descriptor.text
    assert by_text.text is not None


def test_indexes_count_the_messages_of_a_text_as_the_java_client_does() -> None:
    """The entries of a map are a type in a descriptor, and none in the text."""
    decoder = PayloadDecoder(PayloadFormat.AUTO, registry_of(texts_registry()))
    body = b"\x08\x01"
    assert decoder.decode(b"\0\0\0\0\x02\x04\x02\x02" + body).text == '{"flag":true}'


def decode_with(text: str, body: bytes = b"\0") -> Decoded:
    decoder = PayloadDecoder(PayloadFormat.AUTO, registry_of(texts_registry(hostile=text)))
    return decoder.decode(b"\0\0\0\0\x03" + body)


ANYS: Final = """syntax = "proto3"; import "google/protobuf/any.proto";
message M {
  google.protobuf.Any one = 1;
  repeated google.protobuf.Any more = 2;
  map<string, google.protobuf.Any> named = 3;
  map<string, string> texts = 4;
}
message N { string id = 1; }
"""


@pytest.mark.parametrize("field", [1, 2, 3])
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_field_that_no_schema_knows_may_be_in_an_any(field: int, is_whole: bool) -> None:
    def sized(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    held = sized(1, b"bob") + (b"" if is_whole else sized(9, b"alice"))
    packed = sized(1, b"type.googleapis.com/N") + sized(2, held)
    body = sized(field, sized(1, b"k") + sized(2, packed) if field == 3 else packed)
    body += sized(4, sized(1, b"k") + sized(2, b"v"))

    decoded = decode_with(ANYS, b"\0" + body)

    assert '"id":"bob"' in (decoded.text or "")
    assert decoded.is_whole is is_whole


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('syntax = "proto3"; import "/etc/passwd"; message M {}', "/etc/passwd"),
        ('syntax = "proto3"; import "../../../../etc/passwd"; message M {}', "not allowed"),
        ('syntax = "proto3"; import "other.proto"; message M {}', "other.proto"),
        ('syntax = "proto3"; import "kdump_root.proto"; message M {}', "recursively"),
        ("message M {" * 50_000, ""),
        ("no schema", "schema is malformed"),
        ("", "no message with the indexes [0]"),
        (base64.b64encode(b"\xff\xff").decode(), "schema is malformed"),
        (
            base64.b64encode(
                FileDescriptorProto(name="x", dependency=["/etc/passwd"]).SerializeToString()
            ).decode(),
            "/etc/passwd",
        ),
        ('syntax = "proto3"; message M { Unknown u = 1; }', "Unknown"),
        ('syntax = "proto3"; package x;', "no message with the indexes [0]"),
    ],
)
def test_a_hostile_schema_has_a_reason(text: str, why: str) -> None:
    found = decode_with(text)
    assert found.text is None
    assert why in (found.problem or "")
    assert "/tmp" not in (found.problem or "")


@pytest.mark.parametrize("name", ["@sources/options", "--python_out={}", "-I/"])
def test_the_name_of_a_schema_is_no_option_of_the_compiler(name: str, tmp_path: Path) -> None:
    """An option could write files, or run a program as a plugin."""
    out = tmp_path / "out"
    out.mkdir()
    files = {
        "options": f"--plugin=protoc-gen-x=/bin/true\n--python_out={out}\nplain.proto",
        "plain.proto": 'syntax = "proto3"; message M {}',
        name.format(out): 'syntax = "proto3"; import "plain.proto"; message N {}',
    }
    known = FileDescriptorSet().SerializeToString()
    compiled = FileDescriptorSet.FromString(compile_proto(files, name.format(out), known))
    assert [each.message_type[0].name for each in compiled.file] == ["M", "N"]
    assert not list(out.iterdir())


@pytest.mark.parametrize(
    "name", ["/etc/kdump.proto", "../up.proto", "a//b", "a\0b", ".", "x" * 999]
)
def test_a_reference_with_a_path_outside_of_the_private_directory_is_refused(name: str) -> None:
    schemas = [
        StoredSchema("money", 1, 1, PROTOBUF, COMMON),
        StoredSchema("t", 1, 2, PROTOBUF, ORDER, (SchemaReference(name, "money", 1),)),
    ]
    found = PayloadDecoder(PayloadFormat.AUTO, registry_of(schemas)).decode(b"\0\0\0\0\x02\0")
    assert "no valid path" in (found.problem or "")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\x02\x08", "no message with the indexes [4]"),
        (b"\x01", "impossible number of message indexes"),
        (b"\x02\x01", "negative"),
        (b"\xfe\xff\xff\xff\x0f", "impossible number"),
        (b"", "ends early"),
        (b"\0\x0a\xff\xff\xff\xff\x07abc", "does not fit"),
        (b"\0\x0a\x02\xff\xfe", "does not fit"),
    ],
)
def test_a_message_that_does_not_fit_has_a_reason(body: bytes, why: str) -> None:
    decoder = PayloadDecoder(PayloadFormat.AUTO, registry_of(texts_registry()))
    found = decoder.decode(bytes([MAGIC_ID, 0, 0, 0, 2]) + body)
    assert found.text is None
    assert why in (found.problem or "")


def test_a_message_nested_more_deeply_than_protobuf_allows_has_a_reason() -> None:
    text = 'syntax = "proto3"; message M { M m = 1; }'
    body = b""
    for _ in range(2000):
        size = len(body)
        prefix = b"\x0a"
        while size > 127:
            prefix += bytes([size & 127 | 128])
            size >>= 7
        body = prefix + bytes([size]) + body
    assert decode_with(text, b"\0" + body).text is None


@settings(max_examples=50)
@given(st.data())
def test_mutated_messages_and_descriptors_give_text_or_a_reason(data: st.DataObject) -> None:
    file = next(each for each in known_files() if each.name == "google/protobuf/type.proto")
    raw = bytearray(file.SerializeToString())
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    text = base64.b64encode(raw).decode()
    found = decode_with(text, b"\0" + data.draw(st.binary(max_size=30)))
    assert (found.text is None) != (found.problem is None)
