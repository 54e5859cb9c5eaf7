"""Each thing that was seen to go wrong when controllers are replaced is answered by the plan."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

import pytest
from msgspec.structs import replace

from builders.dead_clusters import (
    CLUSTER,
    CONTROLLER,
    CREATED_MS,
    acl,
    an_id,
    broker,
    claim,
    codes,
    collected,
    config,
    copy,
    disk,
    partition_of,
    plan_of,
    record,
    refusing,
    removed,
    replica,
    topic_records,
)
from kdump.errors import UsageProblem
from kdump.formats.dynamic_voter import DynamicVoter, parse_dynamic_voter
from kdump.formats.json_document import DocumentError
from kdump.formats.names import PartitionState
from kdump.repair.cluster.cluster_rules import PlanRequest, plan_cluster
from kdump.repair.rebuild.controller_snapshot import MARGIN_OFFSETS
from kdump.state.metadata.cluster_plan import ClusterPlan, SourceKind
from kdump.state.metadata.cluster_plan_json import decode_plan, encode_plan
from kdump.state.metadata.disk_collection import (
    ClaimedPartition,
    CollectedDirectory,
    CollectedLoad,
    CollectedMetadata,
    CollectedPartition,
    CollectedRecord,
    CollectedVoter,
    LaterPartition,
    RewoundMetadata,
)
from kdump.state.metadata.metadata_entities import MIGRATING_DIRECTORY

DEFAULTS = {"cleanup.policy": "delete", "retention.bytes": "-1", "retention.ms": "-1"}


def configs(plan: ClusterPlan, topic: str) -> dict[str, str]:
    (found,) = (each for each in plan.topics if each.name == topic)
    return {each.name: each.value for each in found.configs}


def named(plan: ClusterPlan, code: str) -> list[str]:
    return [each.what for each in plan.notices if each.code == code]


# --- topics


def test_topics_keep_the_ids_of_the_freshest_copy() -> None:
    old = copy(*topic_records("orders", [(1, 2)]), end=400)
    new = copy(*topic_records("orders", [(1, 2), (2, 1)]), end=500)
    plan = plan_of(
        disk(1, replica("orders"), replica("orders", 1), metadata=old),
        disk(2, replica("orders"), replica("orders", 1), metadata=new),
    )
    (topic,) = plan.topics
    assert (topic.topic_id, len(topic.partitions)) == (an_id("orders"), 2)
    assert str(topic.source) == "copy: node 2 /data/2"


def test_a_greater_epoch_beats_a_longer_log() -> None:
    longer = copy(*topic_records("orders"), end=900, epoch=3)
    later = copy(*topic_records("orders"), acl("orders"), end=500, epoch=4)
    plan = plan_of(disk(1, metadata=longer), disk(2, metadata=later))
    assert len(plan.acls) == 1


def test_a_topic_that_no_copy_knows_is_younger_and_kept() -> None:
    plan = plan_of(disk(1, replica("new"), metadata=copy()))
    (topic,) = plan.topics
    assert str(topic.source) == "disk: node 1 /data/1"
    assert "younger-than-copy" in codes(plan)
    assert not refusing(plan)


@pytest.mark.parametrize("committed", [None, True])
def test_a_topic_that_the_copy_deletes_and_a_disk_has_is_asked_for(committed: bool | None) -> None:
    metadata = copy(removed_topics=(removed("gone", committed=committed),))
    disks = (disk(1, replica("gone"), metadata=metadata),)
    plan = plan_of(*disks)
    assert refusing(plan) == [("deleted-topic", "gone")]
    assert not plan.topics
    kept = plan_of(*disks, settings=[("topic.gone", "keep")])
    assert [each.name for each in kept.topics] == ["gone"]
    assert not refusing(kept)
    assert plan_of(*disks, settings=[("deleted", "keep")]).topics == kept.topics


def test_a_topic_that_was_created_after_the_moment_is_left_out() -> None:
    metadata = copy(
        *topic_records("orders", [(1,)]), rewound=RewoundMetadata(7, (an_id("late"), an_id("none")))
    )
    disks = (disk(1, replica("orders"), replica("late"), metadata=metadata),)
    plan = plan_of(*disks)
    assert [each.name for each in plan.topics] == ["orders"]
    assert ("later-topic", "late") in [(each.code, each.topic) for each in plan.notices]
    assert "rewound" in codes(plan)
    assert not refusing(plan)
    kept = plan_of(*disks, settings=[("topic.late", "keep")])
    assert [each.name for each in kept.topics] == ["late", "orders"]


def test_a_topic_that_was_created_again_after_the_moment_has_its_former_id() -> None:
    metadata = copy(*topic_records("orders", [(1,)]), rewound=RewoundMetadata(7, (an_id("other"),)))
    plan = plan_of(disk(1, replica("orders", topic_id=an_id("other")), metadata=metadata))
    assert plan.topics[0].topic_id == an_id("orders")
    assert refusing(plan) == [("two-ids", "orders")]


@pytest.mark.parametrize("moment_ms", [CREATED_MS, CREATED_MS + 1])
def test_a_topic_that_no_copy_knows_is_later_if_the_copy_goes_on_after_the_moment(
    moment_ms: int,
) -> None:
    metadata = copy(*topic_records("orders", [(1,)]), rewound=RewoundMetadata(moment_ms, ()))
    plan = plan_of(disk(1, replica("orders"), replica("new"), metadata=metadata))
    is_later = moment_ms == CREATED_MS
    assert ("new" in {each.name for each in plan.topics}) is not is_later
    assert ("later-topic" in codes(plan)) is is_later
    assert not refusing(plan)


@pytest.mark.parametrize("nodes", [(1, 2), (1,)])
def test_a_partition_that_was_added_after_the_moment_starts_empty(nodes: tuple[int, ...]) -> None:
    """Nothing of it counts, unless a disk may have it that was not collected."""
    rewound = RewoundMetadata(
        CREATED_MS, (), later_partitions=(LaterPartition(an_id("orders"), 1),)
    )
    records = topic_records("orders", [(1, 2), (2, 1), (2, 1)])
    metadata = copy(*records, broker(1), broker(2), rewound=rewound)
    plan = plan_of(*(disk(node, replica("orders"), metadata=metadata) for node in nodes))
    is_whole = len(nodes) > 1
    leaders = [partition_of(plan, "orders", number).leader for number in range(3)]
    assert leaders == [1, 2 if is_whole else -1, -1]
    assert ("later-partition" in codes(plan)) is is_whole
    assert {each.partition for each in plan.notices if each.code == "no-data"} == (
        {2} if is_whole else {1, 2}
    )


LATE: Final = RewoundMetadata(CREATED_MS, (), "the snapshot is newer")


def test_a_copy_that_does_not_reach_back_to_the_moment_does_not_count() -> None:
    """It is the most advanced one; its numbers count, and its directories."""
    late = copy(
        *topic_records("later", [(1,)]),
        record("PRODUCER_IDS_RECORD", brokerId=1, brokerEpoch=1, nextProducerId=7000),
        end=600,
        rewound=LATE,
        voters=(CollectedVoter(1, None),),
    )
    other = copy(*topic_records("orders", [(1, 2)]), rewound=RewoundMetadata(CREATED_MS, ()))
    plan = plan_of(
        disk(1, replica("orders"), replica("later"), metadata=late),
        disk(2, replica("orders"), metadata=other),
    )
    assert [each.name for each in plan.topics] == ["orders"]
    assert named(plan, "late-copy") == ["node 1 /data/1: the snapshot is newer"]
    assert ("later-topic", "later") in [(each.code, each.topic) for each in plan.notices]
    assert plan.snapshot_offset > 600
    assert plan.next_producer_id > 7000
    assert [each.node_id for each in plan.move_aside] == [1]
    assert not refusing(plan)


@pytest.mark.parametrize("end", [500, 501])
def test_a_late_copy_that_alone_has_what_was_before_the_moment_is_asked_for(end: int) -> None:
    """The other copy ends before the moment."""
    late = copy(end=end, rewound=LATE)
    other = copy(timestamp_ms=CREATED_MS - 1, rewound=RewoundMetadata(CREATED_MS, ()))
    plan = plan_of(disk(1, metadata=late), disk(2, metadata=other))
    assert refusing(plan) == ([("damaged-copy", None)] if end > 500 else [])


def test_without_a_copy_that_reaches_back_there_is_no_plan() -> None:
    with pytest.raises(UsageProblem, match=r"no copy .*node 1 /data/1: the snapshot is newer"):
        plan_of(disk(1, replica("orders"), metadata=copy(rewound=LATE)))


@pytest.mark.parametrize("other", [None, RewoundMetadata(8, ())])
def test_copies_of_different_moments_are_not_planned_together(
    other: RewoundMetadata | None,
) -> None:
    with pytest.raises(UsageProblem, match="collect all of them with the same --to"):
        plan_of(
            disk(1, metadata=copy(rewound=RewoundMetadata(7, ()))),
            disk(2, metadata=copy(rewound=other)),
        )


def test_a_topic_that_only_an_older_copy_knows_is_asked_for() -> None:
    old = copy(*topic_records("gone", [(1,)]), end=400)
    plan = plan_of(disk(1, replica("gone"), metadata=old), disk(2, metadata=copy()))
    assert refusing(plan) == [("deleted-topic", "gone")]


def test_a_topic_recreated_after_the_copy_is_asked_for() -> None:
    metadata = copy(*topic_records("orders", [(1,)]))
    plan = plan_of(disk(1, replica("orders", topic_id=an_id("other")), metadata=metadata))
    assert plan.topics[0].topic_id == an_id("other")
    assert refusing(plan) == [("recreated-topic", "orders")]


def test_of_two_ids_that_of_the_copy_wins_and_the_other_is_a_loss() -> None:
    metadata = copy(*topic_records("orders", [(1, 2)]))
    disks = (
        disk(1, replica("orders"), metadata=metadata),
        disk(2, replica("orders", topic_id=an_id("other"))),
    )
    plan = plan_of(*disks)
    assert plan.topics[0].topic_id == an_id("orders")
    assert refusing(plan) == [("two-ids", "orders")]
    other = plan_of(*disks, settings=[("topic.orders.id", an_id("other"))])
    assert other.topics[0].topic_id == an_id("other")


def test_directories_without_an_id_belong_to_the_topic_and_are_named() -> None:
    plan = plan_of(disk(1, replica("orders")), disk(2, replica("orders", 1, topic_id=None)))
    assert partition_of(plan, "orders", 1).leader == 2
    assert "no-partition-metadata" in codes(plan)


def test_a_topic_without_any_id_is_asked_for() -> None:
    disks = (disk(1, replica("orders", topic_id=None)),)
    assert refusing(plan_of(*disks)) == [("topic-without-id", "orders")]
    said = plan_of(*disks, settings=[("topic.orders.id", an_id("orders"))])
    assert said.topics[0].topic_id == an_id("orders")


def test_stray_topics_are_neither_dropped_nor_restored_silently() -> None:
    disks = (disk(1, replica("orders", state=PartitionState.STRAY), metadata=copy()),)
    plan = plan_of(*disks)
    assert not plan.topics
    assert refusing(plan) == [("stray-topic", "orders")]
    kept = plan_of(*disks, settings=[("stray", "keep")])
    assert partition_of(kept, "orders").leader == 1


def test_a_topic_whose_directories_are_all_marked_deleted_stays_deleted() -> None:
    plan = plan_of(disk(1, replica("gone", state=PartitionState.DELETE), metadata=copy()))
    assert not plan.topics
    assert not refusing(plan)
    assert "leftover-directories" in codes(plan)


@pytest.mark.parametrize(
    ("replicas", "offsets"),
    [
        ([replica("orders", 1, state=PartitionState.DELETE)], "offsets 0 to 99"),
        ([replica("orders", 1, state=PartitionState.DELETE, start=40)], "offsets 40 to 99"),
        (
            [replica("orders", 1, end=30), replica("orders", 1, state=PartitionState.DELETE)],
            "offsets 30 to 99",
        ),
        ([replica("orders", 1), replica("orders", 1, state=PartitionState.DELETE)], None),
        (
            [
                replace(replica("orders", 1), problems=("damaged",)),
                replica("orders", 1, state=PartitionState.DELETE),
            ],
            "offsets 0 to 99",
        ),
        ([replica("orders", 1, state=PartitionState.DELETE, end=0)], None),
        ([replica("orders", 1, state=PartitionState.DELETE, topic_id=an_id("before"))], None),
    ],
    ids=[
        "alone",
        "with a start",
        "has more",
        "has as much",
        "has no damage",
        "empty",
        "of an earlier topic",
    ],
)
def test_records_that_only_a_deleted_directory_has_are_named(
    replicas: Sequence[CollectedPartition], offsets: str | None
) -> None:
    """The topic lives: a broker removes the directory a minute after it starts."""
    metadata = copy(*topic_records("orders", [(1,), (1,)]))
    plan = plan_of(disk(1, replica("orders"), *replicas, metadata=metadata))
    refused = [each for each in plan.notices if each.code == "deleted-replica"]
    assert [(each.partition, each.needs_acceptance) for each in refused] == (
        [] if offsets is None else [(1, True)]
    )
    assert all(f" {offsets} may be in no other log; restore it" in each.what for each in refused)


def test_a_topic_can_be_dropped() -> None:
    metadata = copy(*topic_records("orders", [(1,)]))
    disks = (disk(1, replica("orders"), metadata=metadata),)
    plan = plan_of(*disks, settings=[("topic.orders", "drop")])
    assert not plan.topics
    assert codes(plan) >= {"dropped-by-option"}


def test_two_topics_with_one_id_are_asked_for() -> None:
    disks = (disk(1, replica("a"), replica("b", topic_id=an_id("a"))),)
    assert refusing(plan_of(*disks)) == [("shared-id", "b")]
    said = plan_of(*disks, settings=[("topic.a", "drop")])
    assert [each.name for each in said.topics] == ["b"]


@pytest.mark.parametrize("topic_id", ["AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ"])
def test_an_id_that_kafka_reserves_is_none(topic_id: str) -> None:
    plan = plan_of(disk(1, replica("a", topic_id=topic_id)))
    assert refusing(plan) == [("topic-without-id", "a")]


@pytest.mark.parametrize("name", ["", ".", "a b", "../../x", "a\x1b[31m\n"])
def test_names_that_kafka_does_not_allow_are_not_planned(name: str) -> None:
    plan = plan_of(disk(1, replica(name)))
    assert not plan.topics
    assert refusing(plan) == [("invalid-name", name)]


def test_a_copy_of_the_metadata_that_was_moved_aside_is_no_topic() -> None:
    plan = plan_of(disk(1, replica("__cluster_metadata", state=PartitionState.STRAY)))
    assert not plan.topics
    assert not refusing(plan)


# --- numbers of partitions


def test_without_a_copy_the_number_of_partitions_is_a_lower_bound() -> None:
    plan = plan_of(disk(1, replica("orders", 0), replica("orders", 2)))
    assert len(plan.topics[0].partitions) == 3
    assert {"partition-count", "hole"} <= codes(plan)
    hole = partition_of(plan, "orders", 1)
    assert (hole.leader, hole.isr, hole.replicas) == (-1, (), (1,))


def test_internal_topics_name_partitions_that_no_disk_has() -> None:
    offsets = (claim("orders", ClaimedPartition(3, 7, 100)),)
    plan = plan_of(disk(1, replica("orders"), claims=offsets))
    assert len(plan.topics[0].partitions) == 4
    assert partition_of(plan, "orders", 3).sources["partition"].kind is SourceKind.CLAIM
    assert partition_of(plan, "orders", 3).leader_epoch == 8


def test_the_copy_knows_the_number_better_than_internal_topics() -> None:
    metadata = copy(*topic_records("orders", [(1,)]))
    offsets = (claim("orders", ClaimedPartition(3)),)
    plan = plan_of(disk(1, replica("orders"), claims=offsets, metadata=metadata))
    assert len(plan.topics[0].partitions) == 1
    assert "claimed-partition" in codes(plan)


def test_partitions_that_were_added_after_the_copy_are_kept() -> None:
    metadata = copy(*topic_records("orders", [(1,)]))
    plan = plan_of(disk(1, replica("orders"), replica("orders", 1), metadata=metadata))
    added = partition_of(plan, "orders", 1)
    assert (added.leader, added.sources["partition"].kind) == (1, SourceKind.DISK)


def test_a_lower_number_drops_partitions_only_if_that_is_accepted() -> None:
    disks = (disk(1, replica("orders"), replica("orders", 1)),)
    plan = plan_of(*disks, settings=[("topic.orders.partitions", "1")])
    assert refusing(plan) == [("dropped-partition", "orders")]


def test_a_topic_that_only_internal_topics_name_is_reported_as_lost() -> None:
    plan = plan_of(disk(1, claims=(claim("orders", ClaimedPartition(0)),)))
    assert "lost-topic" in codes(plan)


# --- leaders and epochs


def test_the_leader_has_the_greatest_epoch_then_the_greatest_end() -> None:
    metadata = copy(*topic_records("orders", [(1, 2, 3)]))
    plan = plan_of(
        disk(1, replica("orders", end=900, epochs=[(0, 0), (1, 10)]), metadata=metadata),
        disk(2, replica("orders", end=50, epochs=[(0, 0), (2, 10)])),
        disk(3, replica("orders", end=60, epochs=[(0, 0), (2, 10)])),
    )
    partition = partition_of(plan, "orders")
    assert (partition.leader, partition.isr) == (3, (3,))
    assert partition.replicas == (1, 2, 3)
    (what,) = named(plan, "parted")
    assert "node 1 loses offsets 10 to 899" in what


def test_replicas_that_end_alike_leave_the_leader_to_the_copy() -> None:
    metadata = copy(*topic_records("orders", [(1, 2)], leader=2, isr=[2]))
    plan = plan_of(disk(1, replica("orders"), metadata=metadata), disk(2, replica("orders")))
    assert partition_of(plan, "orders").leader == 2


def test_a_replica_that_is_only_behind_loses_nothing() -> None:
    plan = plan_of(disk(1, replica("orders", end=100)), disk(2, replica("orders", end=40)))
    assert partition_of(plan, "orders").leader == 1
    assert "parted" not in codes(plan)


def test_a_replica_with_a_hole_does_not_lead_where_a_whole_one_ends_alike() -> None:
    metadata = copy(*topic_records("orders", [(1, 2)], leader=1, isr=[1, 2]))
    holed = replica("orders", missing=[range(10, 20)])
    plan = plan_of(disk(1, holed, metadata=metadata), disk(2, replica("orders")))
    assert partition_of(plan, "orders").leader == 2
    assert "damaged-leader" not in codes(plan)
    (what,) = named(plan, "damaged-follower")
    assert "/data/1" in what


def test_what_a_leader_lacks_and_a_shorter_replica_has_is_asked_for() -> None:
    holed = replica("orders", missing=[range(10, 20), range(40, 60), range(95, 98)])
    other = replica("orders", end=90, start=15, missing=[range(41, 43), range(50, 60)])
    plan = plan_of(disk(1, holed), disk(2, other))
    assert partition_of(plan, "orders").leader == 1
    assert ("damaged-leader", "orders") in refusing(plan)
    (what,) = named(plan, "damaged-leader")
    assert "lacks offsets 15 to 19 and 40 to 40 and 43 to 49, which node 2 has" in what


@pytest.mark.parametrize("is_by_policy", [True, False], ids=["policy", "a cleaned partition"])
def test_what_the_cleaner_may_have_removed_is_not_missing(is_by_policy: bool) -> None:
    """A replica that was copied from a cleaned one has no line in the cleaner's checkpoint."""
    policy = record(
        "CONFIG_RECORD",
        resourceType=2,
        resourceName="orders",
        name="cleanup.policy",
        value="compact,delete",
    )
    records = [*topic_records("orders", [(1, 2), (2, 1)]), *[policy] * is_by_policy]
    cleaned = replica("orders", 1)
    if not is_by_policy:
        cleaned = replace(cleaned, missing_offsets=None, is_cleaned=True)
    holed = replica("orders", missing=[range(10, 20)])
    plan = plan_of(
        disk(1, holed, cleaned, metadata=copy(*records)),
        disk(2, replica("orders", end=90), replica("orders", 1)),
    )
    assert not {"damaged-leader", "damaged-follower"} & codes(plan)


