"""The one decoder of Kafka's messages, by their schemas.

:func:`decode` reads a message of one version as the classes that Kafka generates from its message
definitions do (``MessageDataGenerator``), including what they do with versions above the known ones
and with fields that they do not know.

Encodings, in the order in which a message holds them:

===============  ===============================================================================
integers, bool   big-endian, of their width; a bool is false when its byte is 0
``FLOAT64``      IEEE 754 double, big-endian
``UUID``         16 bytes; decoded to the 22 characters of ``Uuid.toString``
``STRING``       length as int16 (flexible: varint of length + 1), then UTF-8
``BYTES``        length as int32 (flexible: varint of length + 1), then the bytes
array            count as int32 (flexible: varint of count + 1), then the elements
struct           its fields; where it may be null, an int8 that is negative for null comes first
tagged fields    flexible versions only, at the end of each struct: count, then tag, size, bytes
===============  ===============================================================================
"""

from __future__ import annotations

import itertools
import struct
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from kdump.formats.cursor import MAX_VARINT_BYTES, Cursor
from kdump.formats.errors import FormatError
from kdump.formats.java.java_text import java_utf8
from kdump.formats.schema import (
    Array,
    MessageSchema,
    Scalar,
    SchemaField,
    Struct,
    default_of,
    fields_of,
)
from kdump.formats.uuids import format_uuid

MAX_STRING_BYTES: Final = 0x7FFF
_CONTINUED: Final = 0x80
"""The bit of a varint's byte that another byte follows."""

UNKNOWN_TAGGED_FIELDS: Final = "_unknownTaggedFields"
"""The key under which a decoded struct keeps the tagged fields that its schema does not know."""

MessageValue: TypeAlias = dict[str, Any]
"""A decoded struct: field name to None, bool, int, float, str, bytes, list or another struct."""

_Read: TypeAlias = Callable[[Cursor], Any]


class SchemaError(FormatError):
    """Bytes that are not a message of their schema.

    Attributes:
        java_message: the message of the exception that Kafka's own reader throws for them.
    """

    def __init__(self, java_message: str, *, position: int = 0) -> None:
        super().__init__(java_message, position=position)
        self.java_message = java_message


def java_message(error: FormatError) -> str:
    """Give the message of the exception that Kafka's readers throw, as Java prints it.

    It is ``"null"`` for bytes that end within a field: a buffer underflow has no message.
    """
    return error.java_message if isinstance(error, SchemaError) else "null"


def decode(schema: MessageSchema, cursor: Cursor, version: int) -> MessageValue:
    """Read one message.

    A version above the known ones is read as Kafka reads it: it has the fields that all later
    versions have, and nested structs that end with the known versions are an error. A negative
    version is read as the lowest.

    Args:
        cursor: at the message; afterwards it is after the message. Bytes after the message are up
            to the caller.
        version: of the message, an int16.

    Returns:
        The fields of that version in the order of the schema, tagged ones with their default where
        they are absent. Unknown tagged fields are a list of ``{"tag": int, "data": bytes}`` under
        :data:`UNKNOWN_TAGGED_FIELDS`, if there are any.

    Raises:
        SchemaError: the bytes say something that the schema does not allow.
        FormatError: from the cursor, when the bytes end within a field.
    """
    value: MessageValue = _message_reader(schema, version)(cursor)
    return value


def read_unsigned_varint(cursor: Cursor) -> int:
    """An unsigned varint as ``ByteUtils.readUnsignedVarint`` gives it: a Java int, that is signed.

    Raises:
        SchemaError: it is longer than five bytes.
        FormatError: it ends early.
    """
    start = cursor.position
    if start < cursor.end and cursor.data[start] < _CONTINUED:
        # Nearly all of them are one byte.
        cursor.position = start + 1
        return cursor.data[start]
    try:
        return _int32(cursor.unsigned_varint())
    except FormatError:
        claimed = cursor.data[start : min(start + MAX_VARINT_BYTES, cursor.end)]
        if len(claimed) < MAX_VARINT_BYTES:
            raise
        value = sum((byte & 0x7F) << (7 * index) for index, byte in enumerate(claimed))
        raise SchemaError(
            "Varint is too long, the most significant bit in the 5th byte is set, "
            f"converted value: {value & 0xFFFFFFFF:x}",
            position=start,
        ) from None


# Readers are built once for each version that occurs, and cached: data can claim 65536 versions.
@lru_cache(maxsize=512)
def _message_reader(schema: MessageSchema, version: int) -> _Read:
    return _Compiler(schema, version).struct(schema)


