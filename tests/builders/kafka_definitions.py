"""What a Kafka defines, messages in JSON and levels of features, held against kdump's tables.

Each difference is a sentence: what has to be added to which table.
"""

from __future__ import annotations

import json
import re
import subprocess
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kdump.formats.feature_levels import HIGHEST_LEVELS, METADATA_VERSION, METADATA_VERSIONS
from kdump.formats.schema import (
    Array,
    MessageSchema,
    Scalar,
    Struct,
    default_of,
    fields_of,
)
from kdump.formats.schemas import (
    consumer_protocol,
    control,
    group_coordinator,
    metadata,
    remote_storage,
    share,
    transaction,
)

_PROGRAM: Final = Path(__file__).resolve().parents[1] / "java" / "newest" / "FeatureLevels.java"
_LOGS: Final = (
    metadata.RECORD_TYPES,
    remote_storage.RECORD_TYPES,
    group_coordinator.RECORD_TYPES,
    transaction.RECORD_TYPES,
    share.RECORD_TYPES,
)
_SINGLE: Final = (
    *(each.value for each in control.RECORD_TYPES.values()),
    consumer_protocol.CONSUMER_PROTOCOL_SUBSCRIPTION,
    consumer_protocol.CONSUMER_PROTOCOL_ASSIGNMENT,
)
_KINDS: Final = frozenset({"metadata", "coordinator-key", "coordinator-value"})


def unknown_messages(jars: Path) -> list[str]:
    """What the jars define of records in Kafka's own logs, and kdump's schemas say otherwise."""
    schemas = {each.name: (each, -1) for each in _SINGLE}
    for types in _LOGS:
        for record_type in types.values():
            schemas[record_type.value.name] = record_type.value, record_type.id
            if record_type.key is not None:
                schemas[record_type.key.name] = record_type.key, record_type.id
    found: list[str] = []
    seen = set()
    for definition in _definitions(jars):
        name = definition["name"]
        schema, type_id = schemas.get(name, (None, -1))
        if schema is not None:
            seen.add(name)
            found += _differences(definition, schema)
        elif definition["type"] in _KINDS:
            found.append(f"{name} is not in kdump/formats/schemas")
            continue
        if definition["type"] in _KINDS and definition["apiKey"] != type_id:
            found.append(f"{name} has the type {definition['apiKey']}")
    return found + [f"{name} is in no jar" for name in sorted(schemas.keys() - seen)]


def unknown_levels(classpath: str) -> list[str]:
    """Which levels of features a Kafka has, and ``feature_levels.py`` has otherwise."""
    done = subprocess.run(
        ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath, str(_PROGRAM)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    lines = [line.split(" ") for line in done.stdout.splitlines()]
    levels = {int(level): name for word, level, name in lines if word == "level"}
    highest = {name: int(level) for word, name, level in lines if word == "feature"}
    highest[METADATA_VERSION] = max(levels)
    found = [f"{METADATA_VERSION}: {levels}"] if levels != METADATA_VERSIONS else []
    return found + ([f"features: {highest}"] if highest != HIGHEST_LEVELS else [])


def _definitions(jars: Path) -> Iterator[dict[str, Any]]:
    """The definitions in the jars; their comments are not JSON."""
    for path in sorted(jars.glob("*.jar")):
        with zipfile.ZipFile(path) as jar:
            for name in jar.namelist():
                if re.search(r"(^|/)(message|metadata)/\w+\.json$", name):
                    yield json.loads(re.sub(r"(?m)^\s*//.*$", "", jar.read(name).decode()))


def _differences(definition: Mapping[str, Any], schema: MessageSchema) -> Iterator[str]:
    name, valid = definition["name"], _range(definition["validVersions"], 0)
    is_key = definition["type"] == "coordinator-key"  # Its version says the type.
    known = range(schema.versions.lowest, schema.versions.highest + 1)
    if not is_key and valid != known:
        yield f"{name} has the versions {definition['validVersions']}"
        return
    structs = {each["name"]: each["fields"] for each in definition.get("commonStructs", ())}
    for version in (0,) if is_key else valid:
        is_flexible = version in _range(definition["flexibleVersions"], valid.stop)
        if is_flexible != (schema.flexible is not None and version in schema.flexible):
            yield f"{name} version {version}: has tagged fields: {is_flexible}"
        expected = _defined(definition["fields"], version, valid.stop, structs)
        found = _known(schema, schema, version)
        if expected != found:
            yield f"{name} version {version}: {expected}, not {found}"


def _range(text: str, stop: int) -> range:
    """The versions of ``0``, ``1-3``, ``2+`` (up to ``stop``) or ``none``."""
    if text == "none":
        return range(0)
    first, _, last = text.removesuffix("+").partition("-")
    return range(int(first), stop if text.endswith("+") else int(last or first) + 1)


def _defined(
    fields: Iterable[Mapping[str, Any]], version: int, stop: int, structs: Mapping[str, Any]
) -> list[Any]:
    """The fields of a version: name, type, whether it may be null, tag, and default."""
    found = []
    for each in fields:
        if version not in _range(each.get("versions", each.get("taggedVersions")), stop):
            continue
        element = each["type"].removeprefix("[]")
        inner = each.get("fields", structs.get(element))
        shape = element if inner is None else _defined(inner, version, stop, structs)
        is_tagged = version in _range(each.get("taggedVersions", "none"), stop)
        found.append(
            [
                each["name"][0].lower() + each["name"][1:],
                [shape] if each["type"].startswith("[]") else shape,
                version in _range(each.get("nullableVersions", "none"), stop),
                each["tag"] if is_tagged else None,
                _default(each.get("default", ""), element),
            ]
        )
    return found


def _default(text: Any, element: str) -> Any:
    """A default as a value; None for zero, false and empty, as for null without quotes."""
    if text == "null":
        return text
    if element == "bool":
        return str(text).lower() == "true" or None
    if element.startswith(("int", "uint")):
        return int(str(text or 0), 0) or None
    return text or None


def _known(layout: Struct, schema: MessageSchema, version: int) -> list[Any]:
    """The same of kdump's schema."""
    found = []
    for each in fields_of(layout, schema, version):
        element = each.type.element if isinstance(each.type, Array) else each.type
        if isinstance(element, Scalar):
            shape: Any = element.name.lower()
        else:
            shape = _known(element, schema, version)
        default = default_of(each, schema, version)
        is_zero = default is not None and (not default or isinstance(each.type, Struct))
        is_zero |= element is Scalar.UUID
        found.append(
            [
                each.name,
                [shape] if isinstance(each.type, Array) else shape,
                each.nullable,
                each.tag,
                "null" if default is None else None if is_zero else default,
            ]
        )
    return found
