"""How large the values of an Avro schema can become, for a number of bytes.

Values that take no bytes, such as null and records without fields, may be claimed in any number,
and named types that use others twice double with each level.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

_LEAST_BYTES: Final = {"null": 0, "float": 4, "double": 8}
_NO_VALUES: Final = 0


@dataclass(frozen=True, slots=True)
class SchemaSize:
    """The size of what a schema describes.

    Attributes:
        is_recursive: whether a type contains itself.
        has_empty_items: whether items of an array may take no bytes.
        values: the most values of one datum, without the items of arrays and maps.
        values_per_byte: the most values that one byte of such items stands for.
    """

    is_recursive: bool
    has_empty_items: bool
    values: int
    values_per_byte: int

    def most_values(self, size_bytes: int) -> int:
        """The most values that so many bytes stand for."""
        return self.values + self.values_per_byte * size_bytes


def size_of_schema(schema: Any) -> SchemaSize:
    """Return the size of what a schema describes, as fastavro has parsed it."""
    examined = _Examined()
    least, values = examined.size(schema)
    return SchemaSize(
        examined.is_recursive,
        examined.has_empty_items,
        values,
        max(examined.values_per_byte, values if examined.is_recursive and least else 0),
    )


@dataclass(slots=True)
class _Examined:
    is_recursive: bool = False
    has_empty_items: bool = False
    values_per_byte: int = 1
    _defined: dict[str, Any] = field(default_factory=dict)
    _sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)

    def size(self, schema: Any) -> tuple[int, int]:
        """The least bytes and the most values of one datum."""
        if isinstance(schema, list):
            sizes = [self.size(each) for each in schema]
            return 1, max((values for _, values in sizes), default=_NO_VALUES) + 1
        if isinstance(schema, str):
            return self._named(schema) if schema in self._known() else _primitive(schema)
        kind = schema["type"]
        if kind in ("record", "error", "enum", "fixed"):
            return self._defining(schema, kind)
        if kind == "array":
            least, values = self.size(schema["items"])
            self.has_empty_items |= least == 0
            self._repeated(least, values)
            return 1, 1
        if kind == "map":
            least, values = self.size(schema["values"])
            self._repeated(least + 1, values + 1)
            return 1, 1
        return self.size(kind)

    def _known(self) -> set[str]:
        return self._open | self._sizes.keys()

    def _repeated(self, least: int, values: int) -> None:
        self.values_per_byte = max(self.values_per_byte, -(-values // max(least, 1)))

    def _named(self, name: str) -> tuple[int, int]:
        if name in self._open:
            self.is_recursive = True
            return 1, 1
        return self._sizes[name]

    def _defining(self, schema: Any, kind: str) -> tuple[int, int]:
        name = schema["name"]
        if kind == "enum":
            size = 1, 1
        elif kind == "fixed":
            size = int(schema["size"]), 1
        else:
            self._open.add(name)
            fields = list(self._fields(schema))
            self._open.discard(name)
            size = sum(least for least, _ in fields), sum(values for _, values in fields) + 1
        self._sizes[name] = size
        return size

    def _fields(self, schema: Any) -> Iterator[tuple[int, int]]:
        for each in schema["fields"]:
            yield self.size(each["type"])


def _primitive(name: str) -> tuple[int, int]:
    return _LEAST_BYTES.get(name, 1), 1
