"""JSON documents that people may edit: reading them with every field checked, and their text.

A document is an object with ``format`` (what it is), ``version``, and fields of its own. Its reader
refuses what is missing, what has another type, and fields that it does not know: a misspelt name
would otherwise be a decision that is silently not made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn, TypeVar

from msgspec import Struct

from kdump.formats.uuids import parse_uuid

Value = TypeVar("Value")

MOST: Final = 2**63 - 1
"""The greatest number that Kafka can store."""
MOST_INT32: Final = 2**31 - 1
MOST_TIME_NS: Final = 2**63 * 10**9 - 1
"""The latest time that a system call takes; it counts seconds in 64 bits, so more nanoseconds."""
LEAST_TIME_NS: Final = -(2**63) * 10**9


class DocumentError(Exception):
    """A document that cannot be used; the message names the field."""


class JsonObject(Struct, frozen=True):
    """An object of a document while it is decoded.

    Every method takes the name of a field and raises :class:`DocumentError` if the field is missing
    or is not what the method returns.

    Attributes:
        fields: as :mod:`json` has read them.
        where: its path in the document, such as ``topics[3].partitions[0]``; "" for the whole.
    """

    fields: Mapping[str, Any]
    where: str

    @classmethod
    def of(cls, value: Any, where: str) -> JsonObject:
        """The object at a path.

        Raises:
            DocumentError: it is not an object.
        """
        if type(value) is not dict:
            _refuse(where, "an object", value)
        return cls(value, where)

    def path(self, name: str) -> str:
        """The path of a field."""
        return f"{self.where}.{name}" if self.where else name

    def has_only(self, names: Collection[str]) -> None:
        """Check that there are no fields of other names.

        Raises:
            DocumentError: there are.
        """
        for name in self.fields:
            if name not in names:
                raise DocumentError(f"{self.path(name)}: there is no such field")

    def value(self, name: str) -> Any:
        """The field as it is."""
        if name not in self.fields:
            raise DocumentError(f"{self.path(name)}: missing")
        return self.fields[name]

    def text(self, name: str) -> str:
        return checked_text(self.value(name), self.path(name))

    def number(self, name: str, *, least: int = 0, most: int = MOST) -> int:
        """An integer in a range."""
        return checked_number(self.value(name), self.path(name), least=least, most=most)

    def integer(self, name: str) -> int:
        """An integer of any size."""
        return checked_integer(self.value(name), self.path(name))

    def time_ns(self, name: str) -> int:
        """The time of a file: any that a disk can have, in nanoseconds."""
        return self.number(name, least=LEAST_TIME_NS, most=MOST_TIME_NS)

    def flag(self, name: str) -> bool:
        """A boolean."""
        return checked_flag(self.value(name), self.path(name))

    def optional(self, read: Callable[[str], Value], name: str) -> Value | None:
        """A field that may be null, read by one of the other methods."""
        return None if self.value(name) is None else read(name)

    def object(self, name: str) -> JsonObject:
        return JsonObject.of(self.value(name), self.path(name))

    def _each(self, name: str) -> Iterator[tuple[Any, str]]:
        return elements(self.value(name), self.path(name))

    def objects(self, name: str) -> Iterator[JsonObject]:
        """The objects of a list."""
        return (JsonObject.of(value, where) for value, where in self._each(name))

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        return tuple(checked_text(value, where) for value, where in self._each(name))


# --- what a value is: each raises DocumentError with the path if it is something else


def checked_number(value: Any, where: str, *, least: int = 0, most: int = MOST) -> int:
    """An integer in a range."""
    if type(value) is not int or not least <= value <= most:
        _refuse(where, f"a number from {least} to {most}", value)
    return value


def checked_integer(value: Any, where: str) -> int:
    """An integer of any size."""
    if type(value) is not int:
        _refuse(where, "an integer", value)
    return value


def checked_text(value: Any, where: str) -> str:
    """A string."""
    if type(value) is not str:
        _refuse(where, "a string", value)
    return value


def checked_flag(value: Any, where: str) -> bool:
    """A boolean."""
    if type(value) is not bool:
        _refuse(where, "true or false", value)
    return value


def checked_uuid(value: Any, where: str) -> str:
    """A UUID as Kafka writes it."""
    if type(value) is not str or len(value) != _UUID_LENGTH or parse_uuid(value) is None:
        _refuse(where, "a UUID of 22 characters", value)
    return value


def checked_word(value: Any, where: str, words: Mapping[str, Value]) -> Value:
    """One of some words, as what it stands for."""
    if type(value) is not str or value not in words:
        _refuse(where, f"one of {', '.join(words)}", value)
    return words[value]


def elements(values: Any, where: str) -> Iterator[tuple[Any, str]]:
    """The elements of a list, each with its path."""
    if type(values) is not list:
        _refuse(where, "a list", values)
    return ((value, f"{where}[{index}]") for index, value in enumerate(values))


_UUID_LENGTH: Final = 22


def _refuse(where: str, expected: str, found: Any) -> NoReturn:
    raise DocumentError(f"{where}: not {expected}: {found!r:.80}")


# --- whole documents


def read_document(data: bytes, format_name: str, version: int) -> JsonObject:
    """Decode the JSON of a document and check its format and version.

    Raises:
        DocumentError: it is not a document of this format and version.
    """
    try:
        value = json.loads(data, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise DocumentError(f"not JSON: {reason}") from None
    found = value.get("format") if type(value) is dict else None
    if found != format_name:
        what = f"a {found}" if isinstance(found, str) else "no document of kdump's"
        raise DocumentError(f"not a {format_name}, but {what}")
    if type(value.get("version")) is not int or value["version"] != version:
        raise DocumentError(
            f"version {value.get('version')!r:.20} of a {format_name}; "
            f"this kdump reads version {version}"
        )
    return JsonObject(value, "")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DocumentError(f"{twice}: given twice in one object")
    return fields


def _no_constant(text: str) -> NoReturn:
    raise DocumentError(f"not JSON: {text}")


def document_lines(fields: Mapping[str, Any], spread: Collection[str]) -> Iterator[bytes]:
    """Yield the text of a document: readable, and one line for each of many things.

    Args:
        spread: names of lists whose elements get a line each; objects with such a list are spread,
            too.
    """
    yield from (line.encode("utf-8", "backslashreplace") for line in _object(fields, spread, ""))
    yield b"\n"


def _object(fields: Mapping[str, Any], spread: Collection[str], indent: str) -> Iterator[str]:
    inner = f"{indent}  "
    yield "{"
    before = "\n"
    for name, value in fields.items():
        yield f"{before}{inner}{json.dumps(name)}: "
        before = ",\n"
        if isinstance(value, list) and value and name in spread:
            yield from _elements(value, spread, inner)
        elif isinstance(value, dict) and _is_spread(value, spread):
            yield from _object(value, spread, inner)
        else:
            yield _line(value)
    yield f"\n{indent}}}"


def _is_spread(value: Mapping[str, Any], spread: Collection[str]) -> bool:
    return any(name in spread and isinstance(value[name], list) for name in value)


def _elements(values: Iterable[Any], spread: Collection[str], indent: str) -> Iterator[str]:
    inner = f"{indent}  "
    yield "["
    before = "\n"
    for value in values:
        yield f"{before}{inner}"
        before = ",\n"
        if isinstance(value, dict) and _is_spread(value, spread):
            yield from _object(value, spread, inner)
        else:
            yield _line(value)
    yield f"\n{indent}]"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
