"""The cluster's metadata about topics: configuration, replicas and log directories.

It is read from ``__cluster_metadata-0``: the newest snapshot, then the log after it. It is a view
of the whole image (:mod:`kdump.state.metadata.metadata_image`), for which only some records are
decoded. The modules that decode them are imported where there is such a log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from kdump.formats.directory_ids import is_reserved_text
from kdump.formats.names import TopicPartition
from kdump.log.living import while_it_changes
from kdump.log.partition import Partition

if TYPE_CHECKING:
    from kdump.state.metadata.metadata_entities import PartitionRegistration
    from kdump.state.metadata.metadata_image import LogEnd, MetadataImage

_TYPE_NAMES: Final = (
    *("TOPIC_RECORD", "REMOVE_TOPIC_RECORD", "CONFIG_RECORD"),
    *("PARTITION_RECORD", "PARTITION_CHANGE_RECORD", "CLEAR_ELR_RECORD"),
    *("REGISTER_BROKER_RECORD", "BROKER_REGISTRATION_CHANGE_RECORD", "FEATURE_LEVEL_RECORD"),
    *("BEGIN_TRANSACTION_RECORD", "END_TRANSACTION_RECORD", "ABORT_TRANSACTION_RECORD"),
)
"""The types of records that the image needs; decoding the others would take time."""
_BROKER_CONFIGS: Final = "broker:"

Configs = Mapping[str, str]


class ClusterPartition(Struct, frozen=True):
    """The replicas of a partition.

    Attributes:
        replicas: node ids.
        directories: id of the log directory on each node, as Kafka writes it; empty if the cluster
            does not know.
        leader: the node whose replica leads it; None if none does.
        in_sync: the nodes whose replicas have all committed records, or were last known to.
    """

    replicas: tuple[int, ...]
    directories: tuple[str, ...] = ()
    leader: int | None = None
    in_sync: tuple[int, ...] = ()

    @property
    def is_leaderless(self) -> bool:
        """Whether no replica leads it."""
        return self.leader is None

    def is_alone_in_sync(self, node_id: int) -> bool:
        """Whether a node has the only replica in sync."""
        return self.in_sync == (node_id,)

    def directory_on(self, node_id: int) -> str | None:
        """The id of the log directory of a node's replica; None if unknown, or one for none."""
        if node_id not in self.replicas or len(self.directories) != len(self.replicas):
            return None
        found = self.directories[self.replicas.index(node_id)]
        return None if is_reserved_text(found) else found


class ClusterTopic(Struct, frozen=True):
    """A topic in the cluster's metadata.

    Attributes:
        topic_id: as Kafka writes it.
        configs: the topic's own configuration, by Kafka's names.
        partitions: by number.
    """

    name: str
    topic_id: str
    configs: Configs
    partitions: Mapping[int, ClusterPartition] = field(default_factory=dict)


def _log_begin() -> LogEnd:
    from kdump.state.metadata.metadata_image import LOG_BEGIN

    return LOG_BEGIN


class ClusterImage(Struct, frozen=True):
    """The part of a cluster's metadata that kdump uses.

    Attributes:
        topics: by name.
        broker_configs: dynamic broker configurations, by node id in decimal; ``""`` applies to all
            brokers.
        log_dirs: ids of the log directories at each broker's last registration, as Kafka writes
            them.
        metadata_version: the level of that feature; 0 if it is unknown.
        known_levels: the highest ``metadata.version`` that each broker said it knows when it
            registered, which tells its release.
        voters: ids of the controllers' metadata directories by node id, as Kafka writes them; empty
            if the voters are static.
    """

    topics: Mapping[str, ClusterTopic]
    broker_configs: Mapping[str, Configs]
    log_dirs: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    metadata_version: int = 0
    known_levels: Mapping[int, int] = field(default_factory=dict)
    voters: Mapping[int, str] = field(default_factory=dict)
    end: LogEnd = field(default_factory=_log_begin)

    @property
    def topic_ids(self) -> dict[str, str]:
        """The ids of topics by name."""
        return {name: topic.topic_id for name, topic in self.topics.items()}

    @property
    def assignments(self) -> Iterator[tuple[TopicPartition, ClusterPartition]]:
        """The partitions of all topics."""
        for name, topic in self.topics.items():
            for number, partition in topic.partitions.items():
                yield TopicPartition(name, number), partition

    def partition(self, key: TopicPartition) -> ClusterPartition | None:
        """A partition; None if there is none, or nothing is known of it."""
        topic = self.topics.get(key.topic)
        return None if topic is None else topic.partitions.get(key.partition)

    def topic_of(self, topic_id: str) -> ClusterTopic | None:
        """The topic with an id in Kafka's form; None if no topic has it."""
        return next((each for each in self.topics.values() if each.topic_id == topic_id), None)


