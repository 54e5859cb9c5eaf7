"""The effective configuration of topics and brokers, from every source that can set it.

The order of precedence: a topic property given by ``--config``, the topic's configuration in the
cluster's metadata, a broker property given by ``--config``, the dynamic configuration of this
broker, that of all brokers, the broker's file, and Kafka's defaults. Follows
``KafkaConfigSchema.resolveEffectiveTopicConfigs`` and ``DynamicBrokerConfig``. Each value keeps its
origin. A default of Kafka's counts only if the broker's file is given and does not set the
property.
"""

from __future__ import annotations

import dataclasses
import enum
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from kdump.errors import KdumpError, UsageProblem
from kdump.formats import names
from kdump.formats.feature_levels import METADATA_VERSION
from kdump.formats.java.java_numbers import parse_int
from kdump.formats.kafka_versions import NEWEST, KafkaVersion, version_with_level
from kdump.formats.server_properties import NODE_IDS
from kdump.log.directory import DirectoryKind, LogDirectory, read_log_directory
from kdump.log.partition import Partition
from kdump.log.selection import only_metadata
from kdump.phases import phase
from kdump.state.metadata.cluster import (
    ClusterImage,
    Configs,
    read_cluster_image,
    read_newest_image,
)
from kdump.state.metadata.config_keys import (
    CLEANUP_POLICY,
    KNOWN_NAMES,
    OFFSETS_RETENTION,
    OFFSETS_RETENTION_MINUTES,
    POLICY,
    PRODUCER_ID_EXPIRATION,
    PRODUCER_ID_EXPIRATION_MS,
    PROPERTIES,
    REMOTE_STORAGE_ENABLE,
    RETENTION_BYTES,
    RETENTION_MS,
    CleanupPolicy,
    ConfigKey,
    InvalidSettingError,
    TopicProperty,
    Value,
    require_accepted_by_brokers,
    require_accepted_by_topics,
)
from kdump.storage.location import Location

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS
DEFAULT_OFFSETS_RETENTION_MS: Final = 7 * _DAY_MS
"""Kafka's default of ``offsets.retention.minutes``."""
_INT64_MAX: Final = 2**63 - 1
EVERY_BROKER: Final = ""
_COMPACTED_INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""Topics that a broker creates with ``cleanup.policy=compact``."""
_GENERATED: Final = -1
"""The id in the file of a broker that got its id from ZooKeeper."""


class SettingSource(enum.Enum):
    """Where a property is set; the value is its name in messages."""

    GIVEN = "--config"
    TOPIC = "the topic's configuration in the metadata"
    BROKER = "the broker's dynamic configuration in the metadata"
    EVERY_BROKER = "the cluster-wide dynamic configuration in the metadata"
    FILE = "--server-properties"
    FILE_DEFAULT = "Kafka's default, as --server-properties does not set it"
    TOPIC_DEFAULT = "Kafka's default, as the topic's configuration does not set it"
    INTERNAL = "Kafka's default for this internal topic"


class Origin(Struct, frozen=True):
    """Where a value comes from.

    Attributes:
        source: where it is set.
        key: Kafka's name of the property there; None for a default.
    """

    source: SettingSource
    key: str | None = None

    def __str__(self) -> str:
        return self.source.value if self.key is None else f"{self.key} in {self.source.value}"


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The configuration of a topic, as far as kdump uses it.

    Attributes are Kafka's properties, with underscores for dots. -1 means "no limit" where it does
    in Kafka. A property that is set nowhere has Kafka's default, except that nothing is deleted by
    age unless retention is configured.

    Attributes:
        delete_retention_ms: None if unknown; then tombstones are kept.
        origins: where values come from, by Kafka's names; a property without one is unknown.
    """

    cleanup_policy: frozenset[CleanupPolicy] = frozenset({CleanupPolicy.DELETE})
    delete_retention_ms: int | None = _DAY_MS
    index_interval_bytes: int = 4096
    internal_segment_bytes: int | None = None
    max_compaction_lag_ms: int = _INT64_MAX
    max_message_bytes: int = 1024 * 1024 + 12
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    remote_storage_enable: bool = False
    retention_bytes: int = -1
    retention_ms: int = -1
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_ms: int = 7 * _DAY_MS
    origins: Mapping[str, Origin] = dataclasses.field(default_factory=dict, compare=False)

    @property
    def largest_segment_bytes(self) -> int:
        """The size at which a segment is rolled; follows ``LogConfig.segmentSize``."""
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
        """Whether old segments are deleted by age or by size of the log."""
        return CleanupPolicy.DELETE in self.cleanup_policy

    @property
    def is_policy_known(self) -> bool:
        """Whether the topic's ``cleanup_policy`` is known."""
        return CLEANUP_POLICY in self.origins

    @property
    def is_remote_storage_known(self) -> bool:
        """Whether it is known if the topic uses remote storage."""
        return REMOTE_STORAGE_ENABLE in self.origins

    @property
    def is_retention_known(self) -> bool:
        """Whether a limit on age or size of the log is known."""
        return not {RETENTION_MS, RETENTION_BYTES}.isdisjoint(self.origins)


