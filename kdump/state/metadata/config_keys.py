"""The broker and topic properties that kdump uses, and the values that Kafka accepts for them.

Validation follows ``LogConfig.CONFIG``, ``LogConfig.SERVER_CONFIG_DEF``,
``CleanerConfig.CONFIG_DEF`` and ``KafkaConfig.validateValues`` of Kafka 4.3.1. Parsing follows
``ConfigDef.parseType``. The broker's synonyms of topic properties follow
``ServerTopicConfigSynonyms``.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from kdump.errors import KdumpError
from kdump.formats.java.java_numbers import parse_double, parse_int, parse_long
from kdump.state.metadata.cluster import Configs

CLEANUP_POLICY: Final = "cleanup.policy"
DELETE_RETENTION_MS: Final = "delete.retention.ms"
MAX_COMPACTION_LAG_MS: Final = "max.compaction.lag.ms"
MIN_CLEANABLE_DIRTY_RATIO: Final = "min.cleanable.dirty.ratio"
MIN_COMPACTION_LAG_MS: Final = "min.compaction.lag.ms"
OFFSETS_RETENTION_MINUTES: Final = "offsets.retention.minutes"
PRODUCER_ID_EXPIRATION_MS: Final = "producer.id.expiration.ms"
REMOTE_STORAGE_ENABLE: Final = "remote.storage.enable"
RETENTION_BYTES: Final = "retention.bytes"
RETENTION_MS: Final = "retention.ms"

NO_LIMIT: Final = -1
A_BOOLEAN: Final = "true or false"
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_LEAST_SEGMENT_BYTES: Final = 1 << 20
BLANKS: Final = "".join(map(chr, range(0x21)))
"""The characters that ``String.trim`` removes."""
COMMA: Final = re.compile(r"\s*,\s*", re.ASCII)


class CleanupPolicy(enum.Enum):
    """What happens to old records; a topic may have both."""

    COMPACT = "compact"
    DELETE = "delete"


Value = int | float | bool | frozenset[CleanupPolicy]


class InvalidSettingError(KdumpError):
    """A property has a value that Kafka rejects."""

    def __init__(self, key: str, value: str, expected: str, origin: str) -> None:
        super().__init__(f"{origin}: {key}={value} is not {expected}")


class ConfigKey(Struct, frozen=True):
    """A property of a topic or of a broker.

    Attributes:
        name: Kafka's name.
        parse: converts a trimmed text; raises ValueError.
        expected: what ``parse`` accepts, in words.
        factor: converts this property to the unit of the topic's property.
        is_limit: whether every negative value means "no limit".
        parse_stored: as ``parse``, for a value that a broker of any version has accepted.
    """

    name: str
    parse: Callable[[str], Value]
    expected: str
    factor: int = 1
    is_limit: bool = False
    parse_stored: Callable[[str], Value] | None = None

    def value(self, text: str, origin: str, *, is_stored: bool = False) -> Value:
        """Parse ``text``; the value is in the unit of the topic's property.

        Raises:
            InvalidSettingError: Kafka does not accept it.
        """
        trimmed = text.strip(BLANKS)
        parse = self.parse_stored if is_stored and self.parse_stored else self.parse
        try:
            value = parse(trimmed)
        except ValueError:
            raise InvalidSettingError(self.name, trimmed, self.expected, origin) from None
        if isinstance(value, bool | frozenset):
            return value
        return NO_LIMIT if self.is_limit and value < 0 else value * self.factor


class TopicProperty(Struct, frozen=True):
    """A topic property and the broker properties that set its default.

    Attributes:
        synonyms: of the broker; if one source sets several of them, the first one counts.
    """

    key: ConfigKey
    synonyms: tuple[ConfigKey, ...] = ()

    @property
    def name(self) -> str:
        return self.key.name

    @property
    def attribute(self) -> str:
        """Name of the attribute of ``TopicSettings``."""
        return self.name.replace(".", "_")


def _int(
    name: str, least: int | None = None, *, factor: int = 1, is_limit: bool = False
) -> ConfigKey:
    """A property of type INT."""
    expected = whole_number("32", least)
    return ConfigKey(name, number_parser(parse_int, least), expected, factor, is_limit)


def _long(name: str, least: int | None = None, *, is_limit: bool = False) -> ConfigKey:
    """A property of type LONG."""
    expected = whole_number("64", least)
    return ConfigKey(name, number_parser(parse_long, least), expected, is_limit=is_limit)


def _ratio(name: str) -> ConfigKey:
    """A property of type DOUBLE between 0 and 1; not-a-number is accepted, too."""
    return ConfigKey(name, _parse_ratio, "a number from 0 to 1")


def _segment_bytes(name: str) -> ConfigKey:
    """A segment size; brokers before 4.1 accepted smaller ones."""
    return ConfigKey(
        name,
        number_parser(parse_int, _LEAST_SEGMENT_BYTES),
        whole_number("32", _LEAST_SEGMENT_BYTES),
        parse_stored=number_parser(parse_int, 1),
    )


def _policy(name: str) -> ConfigKey:
    return ConfigKey(
        name,
        _policies,
        "compact, delete, or both separated by a comma",
        parse_stored=_stored_policies,
    )


def number_parser(
    java_parse: Callable[[str], int | None], least: int | None, most: int | None = None
) -> Callable[[str], int]:
    """Make a parser that raises ValueError for numbers outside ``least`` to ``most``, inclusive."""

    def parse(text: str) -> int:
        number = java_parse(text)
        if number is None or (least is not None and number < least):
            raise ValueError(text)
        if most is not None and number > most:
            raise ValueError(text)
        return number

    return parse


def whole_number(bits: str, least: int | None, most: int | None = None) -> str:
    """Describe what :func:`number_parser` accepts."""
    if least is None:
        return f"a whole number of {bits} bits"
    if most is not None:
        return f"a whole number from {least} to {most}"
    return f"a whole number of {bits} bits, at least {least}"


def parse_boolean(text: str) -> bool:
    """Parse a property of type BOOLEAN.

    Raises:
        ValueError: it is not a boolean.
    """
    if text.upper() not in ("TRUE", "FALSE"):
        raise ValueError(text)
    return text.upper() == "TRUE"


def is_true(text: str) -> bool:
    """Whether a property of type BOOLEAN is on; what is no boolean is off."""
    return text.strip().lower() == "true"


def _parse_ratio(text: str) -> float:
    ratio = parse_double(text)
    if ratio is None or ratio < 0 or ratio > 1:
        raise ValueError(text)
    return ratio


def _policies(text: str) -> frozenset[CleanupPolicy]:
    """Follows ``ConfigDef.ValidList.in``: an empty list is valid, an empty item is not."""
    return frozenset(map(CleanupPolicy, COMMA.split(text) if text else []))


def _stored_policies(text: str) -> frozenset[CleanupPolicy]:
    """Follows ``LogConfig`` for values that an older broker accepted."""
    return frozenset(CleanupPolicy(word.lower()) for word in COMMA.split(text) if word)


POLICY: Final = TopicProperty(_policy(CLEANUP_POLICY), (_policy("log.cleanup.policy"),))
PROPERTIES: Final = (
    POLICY,
    TopicProperty(_long(DELETE_RETENTION_MS, 0), (_long("log.cleaner.delete.retention.ms", 0),)),
    TopicProperty(_int("index.interval.bytes", 0), (_int("log.index.interval.bytes", 0),)),
    TopicProperty(_int("internal.segment.bytes")),
    TopicProperty(
        _long(MAX_COMPACTION_LAG_MS, 1), (_long("log.cleaner.max.compaction.lag.ms", 1),)
    ),
    TopicProperty(_int("max.message.bytes", 0), (_int("message.max.bytes", 0),)),
    TopicProperty(_ratio(MIN_CLEANABLE_DIRTY_RATIO), (_ratio("log.cleaner.min.cleanable.ratio"),)),
    TopicProperty(
        _long(MIN_COMPACTION_LAG_MS, 0), (_long("log.cleaner.min.compaction.lag.ms", 0),)
    ),
    TopicProperty(ConfigKey(REMOTE_STORAGE_ENABLE, parse_boolean, A_BOOLEAN)),
    TopicProperty(
        _long(RETENTION_BYTES, is_limit=True), (_long("log.retention.bytes", is_limit=True),)
    ),
    TopicProperty(
        _long(RETENTION_MS, -1),
        (
            _long("log.retention.ms", is_limit=True),
            _int("log.retention.minutes", factor=_MINUTE_MS, is_limit=True),
            _int("log.retention.hours", factor=_HOUR_MS, is_limit=True),
        ),
    ),
    TopicProperty(_segment_bytes("segment.bytes"), (_segment_bytes("log.segment.bytes"),)),
    TopicProperty(_int("segment.index.bytes", 4), (_int("log.index.size.max.bytes", 4),)),
    TopicProperty(
        _long("segment.ms", 1),
        (_long("log.roll.ms", 1), _int("log.roll.hours", 1, factor=_HOUR_MS)),
    ),
)
"""Every topic property that kdump uses."""
OFFSETS_RETENTION: Final = _int(OFFSETS_RETENTION_MINUTES, 1, factor=_MINUTE_MS)
PRODUCER_ID_EXPIRATION: Final = _int(PRODUCER_ID_EXPIRATION_MS, 1)

_RETENTION_TIME: Final = next(each for each in PROPERTIES if each.name == RETENTION_MS)
TOPIC_KEYS: Final = {each.name: each.key for each in PROPERTIES}
_BROKER_KEYS: Final = {
    key.name: key
    for key in (
        *(synonym for each in PROPERTIES for synonym in each.synonyms),
        OFFSETS_RETENTION,
        PRODUCER_ID_EXPIRATION,
    )
}
KNOWN_NAMES: Final = frozenset(TOPIC_KEYS | _BROKER_KEYS)


def require_accepted_by_topics(configs: Configs, origin: str) -> None:
    """Reject what a broker rejects as a topic's configuration; follows ``LogConfig.validate``.

    Raises:
        InvalidSettingError: a value is not accepted; properties that kdump does not use are not
            checked.
    """
    values = _values(TOPIC_KEYS, configs, origin)
    _require_lags(values, MIN_COMPACTION_LAG_MS, MAX_COMPACTION_LAG_MS, origin)


def require_accepted_by_brokers(configs: Configs, origin: str) -> None:
    """Reject broker properties with which a broker does not start.

    Follows ``KafkaConfig.validateValues`` and ``LogConfig.validateBrokerLogConfigValues``.

    Raises:
        InvalidSettingError: as in :func:`require_accepted_by_topics`.
    """
    values = _values(_BROKER_KEYS, configs, origin)
    retention = next((key.name for key in _RETENTION_TIME.synonyms if key.name in configs), None)
    if retention is not None and values[retention] == 0:
        text = configs[retention].strip(BLANKS)
        raise InvalidSettingError(retention, text, "1 or more, or negative for no limit", origin)
    _require_lags(
        values, "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", origin
    )


def _values(keys: Mapping[str, ConfigKey], configs: Configs, origin: str) -> dict[str, Value]:
    return {name: key.value(configs[name], origin) for name, key in keys.items() if name in configs}


def _require_lags(values: Mapping[str, Value], least: str, most: str, origin: str) -> None:
    shortest, longest = values.get(least, 0), values.get(most)
    assert not isinstance(shortest, frozenset)
    assert not isinstance(longest, frozenset)
    if longest is not None and shortest > longest:
        raise InvalidSettingError(least, str(shortest), f"at most {most}, {longest}", origin)
