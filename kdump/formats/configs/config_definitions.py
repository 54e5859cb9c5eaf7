"""The definitions of Kafka's configurations, as ``./dev kafka-definitions`` writes them.

``definitions.txt`` has a line for each property of a scope::

    topic segment.ms long from log.roll.ms,log.roll.hours*3600000
    topic remote.copy.lag.ms 4.4+ long from log.remote.copy.lag.ms
    broker log.cleaner.threads int cluster-wide default 1

``4.4+`` is of Kafka 4.4 and later, ``-4.3`` of those before. A property of a topic or a group
``from`` others, of brokers, has the value of the first of them that is set, or that has a default,
times a factor; one of brokers ``from`` others is described with theirs. An ``unlisted`` one is
described only where it, or one that it is ``from``, is set. A default is the rest of its line; what
has none has no value.
"""

from __future__ import annotations

import enum
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from msgspec import Struct

from kdump.formats.kafka_versions import KAFKA_4_4, KafkaVersion

_SINCE, _BEFORE = "4.4+", "-4.3"
_TIMES: Final = "*"


class ConfigScope(enum.Enum):
    """What a property is of; the value is its word in the files."""

    TOPIC = "topic"
    BROKER = "broker"
    CLIENT_METRICS = "client-metrics"
    GROUP = "group"


class ConfigType(enum.Enum):
    """The type of a value; the number is that of ``DescribeConfigsResponse.ConfigType``."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigUpdate(enum.Enum):
    """How the metadata can set a property of brokers, as in Kafka's documentation."""

    READ_ONLY = "read-only"
    CLUSTER_WIDE = "cluster-wide"
    PER_BROKER = "per-broker"
    PER_LISTENER = "per-listener"


_UPDATES: Final = {each.value: each for each in ConfigUpdate}


class ConfigSynonym(Struct, frozen=True):
    """A property of brokers whose value counts for another property.

    Attributes:
        factor: what its value is multiplied by.
    """

    name: str
    factor: int = 1


class ConfigDefinition(Struct, frozen=True):
    """A property.

    Attributes:
        is_listed: whether it is described although neither it nor a synonym is set.
        update: how the metadata can set it, if it is one of brokers.
        synonyms: of brokers, the first one that has a value counts.
        default: None if it has none of its own.
    """

    name: str
    type: ConfigType
    is_listed: bool = True
    update: ConfigUpdate = ConfigUpdate.READ_ONLY
    synonyms: tuple[ConfigSynonym, ...] = ()
    default: str | None = None


def config_definitions(
    kafka: KafkaVersion,
) -> Mapping[ConfigScope, Mapping[str, ConfigDefinition]]:
    """All properties of a version of Kafka, by scope and name; those before 4.3 are as in 4.3."""
    return _definitions(kafka >= KAFKA_4_4)


@cache
def _definitions(
    is_4_4: bool,
) -> Mapping[ConfigScope, Mapping[str, ConfigDefinition]]:
    found: dict[ConfigScope, dict[str, ConfigDefinition]] = {each: {} for each in ConfigScope}
    for scope, name, text in _lines(is_4_4=is_4_4):
        found[scope][name] = _definition(name, text)
    return found


def _lines(*, is_4_4: bool) -> Iterator[tuple[ConfigScope, str, str]]:
    """The scope, the name and the rest of each line of a version."""
    data = pkgutil.get_data(__package__, "definitions.txt")
    assert data is not None
    for line in data.decode().splitlines():
        scope, name, text = line.split(" ", 2)
        version, _, rest = text.partition(" ")
        if version in (_SINCE, _BEFORE):
            if (version == _SINCE) is not is_4_4:
                continue
            text = rest
        yield ConfigScope(scope), name, text


def _definition(name: str, text: str) -> ConfigDefinition:
    # An empty default ends the line.
    head, has_default, default = f"{text} ".partition(" default ")
    kind, *words = head.split()
    synonyms = words[words.index("from") + 1].split(",") if "from" in words else ()
    return ConfigDefinition(
        name,
        ConfigType[kind.upper()],
        is_listed="unlisted" not in words,
        update=next((_UPDATES[each] for each in words if each in _UPDATES), ConfigUpdate.READ_ONLY),
        synonyms=tuple(map(_synonym, synonyms)),
        default=default.removesuffix(" ") if has_default else None,
    )


def _synonym(text: str) -> ConfigSynonym:
    name, _, factor = text.partition(_TIMES)
    return ConfigSynonym(name, int(factor or 1))