_FILE_DEFAULTS: Final[Mapping[str, Value]] = {RETENTION_MS: 7 * _DAY_MS}
"""Defaults of Kafka that apply only if the broker's file is given."""


class _Properties(Struct, frozen=True):
    """The properties that one source sets."""

    configs: Configs
    source: SettingSource


@dataclass(frozen=True, slots=True)
class Settings:
    """All sources of a broker's properties.

    Attributes:
        given: by ``--config``, under topic or broker names; they apply to every topic.
        broker: the broker's file; None if not given.
        cluster: the cluster's metadata; None if there is none.
        node_id: of the broker; selects its dynamic configuration.
        given_version: of ``--kafka-version``; None if it was not given.
    """

    given: Configs = dataclasses.field(default_factory=dict)
    broker: Configs | None = None
    cluster: ClusterImage | None = None
    node_id: int | None = None
    given_version: KafkaVersion | None = None
    _of_topics: dict[str, TopicSettings] = dataclasses.field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """A cache: each partition of a topic asks several times."""

    @property
    def kafka_version(self) -> KafkaVersion:
        """The version of the broker that will start."""
        return self._version_and_reason()[0]

    @property
    def kafka_version_reason(self) -> str:
        """What says which version will start."""
        return self._version_and_reason()[1]

    def _version_and_reason(self) -> tuple[KafkaVersion, str]:
        """The version: as given, as this broker registered, or at least that of its cluster."""
        if self.given_version is not None:
            return self.given_version, "--kafka-version"
        cluster = self.cluster
        if cluster is None:
            return NEWEST, "the newest that this kdump knows"
        if self.node_id is not None and self.node_id in cluster.known_levels:
            level = cluster.known_levels[self.node_id]
            return version_with_level(level), f"broker {self.node_id} last ran that version"
        if cluster.metadata_version:
            level = cluster.metadata_version
            return version_with_level(level), f"{METADATA_VERSION} {level} of the cluster"
        return NEWEST, "the newest that this kdump knows"

    def topic(self, name: str) -> TopicSettings:
        """The configuration of the topic ``name``.

        Raises:
            InvalidSettingError: a property has a value that Kafka does not accept.
        """
        known = self._of_topics.get(name)
        if known is None:
            known = self._of_topics[name] = self._settings_of(name)
        return known

    def _settings_of(self, name: str) -> TopicSettings:
        if name == names.CLUSTER_METADATA_TOPIC:
            return TopicSettings()  # The Raft layer has its own settings.
        values: dict[str, Value] = {}
        origins: dict[str, Origin] = {}
        for each in PROPERTIES:
            found = self._found(each, name)
            if found is None:
                continue
            value, origins[each.name] = found
            if value is not None:
                values[each.attribute] = value
        return TopicSettings(**values, origins=origins)  # type: ignore[arg-type]

    @property
    def producer_id_expiration_ms(self) -> int | None:
        """``producer.id.expiration.ms``, if it is set; None keeps all producers."""
        return self._of_broker(PRODUCER_ID_EXPIRATION)

    @property
    def offsets_retention_ms(self) -> int | None:
        """``offsets.retention.minutes`` in milliseconds, if it is set."""
        return self._of_broker(OFFSETS_RETENTION)

    def _of_broker(self, key: ConfigKey) -> int | None:
        for properties in self._brokers():
            found = _first([key], properties)
            if found is not None:
                assert isinstance(found[0], int)
                return found[0]
        return None

    def is_listed(self, topic: str) -> bool:
        """Whether the cluster's metadata has the topic, and so all of its configuration."""
        return self.cluster is not None and topic in self.cluster.topics

    def _found(
        self, topic_property: TopicProperty, topic: str
    ) -> tuple[Value | None, Origin] | None:
        """The effective value and its origin; None if unknown.

        A value of None is the default of :class:`TopicSettings`.
        """
        for properties in self._topics(topic):
            found = _first([topic_property.key], properties)
            if found is not None:
                return found
        is_known = self.is_listed(topic)
        if topic_property is POLICY and topic in _COMPACTED_INTERNAL_TOPICS:
            return frozenset({CleanupPolicy.COMPACT}), Origin(SettingSource.INTERNAL)
        if topic_property is POLICY and not is_known:
            return None  # The topic may have its own policy.
        for properties in self._brokers():
            found = _first(_readable(topic_property, properties.source), properties)
            if found is not None:
                return found
        if not is_known:
            return None
        if not topic_property.synonyms:
            return None, Origin(SettingSource.TOPIC_DEFAULT)
        if self.broker is not None:
            return _FILE_DEFAULTS.get(topic_property.name), Origin(SettingSource.FILE_DEFAULT)
        return None

    def _topics(self, name: str) -> Iterator[_Properties]:
        """The sources that use topic names, in order of precedence."""
        yield _Properties(self.given, SettingSource.GIVEN)
        if self.cluster is not None and name in self.cluster.topics:
            yield _Properties(self.cluster.topics[name].configs, SettingSource.TOPIC)

    def _brokers(self) -> Iterator[_Properties]:
        """The sources that use broker names, in order of precedence."""
        yield _Properties(self.given, SettingSource.GIVEN)
        dynamic = {} if self.cluster is None else self.cluster.broker_configs
        yield _Properties(dynamic.get(str(self.node_id), {}), SettingSource.BROKER)
        yield _Properties(dynamic.get(EVERY_BROKER, {}), SettingSource.EVERY_BROKER)
        if self.broker is not None:
            yield _Properties(self.broker, SettingSource.FILE)


