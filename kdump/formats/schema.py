"""Kafka's message schemas as tables, and the one decoder that reads them.

A schema is written with :func:`message`, :func:`struct`, :func:`array` and :func:`field`, and says
what Kafka's own message definitions say: which field is in which version, which may be null, which
is tagged, and its default. :func:`decode` reads a message of one version as the classes that Kafka
generates from those definitions do (``MessageDataGenerator``), including what they do with versions
above the known ones and with fields that they do not know.

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

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Any, Final, TypeAlias

from kdump.formats.cursor import MAX_VARINT_BYTES, Cursor
from kdump.formats.errors import FormatError
from kdump.formats.java.java_text import java_utf8
from kdump.formats.uuids import ZERO_UUID, format_uuid

MAX_STRING_BYTES: Final = 0x7FFF
MAX_VERSION: Final = 0x7FFF

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


class Scalar(Enum):
    """Types without nested types."""

    BOOL = auto()
    INT8 = auto()
    INT16 = auto()
    UINT16 = auto()
    INT32 = auto()
    INT64 = auto()
    FLOAT64 = auto()
    STRING = auto()
    BYTES = auto()
    UUID = auto()


BOOL: Final = Scalar.BOOL
INT8: Final = Scalar.INT8
INT16: Final = Scalar.INT16
UINT16: Final = Scalar.UINT16
INT32: Final = Scalar.INT32
INT64: Final = Scalar.INT64
FLOAT64: Final = Scalar.FLOAT64
STRING: Final = Scalar.STRING
BYTES: Final = Scalar.BYTES
UUID: Final = Scalar.UUID


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions from ``lowest`` to ``highest``, both included."""

    lowest: int
    highest: int

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """Elements of one type, none of them null."""

    element: Scalar | Struct


@dataclass(frozen=True, slots=True, eq=False)
class Struct:
    """Fields in the order in which they are written, and in which Kafka prints them."""

    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """One field of a struct.

    Attributes:
        name: Kafka's name of it, as its JSON has it.
        versions: those that have it.
        nullable: whether it may be null in those versions.
        tag: its tag, where it is among the tagged fields.
        default: its value where it is absent, or :data:`ZERO`; a struct's are its own defaults.
    """

    name: str
    type: FieldType
    versions: Versions
    nullable: bool
    tag: int | None
    default: Any


FieldType: TypeAlias = Scalar | Array | Struct

ZERO: Final = object()
"""The default of a field without one: zero or empty for its type."""


@dataclass(frozen=True, slots=True, eq=False)
class MessageSchema(Struct):
    """The struct at the top.

    Attributes:
        versions: those that this schema knows.
        flexible: those that have tagged fields and varint lengths; None where none has.
    """

    versions: Versions
    flexible: Versions | None


@dataclass(frozen=True, slots=True, eq=False)
class RecordType:
    """A type of record in one of Kafka's own logs.

    Attributes:
        id: its number, unique in that log.
        name: Kafka's name for it.
        value: the schema of the record's value.
        key: the schema of its key; None where the log has no keys.
    """

    id: int
    name: str
    value: MessageSchema
    key: MessageSchema | None = None


_ALL_VERSIONS: Final = "0+"
_NO_VERSIONS: Final = "none"


def message(name: str, *fields: Field, versions: str = "0", flexible: str = "0+") -> MessageSchema:
    """A message schema.

    Args:
        name: Kafka's name for the message.
        fields: in the order of their bytes.
        versions: the versions that exist, as ``"0"`` or ``"0-4"``.
        flexible: the flexible ones among them, as ``"4+"`` or ``"none"``.
    """
    return MessageSchema(
        name,
        fields,
        _versions(versions),
        None if flexible == _NO_VERSIONS else _versions(flexible),
    )


def coordinator_record(
    type_id: int,
    name: str,
    *,
    key: Iterable[Field],
    value: Iterable[Field],
    versions: str = "0",
    flexible: str = "0+",
) -> RecordType:
    """A type of record that a coordinator keeps; versions are those of its value.

    Its key has no versions: where other messages say their version, it says ``type_id``.
    """
    return RecordType(
        type_id,
        name,
        value=message(f"{name}Value", *value, versions=versions, flexible=flexible),
        key=message(f"{name}Key", *key, flexible=_NO_VERSIONS),
    )


def by_id(*record_types: RecordType) -> Mapping[int, RecordType]:
    """The types of records of one log, to be found by their number."""
    return {record_type.id: record_type for record_type in record_types}


def struct(name: str, *fields: Field) -> Struct:
    """The type of a field that holds other ``fields``, with Kafka's name for the type."""
    return Struct(name, fields)


def array(element: Scalar | Struct) -> Array:
    """The type of a field that holds any number of elements."""
    return Array(element)