def test_what_damage_took_from_a_compacted_log_is_a_loss() -> None:
    policy = config("orders", "cleanup.policy", "compact")
    metadata = copy(*topic_records("orders", [(1, 2)]), policy)
    damaged = replace(
        replica("orders", missing=[range(10, 20), range(30, 40)]), damaged_offsets=(range(10, 20),)
    )
    plan = plan_of(disk(1, damaged, metadata=metadata), disk(2, replica("orders", end=90)))
    assert refusing(plan) == [("damaged-leader", "orders")]
    assert "offsets 10 to 19, which node 2 has" in named(plan, "damaged-leader")[0]
    alike = plan_of(disk(1, damaged, metadata=metadata), disk(2, replica("orders")))
    assert (partition_of(alike, "orders").leader, refusing(alike)) == (2, [])


def test_a_replica_that_was_not_read_whole_is_taken_to_have_all_of_its_records() -> None:
    """Nothing says that it was cleaned: another partition without a log neither."""
    holed = replica("orders", missing=[range(10, 20)])
    unread = replace(replica("orders", end=90), missing_offsets=None)
    empty = replace(replica("orders", 1, end=0), missing_offsets=None)
    plan = plan_of(disk(1, holed, empty), disk(2, unread, replica("orders", 1)))
    assert ("damaged-leader", "orders") in refusing(plan)
    plan = plan_of(
        disk(1, holed), disk(2, replace(unread, log_end_offset=100, loaded=holed.loaded))
    )
    assert partition_of(plan, "orders").leader == 2