class _Compiler(msgspec.Struct, frozen=True):
    """Builds readers for the structs of one message in one version."""

    schema: MessageSchema
    version: int

    @property
    def flexible(self) -> bool:
        flexible = self.schema.flexible
        return flexible is not None and max(self.version, self.schema.versions.lowest) in flexible

    def struct(self, layout: Struct) -> _Read:
        if layout is not self.schema and self.version > self.schema.versions.highest:
            return _unreadable(f"Can't read version {self.version} of {layout.name}")
        present = fields_of(layout, self.schema, self.version)
        plain = _in_runs([(item, self.reader(item)) for item in present if item.tag is None])
        if not self.flexible:
            return lambda cursor: _filled({}, plain, cursor)
        tagged = {
            item.tag: (item.name, self.reader(item)) for item in present if item.tag is not None
        }
        misplaced = {item.tag for item in layout.fields if item.tag is not None} - tagged.keys()
        defaults = [item for item in present if item.tag is not None]
        in_order = [item.name for item in present] if defaults else []

        def read_struct(cursor: Cursor) -> MessageValue:
            value: MessageValue = dict.fromkeys(in_order)
            for item in defaults:
                value[item.name] = default_of(item, self.schema, self.version)
            _filled(value, plain, cursor)
            for _ in range(read_unsigned_varint(cursor)):
                tag = read_unsigned_varint(cursor)
                # A known field determines where it ends; Kafka does not compare that with its size.
                size = read_unsigned_varint(cursor)
                if tag in tagged:
                    name, read = tagged[tag]
                    value[name] = read(cursor)
                elif tag in misplaced:
                    raise _error(f"Tag {tag} is not valid for version {self.version}", cursor)
                else:
                    unknown = {"tag": tag, "data": _take(cursor, size)}
                    value.setdefault(UNKNOWN_TAGGED_FIELDS, []).append(unknown)
            return value

        return read_struct

    def reader(self, item: SchemaField) -> _Read:
        if isinstance(item.type, Array):
            return self.array_reader(item, item.type.element)
        if isinstance(item.type, Struct):
            return self.struct_reader(item, item.type)
        return self.scalar_reader(item.type, item.name, nullable=item.nullable)

    def scalar_reader(self, kind: Scalar, name: str, *, nullable: bool) -> _Read:
        if kind is Scalar.STRING:
            length = _compact_length if self.flexible else Cursor.int16
            return _string_reader(name, length, nullable=nullable)
        if kind is Scalar.BYTES:
            length = _compact_length if self.flexible else Cursor.int32
            return _bytes_reader(name, length, nullable=nullable)
        return _FIXED_READERS[kind]

    def struct_reader(self, item: SchemaField, layout: Struct) -> _Read:
        read = self.struct(layout)
        if not item.nullable:
            return read
        if item.tag is not None:
            return lambda cursor: read(cursor) if read_unsigned_varint(cursor) > 0 else None
        return lambda cursor: read(cursor) if cursor.int8() >= 0 else None

    def array_reader(self, item: SchemaField, element: Scalar | Struct) -> _Read:
        read_count = _compact_length if self.flexible else Cursor.int32
        code = None
        if isinstance(element, Struct):
            read_element = self.struct(element)
        else:
            read_element = self.scalar_reader(element, f"{item.name} element", nullable=False)
            code = _CODES.get(element)

        def read_array(cursor: Cursor) -> list[Any] | None:
            count = read_count(cursor)
            if count < 0:
                if item.nullable:
                    return None
                raise _null(item.name, cursor)
            if count > cursor.remaining:
                raise _error(
                    f"Tried to allocate a collection of size {count}, "
                    f"but there are only {cursor.remaining} bytes remaining.",
                    cursor,
                )
            if code is not None:
                start = cursor.position
                layout = _repeated(code, count)
                if start + layout.size <= cursor.end:
                    cursor.position = start + layout.size
                    return list(layout.unpack_from(cursor.data, start))
            return [read_element(cursor) for _ in range(count)]

        return read_array


class _Run(msgspec.Struct, frozen=True):
    """Consecutive fields of fixed size, which are read together."""

    layout: struct.Struct
    names: tuple[str, ...]
    readers: tuple[_Read, ...]
    """One by one, where the bytes end among them."""

    @classmethod
    def of(cls, fields: Sequence[tuple[SchemaField, _Read]]) -> _Run:
        codes = "".join(_CODES[item.type] for item, _ in fields)
        names = tuple(item.name for item, _ in fields)
        return cls(struct.Struct(f">{codes}"), names, tuple(read for _, read in fields))


