"""Find records by a field of their decoded key or value.

A payload is decoded with the schema that it names, or taken for JSON. What is neither cannot be
looked at, and is counted: a field may hide in it. So is a message of Protobuf with fields that its
schema does not know.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, Self

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from kdump.payloads.payload_decoder import PayloadDecoder
from kdump.payloads.payload_format import PayloadFormat
from kdump.payloads.record_payloads import RecordPayloads
from kdump.scan.batches import Flags
from kdump.scan.records import RecordColumns
from kdump.state.schema_registry import SchemaRegistry

_NAME: Final = r'"(?:[^"\\]|\\.)*"|[^."=\s]+'
_FORM: Final = re.compile(rf"(key|value)((?:\.(?:{_NAME}))+)\s*=\s*(.*\S)", re.DOTALL)
_JSON: Final = msgspec.json.Decoder(float_hook=str)
"""Numbers with a fraction or an exponent stay as they are written."""
_UNUSUAL: Final = re.compile(rb"\\|-0")
"""A name may be written otherwise than it reads, or a zero may have a sign."""
_MASKED: Final = re.compile(rb"\**|[0-9a-f]{64}")
"""What :class:`~kdump.repair.erase.mask.Mask` makes of values and keys: no field hides there."""


class NamedField(Struct, frozen=True):
    """A field whose text names the records that have it.

    Attributes:
        is_key: whether it is in the key, and not in the value.
        path: the names of the objects around it, and its own.
        text: what it says, as in JSON, but strings without quotes.
    """

    is_key: bool
    path: tuple[str, ...]
    text: str

    @classmethod
    def parse(cls, expression: str) -> Self:
        """Read ``value.customer.id = alice-4711``.

        Raises:
            ValueError: it is not in this form.
        """
        found = _FORM.fullmatch(expression.strip())
        if found is None:
            raise ValueError("expected key.FIELD = TEXT or value.FIELD.FIELD = TEXT")
        if not _is_unicode(expression):
            raise ValueError("expected UTF-8")
        part, path, text = found.groups()
        return cls(part == "key", tuple(map(_unquoted, re.findall(_NAME, path))), _unquoted(text))

    @property
    def identity(self) -> bytes:
        """The same for every way to write this field, and for no other."""
        return msgspec.json.encode(("key" if self.is_key else "value", *self.path, self.text))

    def is_in(self, payload: Any) -> bool:
        """Whether a payload, decoded from JSON, has the field with this text.

        A list has it if one of its elements has.
        """
        return self.text in _texts_at(payload, self.path)


def _unquoted(written: str) -> str:
    """A name or a text without the quotes around it.

    Raises:
        ValueError: it has quotes, and is no JSON string.
    """
    if len(written) < 2 or not written[0] == written[-1] == '"':
        return written
    try:
        return msgspec.json.decode(written, type=str)
    except msgspec.DecodeError:
        raise ValueError("expected a JSON string in double quotes") from None


def _is_unicode(typed: str) -> bool:
    """Whether there is no byte in it that is not UTF-8; Python reads those as surrogates."""
    return not any("\ud800" <= each <= "\udfff" for each in typed)


def _texts_at(value: Any, path: Sequence[str]) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _texts_at(each, path)
    elif path:
        if isinstance(value, dict) and path[0] in value:
            yield from _texts_at(value[path[0]], path[1:])
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, int | str):
        yield str(value)


class FieldMatcher:
    """Finds the records that have one of some fields.

    Args:
        registry: the schemas.
    """

    def __init__(self, fields: Iterable[NamedField], registry: SchemaRegistry) -> None:
        every = list(fields)
        self._of_keys = [each for each in every if each.is_key]
        self._of_values = [each for each in every if not each.is_key]
        self._payloads = RecordPayloads(
            PayloadDecoder(PayloadFormat.AUTO, registry, is_key=True) if self._of_keys else None,
            PayloadDecoder(PayloadFormat.AUTO, registry) if self._of_values else None,
        )

    def find(self, columns: RecordColumns) -> tuple[Flags, Flags]:
        """Which records have one of the fields, and in which others one may hide."""
        named = np.zeros(columns.count, np.bool_)
        undecoded = np.zeros(columns.count, np.bool_)
        texts = self._payloads.searched(columns)
        for each, fields in zip(texts, (self._of_keys, self._of_values), strict=True):
            if not fields:
                continue
            may_have = _may_have(each.column, fields)
            for row, text in enumerate(each.column.to_pylist()):
                looked_for = fields if may_have[row] else ()
                found = None if row in each.problems else _has(text, looked_for)
                if row in each.partial:
                    found = found or None
                if found is not False:  # most records have none
                    named[row] |= found is True
                    undecoded[row] |= found is None
        return named, undecoded & ~named

    def find_in(self, key: bytes | None, value: bytes | None) -> bool | None:
        """Whether a record without headers has one of the fields; None if one may hide in it."""
        found: list[bool | None] = []
        for decoder, payload, fields in (
            (self._payloads.key, key, self._of_keys),
            (self._payloads.value, value, self._of_values),
        ):
            if decoder is not None and payload is not None:
                decoded = decoder.decode(payload)
                has = None if decoded.text is None else _has(decoded.text.encode(), fields)
                found.append(has if decoded.is_whole else has or None)
        return True if True in found else None if None in found else False


def _may_have(texts: pa.Array, fields: Iterable[NamedField]) -> list[bool]:
    """Which of some JSON texts may have one of the fields.

    The others have no escapes, and nowhere what a field says.
    """
    parts = {b"\\", *(each.text.encode() for each in fields)}
    is_found = (pc.match_substring(texts, part) for part in parts)
    found: list[bool] = functools.reduce(pc.or_, is_found).to_pylist()
    return found


def _has(text: bytes | None, fields: Collection[NamedField]) -> bool | None:
    """Whether JSON has one of the fields; None if it is no JSON."""
    if text is None:
        return False
    try:
        payload = _JSON.decode(text)
        if not fields:
            return False
        if _UNUSUAL.search(text) or any(_is_twice(each.path, text) for each in fields):
            payload = json.loads(
                text, object_pairs_hook=_all_values, parse_int=str, parse_float=str
            )
        return any(each.is_in(payload) for each in fields)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False if _MASKED.fullmatch(text) else None


def _is_twice(path: Iterable[str], text: bytes) -> bool:
    """Whether one of these names may stand twice in an object of JSON without escapes."""
    return any(text.count(b'"%s"' % each.encode()) > 1 for each in path)


def _all_values(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """An object as it is decoded; a name that stands twice has a list of its values."""
    values: dict[str, list[Any]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return {name: found if len(found) > 1 else found[0] for name, found in values.items()}