def test_a_leader_lacks_what_only_a_batch_in_doubt_has() -> None:
    """Nothing is before that batch, so that its offsets may be wrong; a broker loads it."""
    holed = replica("orders", missing=[range(40, 60)])
    doubted = replica("orders", end=60, missing=[range(10, 40)])
    doubted = replace(doubted, log_end_offset=10, problems=("nothing is before it",))
    (what,) = named(plan_of(disk(1, holed), disk(2, doubted)), "damaged-leader")
    assert "lacks offsets 40 to 59, which node 2 has" in what


def test_a_deleted_directory_may_have_what_is_missing_in_the_middle_of_the_log() -> None:
    holed = replica("orders", missing=[range(10, 20)])
    deleted = replica("orders", end=15, state=PartitionState.DELETE)
    (what,) = named(plan_of(disk(1, holed), disk(2, deleted)), "deleted-replica")
    assert "offsets 10 to 14 may be in no other log" in what


@pytest.mark.parametrize(
    ("log", "offsets"),
    [
        (replica("orders", end=60), "offsets 60 to 99"),
        (replica("orders", end=120, epochs=[(0, 0), (1, 60)]), "offsets 60 to 99"),
        (replica("orders", end=120, epochs=[(0, 0), (1, 100)]), None),
        (replica("orders", end=150, epochs=[(0, 120)], start=120), None),
        (replica("orders", end=60, epochs=[], start=60), "offsets 60 to 99"),
    ],
    ids=["has more", "parted", "has as much", "was deleted", "was deleted in part"],
)
def test_records_that_only_a_stray_directory_has_are_named(
    log: CollectedPartition, offsets: str | None
) -> None:
    plan = plan_of(disk(1, log), disk(2, replica("orders", state=PartitionState.STRAY)))
    assert refusing(plan) == ([] if offsets is None else [("stray-partition", "orders")])
    assert [str(offsets) in each for each in named(plan, "stray-partition")] in ([], [True])


