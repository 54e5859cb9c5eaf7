"""The cluster's metadata about topics: configuration, replicas and log directories.

It is read from ``__cluster_metadata-0``: the newest snapshot, then the log after it. Follows
``TopicsDelta`` and ``ConfigurationsDelta``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kdump.formats import internal_topics, record_batch
from kdump.formats.names import FileKind, MetadataSnapshotName
from kdump.formats.schemas import metadata
from kdump.log.partition import Partition
from kdump.scan.records import RecordColumns
from kdump.scan.selection import Selection
from kdump.scan.walk import MessageSet, Skipped, walk_segment
from kdump.storage.location import Location

_FRAME_VERSION: Final = 1
_TOPIC: Final = "TOPIC_RECORD"
_REMOVED: Final = "REMOVE_TOPIC_RECORD"
_CONFIG: Final = "CONFIG_RECORD"
_PARTITION: Final = "PARTITION_RECORD"
_PARTITION_CHANGE: Final = "PARTITION_CHANGE_RECORD"
_BROKER: Final = "REGISTER_BROKER_RECORD"
_BROKER_CHANGE: Final = "BROKER_REGISTRATION_CHANGE_RECORD"
_BEGIN: Final = "BEGIN_TRANSACTION_RECORD"
_END: Final = "END_TRANSACTION_RECORD"
_ABORT: Final = "ABORT_TRANSACTION_RECORD"
_TYPE_IDS: Final = frozenset(
    each.id
    for each in metadata.RECORD_TYPES.values()
    if each.name
    in (
        _TOPIC,
        _REMOVED,
        _CONFIG,
        _PARTITION,
        _PARTITION_CHANGE,
        _BROKER,
        _BROKER_CHANGE,
        _BEGIN,
        _END,
        _ABORT,
    )
)
_TOPIC_RESOURCE: Final = 2
_BROKER_RESOURCE: Final = 4
"""Numbers of ``ConfigResource.Type``."""

Configs = Mapping[str, str]
_Change = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ClusterPartition:
    """The replicas of a partition.

    Attributes:
        replicas: node ids.
        directories: id of the log directory on each node, as Kafka writes it; empty if the cluster
            does not know.
    """

    replicas: tuple[int, ...]
    directories: tuple[str, ...] = ()

    def directory_on(self, node_id: int) -> str | None:
        """The id of the log directory of a node's replica; None if unknown."""
        if node_id not in self.replicas or len(self.directories) != len(self.replicas):
            return None
        return self.directories[self.replicas.index(node_id)]


@dataclass(frozen=True, slots=True)
class ClusterTopic:
    """A topic in the cluster's metadata.

    Attributes:
        name: of the topic.
        topic_id: as Kafka writes it.
        configs: the topic's own configuration, by Kafka's names.
        partitions: by number.
    """

    name: str
    topic_id: str
    configs: Configs
    partitions: Mapping[int, ClusterPartition] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, order=True)
class LogEnd:
    """Where a metadata log ends; ordered like ``OffsetAndEpoch``.

    Attributes:
        epoch: of the last batch, or of the snapshot if no batch follows it.
        offset: after the last record.
    """

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The part of a cluster's metadata that kdump uses.

    Attributes:
        topics: by name.
        broker_configs: dynamic broker configurations, by node id in decimal; ``""`` applies to all
            brokers.
        log_dirs: ids of the log directories at each broker's last registration, as Kafka writes
            them.
        end: of the metadata log.
    """

    topics: Mapping[str, ClusterTopic]
    broker_configs: Mapping[str, Configs]
    log_dirs: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    end: LogEnd = LogEnd(0, 0)

    def topic_of(self, topic_id: str) -> ClusterTopic | None:
        """The topic with an id in Kafka's form; None if no topic has it."""
        return next((each for each in self.topics.values() if each.topic_id == topic_id), None)


def read_cluster_image(partition: Partition) -> ClusterImage | None:
    """Read the metadata of the cluster up to the end of its metadata log.

    Records that the quorum has not committed count too: the log alone does not tell them from
    others.

    Returns:
        The image; None if the log begins after the snapshot ends, or is damaged.

    Raises:
        OSError: a file cannot be read.
    """
    replay = _Replay()
    try:
        for end, columns in _batches(partition):
            replay.end = end
            for value in _selected_values(columns):
                parsed = internal_topics.parse_cluster_metadata(None, value, 0)
                if parsed.value is None or parsed.type_name is None:
                    return None
                replay.take(parsed.type_name, parsed.value)
    except _Damaged:
        return None
    return replay.image()


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


class _Damaged(Exception):
    """The metadata log cannot be read to its end."""


