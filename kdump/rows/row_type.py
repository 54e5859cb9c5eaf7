"""What a row is: its fields, with their types, meanings and headings.

A row type is declared once, beside the function that makes the rows. The columns of the terminal
and of CSV, the JSON Schemas in ``docs/schemas``, the tables of SQL and Spark, and the lists of
columns in ``docs/tables.md`` are derived from it; ``./dev pages`` writes the files in ``docs``.
Rows themselves are mappings with the names of the fields, and the key ``type``.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace


class Kind(enum.Enum):
    """How values of a column are shown to people."""

    TEXT = "text"
    NUMBER = "number"
    BYTES = "bytes"
    """A size; shown in KiB, MiB and so on."""
    TIMESTAMP_MS = "timestamp"
    """Milliseconds since 1970; shown as a time in UTC."""


class ValueType(Struct, frozen=True):
    """The type of the values of a field.

    Attributes:
        json: as JSON Schema names it; "" for one of several types, or any.
        sql: the type in SQL; "" for one that follows from ``items`` or ``fields``, or has none.
        kind: how people see a value.
        is_nullable: whether a value may be null.
        unknown: what people see for null.
        limits: other keywords of JSON Schema that restrict a value.
        words: the only values, if it is one of some words.
        items: the type of the elements of a list, or of the values of a mapping.
        fields: those of an object.
        choices: the types that a value may have, if there are several.
        shared: its name in ``docs/schemas/common.json`` if several commands have such values.
        what: its meaning there.
    """

    json: str
    sql: str = ""
    kind: Kind = Kind.TEXT
    is_nullable: bool = False
    unknown: str = "?"
    limits: Mapping[str, Any] = {}
    words: tuple[str, ...] = ()
    items: ValueType | None = None
    fields: tuple[Field, ...] = ()
    choices: tuple[ValueType, ...] = ()
    shared: str = ""
    what: str = ""

    @property
    def or_null(self) -> ValueType:
        """The same type, with null for what is unknown."""
        return replace(self, is_nullable=True)

    @property
    def or_none(self) -> ValueType:
        """The same type, with null for what there is not; people see ``-``."""
        return self.or_null_as("-")

    def or_null_as(self, unknown: str) -> ValueType:
        """The same type, with null, for which people see a text."""
        return replace(self, is_nullable=True, unknown=unknown)

    def limited(self, **limits: Any) -> ValueType:
        """The same type with more keywords of JSON Schema, such as ``maximum``."""
        return replace(self, limits={**self.limits, **limits})


class Field(Struct, frozen=True):
    """A field of a row.

    Attributes:
        name: key in the rows, in JSON and in the header of CSV; ends in its unit, if it has one.
        what: its meaning, for the pages.
        title: heading for people; "" for a field that only programs see.
        alert: whether a value deserves attention, unless it is null, 0 or nothing, or a flag is
            true; a terminal shows it in colour.
        dropped: order in which a narrow terminal hides columns, 1 first; None is always shown.
        is_detail: whether people see it only where a row is shown as a block.
        for_programs: whether CSV, JSON and SQL have it; others are texts made for people.
        is_optional: whether rows may lack it.
        unless_failed: whether rows lack it, but only if their ``failure`` is not null.
        sql_only: whether only SQL has it: other output does not depend on several rows.
        json_only: whether only JSON has it.
    """

    name: str
    type: ValueType
    what: str = ""
    title: str = ""
    alert: bool = False
    dropped: int | None = None
    is_detail: bool = False
    for_programs: bool = True
    is_optional: bool = False
    unless_failed: bool = False
    sql_only: bool = False
    json_only: bool = False

    @property
    def kind(self) -> Kind:
        return self.type.kind

    @property
    def for_people(self) -> bool:
        """Whether the formats for people show it."""
        return bool(self.title) and not self.is_detail


class RowType(Struct, frozen=True):
    """The rows of one type.

    Attributes:
        type: their ``type`` in JSON and CSV.
        what: a row, for the pages.
        fields: in the order of columns.
        title: heading of a table of these rows, if there are several tables.
        shared: its name in ``docs/schemas/common.json`` if several commands have such rows.
        name: in the schema of its command; "" if that is its type.
    """

    type: str
    what: str
    fields: tuple[Field, ...]
    title: str = ""
    shared: str = ""
    name: str = ""

    @property
    def columns(self) -> tuple[Field, ...]:
        """The columns of the terminal and of CSV."""
        return tuple(each for each in self.fields if not each.sql_only and not each.json_only)


def values_of(fields: Iterable[Field], source: object, /, **others: Any) -> dict[str, Any]:
    """The values of fields, in their order: the given ones, and attributes of the same names.

    Args:
        source: has an attribute for each field that is not among ``others``.
    """
    names = (each.name for each in fields)
    return {name: others[name] if name in others else getattr(source, name) for name in names}


class JsonAnswer(Struct, frozen=True):
    """The output of a command in JSON, without its header and end.

    Attributes:
        command: its name, and that of its schema.
        rows: what it may contain.
        commands: the commands as typed, if it has several.
    """

    command: str
    rows: tuple[RowType, ...]
    commands: tuple[str, ...] = ()


TEXT: Final = ValueType("string", "STRING")
INTEGER: Final = ValueType("integer", "BIGINT", Kind.NUMBER)
COUNT: Final = INTEGER.limited(minimum=0)
INT: Final = replace(INTEGER, sql="INT")
"""The number of a partition."""
SIZE: Final = replace(COUNT, kind=Kind.BYTES)
"""A number of bytes."""
BYTES: Final = replace(INTEGER, kind=Kind.BYTES)
"""A number of bytes that may be negative."""
TIME: Final = ValueType("integer", "TIMESTAMP", Kind.TIMESTAMP_MS)
"""Milliseconds since 1970; the name of the field ends in ``_ms``, except in SQL."""
NUMBER: Final = ValueType("number", "DOUBLE", Kind.NUMBER)
FLAG: Final = ValueType("boolean", "BOOLEAN")
ANYTHING: Final = ValueType("")


def one_of(*words: str) -> ValueType:
    """One of some words."""
    return replace(TEXT, words=words)


def list_of(items: ValueType) -> ValueType:
    """A list of values of one type."""
    return ValueType("array", items=items)


def map_of(values: ValueType) -> ValueType:
    """A mapping from names to values."""
    return ValueType("object", items=values)


def object_of(*fields: Field) -> ValueType:
    """An object with these fields."""
    return ValueType("object", fields=fields)


def objects_of(*fields: Field) -> ValueType:
    """A list of objects with these fields."""
    return list_of(object_of(*fields))


def any_of(*choices: ValueType) -> ValueType:
    """One of several types."""
    return ValueType("", choices=choices)