DirectorySettings: TypeAlias = Mapping[Location, Settings]
"""The settings of the topics of log directories, by the path of the directory."""


class StartingKafka(NamedTuple):
    """Which Kafka will start on a log directory, and what says so."""

    version: KafkaVersion
    reason: str

    def __str__(self) -> str:
        return f"by the rules of Kafka {self.version}: {self.reason}"

    @property
    def row(self) -> dict[str, str]:
        """The same for programs."""
        return {"version": str(self.version), "reason": self.reason}


def starting_kafkas(settings: Iterable[Settings]) -> list[StartingKafka]:
    """The versions that will start on log directories: those that a report speaks of."""
    return sorted(
        {StartingKafka(each.kafka_version, each.kafka_version_reason) for each in settings}
    )


def _readable(topic_property: TopicProperty, source: SettingSource) -> Sequence[ConfigKey]:
    """The broker names that a source may use: only the first synonym is dynamic."""
    is_dynamic = source in (SettingSource.BROKER, SettingSource.EVERY_BROKER)
    return topic_property.synonyms[:1] if is_dynamic else topic_property.synonyms


def _first(keys: Iterable[ConfigKey], properties: _Properties) -> tuple[Value, Origin] | None:
    """The value and origin of the first of ``keys`` that is set."""
    for key in keys:
        if key.name in properties.configs:
            value = key.value(properties.configs[key.name], properties.source.value, is_stored=True)
            return value, Origin(properties.source, key.name)
    return None


class ClusterMetadata(Struct, frozen=True):
    """A cluster's metadata from outside the log directories.

    Attributes:
        path: of its log directory or partition.
        cluster_id: from ``meta.properties`` beside it; None if there is none.
        directory: the log directory, with its copies of the metadata only.
    """

    path: Location
    cluster_id: str | None
    image: ClusterImage
    directory: LogDirectory


def read_cluster_metadata(path: Location) -> ClusterMetadata:
    """Read the metadata in the log directory ``path``, or in its ``__cluster_metadata-0``.

    Raises:
        UsageProblem: there is no metadata.
        KdumpError: it cannot be read to its end.
        OSError: a file cannot be read.
    """
    is_partition = path.as_absolute().name == f"{names.CLUSTER_METADATA_TOPIC}-0"
    root = path.around if is_partition else path
    directory = read_log_directory(
        root,
        DirectoryKind.LOG_DIRECTORY,
        select=only_metadata,
    )
    partition = next(filter(_is_metadata, directory.partitions), None)
    if partition is None:
        raise UsageProblem(f"--metadata {path}: it contains no {names.CLUSTER_METADATA_TOPIC}-0")
    with phase("reading the cluster's metadata"):
        image = read_cluster_image(partition)
    if image is None:
        raise KdumpError(
            f"{partition.path}: the metadata is damaged or incomplete; name another copy of it"
        )
    return ClusterMetadata(path, directory.cluster_id, image, directory)