def field(
    name: str,
    kind: FieldType,
    versions: str = _ALL_VERSIONS,
    *,
    nullable: bool = False,
    tag: int | None = None,
    default: Any = ZERO,
) -> Field:
    """A field of a schema, not null and without a tag unless it says so; see :class:`Field`."""
    return Field(name, kind, _versions(versions), nullable, tag, default)


_ZERO_VALUES: Final[Mapping[Scalar, Any]] = {
    BOOL: False,
    INT8: 0,
    INT16: 0,
    UINT16: 0,
    INT32: 0,
    INT64: 0,
    FLOAT64: 0.0,
    STRING: "",
    BYTES: b"",
    UUID: format_uuid(ZERO_UUID),
}


def _versions(text: str) -> Versions:
    if text.endswith("+"):
        return Versions(int(text[:-1]), MAX_VERSION)
    lowest, _, highest = text.partition("-")
    return Versions(int(lowest), int(highest or lowest))


def decode(schema: MessageSchema, cursor: Cursor, version: int) -> MessageValue:
    """Read one message.

    A version above the known ones is read as Kafka reads it: it has the fields that all later
    versions have, and nested structs that end with the known versions are an error. A negative
    version is read as the lowest.

    Args:
        schema: of the message.
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


def fields_of(layout: Struct, schema: MessageSchema, version: int) -> tuple[Field, ...]:
    """The fields that ``layout``, which is ``schema`` or within it, has in ``version``."""
    # Kafka generates no check for what holds from the first known version on.
    known_version = max(version, schema.versions.lowest)
    return tuple(item for item in layout.fields if known_version in item.versions)


def default_of(item: Field, schema: MessageSchema, version: int) -> Any:
    """Give the default of ``item`` of ``schema``; a new object if it is mutable."""
    if item.default is not ZERO:
        return item.default
    if isinstance(item.type, Array):
        return []
    if isinstance(item.type, Struct):
        return {
            inner.name: default_of(inner, schema, version)
            for inner in fields_of(item.type, schema, version)
        }
    return _ZERO_VALUES[item.type]


# Readers are built once for each version that occurs, and cached: data can claim 65536 versions.
@lru_cache(maxsize=512)
def _message_reader(schema: MessageSchema, version: int) -> _Read:
    return _Compiler(schema, version).struct(schema)


@dataclass(frozen=True, slots=True)
class _Compiler:
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
        plain = [(item.name, self.reader(item)) for item in present if item.tag is None]
        if not self.flexible:
            return lambda cursor: {name: read(cursor) for name, read in plain}
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
            for name, read in plain:
                value[name] = read(cursor)
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

    def reader(self, item: Field) -> _Read:
        if isinstance(item.type, Array):
            return self.array_reader(item, item.type.element)
        if isinstance(item.type, Struct):
            return self.struct_reader(item, item.type)
        return self.scalar_reader(item.type, item.name, nullable=item.nullable)

    def scalar_reader(self, kind: Scalar, name: str, *, nullable: bool) -> _Read:
        if kind is STRING:
            length = _compact_length if self.flexible else Cursor.int16
            return _string_reader(name, length, nullable=nullable)
        if kind is BYTES:
            length = _compact_length if self.flexible else Cursor.int32
            return _bytes_reader(name, length, nullable=nullable)
        return _FIXED_READERS[kind]

    def struct_reader(self, item: Field, layout: Struct) -> _Read:
        read = self.struct(layout)
        if not item.nullable:
            return read
        if item.tag is not None:
            return lambda cursor: read(cursor) if read_unsigned_varint(cursor) > 0 else None
        return lambda cursor: read(cursor) if cursor.int8() >= 0 else None

    def array_reader(self, item: Field, element: Scalar | Struct) -> _Read:
        read_count = _compact_length if self.flexible else Cursor.int32
        if isinstance(element, Struct):
            read_element = self.struct(element)
        else:
            read_element = self.scalar_reader(element, f"{item.name} element", nullable=False)

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
            return [read_element(cursor) for _ in range(count)]

        return read_array


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
        return java_utf8(_take(cursor, length))

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
    return format_uuid(uuid.UUID(bytes=cursor.take(16, "uuid")))


_FIXED_READERS: Final[Mapping[Scalar, _Read]] = {
    BOOL: lambda cursor: cursor.uint8() != 0,
    INT8: Cursor.int8,
    INT16: Cursor.int16,
    UINT16: Cursor.uint16,
    INT32: Cursor.int32,
    INT64: Cursor.int64,
    FLOAT64: Cursor.float64,
    UUID: _read_uuid,
}


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


def _compact_length(cursor: Cursor) -> int:
    return _int32(read_unsigned_varint(cursor) - 1)


def _int32(value: int) -> int:
    return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


def _null(name: str, cursor: Cursor) -> SchemaError:
    return _error(f"non-nullable field {name} was serialized as null", cursor)


def _error(java_message: str, cursor: Cursor) -> SchemaError:
    return SchemaError(java_message, position=cursor.position)
