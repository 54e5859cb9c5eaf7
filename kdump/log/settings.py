"""How a broker is told to treat a topic's log, from all the places where that can be said.

What is closer to the log wins: a topic's property given by hand, the topic's own configuration in
the cluster's metadata, a broker's property given by hand, what was set while brokers ran (for this
broker, then for all), the broker's file, and Kafka's defaults (``LogConfig``,
``ServerTopicConfigSynonyms``). A broker's properties go by other names than a topic's, and there
are several for some.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kdump.errors import KdumpError, UsageProblem
from kdump.formats import names
from kdump.log.cluster import ClusterImage, Configs, read_cluster_image
from kdump.log.directory import LogDirectory

PRODUCER_ID_EXPIRATION_MS: Final = "producer.id.expiration.ms"
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 86_400_000
_INT64_MAX: Final = 2**63 - 1
_EVERY_BROKER: Final = ""
_BY_HAND: Final = "--config"
_COMPACTED_INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""The topics that a broker creates with ``cleanup.policy=compact``."""


class CleanupPolicy(enum.Enum):
    """What is done about old records; a topic can have both."""

    COMPACT = "compact"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The configuration of a topic, as far as it decides what becomes of files.

    Attributes are Kafka's properties, dots as underscores. Where Kafka takes -1 for no limit, so
    do they.

    Attributes:
        is_policy_known: whether ``cleanup_policy`` was said for this topic, rather than taken from
            what holds where nothing is said.
    """

    cleanup_policy: frozenset[CleanupPolicy] = frozenset({CleanupPolicy.DELETE})
    delete_retention_ms: int = _DAY_MS
    index_interval_bytes: int = 4096
    internal_segment_bytes: int | None = None
    max_compaction_lag_ms: int = _INT64_MAX
    max_message_bytes: int = 1024 * 1024 + 12
    min_compaction_lag_ms: int = 0
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_ms: int = 7 * _DAY_MS
    is_policy_known: bool = False

    @property
    def largest_segment_bytes(self) -> int:
        """How large a segment becomes (``LogConfig.segmentSize``)."""
        return (
            self.segment_bytes
            if self.internal_segment_bytes is None
            else (self.internal_segment_bytes)
        )

    @property
    def is_compacted(self) -> bool:
        return CleanupPolicy.COMPACT in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether old segments go because of their age, or of the log's size."""
        return CleanupPolicy.DELETE in self.cleanup_policy


class InvalidSettingError(KdumpError):
    """A property has a value that Kafka would not take."""

    def __init__(self, key: str, value: str, expected: str, origin: str) -> None:
        super().__init__(f"{origin}: {key}={value} is not {expected}")


@dataclass(frozen=True, slots=True)
class _Synonym:
    """A broker's property that stands for a topic's, in units of ``factor`` of it."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True)
class _Property:
    """A topic's property.

    Attributes:
        name: Kafka's.
        attribute: of :class:`TopicSettings`.
        parse: gives the value, raises ValueError.
        expected: what ``parse`` takes, in words.
        synonyms: the broker's properties for it; the first one that is set counts.
    """

    name: str
    parse: Callable[[str], object]
    expected: str
    synonyms: tuple[_Synonym, ...] = ()

    @property
    def attribute(self) -> str:
        return self.name.replace(".", "_")


def _integer(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text)
        if not least <= number <= _INT64_MAX:
            raise ValueError(text)
        return number

    return parse


def _boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(text)
    return lowered == "true"


def _policies(text: str) -> frozenset[CleanupPolicy]:
    words = [word.strip().lower() for word in text.split(",")]
    return frozenset(CleanupPolicy(word) for word in words if word)


def _number(name: str, least: int, *synonyms: str | _Synonym) -> _Property:
    brokers = tuple(each if isinstance(each, _Synonym) else _Synonym(each) for each in synonyms)
    return _Property(name, _integer(least), f"a whole number of at least {least}", brokers)


_POLICY: Final = _Property(
    "cleanup.policy",
    _policies,
    "compact, delete, or both with a comma",
    (_Synonym("log.cleanup.policy"),),
)
_PROPERTIES: Final = (
    _POLICY,
    _number("delete.retention.ms", 0, "log.cleaner.delete.retention.ms"),
    _number("index.interval.bytes", 0, "log.index.interval.bytes"),
    _number("internal.segment.bytes", 1),
    _number("max.compaction.lag.ms", 1, "log.cleaner.max.compaction.lag.ms"),
    _number("max.message.bytes", 0, "message.max.bytes"),
    _number("min.compaction.lag.ms", 0, "log.cleaner.min.compaction.lag.ms"),
    _Property("remote.storage.enable", _boolean, "true or false"),
    _number("retention.bytes", -1, "log.retention.bytes"),
    _number(
        "retention.ms",
        -1,
        "log.retention.ms",
        _Synonym("log.retention.minutes", _MINUTE_MS),
        _Synonym("log.retention.hours", _HOUR_MS),
    ),
    _number("segment.bytes", 1, "log.segment.bytes"),
    _number("segment.index.bytes", 4, "log.index.size.max.bytes"),
    _number("segment.ms", 1, "log.roll.ms", _Synonym("log.roll.hours", _HOUR_MS)),
)
_KNOWN_NAMES: Final = frozenset(
    {PRODUCER_ID_EXPIRATION_MS}
    | {each.name for each in _PROPERTIES}
    | {synonym.name for each in _PROPERTIES for synonym in each.synonyms}
)
_EXPIRATION: Final = _number(PRODUCER_ID_EXPIRATION_MS, 1, PRODUCER_ID_EXPIRATION_MS)


@dataclass(frozen=True, slots=True)
class _Said:
    """Properties from one place, and the place."""

    configs: Configs
    origin: str


@dataclass(frozen=True, slots=True)
class Settings:
    """Where a broker's properties come from.

    Attributes:
        given: by hand, by a topic's or a broker's names; they hold for every topic.
        broker: the broker's file.
        cluster: the cluster's metadata; None where there is none to be read.
        node_id: which broker it is; decides what of the metadata is for it.
    """

    given: Configs = field(default_factory=dict)
    broker: Configs = field(default_factory=dict)
    cluster: ClusterImage | None = None
    node_id: int | None = None

    def topic(self, name: str) -> TopicSettings:
        """The configuration of the topic ``name``.

        Raises:
            InvalidSettingError: one of the properties has a value that Kafka does not take.
        """
        if name == names.CLUSTER_METADATA_TOPIC:
            return TopicSettings()  # the Raft layer has settings of its own
        topics = {} if self.cluster is None else self.cluster.topics
        own = [_Said(self.given, _BY_HAND)]
        if name in topics:
            own.append(_Said(topics[name].configs, f"the metadata of topic {name}"))
        brokers = self._brokers()
        values: dict[str, object] = {
            "is_policy_known": name in topics
            or name in _COMPACTED_INTERNAL_TOPICS
            or _POLICY.name in self.given
        }
        for each in _PROPERTIES:
            found = _first(each, own, brokers)
            if each is _POLICY and name in _COMPACTED_INTERNAL_TOPICS:
                # Brokers create these with a policy of their own, which is not their default.
                found = _first(each, own, ()) or frozenset({CleanupPolicy.COMPACT})
            if found is not None:
                values[each.attribute] = found
        return TopicSettings(**values)  # type: ignore[arg-type]

    @property
    def producer_id_expiration_ms(self) -> int | None:
        """``producer.id.expiration.ms``, if it was said; None keeps all producers."""
        value = _first(_EXPIRATION, [], self._brokers())
        assert value is None or isinstance(value, int)
        return value

    def _brokers(self) -> list[_Said]:
        """By a broker's names, from what counts most to what counts least."""
        dynamic = {} if self.cluster is None else self.cluster.broker_configs
        return [
            _Said(self.given, _BY_HAND),
            *(
                _Said(dynamic[node], "the metadata of the broker")
                for node in (str(self.node_id), _EVERY_BROKER)
                if node in dynamic
            ),
            _Said(self.broker, "the broker's properties"),
        ]


