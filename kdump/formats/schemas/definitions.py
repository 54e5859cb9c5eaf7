"""Read the files of schemas, which ``./dev kafka-definitions`` writes from Kafka's jars.

Each file has the messages of one log, a line a field, and the fields of a struct below it::

    PartitionRecord type 3 versions 0-2 flexible 0+
      partitionId int32 default -1
      replicas []int32
      lastKnownElr []int32 2+ nullable tag 2 default null

What a line does not say is as in most of them: a field is in all versions, may not be null and has
no tag, its default is zero or empty; a message has version 0, and no tagged fields.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Mapping
from typing import Any

from kdump.formats.schema import (
    NO_VERSIONS,
    ZERO,
    FieldType,
    MessageSchema,
    RecordType,
    Scalar,
    SchemaField,
    array,
    field,
    message,
    struct,
)

_INDENT = "  "


def read_messages(file_name: str) -> dict[str, MessageSchema]:
    """The schemas of a file in this folder by Kafka's names of the messages."""
    return {each.name: each for _, each in _read(file_name)}


def read_record_types(file_name: str) -> Mapping[int, RecordType]:
    """The types of records of one log by their numbers.

    A type whose records have no keys has Kafka's name of the constant (``MetadataRecordType``), one
    of a coordinator what the names of its key and its value begin with.
    """
    keys: dict[int, MessageSchema] = {}
    found: dict[int, RecordType] = {}
    for type_id, schema in _read(file_name):
        if schema.name.endswith("Key"):
            keys[type_id] = schema
        elif schema.name.endswith("Value"):
            name = schema.name.removesuffix("Value")
            found[type_id] = RecordType(type_id, name, schema, keys[type_id])
        else:
            name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", schema.name).upper()
            found[type_id] = RecordType(type_id, name, schema)
    return found


def _read(file_name: str) -> list[tuple[int, MessageSchema]]:
    """The messages of a file, each after the number of its type; -1 without one."""
    data = pkgutil.get_data(__package__, file_name)
    assert data is not None, f"{file_name} is part of the package"
    lines = [line for line in data.decode().splitlines() if line]
    lines.reverse()
    found = []
    while lines:
        name, *words = lines.pop().split()
        said = dict(zip(words[::2], words[1::2], strict=True))
        schema = message(
            name,
            *_fields(lines, _INDENT),
            versions=said.get("versions", "0"),
            flexible=said.get("flexible", NO_VERSIONS),
        )
        found.append((int(said.get("type", -1)), schema))
    return found


def _fields(lines: list[str], indent: str) -> list[SchemaField]:
    """Take the fields with at least this indentation from the end of the lines."""
    found = []
    while lines and lines[-1].startswith(indent):
        name, type_name, *words = lines.pop().split()
        inner = _fields(lines, indent + _INDENT)
        element_name = type_name.removeprefix("[]")
        element = struct(element_name, *inner) if inner else Scalar[element_name.upper()]
        kind: FieldType = element if element_name == type_name else array(element)
        said = iter(words)
        versions, nullable, tag, default = "0+", False, None, ZERO
        for word in said:
            if word == "nullable":
                nullable = True
            elif word == "tag":
                tag = int(next(said))
            elif word == "default":
                default = _default(element, next(said))
            else:
                versions = word
        found.append(field(name, kind, versions, nullable=nullable, tag=tag, default=default))
    return found


def _default(element: FieldType, text: str) -> Any:
    if text == "null":
        return None
    if element is Scalar.STRING:
        return text
    return text == "true" if element is Scalar.BOOL else int(text)
