"""What has to be known around a partition to check it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from kdump.check.batches import SegmentScope
from kdump.formats.names import PartitionState
from kdump.log.broker import needs_partition_metadata
from kdump.log.cluster import ClusterImage
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.log.segment import Segment


@dataclass(frozen=True, slots=True)
class PartitionScope:
    """What has to be known around a partition to check it.

    Attributes:
        partition: as it lies on disk.
        is_clean: whether its log directory was left by a clean stop, and it was part of that.
        log_start_offset: what the checkpoint says of it, 0 where it says nothing.
        recovery_point: what the checkpoint says of it; None where it says nothing.
        is_compacted: whether the cleaner has been over it, as its checkpoint says.
        needs_metadata: whether a broker of this directory wants ``partition.metadata``.
        topic_ids: the id of its topic by name, as the cluster's metadata has it; nothing where
            there is no such topic, None where that is not known.
        other: another directory that the same partition has; None where there is none.
    """

    partition: Partition
    is_clean: bool = False
    log_start_offset: int = 0
    recovery_point: int | None = None
    is_compacted: bool = False
    needs_metadata: bool = False
    topic_ids: Mapping[str, str] | None = None
    other: Path | None = None

    def segment_scopes(self) -> Iterator[tuple[Segment, SegmentScope]]:
        """Each segment, and what has to be known to check it."""
        segments = self.partition.segments
        for index, segment in enumerate(segments):
            is_active = index == len(segments) - 1
            yield (
                segment,
                SegmentScope(
                    path=str(self.partition.segment_path(segment, segment.log_kind)),
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
    twice: Mapping[Path, Path] = MappingProxyType({}),
) -> PartitionScope:
    """What the log directory, and its cluster's metadata, say of one of its partitions.

    Args:
        partition: which.
        directory: where it lies; None where that is not known.
        cluster: what the cluster's metadata says; None where that is not known.
        twice: as :func:`~kdump.log.broker.partitions_twice` gives it.
    """
    if directory is None or partition.topic_partition is None:
        return PartitionScope(partition)
    checkpoints = directory.checkpoints
    is_part = partition.state in (PartitionState.LIVE, PartitionState.FUTURE)
    key = partition.topic_partition
    starts = checkpoints.log_start_offsets if is_part else None
    flushed = checkpoints.recovery_points if is_part else None
    cleaned = checkpoints.cleaner_offsets if is_part else None
    return PartitionScope(
        partition,
        # The Raft layer loads the cluster's metadata as after a crash, always.
        is_clean=directory.is_clean and is_part and not partition.is_cluster_metadata,
        log_start_offset=0 if starts is None else starts.get(key, 0),
        recovery_point=None if flushed is None else flushed.get(key),
        is_compacted=cleaned is not None and cleaned.get(key, 0) > 0,
        needs_metadata=needs_partition_metadata(directory) and is_part,
        # Only what is about this topic: a scope goes to whoever checks the partition.
        topic_ids=None if cluster is None else _topic_id(key.topic, cluster),
        other=twice.get(partition.path),
    )


def _topic_id(topic: str, cluster: ClusterImage) -> dict[str, str]:
    known = cluster.topics.get(topic)
    return {} if known is None else {topic: known.topic_id}