def read_settings(
    directories: Iterable[LogDirectory],
    given: Configs | None = None,
    broker: Configs | None = None,
) -> dict[Path, Settings]:
    """The settings of each log directory's own broker, by the path of the directory.

    A cluster's metadata is read where it lies in one of ``directories``, and counts for all that
    have its cluster id. One that has no such id has nothing but what is in itself: no broker
    starts on it (``KafkaRaftServer.initializeLogDirs``).

    Args:
        directories: as they lie on disk, those of several brokers or clusters, too.
        given: as in :class:`Settings`.
        broker: likewise.

    Raises:
        OSError: a cluster's metadata cannot be read.
    """
    belongs: dict[Path, tuple[str | Path, int | None]] = {}
    images: dict[str | Path, ClusterImage] = {}
    for directory in directories:
        properties = directory.meta_properties
        cluster_id = None if properties is None else properties.cluster_id
        cluster = directory.path if cluster_id is None else cluster_id
        belongs[directory.path] = cluster, None if properties is None else properties.node_id
        for partition in directory.partitions:
            if partition.is_cluster_metadata and partition.segments and cluster not in images:
                image = read_cluster_image(partition)
                if image is not None:
                    images[cluster] = image
    return {
        path: Settings(given or {}, broker or {}, images.get(cluster), node_id)
        for path, (cluster, node_id) in belongs.items()
    }


def _first(wanted: _Property, own: Iterable[_Said], brokers: Iterable[_Said]) -> object | None:
    """The value that counts; None where nobody says anything."""
    for said in own:
        if wanted.name in said.configs:
            return _parsed(wanted, wanted.name, said)
    # A synonym that comes first counts, wherever it is said.
    for synonym in wanted.synonyms:
        for said in brokers:
            if synonym.name in said.configs:
                return _parsed(wanted, synonym.name, said, synonym.factor)
    return None


def _parsed(wanted: _Property, key: str, said: _Said, factor: int = 1) -> object:
    text = said.configs[key].strip()
    try:
        value = wanted.parse(text)
    except ValueError:
        raise InvalidSettingError(key, text, wanted.expected, said.origin) from None
    if isinstance(value, int) and factor != 1:
        return value * factor if value >= 0 else -1
    return value


def require_known(given: Mapping[str, str]) -> None:
    """Refuse properties given by hand that kdump has no use for: most of them are misspelt.

    Raises:
        UsageProblem: there is one.
    """
    for key in given:
        if key in _KNOWN_NAMES:
            continue
        near = difflib.get_close_matches(key, _KNOWN_NAMES, n=1)
        advice = f"; {near[0]} was meant?" if near else ""
        known = ", ".join(each.name for each in _PROPERTIES)
        raise UsageProblem(
            f"--config {key}: not a property that decides anything here{advice} "
            f"(these do, and the broker's names for them: {known}, {PRODUCER_ID_EXPIRATION_MS})"
        )
