"""The one encoder of Kafka's messages, by their schemas: the inverse of the decoder.

:func:`encode` writes a message of one version as the ``write`` method of the classes that Kafka
generates from its message definitions does (``MessageDataGenerator``). The encodings are in
:mod:`kdump.formats.message_decoder`. Tagged fields that have their default value are left out, and
so are fields that the version does not have; their values must be the defaults.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from kdump.formats.cursor import write_unsigned_varint
from kdump.formats.message_decoder import MAX_STRING_BYTES, UNKNOWN_TAGGED_FIELDS, MessageValue
from kdump.formats.schema import (
    Array,
    MessageSchema,
    Scalar,
    SchemaField,
    Struct,
    default_of,
    fields_of,
)

_Layout: TypeAlias = struct.Struct
_Write: TypeAlias = Callable[[Any, bytearray], None]

_LAYOUTS: Final = {
    Scalar.INT8: struct.Struct(">b"),
    Scalar.INT16: struct.Struct(">h"),
    Scalar.UINT16: struct.Struct(">H"),
    Scalar.INT32: struct.Struct(">i"),
    Scalar.INT64: struct.Struct(">q"),
    Scalar.FLOAT64: struct.Struct(">d"),
}
_INT16: Final = _LAYOUTS[Scalar.INT16]
_INT32: Final = _LAYOUTS[Scalar.INT32]


class EncodingError(ValueError):
    """A value that a message of this schema and version cannot have."""


def encode(schema: MessageSchema, value: Mapping[str, Any], version: int) -> bytes:
    """Write one message.

    Args:
        value: fields by name, as :func:`~kdump.formats.message_decoder.decode` returns them;
            missing ones have their default.
        version: one that the schema knows.

    Raises:
        EncodingError: a value does not fit its field, or a field that the version does not have is
            not at its default. (Kafka leaves such a field out where its definition says
            ``ignorable``, which none of the cluster's metadata does.)
    """
    if version not in schema.versions:
        raise EncodingError(f"there is no version {version} of {schema.name}")
    out = bytearray()
    _message_writer(schema, version)(value, out)
    return bytes(out)


# Writers are built once for each version that occurs.
@lru_cache(maxsize=512)
def _message_writer(schema: MessageSchema, version: int) -> _Write:
    return _Compiler(schema, version).struct(schema)


class _Compiler(msgspec.Struct, frozen=True):
    """Builds writers for the structs of one message in one version."""

    schema: MessageSchema
    version: int

    @property
    def flexible(self) -> bool:
        return self.schema.flexible is not None and self.version in self.schema.flexible

    def struct(self, layout: Struct) -> _Write:
        present = fields_of(layout, self.schema, self.version)
        plain = [
            (item.name, self.default(item), self.named(item))
            for item in present
            if item.tag is None
        ]
        tagged = sorted(
            (item.tag, item.name, self.default(item), self.named(item))
            for item in present
            if item.tag is not None
        )
        absent = {
            item.name: default_of(item, self.schema, self.schema.versions.highest)
            for item in layout.fields
            if item not in present
        }
        names = {item.name for item in present}
        flexible = self.flexible

        def write_struct(value: MessageValue, out: bytearray) -> None:
            if value.keys() - names:
                self.require_defaults(layout, value, names, absent)
            for name, default, write in plain:
                write(value.get(name, default), out)
            if not flexible:
                return
            sections = []
            for tag, name, default, write in tagged:
                member = value.get(name, default)
                if member != default:
                    content = bytearray()
                    write(member, content)
                    sections.append((tag, content))
            unknown = value.get(UNKNOWN_TAGGED_FIELDS, ())
            sections += [(each["tag"], each["data"]) for each in unknown]
            write_unsigned_varint(len(sections), out)
            for tag, content in sorted(sections, key=lambda each: each[0]):
                write_unsigned_varint(tag, out)
                write_unsigned_varint(len(content), out)
                out += content

        return write_struct

    def default(self, item: SchemaField) -> Any:
        return default_of(item, self.schema, self.version)

    def require_defaults(
        self,
        layout: Struct,
        value: MessageValue,
        names: Collection[str],
        absent: Mapping[str, Any],
    ) -> None:
        """Require that the fields which this version lacks have their default.

        Raises:
            EncodingError: one has another value, or does not exist in any version.
        """
        for name in value.keys() - names - {UNKNOWN_TAGGED_FIELDS}:
            if name not in absent:
                raise EncodingError(f"{layout.name} has no field {name}")
            if value[name] != absent[name]:
                raise EncodingError(
                    f"{layout.name} has no field {name} in version {self.version}, and its value"
                    " is not the default"
                )

    def named(self, item: SchemaField) -> _Write:
        """The writer of a field, with the field's name in its errors."""
        write = self.writer(item)

        def write_field(value: Any, out: bytearray) -> None:
            try:
                write(value, out)
            except EncodingError as error:
                raise EncodingError(f"{item.name}: {error}") from None
            except (struct.error, TypeError, ValueError, AttributeError, KeyError) as error:
                raise EncodingError(f"{item.name}: not a value of this field: {error}") from error

        return write_field

    def writer(self, item: SchemaField) -> _Write:
        if isinstance(item.type, Array):
            return self.array_writer(item.type.element, nullable=item.nullable)
        if isinstance(item.type, Struct):
            return self.struct_writer(item, item.type)
        return self.scalar_writer(item.type, nullable=item.nullable)

    def scalar_writer(self, kind: Scalar, *, nullable: bool) -> _Write:
        if kind is Scalar.STRING:
            write_length = self.length_writer(_INT16)
            return _sized_writer(_utf8, write_length, nullable=nullable)
        if kind is Scalar.BYTES:
            return _sized_writer(bytes, self.length_writer(_INT32), nullable=nullable)
        if kind is Scalar.BOOL:
            return lambda value, out: out.append(1 if value else 0)
        if kind is Scalar.UUID:
            return _write_uuid
        pack = _LAYOUTS[kind].pack

        def write_fixed(value: Any, out: bytearray) -> None:
            out += pack(value)

        return write_fixed

    def length_writer(self, layout: _Layout) -> _Write:
        """The writer of a length, or of -1 for null."""
        if self.flexible:
            return lambda length, out: write_unsigned_varint(length + 1, out)

        def write_length(length: int, out: bytearray) -> None:
            out += layout.pack(length)

        return write_length

    def struct_writer(self, item: SchemaField, layout: Struct) -> _Write:
        write = self.struct(layout)
        if not item.nullable:
            return write
        null = b"\x00" if item.tag is not None else b"\xff"

        def write_nullable(value: Any, out: bytearray) -> None:
            if value is None:
                out += null
            else:
                out += b"\x01"
                write(value, out)

        return write_nullable

    def array_writer(self, element: Scalar | Struct, *, nullable: bool) -> _Write:
        if isinstance(element, Struct):
            write_element = self.struct(element)
        else:
            write_element = self.scalar_writer(element, nullable=False)
        write_count = self.length_writer(_INT32)

        def write_array(value: Any, out: bytearray) -> None:
            if value is None:
                _require_nullable(nullable)
                write_count(-1, out)
                return
            write_count(len(value), out)
            for each in value:
                write_element(each, out)

        return write_array


def _sized_writer(
    content_of: Callable[[Any], bytes], write_length: _Write, *, nullable: bool
) -> _Write:
    def write_sized(value: Any, out: bytearray) -> None:
        if value is None:
            _require_nullable(nullable)
            write_length(-1, out)
            return
        content = content_of(value)
        write_length(len(content), out)
        out += content

    return write_sized


def _require_nullable(nullable: bool) -> None:
    if not nullable:
        raise EncodingError("must not be null")


def _utf8(text: str) -> bytes:
    data = text.encode()
    if len(data) > MAX_STRING_BYTES:
        raise EncodingError(f"longer than {MAX_STRING_BYTES} bytes")
    return data


def _write_uuid(value: str, out: bytearray) -> None:
    data = _uuid_bytes(value)
    if len(data) != 16:
        raise EncodingError(f"{value!r} is not an ID")
    out += data


@lru_cache(maxsize=1 << 14)
def _uuid_bytes(text: str) -> bytes:
    """The bytes of an ID; cached, because records name the same ones again and again."""
    return base64.b64decode(text + "==", altchars=b"-_", validate=True)