def a_future(end: int | None = 100, topic_id: str | None = "") -> CollectedPartition:
    """A copy that a broker was making on another of its disks."""
    return replica("orders", end=end, state=PartitionState.FUTURE, topic_id=topic_id)


def test_a_copy_that_was_being_made_becomes_the_log_where_its_node_has_none() -> None:
    plan = plan_of(
        disk(1, replica("orders", end=60)),
        disk(2, replica("other"), path="/data/new"),
        disk(2, a_future(), directory_id=an_id("another disk")),
    )
    planned = partition_of(plan, "orders")
    assert (planned.leader, planned.isr) == (2, (2,))
    assert planned.directories == (an_id("1 /data/1"), an_id("another disk"))
    (what,) = named(plan, "future-only")
    assert what.startswith("node 2 /data/2: orders-0-future becomes the log, and ends at 100;")


def test_a_copy_that_was_being_made_and_does_not_lead_is_a_follower_like_others() -> None:
    plan = plan_of(disk(1, replica("orders")), disk(2, a_future(60)))
    assert partition_of(plan, "orders").directories[1] == an_id("2 /data/2")
    assert not refusing(plan)


def test_a_copy_that_was_being_made_does_not_count_beside_its_log() -> None:
    disks = disk(2, replica("orders", end=60)), disk(2, a_future(), path="/data/other")
    plan = plan_of(*disks)
    assert partition_of(plan, "orders").directories == (an_id("2 /data/2"),)
    assert codes(plan).isdisjoint({"future-only", "duplicate-replica"})
    (what,) = named(plan, "deleted-replica")
    assert "offsets 60 to 99 may be in no other log; rename it to orders-0, in place" in what


@pytest.mark.parametrize(
    ("directory_id", "level"), [(None, 25), (an_id("a disk"), 16)], ids=["without id", "old level"]
)
def test_a_copy_that_no_metadata_can_assign_is_named(directory_id: str | None, level: int) -> None:
    settings = [("feature.metadata.version", str(level))]
    plan = plan_of(disk(1, a_future(), directory_id=directory_id), settings=settings)
    assert refusing(plan) == [("stray-topic", "orders")]
    known = copy(*topic_records("orders", [[1]]), kraft_version=0)
    plan = plan_of(
        disk(1, a_future(), directory_id=directory_id, metadata=known), settings=settings
    )
    assert partition_of(plan, "orders").leader == -1
    assert ("deleted-replica", "orders") in refusing(plan)


def test_a_batch_in_doubt_of_a_directory_that_is_not_loaded_is_asked_for() -> None:
    deleted = replica("orders", end=60, state=PartitionState.DELETE)
    in_doubt = replace(deleted, loaded=replica("orders", end=70).loaded)
    (what,) = named(
        plan_of(disk(1, replica("orders", end=60)), disk(2, in_doubt)), "deleted-replica"
    )
    assert "offsets 60 to 69 may be in no other log" in what


@pytest.mark.parametrize("loaded", [None, CollectedLoad(999_999, 999_999, ())])
@pytest.mark.parametrize(
    ("leader_end", "epoch", "lost"),
    [(30, 2, "35 to 46"), (40, 2, "40 to 46"), (40, 3, "35 to 46"), (50, 2, None)],
)
def test_a_last_batch_in_doubt_of_a_log_that_no_start_keeps_is_asked_for(
    leader_end: int, epoch: int, lost: str | None, loaded: CollectedLoad | None
) -> None:
    in_doubt = replace(
        replica("orders", end=21, epochs=[(2, 0)]),
        loaded=loaded,
        highest_epoch=epoch,
        doubtful_offsets=(range(35, 47),),
    )
    leader = replica("orders", end=leader_end, epochs=[(2, 0)])
    found = named(plan_of(disk(1, leader), disk(2, in_doubt)), "lost-at-start")
    assert [f"offsets {lost}" in each for each in found] == [True] * (lost is not None)


KNOWN: Final = topic_records("orders", [[1, 2]], directories=[an_id("1 lost"), an_id("2 /data/2")])
"""Partition 0 has a replica on a disk of node 1 that was not collected."""


def test_a_log_on_a_missing_disk_may_have_more_than_the_copy_that_was_being_made() -> None:
    plan = plan_of(disk(1, a_future(), metadata=copy(*KNOWN)), disk(2, path="/data/2"))
    assert partition_of(plan, "orders").leader == 1
    (what,) = named(plan, "isr-not-collected")
    assert "in sync: 1; node 1 leads, and offsets from 100 on are lost" in what


def test_a_log_on_a_missing_disk_is_left_there_if_another_node_has_the_partition() -> None:
    other = disk(2, replica("orders"), path="/data/2")
    plan = plan_of(disk(1, a_future(60), metadata=copy(*KNOWN)), other)
    assert partition_of(plan, "orders").directories == (an_id("1 lost"), an_id("2 /data/2"))
    assert not refusing(plan)
    plan = plan_of(disk(1, a_future(200), metadata=copy(*KNOWN)), other)
    assert refusing(plan) == [("deleted-replica", "orders")]


@pytest.mark.parametrize(
    ("state", "code"),
    [(PartitionState.LIVE, "lost-at-start"), (PartitionState.DELETE, "deleted-replica")],
)
def test_a_directory_whose_records_are_not_known_is_asked_for(
    state: PartitionState, code: str
) -> None:
    plan = plan_of(disk(1, replica("orders", end=None, state=state), replica("orders", 1)))
    assert (code, "orders") in refusing(plan)


def test_what_goes_with_an_unfinished_swap_is_asked_for_unless_the_leader_has_it() -> None:
    swapped = replace(replica("orders", end=0), problems=("swap",), dropped_swaps=(range(10, 60),))
    (what,) = named(plan_of(disk(1, swapped), disk(2, replica("orders", end=0))), "lost-at-start")
    assert "drops offsets 10 to 59 with an unfinished swap" in what
    (what,) = named(plan_of(disk(1, swapped), disk(2, replica("orders", end=40))), "lost-at-start")
    assert "drops offsets 40 to 59 with an unfinished swap" in what
    assert "lost-at-start" not in codes(plan_of(disk(1, swapped), disk(2, replica("orders"))))
    whole = replace(swapped, log_end_offset=100, loaded=replica("orders").loaded)
    plan = plan_of(disk(1, whole), disk(2, replica("orders")))
    assert partition_of(plan, "orders").leader == 2


def test_of_two_replicas_with_holes_the_one_leads_that_lacks_less() -> None:
    small, large = [range(10, 14)], [range(20, 26)]
    others = [disk(node, replica("orders", end=90)) for node in (3, 4)]
    for first, second in ((small, large), (large, small)):
        plan = plan_of(
            disk(1, replica("orders", missing=first)),
            disk(2, replica("orders", missing=second)),
            *others,
        )
        assert partition_of(plan, "orders").leader == (1 if first is small else 2)


def test_an_offset_that_several_others_hold_is_missing_once() -> None:
    """Node 1 lacks ten offsets that two others have, node 2 fifteen that only one has."""
    plan = plan_of(
        disk(1, replica("orders", missing=[range(10, 20)])),
        disk(2, replica("orders", missing=[range(40, 55)])),
        disk(3, replica("orders", end=35)),
        disk(4, replica("orders", end=35)),
    )
    assert partition_of(plan, "orders").leader == 1


def test_a_hole_that_all_replicas_have_is_none_of_a_leader() -> None:
    holed = replica("orders", missing=[range(10, 20)])
    plan = plan_of(disk(1, holed), disk(2, replace(holed, log_end_offset=90)))
    assert not {"damaged-leader", "damaged-follower"} & codes(plan)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (replica("orders", epochs=[(0, 0), (41, 5)]), 42),
        (replica("orders", batch_epoch=41), 42),
        (replica("orders", batch_epoch=3), 10),
    ],
)
def test_the_leader_epoch_is_above_checkpoints_headers_and_copies(
    seen: object, expected: int
) -> None:
    metadata = copy(*topic_records("orders", [(1,)], leader_epoch=9))
    plan = plan_of(disk(1, seen, metadata=metadata))  # type: ignore[arg-type]
    assert partition_of(plan, "orders").leader_epoch == expected


