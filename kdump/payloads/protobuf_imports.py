"""Files that Protobuf schemas may import without referencing a schema.

Those that come with Protobuf, and Confluent's: options that annotate fields, and decimal numbers.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

_OF_PROTOBUF: Final = (
    "any",
    "source_context",
    "type",
    "api",
    "descriptor",
    "duration",
    "empty",
    "field_mask",
    "struct",
    "timestamp",
    "wrappers",
)
"""In an order in which each follows what it imports."""
_META_NUMBER: Final = 1088
_OPTIONS: Final = ("file", "message", "field", "enum", "enum_value")


@functools.cache
def known_files() -> tuple[FileDescriptorProto, ...]:
    """The files, each after what it imports.

    Raises:
        ImportError: Protobuf is not installed.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    found = []
    for name in _OF_PROTOBUF:
        module = importlib.import_module(f"google.protobuf.{name}_pb2")
        found.append(FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb))
    return (*found, _meta(), _decimal(), _variant(), _moved_decimal())


def _file(name: str, package: str, *imports: str) -> FileDescriptorProto:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    return FileDescriptorProto(name=name, package=package, dependency=imports, syntax="proto3")


def _message(file: FileDescriptorProto, name: str, fields: dict[str, str]) -> None:
    """Add a message; its fields are numbered from 1."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

    message = file.message_type.add(name=name)
    for number, (field, kind) in enumerate(fields.items(), 1):
        repeated, _, word = kind.rpartition(" ")
        added = message.field.add(name=field, number=number)
        added.label = Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
        if word.startswith("."):
            added.type, added.type_name = Field.TYPE_MESSAGE, word
        else:
            added.type = Field.Type.Value(f"TYPE_{word.upper()}")


def _meta() -> FileDescriptorProto:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

    file = _file("confluent/meta.proto", "confluent", "google/protobuf/descriptor.proto")
    fields = {
        "doc": "string",
        "params": "repeated .confluent.Meta.ParamsEntry",
        "tags": "repeated string",
        "rules": "repeated .confluent.Rule",
    }
    _message(file, "Meta", fields)
    entry = _file("", "")
    _message(entry, "ParamsEntry", {"key": "string", "value": "string"})
    entry.message_type[0].options.map_entry = True
    file.message_type[0].nested_type.append(entry.message_type[0])
    _message(file, "Rule", {"name": "string", "doc": "string", "expr": "string", "sql": "string"})
    for option in _OPTIONS:
        extended = "".join(word.capitalize() for word in option.split("_"))
        file.extension.add(
            name=f"{option}_meta",
            number=_META_NUMBER,
            label=Field.LABEL_OPTIONAL,
            type=Field.TYPE_MESSAGE,
            type_name=".confluent.Meta",
            extendee=f".google.protobuf.{extended}Options",
        )
    return file


def _decimal() -> FileDescriptorProto:
    file = _file("confluent/type/decimal.proto", "confluent.type")
    _message(file, "Decimal", {"value": "bytes", "precision": "uint32", "scale": "int32"})
    return file


def _variant() -> FileDescriptorProto:
    file = _file("confluent/type/variant.proto", "confluent.type")
    _message(file, "Variant", {"metadata": "bytes", "value": "bytes"})
    return file


def _moved_decimal() -> FileDescriptorProto:
    """The path that the file of decimal numbers had before."""
    file = _file("confluent/types/decimal.proto", "confluent.type", "confluent/type/decimal.proto")
    file.public_dependency.append(0)
    return file
