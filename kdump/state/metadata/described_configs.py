"""What a broker tells of configurations: effective values, where they come from, and synonyms.

Follows ``ConfigHelper`` and ``DynamicBrokerConfig``. What was in the broker's own file is known
only if the file is given; without it, what the metadata does not set has Kafka's default.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from kdump.formats.configs.config_definitions import (
    ConfigDefinition,
    ConfigScope,
    ConfigType,
    ConfigUpdate,
    config_definitions,
)
from kdump.formats.java.jackson import double_text
from kdump.formats.java.java_numbers import parse_double, parse_int, parse_long
from kdump.formats.kafka_versions import KafkaVersion
from kdump.formats.server_properties import NODE_IDS
from kdump.state.metadata.cluster import Configs
from kdump.state.metadata.config_keys import BLANKS, COMMA, RETENTION_MS
from kdump.state.metadata.settings import EVERY_BROKER, Settings

_OF_A_LISTENER: Final = re.compile(r"listener\.name\.[^.]*\.(.*)", re.DOTALL)
_OF_A_MECHANISM: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
"""Ends of names whose base is not all that follows the listener."""


class ConfigSource(enum.IntEnum):
    """Where a value is set; the number is that of ``DescribeConfigsResponse.ConfigSource``."""

    TOPIC = 1
    BROKER = 2
    EVERY_BROKER = 3
    FILE = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


_OWN_SOURCES: Final = {
    ConfigScope.TOPIC: ConfigSource.TOPIC,
    ConfigScope.CLIENT_METRICS: ConfigSource.CLIENT_METRICS,
    ConfigScope.GROUP: ConfigSource.GROUP,
}


class ConfigValue(Struct, frozen=True):
    """The value that a source has for a property, which may be a synonym of another.

    Attributes:
        value: None if it is a secret.
    """

    name: str
    value: str | None
    source: ConfigSource


class DescribedConfig(Struct, frozen=True):
    """A property of a resource.

    Attributes:
        value: the effective one; None if it is a secret or there is none.
        synonyms: all values that are set, the first one counts.
        is_secret: whether the value may not be told.
        is_read_only: whether the metadata cannot set it.
    """

    name: str
    value: str | None
    type: ConfigType
    synonyms: tuple[ConfigValue, ...] = ()
    is_secret: bool = False
    is_read_only: bool = False

    @property
    def source(self) -> ConfigSource:
        """Where the value comes from."""
        return self.synonyms[0].source if self.synonyms else ConfigSource.DEFAULT


class NodeConfigs:
    """The configurations that a broker tells of.

    Args:
        kafka: the version of the broker.
        file: the properties of its file, as far as they are known.
        every_broker: what the metadata sets of all brokers.
        broker: what it sets of this one.
    """

    def __init__(
        self, kafka: KafkaVersion, file: Configs, every_broker: Configs, broker: Configs
    ) -> None:
        self._definitions = config_definitions(kafka)
        self._of_brokers = self._definitions[ConfigScope.BROKER]
        own, self._every_broker = self._dynamic(broker), self._cluster_wide(every_broker)
        self._sources: tuple[tuple[ConfigSource, Configs], ...] = (
            (ConfigSource.BROKER, own),
            (ConfigSource.EVERY_BROKER, self._every_broker),
            (ConfigSource.FILE, file),
        )
        self._set = {**file, **self._every_broker, **own}
        self._inherited: dict[ConfigScope, dict[str, DescribedConfig]] = {}

    @classmethod
    def of(cls, settings: Settings) -> NodeConfigs:
        """Those of a node, by the cluster's metadata and its file, if that was given."""
        # Each broker has both names, whichever its file has: AbstractKafkaConfig.populateSynonyms.
        node = str(settings.node_id)
        file = {**(settings.broker or {}), **dict.fromkeys(NODE_IDS, node)}
        dynamic = {} if settings.cluster is None else settings.cluster.broker_configs
        return cls(
            settings.kafka_version, file, dynamic.get(EVERY_BROKER, {}), dynamic.get(node, {})
        )

    def _dynamic(self, configs: Configs) -> Configs:
        """Without what brokers ignore in the metadata."""
        ignored = (ConfigUpdate.READ_ONLY, ConfigUpdate.PER_LISTENER)
        known = self._of_brokers
        return {
            name: text
            for name, text in configs.items()
            if name not in known or known[name].update not in ignored
        }

    def _cluster_wide(self, configs: Configs) -> Configs:
        """Without what brokers ignore in the metadata of all brokers."""
        known = self._of_brokers
        return {
            name: text
            for name, text in self._dynamic(configs).items()
            if (base := _base_of(name)) not in known
            or known[base].update is ConfigUpdate.CLUSTER_WIDE
        }

    # ---- Brokers ----

    def broker(self) -> list[DescribedConfig]:
        """Those of the broker."""
        listed = (name for name, each in self._of_brokers.items() if each.is_listed)
        return [self._of_broker(name) for name in dict.fromkeys([*listed, *self._set])]

    def every_broker(self) -> list[DescribedConfig]:
        """Those of all brokers, as far as the metadata sets them."""
        return [self._of_every_broker(name, text) for name, text in self._every_broker.items()]

    def _of_broker(self, name: str) -> DescribedConfig:
        known = self._of_brokers.get(name)
        kind, is_secret = self._type_of(name)
        text = self._set.get(name)
        if known is not None and known.is_listed:
            text = known.default if text is None else normalized(text, known)
        return DescribedConfig(
            name,
            None if is_secret else text,
            kind,
            self._values(name, is_secret=is_secret),
            is_secret,
            known is None or known.update is ConfigUpdate.READ_ONLY,
        )

    def _of_every_broker(self, name: str, text: str) -> DescribedConfig:
        known = self._of_brokers.get(name)
        kind, is_secret = self._type_of(name)
        values = self._values(name, is_secret=is_secret)
        return DescribedConfig(
            name,
            None if is_secret else text,
            kind,
            tuple(each for each in values if each.source is ConfigSource.EVERY_BROKER),
            is_secret,
            known is None or known.update is ConfigUpdate.READ_ONLY,
        )

    def _type_of(self, name: str) -> tuple[ConfigType, bool]:
        """The type of a property of brokers, and whether its value is a secret."""
        for each in (name, *self._names_of(name)):
            if each in self._of_brokers:
                return _with_secrecy(self._of_brokers[each])
        return _with_secrecy(None)

    def _names_of(self, name: str) -> Iterable[str]:
        """A property of brokers and those that count if it is not set."""
        known = self._of_brokers.get(name)
        if known is not None and known.synonyms:
            return [each.name for each in known.synonyms]
        base = _base_of(name)
        return [name] if base is name else [name, base]

    def _values(self, name: str, *, is_secret: bool) -> tuple[ConfigValue, ...]:
        """The values of a property of brokers and of its synonyms, the first one counts.

        Those of synonyms before its own are left out.
        """
        found = list(self._all_values(list(self._names_of(name)), is_secret=is_secret))
        own = next((at for at, each in enumerate(found) if each.name == name), len(found))
        return tuple(found[own:])

    def _all_values(self, names: Iterable[str], *, is_secret: bool) -> Iterator[ConfigValue]:
        for source, configs in self._sources:
            for name in names:
                if name in configs:
                    yield ConfigValue(name, None if is_secret else configs[name], source)
        for name in names:
            known = self._of_brokers.get(name)
            if known is not None and known.default is not None:
                yield ConfigValue(name, None if is_secret else known.default, ConfigSource.DEFAULT)

    # ---- Topics, groups, client metrics ----

    def resource(self, scope: ConfigScope, own: Configs) -> list[DescribedConfig]:
        """Those of a topic, a group or a subscription of client metrics.

        Args:
            scope: which of them.
            own: what the metadata sets of it.
        """
        inherited = self._inherited.get(scope)
        if inherited is None:
            inherited = self._inherited[scope] = {
                name: self._inherited_config(scope, each)
                for name, each in self._definitions[scope].items()
            }
        definitions = self._definitions[scope].values()
        found = {each.name: inherited[each.name] for each in definitions if self._is_told(each)}
        for name, text in own.items():
            found[name] = self._own_config(scope, name, text, inherited.get(name))
        return list(found.values())

    def _is_told(self, known: ConfigDefinition) -> bool:
        """Whether a property is described that the resource itself does not set."""
        return known.is_listed or any(each.name in self._set for each in known.synonyms)

    def _inherited_config(self, scope: ConfigScope, known: ConfigDefinition) -> DescribedConfig:
        kind, is_secret = _with_secrecy(known)
        if known.synonyms:
            values = self._values(known.synonyms[0].name, is_secret=is_secret)
        elif scope is ConfigScope.GROUP and known.default is not None:
            values = (ConfigValue(known.name, known.default, ConfigSource.DEFAULT),)
        else:
            values = ()
        return DescribedConfig(known.name, self._inherited_value(known), kind, values, is_secret)

    def _inherited_value(self, known: ConfigDefinition) -> str | None:
        """The value that brokers give to a property that is not set."""
        for each in known.synonyms:
            of_broker = self._of_brokers[each.name]
            text = self._set.get(each.name, of_broker.default)
            if text is None:
                continue
            value = normalized(text, of_broker)
            if each.factor != 1 and (number := parse_long(value)) is not None:
                value = str(number * each.factor)
            return "-1" if known.name == RETENTION_MS and value.startswith("-") else value
        return known.default

    def _own_config(
        self, scope: ConfigScope, name: str, text: str, inherited: DescribedConfig | None
    ) -> DescribedConfig:
        known = self._definitions[scope].get(name)
        kind, is_secret = _with_secrecy(known)
        if scope is ConfigScope.CLIENT_METRICS:
            is_secret = False
        if known is not None and known.is_listed:
            text = normalized(text, known)
        value = None if is_secret else text
        values = () if inherited is None else inherited.synonyms
        own = ConfigValue(name, value, _OWN_SOURCES[scope])
        return DescribedConfig(name, value, kind, (own, *values), is_secret)