def test_the_epochs_of_stray_directories_count_too() -> None:
    stray = replica("orders", epochs=[(77, 0)], state=PartitionState.STRAY)
    plan = plan_of(disk(1, replica("orders")), disk(2, stray))
    assert partition_of(plan, "orders").leader_epoch == 78


def test_a_leader_can_be_chosen_and_what_others_lose_is_said() -> None:
    disks = (
        disk(1, replica("orders", end=90, epochs=[(0, 0), (1, 50)])),
        disk(2, replica("orders", end=60)),
    )
    plan = plan_of(*disks, settings=[("topic.orders.partition.0.leader", "2")])
    assert partition_of(plan, "orders").leader == 2
    assert "node 1 loses offsets 50 to 89" in named(plan, "parted")[0]
    with pytest.raises(UsageProblem, match="its replicas are 1, 2"):
        plan_of(*disks, settings=[("topic.orders.partition.0.leader", "3")])


def test_eligible_leader_replicas_are_not_needed_because_there_is_a_leader() -> None:
    metadata = copy(*topic_records("orders", [(1,)], leader=-1, isr=[]), broker(1))
    plan = plan_of(disk(1, replica("orders"), metadata=metadata))
    partition = partition_of(plan, "orders")
    assert (partition.leader, partition.isr, partition.elr) == (1, (1,), ())


def test_registered_brokers_are_kept_fenced_with_their_epochs() -> None:
    plan = plan_of(disk(1, metadata=copy(broker(1, 5), broker(2, 7))))
    found = [(each.data["brokerId"], each.data["brokerEpoch"]) for each in plan.brokers]
    assert found == [(1, 5), (2, 7)]
    assert all(each.data["fenced"] for each in plan.brokers)
    assert not any(each.data["inControlledShutdown"] for each in plan.brokers)


# --- replicas and directories


def test_directories_are_those_on_disk_or_left_to_the_controller() -> None:
    metadata = copy(*topic_records("orders", [(1, 2, 3)]))
    plan = plan_of(
        disk(1, replica("orders"), path="/new", metadata=metadata),
        disk(2),
    )
    assert partition_of(plan, "orders").directories == (
        an_id("1 /new"),
        MIGRATING_DIRECTORY,
        an_id("3 /data/3"),
    )


def test_without_a_copy_preferred_leaders_are_spread() -> None:
    both = [replica("orders", number) for number in range(4)]
    plan = plan_of(disk(1, *both), disk(2, *both))
    order = [each.replicas for each in plan.topics[0].partitions]
    assert order == [(1, 2), (2, 1), (1, 2), (2, 1)]


def test_a_replica_that_the_copy_does_not_know_is_added_only_if_it_is_ahead() -> None:
    metadata = copy(*topic_records("orders", [(1,)]))
    ahead = plan_of(
        disk(1, replica("orders"), metadata=metadata), disk(2, replica("orders", end=200))
    )
    assert partition_of(ahead, "orders").replicas == (1, 2)
    behind = plan_of(
        disk(1, replica("orders"), metadata=metadata), disk(2, replica("orders", end=9))
    )
    assert partition_of(behind, "orders").replicas == (1,)
    assert "extra-replica" in codes(behind) & codes(ahead)


def test_a_copied_disk_of_another_node_counts_too() -> None:
    plan = plan_of(
        disk(1, replica("a"), directory_id=an_id("x")),
        disk(2, replica("a"), directory_id=an_id("x")),
    )
    assert partition_of(plan, "a").replicas == (1, 2)


def test_replicas_can_be_set_and_what_is_left_out_is_named() -> None:
    settings = [("topic.orders.partition.0.replicas", "2,3")]
    plan = plan_of(disk(1, replica("orders")), disk(2, replica("orders")), settings=settings)
    assert (partition_of(plan, "orders").replicas, partition_of(plan, "orders").leader) == (
        *((2, 3),),
        2,
    )
    assert "node 1" in named(plan, "extra-replica")[0]


def test_a_partition_in_two_log_directories_of_a_node_is_named() -> None:
    plan = plan_of(
        disk(1, replica("orders", end=10), path="/d1"), disk(1, replica("orders"), path="/d2")
    )
    assert partition_of(plan, "orders").directories == (an_id("1 /d2"),)
    assert "duplicate-replica" in codes(plan)


def test_a_lost_broker_keeps_its_replicas_and_others_lead() -> None:
    metadata = copy(*topic_records("orders", [(1, 2)], isr=[1]), broker(1), broker(2))
    plan = plan_of(disk(2, replica("orders"), metadata=metadata))
    partition = partition_of(plan, "orders")
    assert (partition.replicas, partition.leader) == ((1, 2), 2)
    assert {"isr-not-collected", "node-not-collected"} <= codes(plan)


@pytest.mark.parametrize(
    ("is_clean", "hosts", "is_asked"), [(False, 1, True), (True, 1, False), (False, 2, False)]
)
def test_the_only_collected_node_may_have_been_killed_before_others(
    is_clean: bool, hosts: int, is_asked: bool
) -> None:
    """By its own copy it is in sync for good; one that was stopped is not, unless it was last."""
    metadata = copy(*topic_records("orders", [(1, 2, 3)]), *map(broker, (1, 2, 3)))
    plan = plan_of(
        *(
            disk(node, replica("orders"), metadata=metadata, is_clean_shutdown=is_clean)
            for node in range(1, hosts + 1)
        )
    )
    assert ("isr-not-collected" in {code for code, _ in refusing(plan)}) is is_asked


@pytest.mark.parametrize("old", [(replica("orders", end=40),), ()], ids=["older", "replaced"])
def test_a_replica_that_was_alone_in_sync_and_is_behind_is_asked_for(
    old: tuple[CollectedPartition, ...],
) -> None:
    """Its disk is of an earlier time, such as from a snapshot of its volume, or was replaced."""
    alone = copy(*topic_records("orders", [(1, 2)], isr=[1]), broker(1), broker(2))
    disks = (disk(1, *old), disk(2, replica("orders", end=60), metadata=alone))
    plan = plan_of(*disks)
    assert partition_of(plan, "orders").leader == 2
    (what,) = named(plan, "isr-behind")
    assert f"node 1, which ends at {40 if old else 0}; node 2 leads, and offsets from 60 on" in what
    assert "isr-behind" in {code for code, _ in refusing(plan)}


@pytest.mark.parametrize(
    ("isr", "ends", "epochs"),
    [
        ([1, 2], (40, 60), [(0, 0)]),  # node 2 has what was committed
        ([1], (60, 60), [(0, 0)]),
        ([1], (40, 60), [(0, 0), (7, 50)]),  # node 2 was elected after the end of the copy
    ],
)
def test_a_replica_in_sync_that_is_behind_is_not_asked_for_if_the_leader_was_in_sync(
    isr: list[int], ends: tuple[int, int], epochs: list[tuple[int, int]]
) -> None:
    metadata = copy(*topic_records("orders", [(1, 2)], isr=isr), broker(1), broker(2))
    first, second = (replica("orders", end=end, epochs=epochs) for end in ends)
    plan = plan_of(disk(1, first), disk(2, second, metadata=metadata))
    assert "isr-behind" not in codes(plan)


def unclean(*, batch_epoch: int | None, high_watermark: int = 40) -> ClusterPlan:
    """The plan for a partition whose leader was elected uncleanly, and ends before another."""
    metadata = copy(*topic_records("orders", [(1, 2)], isr=[1], leader_epoch=5))
    first = replica("orders", end=40, epochs=[(0, 0), (2, 22)], batch_epoch=batch_epoch)
    first = replace(first, high_watermark=high_watermark)
    second = replica("orders", end=60, epochs=[(0, 0), (2, 22)])
    return plan_of(disk(1, first), disk(2, second, metadata=metadata))


