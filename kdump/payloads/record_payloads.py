"""The keys and values of records as text: for rows, for lines, and for a search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from kdump.dump.contents import FieldContents, Headers, LineTexts, Payload
from kdump.formats.java.java_text import java_utf8
from kdump.formats.record_batch import RecordHeader
from kdump.payloads.payload_decoder import PayloadDecoder, Texts, utf8_texts
from kdump.payloads.payload_format import PayloadFormat
from kdump.scan.arrow import gather_bytes
from kdump.scan.records import RecordColumns
from kdump.state.schema_registry import SchemaRegistry

_BINARY = pa.large_binary()
Pair = tuple[Payload, Payload]
HeadersAt = Callable[[int], Iterable[RecordHeader]] | None
"""Gives the headers of a record by its row; None if no record has any."""


@dataclass(frozen=True, slots=True)
class RecordPayloads(FieldContents):
    """How keys and values become text.

    Attributes:
        key: decodes keys; None to leave them as they are.
        value: decodes values; None to leave them as they are.
    """

    key: PayloadDecoder | None = None
    value: PayloadDecoder | None = None

    @classmethod
    def of(
        cls, key: PayloadFormat | None, value: PayloadFormat | None, registry: SchemaRegistry
    ) -> Self:
        """Decode with these formats; None to leave keys, or values, as they are."""
        return cls(
            None if key is None else PayloadDecoder(key, registry, is_key=True),
            None if value is None else PayloadDecoder(value, registry),
        )

    @property
    def schemas(self) -> str | None:
        """The fingerprint of the schemas; None if the formats need none."""
        for decoder in (self.key, self.value):
            if decoder is not None and decoder.format.uses_schemas:
                return decoder.registry.fingerprint
        return None

    def key_texts(self, keys: pa.Array, headers: HeadersAt) -> Texts:
        """A binary column of keys as text."""
        return _texts(self.key, keys, headers)

    def value_texts(self, values: pa.Array, headers: HeadersAt) -> Texts:
        """The same of values."""
        return _texts(self.value, values, headers)

    def text(self, key: Payload, value: Payload, offset: int, headers: Headers = ()) -> LineTexts:
        """Texts for a line: what cannot be decoded has its bytes in hexadecimal, and the reason."""
        return _line_text(self.key, key, headers), _line_text(self.value, value, headers)

    def fields(self, key: Payload, value: Payload, headers: Headers) -> Mapping[str, Any]:
        """The text, the id of the schema, and why there is no text."""
        keys = _fields("key", self.key, key, headers)
        return dict([*keys, *_fields("value", self.value, value, headers)])

    def searched(self, columns: RecordColumns) -> tuple[Texts, Texts]:
        """What a search looks at in keys and values: their text, or else their bytes.

        Returns:
            Two columns of large_binary, and why they have bytes instead of a text.
        """
        keys = gather_bytes(
            columns.data, columns.key_start, columns.key_size, columns.key_size >= 0
        )
        values = gather_bytes(
            columns.data, columns.value_start, columns.value_size, columns.value_size >= 0
        )
        has_headers = bool(columns.headers_count.any())
        headers = columns.headers if has_headers else None
        return _searched(self.key, keys, headers), _searched(self.value, values, headers)

    def searched_pairs(self, pairs: Sequence[Pair]) -> tuple[Texts, Texts]:
        """The same of keys and values without headers."""
        keys = pa.array([key for key, _ in pairs], _BINARY)
        values = pa.array([value for _, value in pairs], _BINARY)
        return _searched(self.key, keys, None), _searched(self.value, values, None)


def _line_text(decoder: PayloadDecoder | None, payload: Payload, headers: Headers) -> str | None:
    if payload is None:
        return None
    if decoder is None:
        return java_utf8(payload)
    found = decoder.decode(payload, headers)
    return found.text if found.text is not None else f"{payload.hex()} ({found.problem})"


def _fields(
    name: str, decoder: PayloadDecoder | None, payload: Payload, headers: Headers
) -> Iterator[tuple[str, Any]]:
    if decoder is None:
        return
    found = None if payload is None else decoder.decode(payload, headers)
    yield f"decoded_{name}", found and found.text
    schema = found and found.schema
    yield f"{name}_schema_id", schema and schema.schema_id
    yield f"{name}_problem", found and found.problem


def _texts(decoder: PayloadDecoder | None, payloads: pa.Array, headers: HeadersAt) -> Texts:
    if decoder is None:
        return utf8_texts(payloads.cast(_BINARY))
    return decoder.texts(payloads, headers if decoder.needs_headers else None)


def _searched(decoder: PayloadDecoder | None, payloads: pa.Array, headers: HeadersAt) -> Texts:
    if decoder is None:
        return Texts(payloads, {})
    found = _texts(decoder, payloads, headers)
    column = pc.coalesce(found.column.cast(_BINARY), payloads)
    return Texts(column, found.problems, found.partial)
