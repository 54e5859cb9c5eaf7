"""Kafka's message schemas as tables.

A schema says what Kafka's own message definitions say: which field is in which version, which may
be null, which is tagged, and its default. :mod:`kdump.formats.schemas.definitions` reads them from
files, :mod:`kdump.formats.message_decoder` reads messages by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from functools import cache
from typing import Any, Final, TypeAlias

import msgspec

from kdump.formats.uuids import ZERO_UUID, format_uuid

MAX_VERSION: Final = 0x7FFF


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


class Versions(msgspec.Struct, frozen=True):
    """The versions from ``lowest`` to ``highest``, both included."""

    lowest: int
    highest: int

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest


class Array(msgspec.Struct, frozen=True, eq=False):
    """Elements of one type, none of them null."""

    element: Scalar | Struct


class Struct(msgspec.Struct, frozen=True, eq=False):
    """Fields in the order in which they are written, and in which Kafka prints them."""

    name: str
    fields: tuple[SchemaField, ...]


class SchemaField(msgspec.Struct, frozen=True, eq=False):
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


class MessageSchema(Struct, frozen=True, eq=False):
    """The struct at the top.

    Attributes:
        versions: those that this schema knows.
        flexible: those that have tagged fields and varint lengths; None where none has.
    """

    versions: Versions
    flexible: Versions | None


class RecordType(msgspec.Struct, frozen=True, eq=False):
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


NO_VERSIONS: Final = "none"


def message(
    name: str, *fields: SchemaField, versions: str = "0", flexible: str = "0+"
) -> MessageSchema:
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
        None if flexible == NO_VERSIONS else _versions(flexible),
    )


def struct(name: str, *fields: SchemaField) -> Struct:
    """The type of a field that holds other ``fields``, with Kafka's name for the type."""
    return Struct(name, fields)


def array(element: Scalar | Struct) -> Array:
    """The type of a field that holds any number of elements."""
    return Array(element)


def field(
    name: str,
    kind: FieldType,
    versions: str = "0+",
    *,
    nullable: bool = False,
    tag: int | None = None,
    default: Any = ZERO,
) -> SchemaField:
    """A :class:`SchemaField`, not null and without a tag unless it says so."""
    return SchemaField(name, kind, _versions(versions), nullable, tag, default)


_ZERO_VALUES: Final[Mapping[Scalar, Any]] = {
    Scalar.BOOL: False,
    Scalar.INT8: 0,
    Scalar.INT16: 0,
    Scalar.UINT16: 0,
    Scalar.INT32: 0,
    Scalar.INT64: 0,
    Scalar.FLOAT64: 0.0,
    Scalar.STRING: "",
    Scalar.BYTES: b"",
    Scalar.UUID: format_uuid(ZERO_UUID),
}


@cache
def _versions(text: str) -> Versions:
    if text.endswith("+"):
        return Versions(int(text[:-1]), MAX_VERSION)
    lowest, _, highest = text.partition("-")
    return Versions(int(lowest), int(highest or lowest))


def fields_of(layout: Struct, schema: MessageSchema, version: int) -> tuple[SchemaField, ...]:
    """The fields that ``layout``, which is ``schema`` or within it, has in ``version``."""
    # Kafka generates no check for what holds from the first known version on.
    known_version = max(version, schema.versions.lowest)
    return tuple(item for item in layout.fields if known_version in item.versions)


def default_of(item: SchemaField, schema: MessageSchema, version: int) -> Any:
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