def read_settings(
    directories: Iterable[LogDirectory],
    given: Configs | None = None,
    broker: Configs | None = None,
    metadata: ClusterMetadata | None = None,
    kafka_version: KafkaVersion | None = None,
) -> dict[Location, Settings]:
    """Read the settings of each log directory's broker, by path of the directory.

    The cluster's metadata is read from the directories that hold a copy; the newest valid copy
    applies to all directories with its cluster id. A directory without a cluster id uses only its
    own copy: no broker starts on it (``KafkaRaftServer.initializeLogDirs``).

    Args:
        directories: of one or several brokers or clusters.
        given: as in :class:`Settings`.
        broker: as in :class:`Settings`.
        metadata: applies to all ``directories`` instead of the copies in them.
        kafka_version: of ``--kafka-version``; None to tell it by the directories.

    Raises:
        UsageProblem: the broker's file, or ``metadata``, belongs to another broker or cluster.
        OSError: a cluster's metadata cannot be read.
    """
    belongs: dict[Location, tuple[str | Location, int | None]] = {}
    images: dict[str | Location, ClusterImage] = {}
    copies: dict[str | Location, list[Partition]] = defaultdict(list)
    for directory in directories:
        cluster_id, node_id = directory.cluster_id, directory.node_id
        _require_node(directory, node_id, broker or {})
        cluster = directory.path if cluster_id is None else cluster_id
        belongs[directory.path] = cluster, node_id
        if metadata is not None:
            _require_cluster(directory, cluster_id, metadata)
            images[cluster] = metadata.image
        else:
            copies[cluster] += filter(_is_metadata, directory.partitions)
    for cluster, partitions in copies.items():
        with phase("reading the cluster's metadata"):
            image = read_newest_image(partitions)
        if image is not None:
            images[cluster] = image
    return {
        path: Settings(given or {}, broker, images.get(cluster), node_id, kafka_version)
        for path, (cluster, node_id) in belongs.items()
    }


def _is_metadata(partition: Partition) -> bool:
    has_records = bool(partition.segments or partition.metadata_snapshots)
    return partition.is_cluster_metadata and has_records


def _require_node(directory: LogDirectory, node_id: int | None, broker: Configs) -> None:
    """Reject another broker's file: a broker with it does not start on the directory."""
    for key in NODE_IDS:
        configured = parse_int(broker[key].strip()) if key in broker else None
        if None not in (configured, node_id) and configured not in (node_id, _GENERATED):
            raise UsageProblem(
                f"--server-properties: {key}={configured}, but {directory.path} belongs to node"
                f" {node_id}: a broker with this file does not start on it; give the file of node"
                f" {node_id}, or check {names.META_PROPERTIES} of the directory"
            )


def _require_cluster(
    directory: LogDirectory, cluster_id: str | None, metadata: ClusterMetadata
) -> None:
    if None not in (cluster_id, metadata.cluster_id) and cluster_id != metadata.cluster_id:
        raise UsageProblem(
            f"--metadata {metadata.path}: of cluster {metadata.cluster_id}, but {directory.path}"
            f" belongs to cluster {cluster_id}"
        )


def require_accepted(given: Configs, broker: Configs | None) -> None:
    """Reject properties from ``--config`` or the broker's file that a broker rejects.

    For ``--config`` also properties that kdump does not use, because most are misspelt, and digits
    of other scripts, although Kafka accepts them.

    Raises:
        UsageProblem: a property is rejected.
    """
    for key, value in given.items():
        if key not in KNOWN_NAMES:
            raise UsageProblem(_unknown(key))
        if not value.isascii():
            raise UsageProblem(f"--config {key}={value}: contains characters that are not ASCII")
    try:
        require_accepted_by_topics(given, SettingSource.GIVEN.value)
        require_accepted_by_brokers(given, SettingSource.GIVEN.value)
        require_accepted_by_brokers(broker or {}, SettingSource.FILE.value)
    except InvalidSettingError as refused:
        raise UsageProblem(str(refused)) from refused


def _unknown(key: str) -> str:
    import difflib

    near = difflib.get_close_matches(key, KNOWN_NAMES, n=1)
    advice = f"; did you mean {near[0]}?" if near else ""
    known = ", ".join(each.name for each in PROPERTIES)
    return (
        f"--config {key}: not a property that kdump uses{advice} "
        f"(it uses these, and the broker's names for them: {known}, {OFFSETS_RETENTION_MINUTES}, "
        f"{PRODUCER_ID_EXPIRATION_MS})"
    )