def test_a_replica_that_led_after_an_unclean_election_is_not_asked_for() -> None:
    """It ends where its epoch began; it knows the epoch by its checkpoint."""
    plan = unclean(batch_epoch=4)
    assert partition_of(plan, "orders").leader == 2
    assert "isr-behind" not in codes(plan)


def test_a_replica_that_led_later_and_lost_the_end_of_its_log_is_asked_for() -> None:
    assert "isr-behind" in codes(unclean(batch_epoch=4, high_watermark=41))
    assert "isr-behind" in codes(unclean(batch_epoch=None))


def test_a_partition_of_lost_brokers_waits_for_one_of_them() -> None:
    metadata = copy(*topic_records("orders", [(1, 3)], isr=[3], leader=3), broker(1), broker(3))
    plan = plan_of(disk(2, metadata=metadata))
    partition = partition_of(plan, "orders")
    assert (partition.leader, partition.isr) == (-1, (3,))
    assert "no-data" in codes(plan)


# --- configuration


def test_known_topics_keep_their_configuration() -> None:
    metadata = copy(*topic_records("orders", [(1,)]), config("orders", "cleanup.policy", "compact"))
    plan = plan_of(disk(1, replica("orders"), metadata=metadata))
    assert configs(plan, "orders") == {"cleanup.policy": "compact"}
    assert not refusing(plan)


def test_nothing_is_deleted_from_a_topic_whose_configuration_is_unknown() -> None:
    plan = plan_of(disk(1, replica("orders")))
    assert configs(plan, "orders") == DEFAULTS
    assert "unknown-config" in codes(plan)


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics_are_compacted(topic: str) -> None:
    plan = plan_of(disk(1, replica(topic)))
    assert configs(plan, topic)["cleanup.policy"] == "compact"
    assert "retention.ms" not in configs(plan, topic)


def test_a_tiered_topic_stays_tiered() -> None:
    claims = (claim("orders", ClaimedPartition(0), source="__remote_log_metadata"),)
    plan = plan_of(disk(1, replica("orders"), claims=claims))
    assert configs(plan, "orders") == {**DEFAULTS, "remote.storage.enable": "true"}


def test_a_property_can_be_set() -> None:
    settings = [("topic.a.config.b.config.retention.ms", "5")]
    plan = plan_of(disk(1, replica("a.config.b")), settings=settings)
    assert configs(plan, "a.config.b")["retention.ms"] == "5"


def test_a_property_or_acl_that_only_an_older_copy_has_is_a_loss() -> None:
    old = copy(*topic_records("orders", [(1,)]), config("orders", "x", "y"), acl("orders"), end=400)
    new = copy(*topic_records("orders", [(1,)]))
    disks = (disk(1, replica("orders"), metadata=old), disk(2, metadata=new))
    assert refusing(plan_of(*disks)) == [("old-copy-only", None), ("old-copy-only", "orders")]
    committed = replace(new, committed_end_offset=500)
    assert not refusing(plan_of(disks[0], disk(2, metadata=committed)))
    chosen = plan_of(*disks, settings=[("copy", "1")])
    assert len(chosen.acls) == 1


def test_what_is_gone_without_any_copy_is_named() -> None:
    plan = plan_of(disk(1, replica("orders")))
    assert any("ACLs" in each for each in named(plan, "no-copy"))
    assert any("SCRAM" in each for each in named(plan, "no-copy"))
    assert named(plan, "features") == [
        "group.version=1, metadata.version=25, transaction.version=2"
    ]


def features(plan: ClusterPlan) -> dict[str, tuple[int, str]]:
    return {each.name: (each.level, str(each.source)) for each in plan.features}


def test_share_groups_on_a_disk_mean_that_their_feature_was_finalized() -> None:
    disks = (disk(1, replica("orders")), disk(2, replica("__share_group_state", 7)))
    plan = plan_of(*disks)
    guess = "guess: __share_group_state on node 2 /data/2"
    assert features(plan)["share.version"] == (1, guess)
    # Brokers of 4.1 know share.version 1, and no metadata.version above 27.
    assert features(plan)["metadata.version"][0] == 25
    (notice,) = (each for each in plan.notices if "share.version" in each.what)
    assert (notice.code, notice.override) == ("features", "feature.share.version=LEVEL")
    assert "share.version" not in features(plan_of(disks[0]))


def test_streams_groups_on_a_disk_mean_that_their_feature_was_finalized() -> None:
    disks = (disk(1, replica("orders")), disk(2, has_streams_groups=True))
    plan = plan_of(*disks)
    guess = "guess: streams groups in __consumer_offsets on node 2 /data/2"
    assert features(plan)["streams.version"] == (1, guess)
    (notice,) = (each for each in plan.notices if "streams.version" in each.what)
    assert (notice.code, notice.override) == ("features", "feature.streams.version=LEVEL")
    assert "streams.version" not in features(plan_of(disks[0]))
    assert "streams.version" not in features(plan_of(disks[1], disk(1, metadata=copy())))
    said = plan_of(*disks, settings=[("feature.streams.version", "0")])
    assert features(said)["streams.version"] == (0, "set: feature")


def test_the_level_for_share_groups_can_be_set() -> None:
    disks = (disk(1, replica("__share_group_state")),)
    plan = plan_of(*disks, settings=[("feature.share.version", "0")])
    assert features(plan)["share.version"] == (0, "set: feature")
    assert not any("share.version" in each for each in named(plan, "features"))


def test_a_feature_that_is_set_is_not_called_a_guess() -> None:
    plan = plan_of(disk(1, replica("orders")), settings=[("feature.metadata.version", "27")])
    assert named(plan, "features") == ["group.version=1, transaction.version=2"]


def test_a_copy_knows_whether_there_are_share_groups() -> None:
    plan = plan_of(disk(1, replica("__share_group_state"), metadata=copy()))
    assert "share.version" not in features(plan)


# --- unclean elections


def unclean_cluster(*, conflict: bool) -> list[object]:
    metadata = copy(
        *topic_records("orders", [(1, 2), (2, 1)]),
        config("orders", "unclean.leader.election.enable", "true"),
    )
    other = 50 if conflict else 200
    return [
        disk(1, replica("orders", 0), replica("orders", 1, end=other), metadata=metadata),
        disk(2, replica("orders", 0, end=50), replica("orders", 1)),
    ]


def test_with_unclean_election_the_plan_says_who_starts_first() -> None:
    plan = plan_of(*unclean_cluster(conflict=False))  # type: ignore[arg-type]
    assert {(each.partition, each.node_id) for each in plan.first_leaders} == {(0, 1), (1, 1)}
    assert "start the brokers in the order 1, 2" in named(plan, "start-order")[0]


def test_without_an_order_unclean_election_is_switched_off() -> None:
    disks = unclean_cluster(conflict=True)
    plan = plan_of(*disks)  # type: ignore[arg-type]
    assert configs(plan, "orders")["unclean.leader.election.enable"] == "false"
    assert not plan.first_leaders
    kept = plan_of(*disks, settings=[("unclean", "on")])  # type: ignore[arg-type]
    assert configs(kept, "orders")["unclean.leader.election.enable"] == "true"


def test_unclean_election_by_default_of_all_brokers_counts() -> None:
    default = record(
        "CONFIG_RECORD",
        resourceType=4,
        resourceName="",
        name="unclean.leader.election.enable",
        value="true",
    )
    metadata = copy(*topic_records("orders", [(1, 2)]), default)
    plan = plan_of(disk(1, replica("orders"), metadata=metadata), disk(2, replica("orders", end=5)))
    assert "start-order" in codes(plan)


# --- the quorum


