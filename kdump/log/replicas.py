"""The replicas of partitions in several log directories, of one broker or of several."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Struct

from kdump.formats.names import CLUSTER_METADATA_TOPIC, PartitionState, TopicPartition
from kdump.log.bounds import Extent, read_extent
from kdump.log.directory import LogDirectory
from kdump.log.living import while_it_changes
from kdump.log.log_search import EMPTY, ReplicaEnd, Trust, checkpointed, find_log_start, log_end
from kdump.log.partition import Partition
from kdump.words import counted


class Replica(Struct, frozen=True):
    """A replica of a partition, identified by the log directory that it is in."""

    log_directory: LogDirectory
    partition: Partition

    @property
    def node_id(self) -> int | None:
        """Of its broker; None if the log directory does not say."""
        return self.log_directory.node_id

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


def left_in_copies(
    partitions: Iterable[Partition], read: Collection[TopicPartition], done: str
) -> str | None:
    """Say that only ``-stray`` and ``-future`` directories have some partitions; None if not so.

    Args:
        partitions: of log directories, in any state.
        read: the partitions that are read all the same.
        done: what the command does with records, as in "searched".
    """
    found: dict[TopicPartition, Partition] = {}
    for each in partitions:
        key = each.topic_partition
        is_copy = each.state in (PartitionState.STRAY, PartitionState.FUTURE)
        if is_copy and key is not None and key not in read and key.topic != CLUSTER_METADATA_TOPIC:
            found.setdefault(key, each)
    if not found:
        return None
    first = min(str(each.path) for each in found.values())
    return (
        f"not {done}: {counted(len(found), 'partition')} that only -stray or -future directories"
        f" have (first: {first})"
    )


_UNREADABLE: Final = ReplicaEnd(-2, 0)
_UNKNOWN_EXTENT: Final = Extent(-sys.maxsize, 0)


class OfPartition(Protocol):
    """Something that is about one replica."""

    @property
    def partition(self) -> Partition:
        """The replica, as a starting broker loads it."""
        ...


Chosen = TypeVar("Chosen", bound=OfPartition)


class RankedReplica(Struct, Generic[Chosen], frozen=True):
    """A replica, and what counts when one of several is chosen.

    Attributes:
        is_kept: whether its broker keeps it, as far as is known: it renames one without a topic
            id, or with another one than the metadata has, to ``-stray``.
        end: None if it cannot be read.
        failure: why.
    """

    replica: Chosen
    is_kept: bool
    end: ReplicaEnd | None
    failure: OSError | None = None

    @property
    def rank(self) -> tuple[bool, ReplicaEnd]:
        """The greater one is the more advanced."""
        return self.is_kept, self.end or _UNREADABLE


def rank_replicas(
    replicas: Iterable[Chosen], trust: Trust = Trust.HEADERS, topic_id: str | None = None
) -> list[RankedReplica[Chosen]]:
    """Order replicas of one partition, the most advanced first, and find where they end.

    That is the one with the greatest last leader epoch, and among those the longest. So a
    controller would choose among replicas that are not known to be in sync. Of those that end
    alike, the first has most of the log, as far as few reads tell: it lacks the fewest offsets
    between its segments, then it has the most bytes of batches; another one may have lost a
    segment, or batches that were damaged. One that its broker does not keep comes after those that
    it keeps, and one that cannot be read is the last.

    Args:
        replicas: at least one.
        trust: what counts as the end of a log.
        topic_id: as the cluster's metadata has it; None if it is not known.
    """
    found = [_ranked(each, trust, topic_id) for each in replicas]
    best = max(each.rank for each in found)
    first = _most_whole([each.replica for each in found if each.rank == best])
    return sorted(found, key=lambda each: (each.rank, each.replica is first), reverse=True)


def _ranked(replica: Chosen, trust: Trust, topic_id: str | None) -> RankedReplica[Chosen]:
    partition = replica.partition
    own_id = partition.known_topic_id
    has_id = own_id is not None and topic_id in (None, own_id)
    is_kept = partition.is_cluster_metadata or has_id
    try:
        end = while_it_changes(partition, lambda listed: log_end(listed, trust), gone=EMPTY)
        return RankedReplica(replica, is_kept, end)
    except OSError as failure:
        return RankedReplica(replica, False, None, failure)


def most_advanced(
    replicas: Sequence[Chosen],
    on_failure: Callable[[Chosen, OSError], None] | None = None,
) -> Chosen:
    """The first of replicas as :func:`rank_replicas` orders them; of a single one nothing is read.

    Args:
        replicas: of one partition, at least one.
        on_failure: takes each replica whose end cannot be read, and why.

    Raises:
        OSError: a log cannot be read, and nothing takes the failure.
    """
    if len(replicas) == 1:
        return replicas[0]
    ranked = rank_replicas(replicas)
    for each in ranked:
        if each.failure is not None:
            if on_failure is None:
                raise each.failure
            on_failure(each.replica, each.failure)
    return ranked[0].replica


def _most_whole(replicas: Sequence[Chosen]) -> Chosen:
    """Of replicas that end alike, the one with most of the log; the first of equals.

    Of logs that begin alike and have one size, no file is read.
    """
    return replicas[0] if _is_one_size(replicas) else max(replicas, key=_extent)


def _is_one_size(replicas: Iterable[OfPartition]) -> bool:
    """Whether logs begin alike and have as many bytes, as those of followers usually have."""
    logs = [each.partition for each in replicas]
    found = {(log.log_bytes, *(first.base_offset for first in log.segments[:1])) for log in logs}
    return len(found) == 1


def _extent(replica: OfPartition) -> Extent:
    """How much of its log is there; less than of any other if it cannot be read."""
    try:
        return read_extent(replica.partition)
    except OSError:
        return _UNKNOWN_EXTENT


class ChosenReplicas(Struct, Generic[Chosen], frozen=True):
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
    replicas: Iterable[Chosen], on_failure: Callable[[Chosen, OSError], None]
) -> ChosenReplicas[Chosen]:
    """Choose the most advanced replica of each partition, so that each record is read once.

    As :func:`most_advanced` does. Topics of one name with different ids (one was deleted and
    created again) are different topics.

    Args:
        replicas: of any partitions.
        on_failure: takes each replica whose end cannot be read, and why.
    """
    ordered = list(replicas)
    named = defaultdict[TopicPartition | None, list[Chosen]](list)
    for each in ordered:
        named[each.partition.topic_partition].append(each)
    best: list[Chosen] = []
    for group in named.values():
        best += [most_advanced(of_topic, on_failure) for of_topic in of_each_topic(group)]
    chosen = set(map(id, best))
    return ChosenReplicas(
        tuple(each for each in ordered if id(each) in chosen),
        tuple(each for each in ordered if id(each) not in chosen),
    )


def of_each_topic(replicas: Sequence[Chosen]) -> list[list[Chosen]]:
    """Divide replicas of one partition by topic id; of a single one no file is read."""
    if len(replicas) == 1:
        return [list(replicas)]
    topic_ids = [each.partition.known_topic_id for each in replicas]
    return [[replicas[number] for number in numbers] for numbers in by_topic_id(topic_ids)]


def of_one_topic(
    replicas: Iterable[Chosen], find_topic_ids: Callable[[], Mapping[str, str]]
) -> tuple[list[Chosen], list[Chosen]]:
    """Divide replicas into those of one topic of each name, and those of other topics.

    For what is addressed by the name of a topic. Of topics with one name and different ids, the
    one that the cluster's metadata has counts; if it says nothing of them, the one with the most
    replicas: that of a deleted topic is left on a disk that was away.

    Args:
        replicas: of any partitions.
        find_topic_ids: finds the ids of topics by name, as the metadata has them; called once, and
            only if ids differ.
    """
    ordered = list(replicas)
    by_topic = defaultdict[str, list[Chosen]](list)
    for each in ordered:
        if (key := each.partition.topic_partition) is not None:
            by_topic[key.topic].append(each)
    others = set[int]()
    known: Mapping[str, str] | None = None
    for topic, group in by_topic.items():
        # Those in one log directory are of one topic: no file is read.
        if len({each.partition.path.parent for each in group}) == 1:
            continue
        topic_ids = [each.partition.known_topic_id for each in group]
        found = Counter(each for each in topic_ids if each is not None)
        if len(found) > 1:
            known = find_topic_ids() if known is None else known
            current = known.get(topic)
            if current not in found:
                ((current, _),) = found.most_common(1)
            others |= {
                id(each)
                for each, topic_id in zip(group, topic_ids, strict=True)
                if topic_id not in (None, current)
            }
    return (
        [each for each in ordered if id(each) not in others],
        [each for each in ordered if id(each) in others],
    )


def by_topic_id(topic_ids: Sequence[str | None]) -> list[list[int]]:
    """The numbers of the replicas of each topic; one without an id may be of the first."""
    groups: dict[str | None, list[int]] = {}
    known = next((each for each in topic_ids if each is not None), None)
    for number, each in enumerate(topic_ids):
        groups.setdefault(known if each is None else each, []).append(number)
    return list(groups.values())
