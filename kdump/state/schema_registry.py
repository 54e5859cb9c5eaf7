"""The schemas of a schema registry, as it builds them from the records of its topic.

Follows the registry's ``KafkaStoreMessageHandler``, ``InMemoryCache`` and
``SchemaRegistrySerializer``. Keys and values are JSON. A registry must come to the same state from
a compacted topic, so the latest record of each key is enough, in the order of offsets.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

SCHEMAS_TOPIC: Final = "_schemas"
DEFAULT_CONTEXT: Final = "."

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"

_CONTEXT_PREFIX: Final = ":."
_GLOBAL_CONTEXT: Final = ".__GLOBAL"
_IGNORED: Final = frozenset({"CONFIG", "MODE", "NOOP", "CONTEXT", "ASSOC"})
"""Types of keys whose records change nothing about schemas."""
_MOST_VERSIONS: Final = 1 << 20
"""A forged deletion may claim that there are billions."""

VersionKey = tuple[str, int]
"""A subject and a version."""


class RegistryError(Exception):
    """A record, or an object of a dump, that no registry writes."""


class SchemaReference(Struct, frozen=True):
    """A schema that another one uses.

    Attributes:
        name: how that one calls it: a full name in Avro, the path of an import in Protobuf.
        subject: where it is registered; of the context of that one unless it names another.
        version: in the subject.
    """

    name: str
    subject: str
    version: int


class StoredSchema(Struct, frozen=True):
    """A version of a subject.

    Attributes:
        subject: its name, with the context if that is not the default one.
        version: in the subject, from 1.
        schema_id: of the schema; subjects that have the same schema share it.
        schema_type: :data:`AVRO`, :data:`JSON`, :data:`PROTOBUF`, or one that kdump does not know.
        guid: None if the record does not have it.
        is_deleted: whether it was deleted; payloads that were written with it still resolve.
    """

    subject: str
    version: int
    schema_id: int
    schema_type: str
    text: str
    references: tuple[SchemaReference, ...] = ()
    guid: UUID | None = None
    is_deleted: bool = False

    @property
    def context(self) -> str:
        return context_of(self.subject)


def context_of(subject: str) -> str:
    """The context of a subject (``QualifiedSubject``)."""
    if not subject.startswith(_CONTEXT_PREFIX):
        return DEFAULT_CONTEXT
    return subject[1:].partition(":")[0]


def _in_context_of(parent: str, subject: str) -> str:
    """The subject of a reference, in the context of the schema that has it unless it names one."""
    context = context_of(parent)
    is_qualified = context_of(subject) != DEFAULT_CONTEXT
    return subject if is_qualified or context == DEFAULT_CONTEXT else f":{context}:{subject}"


UsedSchemas = tuple[tuple[str, StoredSchema], ...]
"""Schemas that another one uses, each with its name in the reference."""


class SchemaRegistry(Struct, frozen=True):
    """The schemas of a registry.

    Attributes:
        versions: by subject and version.
        by_id: by id and context, the subjects that have the schema, each with its latest version.
        by_guid: a version that has the schema, in the default context if there is one.
        problems: records that could not be used, each as a sentence.
    """

    versions: Mapping[VersionKey, StoredSchema] = field(default_factory=dict)
    by_id: Mapping[int, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)
    by_guid: Mapping[UUID, VersionKey] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Changes if a version does, or there are others."""
        return hashlib.sha256(repr(sorted(self.versions.items())).encode()).hexdigest()

    def find(self, schema: int | UUID) -> StoredSchema:
        """Find a schema by its id or its GUID.

        An id is looked up in the default context, then in the others: they may use it for
        different schemas.

        Raises:
            LookupError: there is none, or contexts differ; with a sentence.
        """
        if isinstance(schema, UUID):
            if schema not in self.by_guid:
                raise LookupError(f"no schema has the GUID {schema}")
            return self.versions[self.by_guid[schema]]
        contexts = self.by_id.get(schema)
        if not contexts:
            raise LookupError(f"no schema has id {schema}")
        if DEFAULT_CONTEXT in contexts:
            contexts = {DEFAULT_CONTEXT: contexts[DEFAULT_CONTEXT]}
        found = [self.versions[next(iter(each.items()))] for each in contexts.values()]
        if len({(each.schema_type, each.text) for each in found}) > 1:
            named = ", ".join(sorted(contexts))
            raise LookupError(f"id {schema} is a different schema in each of the contexts {named}")
        return found[0]

    def referenced(self, schema: StoredSchema) -> UsedSchemas:
        """Return what a schema uses, and what that uses in turn.

        Raises:
            LookupError: a version is missing; with a sentence.
        """
        found: dict[tuple[str, VersionKey], StoredSchema] = {}
        waiting, seen = [schema], {(schema.subject, schema.version)}
        while waiting:
            parent = waiting.pop()
            for reference in parent.references:
                key = _in_context_of(parent.subject, reference.subject), reference.version
                used = self.versions.get(key)
                if used is None:
                    raise LookupError(
                        f"version {key[1]} of the subject {key[0]}, which it uses, is missing"
                    )
                found[reference.name, key] = used
                if key not in seen:
                    seen.add(key)
                    waiting.append(used)
        return tuple((name, used) for (name, _), used in found.items())