def read_cluster_image(partition: Partition) -> ClusterImage | None:
    """Read the metadata of the cluster up to the end of its metadata log.

    Records that the quorum has not committed count too: the log alone does not tell them from
    others. While a broker uses the log, it may replace segments with a snapshot; then the metadata
    is read again.

    Returns:
        The image; None if the log begins after the snapshot ends, or is damaged.

    Raises:
        OSError: a file cannot be read.
    """
    return while_it_changes(
        partition, _cluster_image, gone=None, has_damage=lambda image: image is None
    )


def _cluster_image(partition: Partition) -> ClusterImage | None:
    from kdump.state.metadata.metadata_image import LOG_BEGIN, LogEnd, MetadataReplay
    from kdump.state.metadata.metadata_log import MetadataDamage, MetadataReading

    replay = MetadataReplay()
    reading = MetadataReading(_TYPE_NAMES, on_unreadable=_refuse)
    try:
        start = LOG_BEGIN
        if partition.metadata_snapshots:
            snapshot = partition.metadata_snapshots[-1]
            start = LogEnd(snapshot.epoch, snapshot.end_offset)
            replay.take_batches(reading.snapshot(partition, snapshot))
        elif not partition.segments:
            return None
        replay.take_batches(reading.log(partition, start))
    except (MetadataDamage, _Unreadable):
        return None
    return cluster_view(replay.image())


def read_newest_image(partitions: Iterable[Partition]) -> ClusterImage | None:
    """Read the metadata of the cluster from the newest copy of its log.

    A copy on a node that was down for long is valid but out of date. The copy with the greatest
    epoch counts, and among those the longest, as when Raft elects a leader.

    Args:
        partitions: the copies.

    Returns:
        The image; None if no copy can be read to its end.

    Raises:
        OSError: a file cannot be read.
    """
    images = filter(None, map(read_cluster_image, partitions))
    return max(images, key=lambda image: image.end, default=None)


class _Unreadable(Exception):
    """A record cannot be decoded."""


def _refuse(_offset: int, _what: str) -> None:
    raise _Unreadable


def cluster_partition(registration: PartitionRegistration) -> ClusterPartition:
    """The part of a partition's registration that kdump uses."""
    from kdump.state.metadata.metadata_entities import MIGRATING_DIRECTORY, NO_LEADER

    is_known = any(each != MIGRATING_DIRECTORY for each in registration.directories)
    return ClusterPartition(
        registration.replicas,
        registration.directories if is_known else (),
        None if registration.leader == NO_LEADER else registration.leader,
        registration.in_sync,
    )


def cluster_view(image: MetadataImage) -> ClusterImage:
    """The part of a whole image that kdump uses."""
    from kdump.state.metadata.metadata_image import METADATA_VERSION, EntityKind

    configs = image.of(EntityKind.CONFIG)
    partitions: dict[str, dict[int, ClusterPartition]] = defaultdict(dict)
    for (topic_id, number), each in image.of(EntityKind.PARTITION).items():
        partitions[topic_id][number] = cluster_partition(each)
    return ClusterImage(
        topics={
            topic.name: ClusterTopic(
                topic.name,
                topic_id,
                configs.get(f"topic:{topic.name}", {}),
                partitions.get(topic_id, {}),
            )
            for topic_id, topic in image.of(EntityKind.TOPIC).items()
        },
        broker_configs={
            key.removeprefix(_BROKER_CONFIGS): values
            for key, values in configs.items()
            if key.startswith(_BROKER_CONFIGS)
        },
        log_dirs={
            node_id: broker.directories
            for node_id, broker in image.of(EntityKind.BROKER).items()
            if broker.directories
        },
        metadata_version=image.of(EntityKind.FEATURE).get(METADATA_VERSION, 0),
        known_levels={
            node_id: highest
            for node_id, broker in image.of(EntityKind.BROKER).items()
            for name, _, highest in broker.features
            if name == METADATA_VERSION
        },
        voters={
            node_id: voter.directory_id
            for node_id, voter in image.of(EntityKind.VOTER).items()
            if image.kraft_version >= 1 and voter.directory_id is not None
        },
        end=image.end,
    )
