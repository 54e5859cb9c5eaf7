"""JSON text, character for character as Kafka's tools print it.

Two steps, as there: :func:`message_node` picks and orders the fields of a decoded message as the
``*JsonConverter`` classes do that Kafka generates for its schemas, and :func:`node_text` writes
the result as Jackson's ``JsonNode.toString()`` does.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, TypeAlias

from kdump.formats.message_decoder import MessageValue
from kdump.formats.schema import Array, MessageSchema, SchemaField, Struct, default_of, fields_of

_Convert: TypeAlias = Callable[[Any], Any]

_ESCAPES: Final[Mapping[int, str]] = str.maketrans(
    {chr(code): f"\\u{code:04X}" for code in range(0x20)}
    | {"\b": r"\b", "\t": r"\t", "\n": r"\n", "\f": r"\f", "\r": r"\r"}
    | {'"': r"\"", "\\": r"\\"}
)

# Double.toString writes plain decimals for 10**-3 <= abs(value) < 10**7.
_LEAST_PLAIN_POINT: Final = -3
_MOST_PLAIN_POINT: Final = 7


def message_node(schema: MessageSchema, message: MessageValue, version: int) -> dict[str, Any]:
    """Select the fields of ``message`` that Kafka prints.

    Leaves out tagged fields that have their default value, and unknown tagged fields.

    Args:
        message: as :func:`~kdump.formats.message_decoder.decode` gives it. It may have been read as
            another version than ``version``; missing fields have their default.
        version: whose fields to print.

    Returns:
        What :func:`node_text` takes, in Kafka's order.
    """
    node: dict[str, Any] = _converter(schema, schema, version)(message)
    return node


def node_text(node: object) -> str:
    """The JSON text of a node.

    Args:
        node: None, a bool, int, float or str, bytes (written in base64), or a list or dict of
            nodes with str keys.

    Raises:
        TypeError: any other type.
    """
    if isinstance(node, str):
        return string_text(node)
    if node is None:
        return "null"
    if node is True:
        return "true"
    if node is False:
        return "false"
    if isinstance(node, int):
        return str(node)
    if isinstance(node, dict):
        members = [f"{string_text(name)}:{node_text(member)}" for name, member in node.items()]
        return "{" + ",".join(members) + "}"
    if isinstance(node, list):
        return "[" + ",".join(map(node_text, node)) + "]"
    if isinstance(node, bytes):
        return '"' + base64.b64encode(node).decode("ascii") + '"'
    if isinstance(node, float):
        return double_text(node)
    raise TypeError(f"no JSON node is a {type(node).__name__}")


def string_text(text: str) -> str:
    """``text`` in quotes; only quotes, backslashes and characters below U+0020 are escaped."""
    return '"' + text.translate(_ESCAPES) + '"'


def double_text(value: float) -> str:
    """A double as ``Double.toString`` writes it since Java 19; not-a-numbers are in quotes.

    Java 17 and 18 write more digits than are needed for some values above 2**53.
    """
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if value == 0:
        return sign + "0.0"
    digits, point = _shortest_digits(abs(value))
    if _LEAST_PLAIN_POINT < point <= _MOST_PLAIN_POINT:
        padded = digits.ljust(point, "0") if point > 0 else "0" * (1 - point) + digits
        point = max(point, 1)
        return f"{sign}{padded[:point]}.{padded[point:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{point - 1}"


def _shortest_digits(value: float) -> tuple[str, int]:
    """The digits of a positive double, and how many of them stand before the decimal point."""
    number = Decimal(repr(value)).normalize()
    if len(number.as_tuple().digits) == 1:
        # Java always writes two digits, and takes the nearest two where one would do.
        nearest = Decimal(f"{value:.1e}")
        if float(nearest) == value:
            number = nearest.normalize()
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int), "only infinities and not-a-numbers have another"
    return "".join(map(str, digits)), len(digits) + exponent


# As many as there are readers in kdump.formats.schema, and for the same reason.
@lru_cache(maxsize=512)
def _converter(layout: Struct, schema: MessageSchema, version: int) -> _Convert:
    plan = [
        (item, default_of(item, schema, version), _field_converter(item, schema, version))
        for item in fields_of(layout, schema, version)
    ]

    def convert(value: MessageValue) -> dict[str, Any]:
        node = {}
        for item, default, convert_field in plan:
            member = value.get(item.name, default)
            if item.tag is None or member != default:
                node[item.name] = convert_field(member) if convert_field and member else member
        return node

    return convert


def _field_converter(item: SchemaField, schema: MessageSchema, version: int) -> _Convert | None:
    """Give the function that turns a field's value into a node; None where the value is one."""
    if isinstance(item.type, Struct):
        return _converter(item.type, schema, version)
    if isinstance(item.type, Array) and isinstance(item.type.element, Struct):
        convert = _converter(item.type.element, schema, version)
        return lambda elements: [convert(element) for element in elements]
    return None