class RegistryReplay:
    """Takes the records of the topic in offset order."""

    def __init__(self) -> None:
        self._versions: dict[VersionKey, StoredSchema] = {}
        self._by_id: dict[int, dict[str, dict[str, int]]] = {}
        self.problems: list[str] = []

    def add(self, key: bytes, value: bytes | None, where: str) -> None:
        """Take the next record; one that a registry could not use is a problem.

        Args:
            value: of the record; None for a tombstone.
            where: the record in words, such as ``offset 5``.
        """
        try:
            self._add(_json_object(key, "key"), value)
        except RegistryError as problem:
            self.problems.append(f"{where}: {problem}")

    def _add(self, key: Mapping[str, Any], value: bytes | None) -> None:
        kind = _text(key, "keytype")
        if kind in _IGNORED or (value is None and kind != "SCHEMA"):
            return
        if kind == "SCHEMA":
            at = _text(key, "subject"), _number(key, "version", 0)
            if key.get("magic") not in (0, 1):
                raise RegistryError(f"unknown magic {key.get('magic')}")
            if value is None:
                self._remove(at)
            else:
                self.put(stored_schema(_json_object(value, "value"), at))
            return
        found = _json_object(value or b"", "value")
        if kind == "DELETE_SUBJECT":
            self._delete(_text(found, "subject"), _number(found, "version", 0))
        elif kind == "CLEAR_SUBJECT":
            self._clear(_text(found, "subject"))
        else:
            raise RegistryError(f"unknown type of key {kind!r}")

    def put(self, schema: StoredSchema) -> None:
        """Register a version of a subject.

        Raises:
            RegistryError: its id is that of another schema; a registry leaves it out.
        """
        at = schema.subject, schema.version
        subjects = self._by_id.get(schema.schema_id, {}).get(schema.context, {})
        if subjects:
            other = self._versions[next(iter(subjects.items()))]
            if other.text != schema.text:
                raise RegistryError(
                    f"version {schema.version} of {schema.subject} has id {schema.schema_id}, which"
                    f" is another schema in version {other.version} of {other.subject}"
                )
        self._remove(at)
        self._versions[at] = schema
        contexts = self._by_id.setdefault(schema.schema_id, {})
        contexts.setdefault(schema.context, {})[schema.subject] = schema.version

    def _remove(self, at: VersionKey) -> None:
        schema = self._versions.pop(at, None)
        if schema is not None:
            self._forget(schema)

    def _forget(self, schema: StoredSchema) -> None:
        contexts = self._by_id[schema.schema_id]
        subjects = contexts[schema.context]
        if subjects.get(schema.subject) == schema.version:
            del subjects[schema.subject]
        if not subjects:
            del contexts[schema.context]
        if not contexts:
            del self._by_id[schema.schema_id]

    def _delete(self, subject: str, up_to: int) -> None:
        for version in range(1, min(up_to, _MOST_VERSIONS) + 1):
            schema = self._versions.get((subject, version))
            if schema is not None:
                self._versions[subject, version] = replace(schema, is_deleted=True)

    def _clear(self, subject: str) -> None:
        """Forget the deleted versions of a subject, or of a context if it names only that."""
        for at, schema in list(self._versions.items()):
            if schema.is_deleted and _is_cleared(schema.subject, subject):
                del self._versions[at]
                self._forget(schema)

    def registry(self) -> SchemaRegistry:
        """What the records so far add up to."""
        by_guid: dict[UUID, VersionKey] = {}
        for at, schema in self._versions.items():
            if schema.guid is not None and (
                schema.guid not in by_guid or schema.context == DEFAULT_CONTEXT
            ):
                by_guid[schema.guid] = at
        return SchemaRegistry(self._versions, self._by_id, by_guid, tuple(self.problems))


def _is_cleared(subject: str, cleared: str) -> bool:
    if subject == cleared:
        return True
    context = context_of(cleared)
    is_whole = cleared in ("", f":{context}:", f":{context}")
    return is_whole and context in (context_of(subject), _GLOBAL_CONTEXT)


def stored_schema(found: Mapping[str, Any], at: VersionKey | None = None) -> StoredSchema:
    """Return a version from its JSON (``SchemaValue``, or ``Schema`` of the REST interface).

    Args:
        at: its subject and version by the key of its record; None for what the object says.

    Raises:
        RegistryError: a field is missing, or of another type.
    """
    subject, version = at or (_text(found, "subject"), _number(found, "version", 0))
    kind = found.get("schemaType")
    return StoredSchema(
        subject=subject,
        version=version,
        schema_id=_number(found, "id", 0),
        schema_type=AVRO if kind is None else _text(found, "schemaType"),
        text=_text(found, "schema"),
        references=tuple(_references(found.get("references"))),
        guid=_guid(found),
        is_deleted=found.get("deleted") is True,
    )


def _references(listed: object) -> Iterator[SchemaReference]:
    if listed is None:
        return
    if type(listed) is not list:
        raise RegistryError("references is not a list")
    for each in listed:
        if type(each) is not dict:
            raise RegistryError("a reference is not an object")
        yield SchemaReference(
            _text(each, "name"), _text(each, "subject"), _number(each, "version", -1)
        )


def _guid(found: Mapping[str, Any]) -> UUID | None:
    """The GUID of a schema is its MD5 (``Schema.getGuid``)."""
    text, digest = found.get("guid"), found.get("md5")
    try:
        if type(text) is str:
            return UUID(text)
        if type(digest) is str:
            return UUID(bytes=base64.b64decode(digest))
    except (ValueError, binascii.Error):
        pass
    return None


def _json_object(data: bytes, what: str) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise RegistryError(f"its {what} is not JSON") from None
    if type(found) is not dict:
        raise RegistryError(f"its {what} is not an object")
    return found


def _text(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if type(value) is not str:
        raise RegistryError(f"{name} is missing, or is not text")
    return value.encode("utf-8", "replace").decode()  # JSON may have half a character


def _number(found: Mapping[str, Any], name: str, least: int) -> int:
    value = found.get(name)
    if type(value) is not int or value < least:
        raise RegistryError(f"{name} is missing, or is not a number")
    return value
