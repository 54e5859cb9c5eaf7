"""How much memory values of an Avro schema can take, for a number of bytes.

Values that take no bytes, such as null and records without fields, may be claimed in any number,
and named types that use others twice double with each level.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct, field

from kdump.payloads.payload_errors import SchemaProblem

UNIT_BYTES: Final = 64
"""About what a number or a short text takes in Python, with its slot in a list."""
_DICTIONARY: Final = 4
_LEAST_BYTES: Final = {"null": 0, "float": 4, "double": 8}
_RATES: Final = (0, *(1 << power for power in range(7)))
"""Units for each byte that are tried. None are enough where nothing can be repeated."""
_MOST_UNPAID: Final = 1 << 16


class SchemaSize(Struct, frozen=True):
    """The size of what a schema describes, in units of memory.

    Attributes:
        is_recursive: whether a type contains itself.
        unpaid: the most units of one datum for which there are no bytes.
        per_byte: the most units that a byte stands for, besides.
    """

    is_recursive: bool
    unpaid: int
    per_byte: int

    def most_bytes(self, size_bytes: int) -> int:
        """The most memory that a payload of so many bytes takes."""
        return UNIT_BYTES * (max(self.unpaid, 0) + self.per_byte * size_bytes)


def size_of_schema(schema: Any) -> SchemaSize:
    """Return the size of what a schema describes, as fastavro has parsed it.

    Raises:
        SchemaProblem: values may take far more memory than bytes.
    """
    for per_byte in _RATES:
        examined = _Examined(per_byte)
        unpaid = examined.unpaid(schema)
        if not examined.is_endless and unpaid <= _MOST_UNPAID:
            return SchemaSize(examined.is_recursive, unpaid, per_byte)
    raise SchemaProblem("its schema has values that take no bytes, or very few, and much memory")


class _Examined(Struct):
    """Whether a number of units per byte is enough for a schema.

    Attributes:
        per_byte: that number.
        is_endless: whether it is not: something may be repeated, and takes more each time.
    """

    per_byte: int
    is_endless: bool = False
    is_recursive: bool = False
    _unpaid: dict[str, int] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)
    _within_themselves: set[str] = field(default_factory=set)

    def unpaid(self, schema: Any) -> int:
        """The most units of one datum that are more than its bytes stand for; may be negative."""
        if isinstance(schema, list):
            return max(map(self.unpaid, schema), default=0) - self.per_byte
        if isinstance(schema, str):
            return self._named(schema)
        kind = schema["type"]
        match kind:
            case "record" | "error":
                return self._record(schema)
            case "enum":
                return self._defined(schema["name"], self._value(1))
            case "fixed":
                unpaid = self._value(int(schema["size"])) + _text_units(schema)
                return self._defined(schema["name"], unpaid)
            case "array":
                self._repeat(self.unpaid(schema["items"]))
                return self._value(1)
            case "map":
                self._repeat(self.unpaid(schema["values"]) + self._value(1))
                return self._value(1) + _DICTIONARY
        return self.unpaid(kind) + _text_units(schema)

    def _value(self, least_bytes: int) -> int:
        return 1 - self.per_byte * least_bytes

    def _repeat(self, unpaid: int) -> None:
        self.is_endless |= unpaid > 0

    def _defined(self, name: str, unpaid: int) -> int:
        self._unpaid[name] = unpaid
        return unpaid

    def _named(self, name: str) -> int:
        if name in self._open:
            # Checked to be no more than this at the end of the type.
            self._within_themselves.add(name)
            self.is_recursive = True
            return 0
        if name in self._unpaid:
            return self._unpaid[name]
        return self._value(_LEAST_BYTES.get(name, 1))

    def _record(self, schema: Any) -> int:
        name = schema["name"]
        self._open.add(name)
        unpaid = 1 + _DICTIONARY
        for each in schema["fields"]:
            unpaid += self.unpaid(each["type"]) + len(each["name"]) // UNIT_BYTES
        self._open.discard(name)
        if name in self._within_themselves:
            self._repeat(unpaid)
        return self._defined(name, unpaid)


def _text_units(schema: Any) -> int:
    """What a logical type takes as text, which is held twice."""
    return 1 + 2 * int(schema.get("scale", 0)) // UNIT_BYTES if "logicalType" in schema else 0
