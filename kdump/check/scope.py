"""What the check of a partition needs to know about its surroundings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from msgspec import Struct

from kdump.check.batches import SegmentScope, is_small
from kdump.check.findings import Severity
from kdump.formats.kafka_versions import NEWEST, KafkaVersion
from kdump.formats.names import PartitionState
from kdump.formats.offset_index import METADATA_INDEXES_IN_FULL
from kdump.log.broker import needs_partition_metadata
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.state.metadata.cluster import ClusterImage
from kdump.storage.location import Location


class ClusterView(Struct, frozen=True):
    """What the cluster's metadata says about a partition's directory.

    Attributes:
        topic_id: of the topic in the directory's name; None if there is no such topic.
        owner: the topic with the id in ``partition.metadata``; None if no topic has it.
        replicas: the nodes to which this partition of that topic is assigned; empty if the topic
            has no such partition, None if unknown.
        node_id: of the directory's broker; None if unknown.
        directory_id: of the log directory that the broker's replica is assigned to; None if
            unknown.
    """

    topic_id: str | None
    owner: str | None = None
    replicas: tuple[int, ...] | None = None
    node_id: int | None = None
    directory_id: str | None = None

    @property
    def is_assigned(self) -> bool:
        """Whether the broker has a replica of the partition, as far as is known."""
        if self.replicas is None:
            return True
        return bool(self.replicas) and (self.node_id is None or self.node_id in self.replicas)


class ReplacedLog(Struct, frozen=True):
    """A log that a starting broker deletes, because the copy to which it was moved becomes the log.

    Attributes:
        by: the directory of that copy.
        lost: the offsets that only the log has, as people read them; empty if the copy has all.
    """

    by: Location
    lost: str = ""


class PartitionScope(Struct, frozen=True):
    """A partition, and what its check needs to know about its surroundings.

    Attributes:
        is_clean: whether its log directory has a clean shutdown marker that counts for it.
        log_start_offset: from the checkpoint; 0 without a line.
        has_log_start: whether the checkpoint has a line.
        recovery_point: from the checkpoint; None without a line.
        high_watermark: from the checkpoint; None without a line.
        is_compacted: whether the cleaner has cleaned it, by its checkpoint.
        gap_severity: of missing offsets, unless batches show that the log was compacted.
        needs_metadata: whether a broker of this directory needs ``partition.metadata``.
        cluster: what the cluster's metadata says about it; None if unknown.
        other: another directory of the same partition; None if there is none.
        replaced: by what a starting broker replaces it; None if by nothing.
        kafka_version: of the broker that will start.
        chosen: base offsets of the segments to read; None for all.
        is_rest: whether the files that belong to no segment are checked elsewhere.
    """

    partition: Partition
    is_clean: bool = False
    log_start_offset: int = 0
    has_log_start: bool = False
    recovery_point: int | None = None
    high_watermark: int | None = None
    is_compacted: bool = False
    gap_severity: Severity = Severity.INFO
    needs_metadata: bool = False
    cluster: ClusterView | None = None
    other: Location | None = None
    replaced: ReplacedLog | None = None
    kafka_version: KafkaVersion = NEWEST
    chosen: frozenset[int] | None = None
    is_rest: bool = False

    def segment_scopes(self) -> Iterator[tuple[Segment, SegmentScope]]:
        """Each segment, with what its check needs to know."""
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
                    is_padded=is_active
                    and self.partition.is_cluster_metadata
                    and METADATA_INDEXES_IN_FULL.holds_in(self.kafka_version),
                    is_small=is_small(
                        segment.log_bytes, segment.offset_index_bytes, segment.time_index_bytes
                    ),
                    is_left_out=self.chosen is not None and segment.base_offset not in self.chosen,
                ),
            )


def scope_in(
    partition: Partition,
    directory: LogDirectory | None,
    cluster: ClusterImage | None = None,
    twice: Mapping[Location, Location] = MappingProxyType({}),
    compaction: bool | None = None,
    kafka_version: KafkaVersion = NEWEST,
    replaced: Mapping[Location, ReplacedLog] = MappingProxyType({}),
) -> PartitionScope:
    """The scope of a partition, from its log directory and the cluster's metadata.

    Args:
        directory: its log directory; None if unknown.
        cluster: the cluster's metadata; None if unknown.
        twice: the result of :func:`~kdump.log.broker.partitions_twice`.
        compaction: whether its topic is compacted; None if unknown.
        kafka_version: of the broker that will start.
        replaced: the result of :func:`~kdump.jobs.loading.replaced_logs.replaced_logs`.
    """
    if directory is None or partition.topic_partition is None:
        return PartitionScope(partition, kafka_version=kafka_version)
    checkpoints = directory.checkpoints
    is_part = partition.state in (PartitionState.LIVE, PartitionState.FUTURE)
    key = partition.topic_partition
    # Where a copy lies beside its log, the lines are about the log.
    has_lines = partition.state is PartitionState.LIVE or (
        partition.state is PartitionState.FUTURE
        and (key, PartitionState.LIVE) not in directory.identities
    )
    starts = checkpoints.log_start_offsets if has_lines else None
    flushed = checkpoints.recovery_points if has_lines else None
    cleaned = checkpoints.cleaner_offsets if has_lines else None
    replicated = checkpoints.high_watermarks if has_lines else None
    # A topic that is not compacted now may have been before.
    is_compacted = cleaned is not None and cleaned.get(key, 0) > 0
    return PartitionScope(
        partition,
        # The Raft layer always loads the cluster's metadata as after a crash.
        is_clean=directory.is_clean and is_part and not partition.is_cluster_metadata,
        log_start_offset=0 if starts is None else starts.get(key, 0),
        has_log_start=starts is not None and key in starts,
        recovery_point=None if flushed is None else flushed.get(key),
        high_watermark=None if replicated is None else replicated.get(key),
        is_compacted=is_compacted,
        gap_severity=_gap_severity(partition, True if is_compacted else compaction),
        needs_metadata=needs_partition_metadata(directory) and is_part,
        # Only what is about this partition: the scope is sent to a worker.
        cluster=cluster_view(partition, directory, cluster) if is_part else None,
        other=twice.get(partition.path),
        replaced=replaced.get(partition.path),
        kafka_version=kafka_version,
    )


def cluster_view(
    partition: Partition, directory: LogDirectory, cluster: ClusterImage | None
) -> ClusterView | None:
    """What the cluster's metadata says about a partition in ``directory``; None if nothing."""
    key = partition.topic_partition
    if cluster is None or key is None or partition.is_cluster_metadata:
        return None
    node_id = directory.node_id
    named = cluster.topics.get(key.topic)
    named_id = None if named is None else named.topic_id
    topic_id = partition.known_topic_id
    owner = named
    if topic_id is not None and (named is None or named.topic_id != topic_id):
        owner = cluster.topic_of(topic_id)
    if owner is None:
        return ClusterView(named_id, node_id=node_id)
    replicas = directory_id = None
    if owner.partitions:  # a topic without partitions is not known completely
        assigned = owner.partitions.get(key.partition)
        replicas = () if assigned is None else assigned.replicas
        if assigned is not None and node_id is not None:
            directory_id = assigned.directory_on(node_id)
    return ClusterView(named_id, owner.name, replicas, node_id, directory_id)


def becomes_log(
    partition: Partition, directory: LogDirectory, cluster: ClusterImage | None
) -> bool:
    """Whether a starting broker makes a ``-future`` copy the log, as far as is known.

    It does if the metadata assigns the replica to the directory that has the copy
    (``LogManager.recoverAbandonedFutureLogs``).
    """
    view = cluster_view(partition, directory, cluster)
    own_id = directory.directory_id
    if view is None or own_id is None:
        return False
    return view.is_assigned and view.directory_id == own_id


def _gap_severity(partition: Partition, compaction: bool | None) -> Severity:
    """The severity of missing offsets: only compaction removes some from a log."""
    if partition.state is not PartitionState.LIVE or partition.is_0_7:
        return Severity.INFO
    if partition.is_cluster_metadata:
        return Severity.ERROR
    if compaction is None:
        return Severity.WARNING
    return Severity.INFO if compaction else Severity.ERROR
