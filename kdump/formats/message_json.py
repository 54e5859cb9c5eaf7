"""Messages read from JSON: the inverse of the nodes that Kafka's tools and kdump print.

Follows the ``read`` methods of the ``*JsonConverter`` classes that Kafka generates, and is stricter
than they are: an unknown name is an error, as is a number that its field cannot hold.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from kdump.formats.message_decoder import MessageValue
from kdump.formats.schema import (
    Array,
    MessageSchema,
    Scalar,
    SchemaField,
    Struct,
    default_of,
    fields_of,
)
from kdump.formats.uuids import format_uuid, parse_uuid

_RANGES: Final = {
    Scalar.INT8: range(-(1 << 7), 1 << 7),
    Scalar.INT16: range(-(1 << 15), 1 << 15),
    Scalar.UINT16: range(1 << 16),
    Scalar.INT32: range(-(1 << 31), 1 << 31),
    Scalar.INT64: range(-(1 << 63), 1 << 63),
}
_NOT_A_NUMBER: Final = {"NaN", "Infinity", "-Infinity"}
"""Doubles that JSON has as strings (``double_text`` in :mod:`kdump.formats.java.jackson`)."""

_SHOWN: Final = 60
"""So many characters of a wrong value are in the message about it."""


class MessageJsonError(ValueError):
    """JSON that is not a message of its schema; the message begins with the field's path."""


def fields_from_json(schema: MessageSchema, version: int, node: object) -> MessageValue:
    """Read a message from parsed JSON.

    Args:
        node: a dict, as :func:`~kdump.formats.java.jackson.message_node` makes it: bytes in base64,
            tagged fields only where they are not at their default.

    Returns:
        The fields of that version in the order of the schema, as the decoder returns them.

    Raises:
        MessageJsonError: a field is missing or unknown, or has an impossible value.
    """
    if version not in schema.versions:
        raise MessageJsonError(f"there is no version {version} of {schema.name}")
    return _Reader(schema, version).struct(schema, node, "")


class _Reader:
    """Reads the structs of one message in one version."""

    def __init__(self, schema: MessageSchema, version: int) -> None:
        self._schema = schema
        self._version = version

    def struct(self, layout: Struct, node: object, path: str) -> MessageValue:
        if not isinstance(node, dict):
            raise _error(path or layout.name, "must be an object", node)
        present = fields_of(layout, self._schema, self._version)
        unknown = node.keys() - {item.name for item in present}
        if unknown:
            name = min(map(str, unknown))
            raise MessageJsonError(
                f"{_join(path, name)}: {layout.name} has no such field in version {self._version}"
            )
        value: MessageValue = {}
        for item in present:
            if item.name in node:
                value[item.name] = self.field(item, node[item.name], _join(path, item.name))
            elif item.tag is not None:
                value[item.name] = default_of(item, self._schema, self._version)
            else:
                raise MessageJsonError(f"{_join(path, item.name)}: is missing")
        return value

    def field(self, item: SchemaField, node: object, path: str) -> Any:
        if node is None:
            if not item.nullable:
                raise MessageJsonError(f"{path}: must not be null")
            return None
        if isinstance(item.type, Struct):
            return self.struct(item.type, node, path)
        if isinstance(item.type, Array):
            return self.array(item.type.element, node, path)
        return _scalar(item.type, node, path)

    def array(self, element: Scalar | Struct, node: object, path: str) -> list[Any]:
        if not isinstance(node, list):
            raise _error(path, "must be an array", node)
        if isinstance(element, Struct):
            return [self.struct(element, each, f"{path}[{at}]") for at, each in enumerate(node)]
        return [_scalar(element, each, f"{path}[{at}]") for at, each in enumerate(node)]


def _scalar(kind: Scalar, node: object, path: str) -> Any:
    if kind in _RANGES:
        return _integer(kind, node, path)
    if kind is Scalar.BOOL and isinstance(node, bool):
        return node
    if kind is Scalar.FLOAT64:
        return _double(node, path)
    if isinstance(node, str):
        if kind is Scalar.STRING:
            return _string(node, path)
        if kind is Scalar.UUID and (parsed := parse_uuid(node)) is not None:
            return format_uuid(parsed)
        if kind is Scalar.BYTES:
            return _bytes(node, path)
    if kind is Scalar.BYTES:
        raise MessageJsonError(f"{path}: must be base64")
    words = {Scalar.BOOL: "true or false", Scalar.STRING: "a string", Scalar.UUID: "an ID"}
    raise _error(path, f"must be {words[kind]}", node)


def _integer(kind: Scalar, node: object, path: str) -> int:
    if isinstance(node, bool) or not isinstance(node, int):
        raise _error(path, "must be a whole number", node)
    allowed = _RANGES[kind]
    if node not in allowed:
        raise _error(path, f"must be from {allowed.start} to {allowed.stop - 1}", node)
    return node


def _double(node: object, path: str) -> float:
    if isinstance(node, int | float) and not isinstance(node, bool):
        try:
            return float(node)
        except OverflowError:
            pass
    elif isinstance(node, str) and node in _NOT_A_NUMBER:
        return float(node)
    raise _error(path, "must be a number", node)


def _string(node: str, path: str) -> str:
    try:
        node.encode()
    except UnicodeEncodeError:
        raise MessageJsonError(f"{path}: must be valid Unicode") from None
    return node


def _bytes(node: str, path: str) -> bytes:
    try:
        return base64.b64decode(node, validate=True)
    except (binascii.Error, ValueError):
        # The value may be a secret: it is not shown.
        raise MessageJsonError(f"{path}: must be base64") from None


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _error(path: str, what: str, node: object) -> MessageJsonError:
    found = repr(node)
    shown = found if len(found) <= _SHOWN else f"{found[:_SHOWN]}…"
    return MessageJsonError(f"{path}: {what}, not {shown}")