_Step: TypeAlias = tuple[str, _Read] | _Run


def _in_runs(plain: Sequence[tuple[SchemaField, _Read]]) -> list[_Step]:
    """The fields one by one, or several together that have a fixed size."""
    steps: list[_Step] = []
    for is_fixed, group in itertools.groupby(plain, key=lambda each: each[0].type in _CODES):
        fields = list(group)
        if is_fixed and len(fields) > 1:
            steps.append(_Run.of(fields))
        else:
            steps.extend((item.name, read) for item, read in fields)
    return steps


def _filled(value: MessageValue, steps: Iterable[_Step], cursor: Cursor) -> MessageValue:
    """Read fields into ``value``, and return it."""
    for step in steps:
        if isinstance(step, tuple):
            name, read = step
            value[name] = read(cursor)
            continue
        start = cursor.position
        following = start + step.layout.size
        if following > cursor.end:
            value.update(
                (name, read(cursor)) for name, read in zip(step.names, step.readers, strict=True)
            )
        else:
            fields = step.layout.unpack_from(cursor.data, start)
            value.update(zip(step.names, fields, strict=True))
            cursor.position = following
    return value


def _unreadable(java_message: str) -> _Read:
    def read(cursor: Cursor) -> MessageValue:
        raise _error(java_message, cursor)

    return read


def _string_reader(name: str, read_length: Callable[[Cursor], int], *, nullable: bool) -> _Read:
    def read_string(cursor: Cursor) -> str | None:
        length = read_length(cursor)
        if length < 0:
            if nullable:
                return None
            raise _null(name, cursor)
        if length > MAX_STRING_BYTES:
            raise _error(f"string field {name} had invalid length {length}", cursor)
        start = cursor.position
        if start + length > cursor.end:
            _take(cursor, length)  # raises
        cursor.position = start + length
        return java_utf8(bytes(cursor.data[start : cursor.position]))

    return read_string


def _bytes_reader(name: str, read_length: Callable[[Cursor], int], *, nullable: bool) -> _Read:
    def read_bytes(cursor: Cursor) -> bytes | None:
        length = read_length(cursor)
        if length < 0:
            if nullable:
                return None
            raise _null(name, cursor)
        return _take(cursor, length)

    return read_bytes


def _read_uuid(cursor: Cursor) -> str:
    return _uuid_text(cursor.take(16, "uuid"))


@lru_cache(maxsize=1 << 14)
def _uuid_text(data: bytes) -> str:
    """The text of a UUID; cached, because a log names the same ones again and again."""
    return format_uuid(uuid.UUID(bytes=data))


_FIXED_READERS: Final[Mapping[Scalar, _Read]] = {
    Scalar.BOOL: lambda cursor: cursor.uint8() != 0,
    Scalar.INT8: Cursor.int8,
    Scalar.INT16: Cursor.int16,
    Scalar.UINT16: Cursor.uint16,
    Scalar.INT32: Cursor.int32,
    Scalar.INT64: Cursor.int64,
    Scalar.FLOAT64: Cursor.float64,
    Scalar.UUID: _read_uuid,
}


_CODES: Final[Mapping[Scalar | Array | Struct, str]] = {
    Scalar.BOOL: "?",
    Scalar.INT8: "b",
    Scalar.INT16: "h",
    Scalar.UINT16: "H",
    Scalar.INT32: "i",
    Scalar.INT64: "q",
    Scalar.FLOAT64: "d",
}
"""The struct format of scalars of a fixed size."""


def _take(cursor: Cursor, size: int) -> bytes:
    if size < 0:
        # Java's message for an array of that size.
        raise _error(str(size), cursor)
    if size > cursor.remaining:
        raise _error(
            f"Error reading byte array of {size} byte(s): "
            f"only {cursor.remaining} byte(s) available",
            cursor,
        )
    return cursor.take(size)


@lru_cache(maxsize=256)
def _repeated(code: str, count: int) -> struct.Struct:
    return struct.Struct(f">{count}{code}")


def _compact_length(cursor: Cursor) -> int:
    start = cursor.position
    if start < cursor.end and (first := cursor.data[start]) < _CONTINUED:
        # Nearly all of them are one byte.
        cursor.position = start + 1
        return first - 1
    return _int32(read_unsigned_varint(cursor) - 1)


def _int32(value: int) -> int:
    return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


def _null(name: str, cursor: Cursor) -> SchemaError:
    return _error(f"non-nullable field {name} was serialized as null", cursor)


def _error(java_message: str, cursor: Cursor) -> SchemaError:
    return SchemaError(java_message, position=cursor.position)
