"""Hold a plan that people may have edited against what the disks had when it was made."""

from __future__ import annotations

from collections.abc import Mapping

from kdump.errors import ExitStatus, KdumpError, UsageProblem
from kdump.repair.cluster.evidence import NOTHING
from kdump.state.metadata.cluster_plan import (
    ClusterPlan,
    PlannedTopic,
    PlannedTopicPartition,
    SeenPartition,
)
from kdump.state.metadata.metadata_entities import NO_LEADER


class UnacceptedLossError(KdumpError):
    """The plan loses something, and nobody has accepted that."""

    exit_status = ExitStatus.DAMAGE_LEFT


def require_fits_disks(plan: ClusterPlan) -> None:
    """Refuse what an edit made wrong: the notices of the plan do not name what it loses.

    A topic that is not in the plan any more was dropped knowingly.

    Raises:
        UsageProblem: brokers would keep what they have, followers would never get in sync, or
            producer ids would be given out again.
        UnacceptedLossError: records of a disk would be lost.
    """
    _require_above(plan)
    topics = {
        each.name: (each, {partition.partition: partition for partition in each.partitions})
        for each in plan.topics
    }
    for seen in plan.seen.partitions:
        if seen.topic in topics:
            _require_fits(seen, *topics[seen.topic])


def _require_above(plan: ClusterPlan) -> None:
    """Refuse numbers that an edit made lower than those on the disks.

    Raises:
        UsageProblem: brokers would keep what they have, or give out producer ids again.
    """
    seen = plan.seen
    if seen.cluster_id not in (None, plan.cluster_id):
        raise UsageProblem(
            f"the plan is of the cluster {plan.cluster_id}, and the collected disks are of"
            f" {seen.cluster_id}"
        )
    for name, value, highest in (
        ("snapshot_offset", plan.snapshot_offset, seen.highest_offset),
        ("snapshot_epoch", plan.snapshot_epoch, seen.highest_epoch),
        ("next_producer_id", plan.next_producer_id, seen.highest_producer_id),
    ):
        if value <= highest:
            raise UsageProblem(
                f"the plan has {name} {value}, and the collected disks have {highest}: name a"
                " greater one"
            )


def _require_fits(
    seen: SeenPartition, topic: PlannedTopic, partitions: Mapping[int, PlannedTopicPartition]
) -> None:
    path = f"topic.{seen.topic}"
    name = f"{seen.topic}-{seen.partition}"
    if topic.topic_id != seen.topic_id:
        if seen.replicas:
            raise UnacceptedLossError(
                f"{name}: the plan has the topic id {topic.topic_id}, and was made with"
                f" {seen.topic_id}; make it again with --set {path}.id={topic.topic_id}, to see"
                " what becomes -stray"
            )
        return
    partition = partitions.get(seen.partition)
    if partition is None:
        if seen.replicas:
            raise UnacceptedLossError(
                f"{name}: the plan has only {len(partitions)} of the topic's partitions, and a disk"
                f" has this one; make it again with --set {path}.partitions={len(partitions)}"
            )
        return
    if partition.leader_epoch <= seen.highest_leader_epoch:
        raise UsageProblem(
            f"{name}: the plan has leader_epoch {partition.leader_epoch}, and the collected disks"
            f" have {seen.highest_leader_epoch}: name a greater one"
        )
    _require_leaders(seen, partition)


def _require_leaders(seen: SeenPartition, partition: PlannedTopicPartition) -> None:
    """Refuse a replica that may lead by an edit and is behind another: that one truncates."""
    ends = {each.node_id: each.end for each in seen.replicas}
    best = max(seen.replicas, key=lambda each: each.end, default=None)
    if best is None:
        return
    # Without a leader the controller elects one of these.
    electable = partition.isr or partition.elr or partition.last_known_elr
    for node in (partition.leader, *electable):
        # The notices say what others lose with the leaders that were planned.
        if node in (*seen.isr, NO_LEADER) or ends.get(node, NOTHING) >= best.end:
            continue
        raise UnacceptedLossError(
            f"{seen.topic}-{seen.partition}: by an edit of the plan node {node} may lead, and node"
            f" {best.node_id}, which has more (epoch {best.leader_epoch}, end"
            f" {best.log_end_offset}), would truncate to it; make the plan again with --set"
            f" topic.{seen.topic}.partition.{seen.partition}.leader={node}"
        )
