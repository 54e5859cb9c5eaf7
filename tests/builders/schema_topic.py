"""Confluent's serializers without a registry, and the topic that a registry would have written.

The client keeps schemas in memory (``mock://``): ids, versions and references are as a registry
would give them out.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry import RegisteredSchema, SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext

from builders.batches import batch, record
from builders.log_directories import write_partition
from kdump.state.schema_registry import (
    RegistryError,
    RegistryReplay,
    SchemaRegistry,
    StoredSchema,
    stored_schema,
)

JsonValue = dict[str, Any]
SchemaRecord = tuple[JsonValue, JsonValue | None]


def new_client() -> SchemaRegistryClient:
    """Make a client whose registry is empty and in memory."""
    return SchemaRegistryClient.new_client({"url": "mock://registry"})


def context(topic: str, field: MessageField = MessageField.VALUE) -> SerializationContext:
    """Return the context of a value, or a key, of a topic; it has a list of headers."""
    return SerializationContext(topic, field, [])


def registered(client: SchemaRegistryClient) -> Iterator[RegisteredSchema]:
    """Yield all versions of all subjects."""
    for subject in client.get_subjects():
        for version in client.get_versions(subject):
            yield client.get_version(subject, version)


def schema_key(subject: str, version: int) -> JsonValue:
    """Return the key of the record of a version."""
    return {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}


def schema_value(
    subject: str,
    version: int,
    schema_id: int,
    schema: str,
    *,
    kind: str | None = None,
    references: Sequence[JsonValue] = (),
    guid: str | None = None,
    deleted: bool = False,
) -> JsonValue:
    """Return the value of the record of a version; what is empty is left out."""
    value: JsonValue = {"subject": subject, "version": version, "id": schema_id}
    if guid is not None:
        value["md5"] = base64.b64encode(uuid.UUID(guid).bytes).decode()
    if kind is not None:
        value["schemaType"] = kind
    if references:
        value["references"] = list(references)
    return {**value, "schema": schema, "deleted": deleted}


def schema_record(one: RegisteredSchema) -> SchemaRecord:
    """Return the record that a registry writes for a version."""
    references = [
        {"name": each.name, "subject": each.subject, "version": each.version}
        for each in one.schema.references or []
    ]
    kind, text = one.schema.schema_type, one.schema.schema_str
    assert one.subject is not None
    assert one.version is not None
    assert one.schema_id is not None
    assert text is not None
    value = schema_value(
        one.subject,
        one.version,
        one.schema_id,
        text,
        kind=None if kind in (None, "AVRO") else kind,
        references=references,
        guid=one.guid,
    )
    return schema_key(one.subject, one.version), value


def registry_of(schemas: Iterable[StoredSchema]) -> SchemaRegistry:
    """Return a registry with these versions; one whose id is taken is a problem."""
    replay = RegistryReplay()
    for schema in schemas:
        try:
            replay.put(schema)
        except RegistryError as problem:
            replay.problems.append(str(problem))
    return replay.registry()


def registry_with(client: SchemaRegistryClient) -> SchemaRegistry:
    """Return the registry of a client."""
    values = (schema_record(one)[1] for one in registered(client))
    return registry_of(stored_schema(value) for value in values if value is not None)


def compact_json(value: JsonValue) -> bytes:
    """Encode JSON as the registry does."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def schema_log(records: Sequence[SchemaRecord]) -> bytes:
    """Return a segment with these records, one batch each, from offset 0."""
    return b"".join(
        batch([record(offset, compact_json(key), None if value is None else compact_json(value))])
        for offset, (key, value) in enumerate(records)
    )


def write_schemas_topic(root: Path, records: Sequence[SchemaRecord]) -> Path:
    """Write the partition of ``_schemas`` into a log directory."""
    noop: SchemaRecord = {"keytype": "NOOP", "magic": 0}, None
    return write_partition(root / "_schemas-0", {0: schema_log([noop, *records])})
