"""What a Kafka defines: messages as the text files of kdump's schemas, and levels of features.

``./dev kafka-definitions`` writes the files from the jars of the newest Kafka that kdump knows, the
version in ``tests/java/newest/pom.xml``, and then those of ``kafka_configs.py``.
``tests/differential/test_newest_kafka.py`` holds the files and kdump's other tables to those jars.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import subprocess
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from builders import kafka_jars
from builders.kafka_configs import DEFINITIONS, definitions_text
from kdump.check import topic_configs
from kdump.formats.feature_levels import HIGHEST_LEVELS, METADATA_VERSION, METADATA_VERSIONS

_ROOT: Final = Path(__file__).resolve().parents[2]
_SCHEMAS: Final = _ROOT / "kdump" / "formats" / "schemas"
_PROGRAM: Final = _ROOT / "tests" / "java" / "newest" / "DefinedByKafka.java"
_RECORDS: Final = frozenset({"metadata", "coordinator-key", "coordinator-value"})
_LOGS: Final = {
    "kafka-group-coordinator": "group_coordinator",
    "kafka-metadata": "metadata",
    "kafka-share-coordinator": "share",
    "kafka-storage": "remote_storage",
    "kafka-transaction-coordinator": "transaction",
}
"""The file for the records that a jar defines."""
_OTHERS: Final = {
    "ConsumerProtocolAssignment": "consumer_protocol",
    "ConsumerProtocolSubscription": "consumer_protocol",
    "EndTxnMarker": "control",
    "KRaftVersionRecord": "control",
    "LeaderChangeMessage": "control",
    "SnapshotFooterRecord": "control",
    "SnapshotHeaderRecord": "control",
    "VotersRecord": "control",
}
"""The file for each other message that kdump reads."""
_UNRESTRICTED_CONFIGS: Final = frozenset(
    {"follower.replication.throttled.replicas", "leader.replication.throttled.replicas"}
)


def schema_files(jars: Path) -> dict[Path, str]:
    """The text of each file of schemas in ``kdump/formats/schemas``, as the jars have it."""
    parts: dict[str, list[tuple[int, str, str]]] = {}
    for jar, definition in _definitions(jars):
        if definition["type"] in _RECORDS:
            name = _LOGS[jar]
        elif (other := _OTHERS.get(definition["name"])) is not None:
            name = other
        else:
            continue
        part = definition.get("apiKey", -1), definition["name"], "\n".join(_lines(definition))
        parts.setdefault(name, []).append(part)
    return {
        _SCHEMAS / f"{name}.txt": "\n\n".join(text for *_, text in sorted(found)) + "\n"
        for name, found in parts.items()
    }


def unknown_messages(jars: Path) -> list[str]:
    """The lines in which kdump's schemas and those of the jars differ."""
    files = schema_files(jars)
    return [
        line
        for path in sorted(files.keys() | set(_SCHEMAS.glob("*.txt")))
        for line in difflib.unified_diff(
            path.read_text().splitlines(),
            files.get(path, "").splitlines(),
            path.name,
            lineterm="",
            n=0,
        )
    ]


def unknown_levels(classpath: str) -> list[str]:
    """The levels of features, and names of topic configurations, that kdump's tables lack."""
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
    configs = {name for word, name, _ in lines if word == "config"}
    known = topic_configs.RULES.keys() | topic_configs.NEW_IN_4_4.keys() | _UNRESTRICTED_CONFIGS
    found = [f"{METADATA_VERSION}: {levels}"] if levels != METADATA_VERSIONS else []
    found += [f"features: {highest}"] if highest != HIGHEST_LEVELS else []
    return found + [f"topic configuration: {name}" for name in sorted(configs ^ known)]


def _definitions(jars: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The definitions in the jars, each with its jar; their comments are not JSON."""
    for path in sorted(jars.glob("kafka-*.jar")):
        with zipfile.ZipFile(path) as jar:
            for name in jar.namelist():
                if re.search(r"(^|/)(message|metadata)/\w+\.json$", name):
                    text = re.sub(r"(?m)^\s*//.*$", "", jar.read(name).decode())
                    yield re.sub(r"-\d.*", "", path.name), json.loads(text)


def _lines(definition: Mapping[str, Any]) -> Iterator[str]:
    """A message in the format that ``kdump/formats/schemas/definitions.py`` describes."""
    valid = definition["validVersions"]
    structs = {each["name"]: each["fields"] for each in definition.get("commonStructs", ())}
    parts = [definition["name"]]
    if "apiKey" in definition:
        parts.append(f"type {definition['apiKey']}")
    if definition["type"] != "coordinator-key":  # The number of its version says the type.
        parts.append(f"versions {valid}")
    if definition["flexibleVersions"] != "none":
        parts.append(f"flexible {definition['flexibleVersions']}")
    yield " ".join(parts)
    yield from _field_lines(definition["fields"], structs, _range(valid, 0))


def _field_lines(
    fields: Iterable[Mapping[str, Any]], structs: Mapping[str, Any], valid: range
) -> Iterator[str]:
    for each in fields:
        parts = [each["name"][0].lower() + each["name"][1:], each["type"]]
        versions = each.get("versions", each.get("taggedVersions"))
        present = _range(versions, valid.stop)
        if present.stop < valid.stop:
            parts.append(versions)
        elif present.start:
            parts.append(f"{present.start}+")
        for key, said in (("nullableVersions", "nullable"), ("taggedVersions", "tag")):
            concerned = set(_range(each.get(key, "none"), valid.stop)) & set(valid)
            if concerned:
                if concerned < set(present) & set(valid):
                    raise ValueError(f"{each['name']} is not {said} in all of its versions")
                parts.append(f"{said} {each['tag']}" if said == "tag" else said)
        element = each["type"].removeprefix("[]")
        default = str(each.get("default") or "")  # Null without quotes is no default.
        if element.startswith(("int", "uint")) and default not in ("", "null"):
            default = str(int(default, 0))
        if default.lower() not in ("", "0", "false"):
            parts.append(f"default {default.lower() if element == 'bool' else default}")
        yield "  " + " ".join(parts)
        inner = each.get("fields", structs.get(element))
        if inner is not None:
            for line in _field_lines(inner, structs, valid):
                yield "  " + line


def _range(text: str, stop: int) -> range:
    """The versions of ``0``, ``1-3``, ``2+`` (up to ``stop``) or ``none``."""
    if text == "none":
        return range(0)
    first, _, last = text.removesuffix("+").partition("-")
    return range(int(first), stop if text.endswith("+") else int(last or first) + 1)


def _write_schemas() -> None:
    jars = Path(kafka_jars.newest_classpath().removesuffix(f"{os.sep}*"))
    for path, text in schema_files(jars).items():
        path.write_text(text)
    print(*unknown_levels(f"{jars}{os.sep}*"), sep="\n")
    classpaths = kafka_jars.programs_classpath(), kafka_jars.newest_cluster_classpath()
    DEFINITIONS.write_text(definitions_text(*classpaths))


if __name__ == "__main__":
    _write_schemas()
