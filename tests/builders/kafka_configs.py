"""What Kafka's classes say of configurations, and kdump's file of their definitions.

``./dev kafka-definitions`` writes the file, from the jars of both versions of Kafka whose rules
kdump knows. ``tests/differential/test_described_configs.py`` holds it to those jars.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from builders.java_server import JavaServer
from kdump.formats.configs.config_definitions import ConfigScope, ConfigType, ConfigUpdate

DEFINITIONS: Final = (
    Path(__file__).resolve().parents[2] / "kdump" / "formats" / "configs" / "definitions.txt"
)
"""kdump's file."""
_DEFAULT: Final = 5
"""Number of ``ConfigSource.DEFAULT_CONFIG``."""
_SINCE, _BEFORE = "4.4+", "-4.3"


class ConfigsOfKafka(JavaServer):
    """The server ``tests/java/src/ClusterConfigs.java``."""

    def __init__(self, classpath: str) -> None:
        super().__init__(classpath, "ClusterConfigs")

    def definitions(self) -> dict[str, Any]:
        """All properties of topics, brokers, groups and client metrics."""
        return self._answer("definitions")

    def describe(
        self,
        scope: ConfigScope,
        own: Mapping[str, str],
        *,
        file: Mapping[str, str],
        every_broker: Mapping[str, str],
        broker: Mapping[str, str],
        name: str = "x",
    ) -> dict[str, Any]:
        """What broker 1 tells of a resource, by the names of properties.

        Args:
            scope: the type of the resource.
            own: what is set of it.
            file: the properties of the broker's file.
            every_broker: what is set of all brokers.
            broker: what is set of this one.
            name: of the resource.
        """
        request = {
            "type": scope.name,
            "name": name,
            "own": own,
            "file": file,
            "cluster": every_broker,
            "broker": broker,
        }
        return self._answer(json.dumps(request))

    def _answer(self, line: str) -> dict[str, Any]:
        self.requests.write(line.encode() + b"\n")
        self.requests.flush()
        found: dict[str, Any] = json.loads(self.answers.readline())
        return found


def definitions_text(older: str, newest: str) -> str:
    """What :data:`DEFINITIONS` has to have, by the classpaths of 4.3.1 and of 4.4."""
    found = []
    for classpath in (older, newest):
        with ConfigsOfKafka(classpath) as kafka:
            found.append(kafka.definitions())
    return _merged(*(dict(_lines(each)) for each in found))


_Key = tuple[str, str]


def _merged(older: Mapping[_Key, str], newest: Mapping[_Key, str]) -> str:
    """Lines that both versions have, and those of one, which say so."""
    lines = []
    for key in sorted(older.keys() | newest.keys()):
        before, since = older.get(key), newest.get(key)
        if before == since:
            lines.append(" ".join([*key, before or ""]))
            continue
        for version, text in ((_BEFORE, before), (_SINCE, since)):
            if text is not None:
                lines.append(" ".join([*key, version, text]))
    return "\n".join(map(str.rstrip, lines)) + "\n"


def _lines(found: Mapping[str, Any]) -> Iterator[tuple[_Key, str]]:
    """The definitions in the format that ``config_definitions.py`` describes."""
    for scope in ConfigScope:
        for name, each in found[scope.value].items():
            parts = [ConfigType(each["type"]).name.lower(), *_update(each), *_from(each)]
            parts += _default(_own_default(scope, name, each))
            yield (scope.value, name), " ".join(parts)
    for kind, properties in found["unlisted"].items():
        word = "broker" if kind == "quota" else kind
        for name, each in properties.items():
            parts = [ConfigType(each["type"]).name.lower(), "unlisted", *_update(each)]
            parts += _from(each)
            # Quotas have no place in the file, and so no default there.
            has_default = kind != "quota" and not each["from"]
            parts += _default(each["value"] if has_default else None)
            yield (word, name), " ".join(parts)


def _update(each: Mapping[str, Any]) -> list[str]:
    word = str(each["update"])
    return [] if word == ConfigUpdate.READ_ONLY.value else [word]


def _from(each: Mapping[str, Any]) -> list[str]:
    synonyms = (
        name if factor == 1 else f"{name}*{factor}" for name, factor in each["from"].items()
    )
    return ["from", ",".join(synonyms)] if each["from"] else []


def _own_default(scope: ConfigScope, name: str, each: Mapping[str, Any]) -> str | None:
    """The default, where it is not that of a property of brokers."""
    if scope is ConfigScope.BROKER:
        return next(
            (text for own, text, source in each["synonyms"] if (own, source) == (name, _DEFAULT)),
            None,
        )
    return None if each["from"] else str(each["value"])


def _default(text: str | None) -> list[str]:
    return [] if text is None else ["default", text]
