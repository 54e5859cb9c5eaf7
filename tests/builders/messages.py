"""Encode messages of Kafka's schemas, and generate random values for them."""

from __future__ import annotations

import base64
import struct
from typing import Any, Final

from hypothesis import strategies as st

from kdump.formats.cursor import write_unsigned_varint
from kdump.formats.message_decoder import UNKNOWN_TAGGED_FIELDS, MessageValue
from kdump.formats.schema import (
    Array,
    FieldType,
    MessageSchema,
    Scalar,
    SchemaField,
    Struct,
    fields_of,
)

_LAYOUTS: Final = {
    Scalar.BOOL: ">?",
    Scalar.INT8: ">b",
    Scalar.INT16: ">h",
    Scalar.UINT16: ">H",
    Scalar.INT32: ">i",
    Scalar.INT64: ">q",
    Scalar.FLOAT64: ">d",
}


def int16(value: int) -> bytes:
    """Encode two bytes, as in versions and types of records."""
    return struct.pack(">h", value)


def varint(value: int) -> bytes:
    """Encode an unsigned varint; a negative ``value`` is written as a Java int."""
    out = bytearray()
    write_unsigned_varint(value & 0xFFFFFFFF, out)
    return bytes(out)


def encode(schema: MessageSchema, value: MessageValue, version: int) -> bytes:
    """Encode a message as the ``write`` method of Kafka's generated class does.

    All tagged fields of ``value`` are written, including those with their default value.
    """
    flexible = schema.flexible is not None and version in schema.flexible
    return _struct(schema, schema, value, version, flexible)


def _struct(
    layout: Struct, schema: MessageSchema, value: MessageValue, version: int, flexible: bool
) -> bytes:
    present = fields_of(layout, schema, version)

    def content(item: SchemaField) -> bytes:
        return _field(item, schema, value[item.name], version, flexible)

    plain = b"".join(content(item) for item in present if item.tag is None)
    if not flexible:
        return plain
    tagged = {
        item.tag: content(item) for item in present if item.tag is not None and item.name in value
    }
    tagged |= {unknown["tag"]: unknown["data"] for unknown in value.get(UNKNOWN_TAGGED_FIELDS, [])}
    sections = [varint(tag) + varint(len(data)) + data for tag, data in tagged.items()]
    return plain + varint(len(sections)) + b"".join(sections)


def _field(
    item: SchemaField, schema: MessageSchema, value: Any, version: int, flexible: bool
) -> bytes:
    if not isinstance(item.type, Struct):
        return _value(item.type, schema, value, version, flexible)
    content = b"" if value is None else _struct(item.type, schema, value, version, flexible)
    if not item.nullable:
        return content
    if item.tag is not None:
        return b"\x00" if value is None else b"\x01" + content
    return b"\xff" if value is None else b"\x01" + content


def _value(
    kind: FieldType, schema: MessageSchema, value: Any, version: int, flexible: bool
) -> bytes:
    if isinstance(kind, Struct):
        return _struct(kind, schema, value, version, flexible)
    if isinstance(kind, Array):
        elements = [_value(kind.element, schema, one, version, flexible) for one in value or ()]
        return _length(value, ">i", flexible) + b"".join(elements)
    if kind is Scalar.STRING:
        data = None if value is None else value.encode()
        return _length(data, ">h", flexible) + (data or b"")
    if kind is Scalar.BYTES:
        return _length(value, ">i", flexible) + (value or b"")
    if kind is Scalar.UUID:
        return base64.urlsafe_b64decode(value + "==")
    return struct.pack(_LAYOUTS[kind], value)


def _length(value: Any, layout: str, flexible: bool) -> bytes:
    length = -1 if value is None else len(value)
    return varint(length + 1) if flexible else struct.pack(layout, length)


def message_values(schema: MessageSchema, version: int) -> st.SearchStrategy[MessageValue]:
    """Generate any values of ``schema`` in ``version``, as the decoder returns them."""
    return _structs(schema, schema, version)


def _structs(
    layout: Struct, schema: MessageSchema, version: int
) -> st.SearchStrategy[MessageValue]:
    return st.fixed_dictionaries(
        {
            item.name: _values(item.type, schema, version)
            if not item.nullable
            else st.none() | _values(item.type, schema, version)
            for item in fields_of(layout, schema, version)
        }
    )


def _values(kind: FieldType, schema: MessageSchema, version: int) -> st.SearchStrategy[Any]:
    if isinstance(kind, Struct):
        return _structs(kind, schema, version)
    if isinstance(kind, Array):
        return st.lists(_values(kind.element, schema, version), max_size=3)
    return _SCALARS[kind]


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


_SCALARS: Final[dict[Scalar, st.SearchStrategy[Any]]] = {
    Scalar.BOOL: st.booleans(),
    Scalar.INT8: _integers(8),
    Scalar.INT16: _integers(16),
    Scalar.UINT16: st.integers(0, 0xFFFF),
    Scalar.INT32: _integers(32),
    Scalar.INT64: _integers(64),
    Scalar.FLOAT64: st.floats(allow_nan=False),
    Scalar.STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    Scalar.BYTES: st.binary(max_size=8),
    Scalar.UUID: st.binary(min_size=16, max_size=16).map(
        lambda data: base64.urlsafe_b64encode(data)[:22].decode()
    ),
}