def test_offset_and_epoch_are_above_those_of_every_copy() -> None:
    plan = plan_of(
        disk(1, metadata=copy(end=700, highest_offset=4_000_000, epoch=3)),
        disk(2, metadata=copy(end=900, highest_epoch=5000)),
        disk(3, broker_epoch=9_000_000),
    )
    assert plan.snapshot_offset > 9_000_000
    assert plan.snapshot_epoch > 5000
    with pytest.raises(UsageProblem, match="a copy has 9000000 already"):
        plan_of(disk(3, broker_epoch=9_000_000), settings=[("snapshot.offset", "9000000")])


def test_producer_ids_are_above_all_others() -> None:
    ids = record("PRODUCER_IDS_RECORD", brokerId=1, brokerEpoch=5, nextProducerId=3_000_000)
    plan = plan_of(
        disk(1, replica("orders", producer_id=5_000_000), metadata=copy(ids)),
        disk(2, highest_transactional_producer_id=7_000_000),
    )
    assert plan.next_producer_id > 7_000_000
    with pytest.raises(UsageProblem, match="there is a producer id"):
        plan_of(disk(1, replica("a", producer_id=0)), settings=[("next.producer.id", "0")])


def test_a_former_combined_node_has_to_move_its_copy_aside() -> None:
    voters = (CollectedVoter(1, an_id("1 /data/1")), CollectedVoter(9, an_id("nine")))
    metadata = copy(voters=voters)
    plan = plan_of(disk(1, metadata=metadata), disk(2, metadata=metadata))
    assert [(each.node_id, each.log_dir) for each in plan.move_aside] == [(1, "/data/1")]
    assert "move-aside" in codes(plan)


def test_the_old_static_voters_have_no_directory_ids() -> None:
    metadata = copy(kraft_version=0, voters=(CollectedVoter(1),))
    plan = plan_of(disk(1, metadata=metadata))
    assert [each.node_id for each in plan.move_aside] == [1]
    assert (plan.kraft_version, plan.controllers[0].directory_id) == (0, None)


def test_a_controller_of_the_plan_keeps_its_directory() -> None:
    metadata = copy(voters=(CollectedVoter(1000, an_id("1000 /data/1000")),))
    assert not plan_of(disk(1000, metadata=metadata)).move_aside


def test_voters_have_the_directory_ids_that_were_given_or_new_ones() -> None:
    given = parse_dynamic_voter(f"7@[::1]:9093:{an_id('seven')}")
    plan = plan_of(disk(1, metadata=copy()), controllers=(given, DynamicVoter(3, "h", 9093)))
    assert [each.node_id for each in plan.controllers] == [3, 7]
    assert plan.controllers[1].directory_id == an_id("seven")
    assert plan.controllers[0].directory_id not in (None, an_id("seven"))


@pytest.mark.parametrize(("committed", "begin"), [(None, 0), (400, 400), (500, None)])
def test_the_end_of_the_copy_that_may_not_be_committed_is_named(
    committed: int | None, begin: int | None
) -> None:
    found = named(
        plan_of(disk(1, metadata=copy(committed_end_offset=committed))), "uncommitted-end"
    )
    assert [f"from offset {begin} to 499" in each for each in found] == [True] * (begin is not None)


def test_dead_controllers_are_not_registered() -> None:
    dead = record(
        "REGISTER_CONTROLLER_RECORD",
        controllerId=9,
        incarnationId=an_id("x"),
        zkMigrationReady=False,
        endPoints=[],
        features=[],
    )
    plan = plan_of(disk(1, metadata=copy(dead)))
    assert "REGISTER_CONTROLLER_RECORD" not in {each.type for each in plan.records()}


@pytest.mark.parametrize(
    ("controllers", "what"),
    [
        ((), "name at least one controller"),
        ((DynamicVoter(1, "h", 1), DynamicVoter(1, "g", 2)), "2 voters have the node id 1"),
        ((parse_dynamic_voter("1@h:1:AAAAAAAAAAAAAAAAAAAAAQ"),), "Kafka reserves"),
    ],
)
def test_controllers_that_cannot_be_are_refused(
    controllers: tuple[DynamicVoter, ...], what: str
) -> None:
    with pytest.raises(UsageProblem, match=what):
        plan_of(disk(1), controllers=controllers)


# --- which collections count


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_an_earlier_collection_is_ignored_once_in_any_order(order: tuple[int, ...]) -> None:
    old = disk(1, replica("a", end=5))
    times = [(CREATED_MS, old), (CREATED_MS, disk(1, replica("a", end=9))), (CREATED_MS + 1, old)]
    collections = [collected(times[at][1], created_ms=times[at][0]) for at in order]
    plan = plan_cluster(PlanRequest(collections, (CONTROLLER,)))
    assert named(plan, "ignored") == ["node 1 /data/1: an earlier state of /data/1"]


def test_several_clusters_are_refused_until_one_is_named() -> None:
    disks = (disk(1, replica("a")), disk(2, replica("b"), cluster_id="other"))
    with pytest.raises(UsageProblem, match="several clusters"):
        plan_of(*disks)
    with pytest.raises(UsageProblem, match="the collections are of a-cluster, other"):
        plan_of(*disks, settings=[("cluster.id", "third")])
    plan = plan_of(*disks, settings=[("cluster.id", CLUSTER)])
    assert [each.name for each in plan.topics] == ["a"]
    assert "ignored" in codes(plan)


def test_a_backup_that_is_collected_later_than_the_disk_is_not_newer() -> None:
    backup = disk(
        1, replica("a", end=5), path="/backup", directory_id=an_id("1"), metadata=copy(end=400)
    )
    now = disk(1, replica("a", end=9), replica("b"), directory_id=an_id("1"), metadata=copy())
    collections = [collected(now), collected(backup, created_ms=CREATED_MS + 1)]
    for order in (collections, collections[::-1]):
        plan = plan_cluster(PlanRequest(order, (CONTROLLER,)))
        assert [each.name for each in plan.topics] == ["a", "b"]
        assert named(plan, "ignored") == ["node 1 /backup: an earlier state of /data/1"]
        assert not refusing(plan)


def test_two_disks_with_one_directory_id_are_two_disks() -> None:
    disks = [
        disk(2, replica(name), path=f"/data/{name}", directory_id=an_id("2")) for name in ("a", "b")
    ]
    for plan in (plan_of(*disks), plan_cluster(PlanRequest([collected(*disks)], (CONTROLLER,)))):
        assert [each.name for each in plan.topics] == ["a", "b"]
        assert refusing(plan) == [("cloned-directory-id", None)]
        (clone,) = named(plan, "cloned-directory-id")
        assert clone.startswith("node 2: /data/a, /data/b have the directory id")


def test_a_directory_without_a_node_is_refused() -> None:
    with pytest.raises(UsageProblem, match="does not name its node"):
        plan_of(replace(disk(1, replica("a")), node_id=None))


@pytest.mark.parametrize(
    ("setting", "what"),
    [
        (("nonsense", "1"), "there is no such decision"),
        (("topic.orders", "maybe"), "not keep or drop"),
        (("topic.nope", "keep"), "no topic 'nope'"),
        (("topic.orders.id", "x"), "not a topic id"),
        (("topic.orders.partition.0.replicas", "1,1"), "twice"),
        (("topic.orders.partition.9.leader", "1"), "the topic has 1 partition"),
        (("snapshot.epoch", "-1"), "not a number"),
        (("copy", "99"), "the copies are those of none"),
        (("feature.kraft.version", "1"), "the key is kraft.version"),
        (("feature.metadata.version", "99"), "metadata.version 99 is unknown"),
        (("topic.orders.partitions", "2000000"), "cannot be"),
    ],
)
def test_decisions_that_make_no_sense_are_refused(setting: tuple[str, str], what: str) -> None:
    with pytest.raises(UsageProblem, match=what):
        plan_of(disk(1, replica("orders")), settings=[setting])


def test_every_plan_can_be_written_and_read() -> None:
    metadata = copy(*topic_records("orders", [(1, 2)]), broker(1), acl("orders"))
    plan = plan_of(disk(1, replica("orders"), metadata=metadata), disk(2, replica("orders", 3)))
    assert decode_plan(b"".join(encode_plan(plan))) == plan


