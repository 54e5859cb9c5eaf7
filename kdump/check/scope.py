"""What has to be known around a partition to check it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kdump.check.batches import SegmentScope
from kdump.check.findings import Severity
from kdump.formats.errors import FormatError
from kdump.formats.names import PartitionState
from kdump.formats.uuids import format_uuid
from kdump.log.broker import needs_partition_metadata
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.state.cluster import ClusterImage
from kdump.storage.location import Location


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What the cluster's metadata says of a partition's directory.

    Attributes:
        topic_id: of the topic that the directory is named after; None where there is none.
        owner: the topic that has the id in ``partition.metadata``; None where none has it.
        replicas: the nodes to which that topic's partition of this number is assigned; empty
            where it has no such partition, None where that is not known.
        node_id: of the directory's broker; None where that is not known.
    """

    topic_id: str | None
    owner: str | None = None
    replicas: tuple[int, ...] | None = None
    node_id: int | None = None

    @property
    def is_assigned(self) -> bool:
        """Whether the broker has a replica of the partition, as far as is known."""
        if self.replicas is None:
            return True
        return bool(self.replicas) and (self.node_id is None or self.node_id in self.replicas)


@dataclass(frozen=True, slots=True)
class PartitionScope:
    """What has to be known around a partition to check it.

    Attributes:
        partition: as it lies on disk.
        is_clean: whether its log directory was left by a clean stop, and it was part of that.
        log_start_offset: what the checkpoint says of it, 0 where it says nothing.
        recovery_point: what the checkpoint says of it; None where it says nothing.
        is_compacted: whether the cleaner has been over it, as its checkpoint says.
        gap_severity: how bad it is where offsets are missing, unless batches show that the log was
            compacted.
        needs_metadata: whether a broker of this directory wants ``partition.metadata``.
        cluster: what the cluster's metadata says of it; None where that is not known.
        other: another directory that the same partition has; None where there is none.
    """

    partition: Partition
    is_clean: bool = False
    log_start_offset: int = 0
    recovery_point: int | None = None
    is_compacted: bool = False
    gap_severity: Severity = Severity.INFO
    needs_metadata: bool = False
    cluster: ClusterView | None = None
    other: Location | None = None

    def segment_scopes(self) -> Iterator[tuple[Segment, SegmentScope]]:
        """Each segment, and what has to be known to check it."""
        segments = self.partition.segments
        for index, segment in enumerate(segments):
            is_active = index == len(segments) - 1
            yield (
                segment,
                SegmentScope(
                    log=self.partition.segment_path(segment, segment.log_kind),
                    base_offset=segment.base_offset,
                    next_base_offset=None if is_active else segments[index + 1].base_offset,
                    is_active=is_active,
                    is_clean=self.is_clean,
                ),
            )


def scope_in(
    partition: Partition,
    directory: LogDirectory | None,
    cluster: ClusterImage | None = None,
    twice: Mapping[Location, Location] = MappingProxyType({}),
    compaction: bool | None = None,
) -> PartitionScope:
    """What the log directory, and its cluster's metadata, say of one of its partitions.

    Args:
        partition: which.
        directory: where it lies; None where that is not known.
        cluster: what the cluster's metadata says; None where that is not known.
        twice: as :func:`~kdump.log.broker.partitions_twice` gives it.
        compaction: whether its topic is compacted; None where that is not known.
    """
    if directory is None or partition.topic_partition is None:
        return PartitionScope(partition)
    checkpoints = directory.checkpoints
    is_part = partition.state in (PartitionState.LIVE, PartitionState.FUTURE)
    key = partition.topic_partition
    starts = checkpoints.log_start_offsets if is_part else None
    flushed = checkpoints.recovery_points if is_part else None
    cleaned = checkpoints.cleaner_offsets if is_part else None
    # A topic that is not compacted any more may have been.
    is_compacted = cleaned is not None and cleaned.get(key, 0) > 0
    return PartitionScope(
        partition,
        # The Raft layer loads the cluster's metadata as after a crash, always.
        is_clean=directory.is_clean and is_part and not partition.is_cluster_metadata,
        log_start_offset=0 if starts is None else starts.get(key, 0),
        recovery_point=None if flushed is None else flushed.get(key),
        is_compacted=is_compacted,
        gap_severity=_gap_severity(partition, True if is_compacted else compaction),
        needs_metadata=needs_partition_metadata(directory) and is_part,
        # Only what is about this partition: a scope goes to whoever checks it.
        cluster=cluster_view(partition, directory, cluster) if is_part else None,
        other=twice.get(partition.path),
    )


def cluster_view(
    partition: Partition, directory: LogDirectory, cluster: ClusterImage | None
) -> ClusterView | None:
    """What the cluster's metadata says of one of the partitions in ``directory``, if anything."""
    key = partition.topic_partition
    if cluster is None or key is None or partition.is_cluster_metadata:
        return None
    properties = directory.meta_properties
    node_id = None if properties is None else properties.node_id
    named = cluster.topics.get(key.topic)
    named_id = None if named is None else named.topic_id
    topic_id = _topic_id(partition)
    owner = named
    if topic_id is not None and (named is None or named.topic_id != topic_id):
        owner = cluster.topic_of(topic_id)
    if owner is None:
        return ClusterView(named_id, node_id=node_id)
    replicas = None
    if owner.partitions:  # a topic without any is one of which not all is known
        assigned = owner.partitions.get(key.partition)
        replicas = () if assigned is None else assigned.replicas
    return ClusterView(named_id, owner.name, replicas, node_id)


def _topic_id(partition: Partition) -> str | None:
    try:
        metadata = partition.read_metadata()
    except (OSError, FormatError):
        return None  # the check of the file says so
    return None if metadata is None else format_uuid(metadata.topic_id)


def _gap_severity(partition: Partition, compaction: bool | None) -> Severity:
    """How bad missing offsets are: only compaction leaves a log without some of them."""
    if partition.state is not PartitionState.LIVE or partition.is_0_7:
        return Severity.INFO
    if partition.is_cluster_metadata:
        return Severity.ERROR
    if compaction is None:
        return Severity.WARNING
    return Severity.INFO if compaction else Severity.ERROR
