"""Which replica should lead each partition that has no leader.

``kafka-leader-election.sh`` takes no choice: an unclean election elects the first replica of the
assignment whose broker runs, unless one in sync does (``PartitionChangeBuilder.electAnyLeader``).
So the brokers to elect are started alone, one after the other, and each has its own partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from kdump.formats.names import TopicPartition
from kdump.jobs.diff.results import Compared, NotCompared, PartitionDiff, ReplicaResult
from kdump.jobs.diff.sides import Side
from kdump.log.selection import PartitionSelection
from kdump.state.metadata.cluster import ClusterImage


class PossibleLeader(Struct, frozen=True):
    """A replica that could lead.

    Attributes:
        node_id: its broker.
        lost_records: how many records are lost if it leads, those that a start drops included.
        is_damaged: whether its log has damage, or a start drops some of it.
        refusal: why no broker loads it; None if one does.
        standing: the leader epoch of its last batch, and its end.
    """

    node_id: int
    lost_records: int
    is_damaged: bool
    refusal: str | None
    standing: tuple[int, int]


class Election(Struct, frozen=True):
    """A partition without a leader, and who could lead it.

    Attributes:
        candidates: the assigned replicas that were read, the one to elect first.
        problem: why none can be elected; None if one can.
        missing: the brokers whose replicas were not read, and may have more records.
    """

    key: TopicPartition
    candidates: tuple[PossibleLeader, ...]
    problem: str | None = None
    missing: tuple[int, ...] = ()

    @property
    def elected(self) -> PossibleLeader | None:
        """The replica that loses least."""
        return None if self.problem else self.candidates[0]


def leaderless(image: ClusterImage, selection: PartitionSelection) -> list[TopicPartition]:
    """The selected partitions without a leader, by topic and number; internal topics first."""
    found = [key for key, partition in image.assignments if partition.is_leaderless]
    selected = (key for key in found if selection.matches(str(key), key))
    return sorted(selected, key=lambda key: (not key.topic.startswith("__"), key))


def elections(
    image: ClusterImage,
    keys: Iterable[TopicPartition],
    results: Iterable[Compared],
    sides: Sequence[Side],
) -> list[Election]:
    """Choose the leader of each partition, by what was found about its replicas."""
    by_key = {each.key: each for each in results}
    return [_election(image, key, by_key.get(key), sides) for key in keys]


def _election(
    image: ClusterImage,
    key: TopicPartition,
    found: Compared | None,
    sides: Sequence[Side],
) -> Election:
    if isinstance(found, NotCompared):
        return Election(key, (), f"{found.path}: {found.what}")
    topic = image.topics[key.topic]
    assigned = topic.partitions[key.partition].replicas
    replicas = found.replicas if isinstance(found, PartitionDiff) else ()
    candidates = [
        _candidate(node_id, each)
        for each in replicas
        for node_id in assigned
        if sides[each.side].node_id == node_id and each.topic_id in (None, topic.topic_id)
    ]
    candidates.sort(
        key=lambda each: (
            each.refusal is not None,
            each.lost_records,
            each.is_damaged,
            [-number for number in each.standing],
        )
    )
    problem = None
    if not candidates:
        problem = f"none of its replicas is here: name the disks of {brokers(assigned)}"
    elif candidates[0].refusal is not None:
        problem = f"no broker loads its replicas: {candidates[0].refusal}"
    here = {each.node_id for each in candidates}
    missing = tuple(node_id for node_id in assigned if node_id not in here)
    return Election(key, tuple(candidates), problem, missing)


def _candidate(node_id: int, replica: ReplicaResult) -> PossibleLeader:
    loaded = replica.loaded
    standing = (-1, -1) if loaded is None else (loaded.latest_epoch, loaded.log_end_offset)
    is_damaged = replica.is_damaged or replica.damage_count > 0
    return PossibleLeader(node_id, replica.lost_if_leading, is_damaged, replica.refusal, standing)


def brokers(node_ids: Sequence[int]) -> str:
    """Name brokers, with "or" between them."""
    return "broker " + " or ".join(map(str, node_ids))


def by_broker(found: Iterable[Election]) -> Mapping[int, list[TopicPartition]]:
    """The partitions to elect, by the broker that should lead them."""
    keys: dict[int, list[TopicPartition]] = {}
    for each in found:
        if (elected := each.elected) is not None:
            keys.setdefault(elected.node_id, []).append(each.key)
    return dict(sorted(keys.items()))