@dataclass(slots=True)
class _Replay:
    """The image while records are replayed."""

    names_by_id: dict[str, str] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    partitions: dict[str, dict[int, ClusterPartition]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    log_dirs: dict[int, tuple[str, ...]] = field(default_factory=dict)
    uncommitted: list[_Change] | None = None
    """Records of the open metadata transaction; None if none is open."""
    end: LogEnd = LogEnd(0, 0)

    def take(self, type_name: str, record: Mapping[str, Any]) -> None:
        if type_name == _BEGIN:
            self.uncommitted = []
        elif type_name == _ABORT:
            self.uncommitted = None
        elif type_name == _END:
            changes, self.uncommitted = self.uncommitted or [], None
            for change in changes:
                self.change(*change)
        elif self.uncommitted is not None:
            self.uncommitted.append((type_name, record))
        else:
            self.change(type_name, record)

    def change(self, type_name: str, record: Mapping[str, Any]) -> None:
        if type_name == _TOPIC:
            self.names_by_id[record["topicId"]] = record["name"]
        elif type_name == _REMOVED:
            name = self.names_by_id.pop(record["topicId"], None)
            self.partitions.pop(record["topicId"], None)
            if name is not None:
                self.configs.pop((_TOPIC_RESOURCE, name), None)
        elif type_name in (_PARTITION, _PARTITION_CHANGE):
            self._change_partition(record)
        elif type_name in (_BROKER, _BROKER_CHANGE):
            if record.get("logDirs"):
                self.log_dirs[record["brokerId"]] = tuple(record["logDirs"])
        else:
            configs = self.configs.setdefault((record["resourceType"], record["resourceName"]), {})
            if record["value"] is None:
                configs.pop(record["name"], None)
            else:
                configs[record["name"]] = record["value"]

    def _change_partition(self, record: Mapping[str, Any]) -> None:
        """Apply a record; a change record has only the fields that changed."""
        partitions = self.partitions[record["topicId"]]
        before = partitions.get(record["partitionId"], ClusterPartition(()))
        replicas, directories = record.get("replicas"), record.get("directories")
        partitions[record["partitionId"]] = ClusterPartition(
            before.replicas if replicas is None else tuple(replicas),
            before.directories if directories is None else tuple(directories),
        )

    def image(self) -> ClusterImage:
        return ClusterImage(
            topics={
                name: ClusterTopic(
                    name,
                    topic_id,
                    self.configs.get((_TOPIC_RESOURCE, name), {}),
                    self.partitions.get(topic_id, {}),
                )
                for topic_id, name in self.names_by_id.items()
            },
            broker_configs={
                name: configs
                for (resource, name), configs in self.configs.items()
                if resource == _BROKER_RESOURCE and configs
            },
            log_dirs=self.log_dirs,
            end=self.end,
        )


def _batches(partition: Partition) -> Iterator[tuple[LogEnd, RecordColumns]]:
    """The batches of the newest snapshot and the log after it, each with the end reached."""
    snapshots = partition.metadata_snapshots
    end = LogEnd(snapshots[-1].epoch, snapshots[-1].end_offset) if snapshots else LogEnd(0, 0)
    if not partition.segments or partition.segments[0].base_offset > end.offset:
        raise _Damaged
    begin = end.offset
    if snapshots:
        name = MetadataSnapshotName(end.offset, end.epoch)
        for columns in _columns_in(partition.path / str(name), 0):
            yield end, columns
    for segment in partition.segments:
        for columns in _columns_in(partition.segment_path(segment, FileKind.LOG), begin):
            batches = columns.batches
            if batches.count:
                epoch = int(batches.partition_leader_epoch[-1])
                end = LogEnd(epoch, int(batches.last_offset[-1]) + 1)
            yield end, columns


def _columns_in(path: Location, first_offset: int) -> Iterator[RecordColumns]:
    selection = Selection(from_offset=first_offset)
    with path.open_file() as source:
        for step in walk_segment(source, with_records=True, selection=selection, follow_bad=True):
            if isinstance(step, RecordColumns):
                if step.problems or not step.batches.is_valid.all():
                    raise _Damaged
                yield step
            elif isinstance(step, MessageSet) or (
                # A torn tail is not damage, unless nothing comes before it.
                isinstance(step, Skipped) and (step.start == 0 or step.end != source.size_bytes)
            ):
                raise _Damaged


def _selected_values(columns: RecordColumns) -> Iterator[bytes]:
    is_control = (columns.batches.attributes & record_batch.CONTROL_FLAG) != 0
    rows: Iterable[int] = (~is_control[columns.batch]).nonzero()[0].tolist()
    for row in rows:
        value = columns.value(row)
        if value and len(value) > 1 and value[0] == _FRAME_VERSION and value[1] in _TYPE_IDS:
            yield value
