"""Payloads in Avro's binary encoding as JSON, by fastavro.

Both are hostile input. A few bytes may claim any number of values, and may be nested so deeply that
fastavro's compiled reader overflows the stack of the process. So the schema is examined first: how
much memory its values can take for a number of bytes, and whether it is recursive. Payloads of
recursive schemas go through fastavro's reader in Python, which stops at a depth.

Schemas are put together as ``_resolve_named_schema`` of the Python client does.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from kdump.formats.confluent_wire import WirePayload
from kdump.payloads.avro_size import SchemaSize, size_of_schema
from kdump.payloads.avro_values import add_readers, with_own_types
from kdump.payloads.json_text import as_json
from kdump.payloads.payload_errors import PayloadError, SchemaProblem, describe_foreign
from kdump.state.schema_registry import StoredSchema, UsedSchemas

MOST_BYTES: Final = 1 << 29
"""A payload that could take more memory is not decoded."""

_ROOT: Final = "kdump_root"
Reader = Callable[[io.BytesIO, Any], Any]


class AvroDecoder(Struct, frozen=True):
    """Decodes the payloads of one schema.

    Attributes:
        schema: a record with the schema as its only field, as fastavro has parsed it.
        is_bytes: whether it is the type of bytes: Confluent's serializers write them as they are.
        size: how large payloads can become.
        needs_strict: whether a payload has to be read by the strict reader.
    """

    schema: Any
    is_bytes: bool
    size: SchemaSize
    needs_strict: Callable[[bytes], object]

    @classmethod
    def of(cls, schema: StoredSchema, used: UsedSchemas) -> AvroDecoder:
        """Prepare to decode payloads of a schema.

        Args:
            used: what it references, and what that references, with the names in references.

        Raises:
            SchemaProblem: it cannot be used.
        """
        from kdump.payloads.avro_indexes import negative_index_search

        add_readers()
        try:
            parsed = _parsed(schema, used)
            size = size_of_schema(parsed)
            needs_strict = _always if size.is_recursive else negative_index_search(parsed)
        except RecursionError:
            raise SchemaProblem("its schema is nested too deeply") from None
        except SchemaProblem:
            raise
        except Exception as failure:  # noqa: BLE001 - hostile input, and a library's own errors
            raise SchemaProblem(f"its schema is malformed: {describe_foreign(failure)}") from None
        kind = parsed["fields"][0]["type"]
        is_bytes = kind == "bytes" or (isinstance(kind, dict) and kind["type"] == "bytes")
        return cls(parsed, is_bytes, size, needs_strict)

    def text(self, payload: WirePayload) -> tuple[str, bool]:
        """The value as JSON; it is never a part of the payload.

        Raises:
            PayloadError: the payload does not fit the schema.
        """
        body = payload.body
        if self.is_bytes:
            return as_json(body), True
        if self.size.most_bytes(len(body)) > MOST_BYTES:
            raise PayloadError(
                f"its {len(body)} bytes may take more than {MOST_BYTES >> 20} MiB when decoded"
            )
        return as_json(self._value(body)), True

    def _value(self, body: bytes) -> Any:
        import fastavro

        from kdump.payloads.avro_indexes import read_strictly

        source = io.BytesIO(body)
        read: Reader = read_strictly if self.needs_strict(body) else fastavro.schemaless_reader
        try:
            value = read(source, self.schema)["value"]
        except RecursionError:
            raise PayloadError("it is nested too deeply") from None
        except EOFError:
            raise PayloadError("it ends before its schema does") from None
        except Exception as failure:  # noqa: BLE001 - hostile input
            raise PayloadError(f"it does not fit its schema: {describe_foreign(failure)}") from None
        left = len(body) - source.tell()
        if left:
            raise PayloadError(f"{left} bytes follow the value of its schema")
        return value


def _always(_body: bytes) -> bool:
    return True


def _parsed(schema: StoredSchema, references: UsedSchemas) -> Any:
    from fastavro.schema import load_schema

    known: dict[str, Any] = {}
    for name, used in references:
        found = with_own_types(json.loads(used.text))
        known[name] = found
        full_name = avro_full_name(found)
        if full_name is not None:
            known[full_name] = found
    root = with_own_types(json.loads(schema.text))
    known[_ROOT] = {"type": "record", "name": _ROOT, "fields": [{"name": "value", "type": root}]}
    return load_schema(_ROOT, repo=_repository(known))


def avro_full_name(schema: object) -> str | None:
    """The name by which other schemas use a schema, as JSON has it; None if it has none."""
    if not isinstance(schema, dict) or not isinstance(schema.get("name"), str):
        return None
    name, namespace = schema["name"], schema.get("namespace")
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _repository(known: Mapping[str, Any]) -> Any:
    from fastavro.repository.base import AbstractSchemaRepository, SchemaRepositoryError

    class Known(AbstractSchemaRepository):
        def load(self, name: str) -> Any:
            if name not in known:
                raise SchemaRepositoryError(f"it uses {name}, which is not defined")
            return known[name]

    return Known()