def _base_of(name: str) -> str:
    """The property that a property of one listener stands for; any other is its own."""
    found = _OF_A_LISTENER.fullmatch(name)
    if found is None:
        return name
    return next((each for each in _OF_A_MECHANISM if found[1].endswith(each)), found[1])


def _with_secrecy(known: ConfigDefinition | None) -> tuple[ConfigType, bool]:
    """A type, and whether values of it are secrets; follows ``KafkaConfig.maybeSensitive``."""
    kind = ConfigType.UNKNOWN if known is None else known.type
    return kind, kind in (ConfigType.UNKNOWN, ConfigType.PASSWORD)


def _boolean(text: str) -> str | None:
    return text.lower() if text.lower() in ("true", "false") else None


def _number(parse: Callable[[str], int | None]) -> Callable[[str], str | None]:
    def read(text: str) -> str | None:
        number = parse(text)
        return None if number is None else str(number)

    return read


def _double(text: str) -> str | None:
    number = parse_double(text)
    return None if number is None else double_text(number).strip('"')


def _list(text: str) -> str:
    return ",".join(COMMA.split(text)) if text else ""


def _set(text: str) -> str:
    return ",".join(dict.fromkeys(COMMA.split(text))) if text else ""


_NORMALIZED: Final[Mapping[ConfigType, Callable[[str], str | None]]] = {
    ConfigType.BOOLEAN: _boolean,
    ConfigType.INT: _number(parse_int),
    ConfigType.SHORT: _number(parse_int),
    ConfigType.LONG: _number(parse_long),
    ConfigType.DOUBLE: _double,
    ConfigType.LIST: _set,
}
_THROTTLED: Final = ".replication.throttled.replicas"
"""The end of the names of lists that are no ``ValidList``: they keep what they have twice."""


def normalized(text: str, known: ConfigDefinition) -> str:
    """A value as brokers write what they have read: ``ConfigDef.parseValue``, ``convertToString``.

    What they would refuse is given as it is.
    """
    trimmed = text.strip(BLANKS)
    read = _list if known.name.endswith(_THROTTLED) else _NORMALIZED.get(known.type)
    found = None if read is None else read(trimmed)
    return trimmed if found is None else found
