"""Read ``__remote_log_metadata`` of log directories: which remote segments there should be."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct, field

from kdump.broker.loader.swapped_partition import as_loaded
from kdump.formats.internal_topics import ParsedRecord, parse_remote_log_metadata
from kdump.formats.names import REMOTE_LOG_METADATA_TOPIC, TopicPartition
from kdump.formats.remote_names import TopicIdPartition
from kdump.log.directory import DirectoryKind, directory_kind, read_log_directory
from kdump.log.partition import Partition
from kdump.log.replicas import most_advanced, replicas_by_partition
from kdump.log.valid_records import valid_records
from kdump.log.valid_windows import Damage
from kdump.phases import phase
from kdump.scan.control_batches import is_control
from kdump.scan.records import RecordColumns
from kdump.state.remote_segments import RemoteSegment, RemoteSegments, SegmentState
from kdump.storage.location import Location

_SEGMENT: Final = "REMOTE_LOG_SEGMENT_METADATA_RECORD"
_UPDATE: Final = "REMOTE_LOG_SEGMENT_METADATA_UPDATE_RECORD"
_DELETION: Final = "REMOTE_PARTITION_DELETE_METADATA_RECORD"
_DELETION_FINISHED: Final = 2


class RecordProblem(Struct, frozen=True):
    """A record that is not one of remote log metadata."""

    path: str
    offset: int
    problem: str


class RemoteMetadata(Struct):
    """What the records of remote log metadata add up to.

    Attributes:
        partitions: the segments of each partition that there are records of.
        deleted: partitions whose deletion was begun, by the state of it.
        numbers: which partitions of the topic were read.
        damage: what of them cannot be read.
        problems: records that cannot be decoded.
    """

    partitions: dict[TopicIdPartition, RemoteSegments] = field(default_factory=dict)
    deleted: dict[TopicIdPartition, int] = field(default_factory=dict)
    numbers: set[int] = field(default_factory=set)
    damage: list[Damage] = field(default_factory=list)
    problems: list[RecordProblem] = field(default_factory=list)

    def is_whole(self, partitions: int | None) -> bool:
        """Whether all records of the topic are known, if it has so many partitions."""
        is_read = partitions is not None and self.numbers.issuperset(range(partitions))
        return is_read and not self.damage and not self.problems

    def add(self, record: ParsedRecord, path: str, offset: int) -> None:
        """Take the next record of a partition of the topic."""
        value = record.value
        if record.error is not None or value is None:
            self.problems.append(RecordProblem(path, offset, record.error or "it has no value"))
        elif record.type_name == _SEGMENT:
            owner = _partition_of(value["remoteLogSegmentId"]["topicIdPartition"])
            self._segments(owner).add(RemoteSegment.of_record(value))
        elif record.type_name == _UPDATE:
            owner = _partition_of(value["remoteLogSegmentId"]["topicIdPartition"])
            self._segments(owner).update(
                value["remoteLogSegmentId"]["id"],
                SegmentState(value["remoteLogSegmentState"]),
                value["brokerId"],
            )
        elif record.type_name == _DELETION:
            owner = _partition_of(value["topicIdPartition"])
            self.deleted[owner] = value["remotePartitionDeleteState"]
            if self.deleted[owner] == _DELETION_FINISHED:
                self.partitions[owner] = RemoteSegments()

    def _segments(self, owner: TopicIdPartition) -> RemoteSegments:
        return self.partitions.setdefault(owner, RemoteSegments())


def _partition_of(entry: dict[str, object]) -> TopicIdPartition:
    name, partition, topic_id = entry["name"], entry["partition"], entry["id"]
    assert isinstance(name, str)
    assert isinstance(partition, int)
    assert isinstance(topic_id, str)
    return TopicIdPartition(TopicPartition(name, partition), topic_id)


def read_remote_metadata(log_dirs: Iterable[Location]) -> RemoteMetadata:
    """Read the most advanced replica of each partition of the topic.

    Raises:
        KdumpError: an interrupted swap of a replica cannot be finished.
        OSError: a directory or a log cannot be read.
    """
    found = RemoteMetadata()
    with phase(f"reading {REMOTE_LOG_METADATA_TOPIC}"):
        for partition in _replicas(list(log_dirs)):
            found.numbers.add(partition.key.partition)
            _read(partition, found)
    return found


def _replicas(log_dirs: Sequence[Location]) -> list[Partition]:
    def is_of_topic(_name: str, key: TopicPartition) -> bool:
        return key.topic == REMOTE_LOG_METADATA_TOPIC

    listed = []
    for path in log_dirs:
        with contextlib.suppress(FileNotFoundError):
            if directory_kind(path).is_log_directory:
                listed.append(
                    read_log_directory(path, DirectoryKind.LOG_DIRECTORY, select=is_of_topic)
                )
    return [
        as_loaded(most_advanced(replicas).partition)
        for replicas in replicas_by_partition(listed).values()
    ]


def _read(partition: Partition, found: RemoteMetadata) -> None:
    on_damage: Callable[[Damage], None] = found.damage.append
    for columns in valid_records(partition, on_damage):
        if not isinstance(columns, RecordColumns):
            continue  # The topic is younger than message sets.
        for row in (~is_control(columns.batches)[columns.batch]).nonzero()[0].tolist():
            offset = int(columns.offset[row])
            record = parse_remote_log_metadata(None, columns.value(row), offset)
            found.add(record, str(partition.path), offset)