@pytest.mark.parametrize(
    "wrong",
    [
        disk(1, replica("a", 2**31 - 1)),
        disk(1, replica("a"), claims=(claim("a", ClaimedPartition(2**31 - 1)),)),
        disk(1, replica("a", epochs=[(2**31 - 1, 0)])),
        disk(1, replica("a", producer_id=2**63 - 1)),
        disk(1, metadata=copy(highest_offset=2**63 - 1)),
        disk(1, metadata=copy(highest_epoch=2**31 - 1)),
    ],
    ids=["partition", "claim", "epoch", "producer id", "offset", "epoch of the log"],
)
def test_numbers_without_room_above_them_are_refused(wrong: CollectedDirectory) -> None:
    with pytest.raises(UsageProblem, match="leave out the collection"):
        plan_of(wrong)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (record("NOPE"), "there is no record type 'NOPE'"),
        (record("TOPIC_RECORD", name=5, topicId=an_id("x")), "name: must be a string"),
        (record("TOPIC_RECORD", name="x"), "topicId: is missing"),
        (topic_records("x")[1], "there is no topic with id"),
    ],
)
def test_records_that_make_no_metadata_are_refused(wrong: CollectedRecord, what: str) -> None:
    with pytest.raises(DocumentError, match=what) as raised:
        plan_of(disk(1, metadata=copy(wrong)))
    assert "node 1 /data/1: records[1]" in str(raised.value)


def test_a_leader_epoch_at_or_below_one_on_a_disk_is_refused() -> None:
    disks = (disk(1, replica("a", epochs=[(0, 0), (7, 50)])),)
    for said in ("0", "7"):
        with pytest.raises(UsageProblem, match="epoch 7 is in use"):
            plan_of(*disks, settings=[("topic.a.partition.0.leader_epoch", said)])
    plan = plan_of(*disks, settings=[("topic.a.partition.0.leader_epoch", "8")])
    assert partition_of(plan, "a").leader_epoch == 8


def test_a_controller_with_the_id_of_a_broker_is_asked_for() -> None:
    controller = parse_dynamic_voter("1@localhost:9093")
    for metadata in (None, copy(broker(1))):
        plan = plan_of(disk(1, replica("a"), metadata=metadata), controllers=[controller])
        assert refusing(plan) == [("controller-is-broker", None)]
    combined = copy(broker(1), voters=(CollectedVoter(1),))
    plan = plan_of(disk(1, replica("a"), metadata=combined), controllers=[controller])
    assert not refusing(plan)


def test_a_topic_that_is_kept_has_what_the_most_advanced_other_copy_knows() -> None:
    oldest, old = (
        copy(*topic_records("gone", [(1, 2), (2, 1)]), config("gone", "retention.ms", ms), end=end)
        for ms, end in (("1", 300), ("2", 400))
    )
    deleted = copy(removed_topics=(removed("gone", committed=False),))
    disks = (
        disk(1, replica("gone"), metadata=deleted),
        disk(2, replica("gone"), metadata=old),
        disk(3, metadata=oldest),
    )
    plan = plan_of(*disks, settings=[("deleted", "keep")])
    assert configs(plan, "gone") == {"retention.ms": "2"}
    assert str(plan.topics[0].configs[0].source) == "old-copy: node 2 /data/2"
    assert len(plan.topics[0].partitions) == 2
    assert not {"unknown-config", "partition-count", "old-copy-only"} & codes(plan)


def test_a_property_that_only_an_older_copy_has_can_be_set() -> None:
    old = copy(*topic_records("a", [(1,)]), config("a", "retention.ms", "7"), end=400)
    new = copy(*topic_records("a", [(1,)]))
    plan = plan_of(disk(1, replica("a"), metadata=new), disk(2, metadata=old))
    (notice,) = (each for each in plan.notices if each.code == "old-copy-only")
    assert notice.override == "topic.a.config.retention.ms=7"


@pytest.mark.parametrize(
    ("others", "is_named"),
    [
        ((), True),
        ((copy(end=400),), True),
        ((copy(end=600),), False),
        ((copy(end=400, epoch=4),), False),
    ],
    ids=["alone", "older copy", "later copy", "later epoch"],
)
@pytest.mark.parametrize("end", [0, 300])
def test_records_after_damage_in_a_copy_are_a_loss_unless_another_copy_has_them(
    others: tuple[CollectedMetadata, ...], is_named: bool, end: int
) -> None:
    damaged = copy(end=end, highest_offset=500, problems=("a.log: its checksum is wrong",))
    disks = [disk(1, replica("a"), metadata=damaged)]
    disks += (disk(node, metadata=each) for node, each in enumerate(others, start=2))
    plan = plan_of(*disks)
    assert (("damaged-copy", None) in refusing(plan)) is is_named
    assert plan.snapshot_offset > 500 + MARGIN_OFFSETS - 1


def test_a_damaged_end_of_a_copy_hides_no_records() -> None:
    metadata = copy(problems=("a.log: its checksum is wrong",))
    assert not refusing(plan_of(disk(1, replica("a"), metadata=metadata)))


TIERED = config("a", "remote.storage.enable", "true")


def test_the_replica_with_the_epochs_of_remote_records_leads() -> None:
    metadata = copy(*topic_records("a", [(1, 2)]), TIERED)
    disks = (
        disk(1, replica("a", start=60, epochs=[(3, 60)]), metadata=metadata),
        disk(2, replica("a", start=70, epochs=[(0, 0), (3, 60)])),
    )
    plan = plan_of(*disks)
    assert (partition_of(plan, "a").leader, refusing(plan)) == (2, [])
    other = plan_of(*disks, settings=[("topic.a.partition.0.leader", "1")])
    assert refusing(other) == [("parted", "a")]
    assert "offsets 0 to 59" in named(other, "parted")[0]


def test_a_log_whose_records_are_all_remote_is_ahead_of_one_that_ends_before_it() -> None:
    metadata = copy(*topic_records("a", [(1, 2)]), TIERED)
    empty = replace(replica("a", start=100, epochs=[(0, 0), (3, 60)]), leader_epochs=())
    plan = plan_of(
        disk(1, empty, metadata=metadata), disk(2, replica("a", end=80, epochs=[(0, 0), (3, 60)]))
    )
    assert (partition_of(plan, "a").leader, refusing(plan)) == (1, [])


def test_an_empty_log_that_ends_after_the_leader_is_asked_about() -> None:
    """All its records were deleted, and a start forgets their leader epochs."""
    empty = replica("a", start=100, epochs=())
    behind = plan_of(disk(1, empty), disk(2, replica("a", end=80, epochs=[(1, 0)])))
    assert partition_of(behind, "a").leader == 2
    assert refusing(behind) == [("offsets-again", "a")]
    assert "offsets from 80 on" in named(behind, "offsets-again")[0]
    alike = plan_of(disk(1, empty), disk(2, replica("a", start=50, epochs=[(3, 50)])))
    assert (partition_of(alike, "a").leader, refusing(alike)) == (2, [])


def test_where_a_leader_begins_whose_disk_was_not_collected_is_not_known() -> None:
    empty = replica("a", start=100, epochs=())
    metadata = copy(*topic_records("a", [(1, 2)]), broker(1), broker(2))
    settings = [("topic.a.partition.0.leader", "2")]
    plan = plan_of(disk(1, empty, metadata=metadata), settings=settings)
    assert partition_of(plan, "a").leader == 2
    assert "offsets-again" not in codes(plan)


def test_a_replica_that_ends_alike_and_begins_later_must_not_lead_first() -> None:
    unclean = config("a", "unclean.leader.election.enable", "true")
    metadata = copy(*topic_records("a", [(2, 1)]), unclean)
    plan = plan_of(disk(1, replica("a"), metadata=metadata), disk(2, replica("a", start=50)))
    assert partition_of(plan, "a").leader == 1
    assert named(plan, "start-order") == [
        "node 1 must be up before 2; start the brokers in the order 1, 2"
    ]
