"""The replicas of partitions in several log directories, of one broker or of several."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from kdump.formats import record_batch
from kdump.formats.names import FileKind, PartitionState, TopicPartition
from kdump.log.bounds import checkpointed, find_log_start, read_segment_end
from kdump.log.directory import LogDirectory
from kdump.log.header_seek import HeaderSeekableLog
from kdump.log.headers import batch_spans
from kdump.log.partition import Partition


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica of a partition, identified by the log directory that it is in."""

    log_directory: LogDirectory
    partition: Partition

    @property
    def node_id(self) -> int | None:
        """Of its broker; None if the log directory does not say."""
        properties = self.log_directory.meta_properties
        return None if properties is None else properties.node_id

    @property
    def log_start_offset(self) -> int | None:
        """Where its log begins; None if unknown."""
        offsets = self.log_directory.checkpoints.log_start_offsets
        return find_log_start(self.partition, checkpointed(offsets, self.partition))

    @property
    def high_watermark(self) -> int | None:
        """As checkpointed; None without a line."""
        return checkpointed(self.log_directory.checkpoints.high_watermarks, self.partition)


def replicas_by_partition(
    directories: Iterable[LogDirectory],
) -> dict[TopicPartition, list[Replica]]:
    """Group the live partitions of log directories, in the order of ``directories``.

    Copies that are deleted, stray or on their way to another log directory are left out.
    """
    found = defaultdict[TopicPartition, list[Replica]](list)
    for directory in directories:
        for partition in directory.partitions:
            if partition.topic_partition is not None and partition.state is PartitionState.LIVE:
                found[partition.topic_partition].append(Replica(directory, partition))
    return dict(found)


@dataclass(frozen=True, slots=True, order=True)
class ReplicaEnd:
    """Where a replica's log ends; the greater one wins an election.

    Attributes:
        leader_epoch: of the last batch; -1 if there is none, or if it has none.
        offset: after the last record.
    """

    leader_epoch: int
    offset: int


EMPTY: Final = ReplicaEnd(record_batch.NO_PARTITION_LEADER_EPOCH, 0)
"""The end of a log without a batch."""
_UNREADABLE: Final = ReplicaEnd(-2, 0)


def replica_end(partition: Partition) -> ReplicaEnd:
    """Find where a log ends, by the headers after the last entry of the active segment's index.

    Checksums are not verified, unlike in :func:`~kdump.log.valid_end.valid_end`: few bytes must
    do to choose among the replicas of thousands of partitions. If the active segment is empty, the
    epoch is that of the segment before it. A log of Kafka 0.7 ends with its last file.

    Args:
        partition: as a starting broker loads it.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    offset = None
    if partition.is_0_7:
        end = read_segment_end(partition, partition.segments[-1])
        return ReplicaEnd(record_batch.NO_PARTITION_LEADER_EPOCH, end.end_offset)
    for segment in reversed(partition.segments):
        with partition.segment_path(segment, FileKind.LOG).open_file() as log:
            seekable = HeaderSeekableLog.of_segment(partition, segment, log)
            start = seekable.last_indexed_position() if segment.offset_index_bytes else 0
            last = deque(batch_spans(log, start, segment.base_offset), maxlen=1)
        if last:
            return ReplicaEnd(last[0].leader_epoch, max(last[0].last_offset + 1, offset or 0))
        offset = segment.base_offset if offset is None else offset
    return ReplicaEnd(record_batch.NO_PARTITION_LEADER_EPOCH, offset or 0)


class OfPartition(Protocol):
    """Something that is about one replica."""

    @property
    def partition(self) -> Partition:
        """The replica, as a starting broker loads it."""
        ...


Chosen = TypeVar("Chosen", bound=OfPartition)


def most_advanced(replicas: Sequence[Chosen]) -> Chosen:
    """The replica with the greatest last leader epoch, and among those the longest.

    So a controller would choose among replicas that are not known to be in sync; the first of
    equals wins.

    Args:
        replicas: of one partition, at least one.

    Raises:
        OSError: a log cannot be read.
    """
    if len(replicas) == 1:
        return replicas[0]
    return max(replicas, key=lambda replica: replica_end(replica.partition))


@dataclass(frozen=True, slots=True)
class ChosenReplicas(Generic[Chosen]):
    """One replica of each partition, and the others; both as they were ordered before.

    Attributes:
        chosen: those to read.
        others: those whose records are in the chosen ones, as far as replicas agree.
    """

    chosen: tuple[Chosen, ...]
    others: tuple[Chosen, ...]

    def without_others(self, found: Iterable[Chosen]) -> list[Chosen]:
        """What is left of more than these without the others."""
        left_out = set(map(id, self.others))
        return [each for each in found if id(each) not in left_out]


def choose_replicas(
    replicas: Iterable[Chosen],
    on_failure: Callable[[Chosen, OSError], None],
    *,
    is_one_a_name: bool = False,
) -> ChosenReplicas[Chosen]:
    """Choose the most advanced replica of each partition, so that each record is read once.

    A replica whose end cannot be read is chosen only where there is no other. Topics of one name
    with different ids (one was deleted and created again) are different topics.

    Args:
        replicas: of any partitions.
        on_failure: takes each replica whose end cannot be read, and why.
        is_one_a_name: whether there can be only one topic of a name.
    """
    ordered = list(replicas)
    named = defaultdict[TopicPartition | None, list[Chosen]](list)
    for each in ordered:
        named[each.partition.topic_partition].append(each)
    groups = [
        [group[number] for number in numbers]
        for group in named.values()
        for numbers in ([range(len(group))] if is_one_a_name else _numbers_by_topic(group))
    ]

    def rank(replica: Chosen) -> ReplicaEnd:
        try:
            return replica_end(replica.partition)
        except OSError as failure:
            on_failure(replica, failure)
            return _UNREADABLE

    # No log is read to choose from one.
    best = [group[0] if len(group) == 1 else max(group, key=rank) for group in groups]
    chosen = set(map(id, best))
    return ChosenReplicas(
        tuple(each for each in ordered if id(each) in chosen),
        tuple(each for each in ordered if id(each) not in chosen),
    )


def _numbers_by_topic(replicas: Sequence[OfPartition]) -> list[list[int]]:
    # No file is read to tell one from no other.
    one = len(replicas) == 1
    return by_topic_id([None if one else each.partition.known_topic_id for each in replicas])


def by_topic_id(topic_ids: Sequence[str | None]) -> list[list[int]]:
    """The numbers of the replicas of each topic; one without an id may be of the first."""
    groups: dict[str | None, list[int]] = {}
    known = next((each for each in topic_ids if each is not None), None)
    for number, each in enumerate(topic_ids):
        groups.setdefault(known if each is None else each, []).append(number)
    return list(groups.values())
