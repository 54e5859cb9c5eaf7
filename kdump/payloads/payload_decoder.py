"""Keys or values as text, in a format that the user has chosen.

A decoder never fails: a payload that cannot be shown as text has the reason instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from kdump.formats.confluent_wire import (
    GUID_SIZE,
    ID_SIZE,
    KEY_HEADER,
    MAGIC_GUID,
    MAGIC_ID,
    VALUE_HEADER,
    WirePayload,
    read_headers,
    read_payload,
)
from kdump.formats.record_batch import RecordHeader
from kdump.payloads.avro_payloads import AvroDecoder
from kdump.payloads.json_text import checked_json
from kdump.payloads.payload_errors import PayloadError, SchemaProblem
from kdump.payloads.payload_format import PayloadFormat
from kdump.payloads.protobuf_payloads import ProtobufDecoder
from kdump.scan.batches import Bytes, Column, Flags
from kdump.state.schema_registry import (
    AVRO,
    JSON,
    PROTOBUF,
    SchemaRegistry,
    StoredSchema,
    UsedSchemas,
)

_NOT_UTF8: Final = "it is not UTF-8"
_NO_SCHEMA: Final = "it does not begin with the id of a schema"
_MOST_PREPARED: Final = 4096
_TYPE_NAMES: Final = {AVRO: "Avro", JSON: "JSON Schema", PROTOBUF: "Protobuf"}


_TYPES: Final = {
    PayloadFormat.AVRO: AVRO,
    PayloadFormat.JSON: JSON,
    PayloadFormat.PROTOBUF: PROTOBUF,
}
"""The type of schemas for the formats that have one."""


class Decoded(Struct, frozen=True):
    """A key or a value as text.

    Attributes:
        text: None if there is a problem.
        problem: why it cannot be shown as text, as a sentence.
        schema: with which it was written; None if that is not known.
        is_whole: whether the text has everything; not fields that a schema of Protobuf lacks.
    """

    text: str | None
    problem: str | None = None
    schema: StoredSchema | None = None
    is_whole: bool = True


class Texts(NamedTuple):
    """A column of keys or values as text.

    Attributes:
        column: large_string; null where the payload is, or cannot be shown as text.
        problems: why it cannot, by row.
        partial: rows of texts that are not whole.
    """

    column: pa.Array
    problems: dict[int, str]
    partial: frozenset[int] = frozenset()


class _SchemaDecoder(Protocol):
    def text(self, payload: WirePayload) -> tuple[str, bool]: ...


class _JsonDecoder(Struct, frozen=True):
    def text(self, payload: WirePayload) -> tuple[str, bool]:
        return checked_json(payload.body), True


@dataclass(frozen=True, slots=True)
class PayloadDecoder:
    """Decodes the keys or the values of records; it can be pickled."""

    format: PayloadFormat
    registry: SchemaRegistry = field(default_factory=SchemaRegistry)
    is_key: bool = False
    _decoders: dict[int | UUID, tuple[StoredSchema, _SchemaDecoder | SchemaProblem]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __reduce__(self) -> tuple[Any, ...]:
        # What the decoders hold cannot be pickled.
        return type(self), (self.format, self.registry, self.is_key)

    @property
    def needs_headers(self) -> bool:
        """Whether a header may name the schema."""
        return self.format.uses_schemas

    def decode(self, payload: bytes, headers: Iterable[RecordHeader] = ()) -> Decoded:
        """Decode a key or a value."""
        match self.format:
            case PayloadFormat.HEX:
                return Decoded(payload.hex())
            case PayloadFormat.STRING:
                return _as_string(payload)
        name = KEY_HEADER if self.is_key else VALUE_HEADER
        wire = read_headers(headers, name, payload) or read_payload(payload)
        if wire is not None and self._may_be_wire(wire):
            return self._with_schema(wire)
        if self.format is PayloadFormat.AUTO:
            return _as_string(payload)
        if self.format is PayloadFormat.JSON:
            try:
                return Decoded(checked_json(payload))
            except PayloadError as problem:
                return Decoded(None, str(problem))
        return Decoded(None, _NO_SCHEMA)

    def _may_be_wire(self, wire: WirePayload) -> bool:
        """Whether a payload is in the wire format; text may begin as one with a GUID does."""
        is_id = isinstance(wire.schema, int)
        return is_id or wire.is_in_header or wire.schema in self.registry.by_guid

    def _with_schema(self, wire: WirePayload) -> Decoded:
        try:
            schema, decoder = self._decoder(wire.schema)
        except LookupError as failure:
            return Decoded(None, str(failure.args[0]))
        wanted = _TYPES.get(self.format, schema.schema_type)
        if schema.schema_type != wanted:
            found = _TYPE_NAMES.get(schema.schema_type, schema.schema_type)
            what = f"schema {schema.schema_id} is {found}, not {_TYPE_NAMES[wanted]}"
            return Decoded(None, what, schema)
        if isinstance(decoder, SchemaProblem):
            return Decoded(None, f"schema {schema.schema_id}: {decoder}", schema)
        try:
            text, is_whole = decoder.text(wire)
            return Decoded(text, None, schema, is_whole)
        except PayloadError as problem:
            return Decoded(None, f"schema {schema.schema_id}: {problem}", schema)

    def _decoder(self, name: int | UUID) -> tuple[StoredSchema, _SchemaDecoder | SchemaProblem]:
        found = self._decoders.get(name)
        if found is None:
            schema = self.registry.find(name)
            decoder: _SchemaDecoder | SchemaProblem
            try:
                decoder = _prepared(schema, self.registry.referenced(schema))
            except LookupError as failure:
                decoder = SchemaProblem(*failure.args)
            found = self._decoders[name] = schema, decoder
        return found

    def texts(
        self, values: pa.Array, headers: Callable[[int], Iterable[RecordHeader]] | None = None
    ) -> Texts:
        """Decode a column, without a step of Python for each value that is plain text.

        Args:
            values: binary or large_binary.
            headers: gives those of a row; None if no row has any.
        """
        values = values.cast(pa.large_binary())
        match self.format:
            case PayloadFormat.STRING:
                return utf8_texts(values)
            case PayloadFormat.AUTO if headers is None:
                rows = np.flatnonzero(_may_have_schema(values)).tolist()
            case _:
                rows = np.flatnonzero(values.is_valid()).tolist()
        if not rows:
            return utf8_texts(values)
        of_row = headers or _no_headers
        payload_at = _reader(values)
        decoded = [self.decode(payload_at(row), of_row(row)) for row in rows]
        found = pa.array([each.text for each in decoded], pa.large_string())
        problems = {
            row: each.problem
            for row, each in zip(rows, decoded, strict=True)
            if each.problem is not None
        }
        partial = frozenset(
            row for row, each in zip(rows, decoded, strict=True) if not each.is_whole
        )
        if len(rows) == len(values):
            return Texts(found, problems, partial)
        is_decoded = np.zeros(len(values), np.bool_)
        is_decoded[rows] = True
        plain = utf8_texts(pc.if_else(is_decoded, pa.scalar(None, values.type), values))
        column = pc.replace_with_mask(plain.column, is_decoded, found)
        return Texts(column, plain.problems | problems, partial)


@functools.lru_cache(_MOST_PREPARED)
def _prepared(schema: StoredSchema, used: UsedSchemas) -> _SchemaDecoder | SchemaProblem:
    """The decoder of a schema; kept for all decoders of this process, as compiling takes time."""
    try:
        match schema.schema_type:
            case "AVRO":
                return AvroDecoder.of(schema, used)
            case "PROTOBUF":
                return ProtobufDecoder.of(schema, used)
            case "JSON":
                return _JsonDecoder()
    except SchemaProblem as problem:
        # Without the frames, which hold what they read.
        return SchemaProblem(*problem.args)
    return SchemaProblem(f"kdump does not know the type {schema.schema_type!r}")


def _no_headers(_row: int) -> Iterable[RecordHeader]:
    return ()


def _parts(values: pa.Array) -> tuple[Column, Bytes]:
    """The edges of the values of a large_binary column, and all bytes."""
    _, edges, data = values.buffers()
    start = np.frombuffer(edges, np.int64)[values.offset : values.offset + len(values) + 1]
    return start, np.frombuffer(data or b"", np.uint8)


def _reader(values: pa.Array) -> Callable[[int], bytes]:
    """Return what copies the bytes of a row: faster than a scalar of Arrow."""
    edges, content = _parts(values)
    start, data = edges.tolist(), memoryview(content)
    return lambda row: bytes(data[start[row] : start[row + 1]])


def _may_have_schema(values: pa.Array) -> Flags:
    """Which values begin as the wire format does."""
    start, content = _parts(values)
    size = np.diff(start)
    if not content.size:
        return np.zeros(len(values), np.bool_)
    first = content[np.minimum(start[:-1], len(content) - 1)]
    is_wire = ((first == MAGIC_ID) & (size >= ID_SIZE)) | (
        (first == MAGIC_GUID) & (size >= GUID_SIZE)
    )
    return np.asarray(is_wire & values.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def utf8_texts(values: pa.Array) -> Texts:
    """The values of a large_binary column that are UTF-8 as text."""
    try:
        return Texts(values.cast(pa.large_string()), {})
    except pa.ArrowInvalid:
        pass
    is_text = np.ones(len(values), np.bool_)
    payload_at = _reader(values)
    problems = {}
    for row in np.flatnonzero(_has_high_bytes(values)).tolist():
        if (problem := _as_string(payload_at(row)).problem) is not None:
            problems[row] = problem
            is_text[row] = False
    texts = pc.if_else(is_text, values, pa.scalar(None, values.type))
    return Texts(texts.cast(pa.large_string()), problems)


def _has_high_bytes(values: pa.Array) -> Flags:
    """Which values have a byte that ASCII does not have."""
    start, content = _parts(values)
    high = np.flatnonzero(content >= 0x80)
    is_valid = values.is_valid().to_numpy(zero_copy_only=False)
    return np.asarray(is_valid & (np.diff(np.searchsorted(high, start)) > 0), np.bool_)


def _as_string(payload: bytes) -> Decoded:
    try:
        return Decoded(payload.decode())
    except UnicodeDecodeError as failure:
        return Decoded(None, f"{_NOT_UTF8} at byte {failure.start}")
