"""What holds for the plan of any collections, whatever they say."""

from __future__ import annotations

import random
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from builders.dead_clusters import (
    CONTROLLER,
    acl,
    an_id,
    broker,
    claim,
    collected,
    config,
    copy,
    disk,
    record,
    refusing,
    removed,
    replica,
    topic_records,
)
from kdump.formats.names import PartitionState
from kdump.repair.cluster.cluster_rules import PlanRequest, plan_cluster
from kdump.repair.cluster.evidence import DiskReplica
from kdump.state.metadata.cluster_plan import ClusterPlan
from kdump.state.metadata.cluster_plan_json import decode_plan, encode_plan
from kdump.state.metadata.collected_image import image_of_records
from kdump.state.metadata.disk_collection import (
    ClaimedPartition,
    CollectedDirectory,
    CollectedVoter,
    DiskCollection,
)
from kdump.state.metadata.image_records import records_of
from kdump.state.metadata.metadata_image import EntityKind, LogEnd

TOPICS: Final = ("a", "b.c", "__consumer_offsets", "__transaction_state")
IDS: Final = (an_id("first"), an_id("second"), None)

# Strategies are built once: building them takes longer than drawing from them.
NAMES: Final = st.sampled_from(TOPICS)
SOME_ID: Final = st.sampled_from(IDS)
KNOWN_ID: Final = st.sampled_from(IDS[:2])
SMALL: Final = st.integers(0, 6)
MAYBE_SMALL: Final = st.none() | SMALL
ENDS: Final = st.integers(0, 50)
MAYBE_END: Final = st.none() | ENDS
LARGE: Final = st.integers(0, 9000)
MAYBE_LARGE: Final = st.none() | st.integers(0, 90_000)
NUMBERS: Final = st.integers(0, 4)
NODE: Final = st.integers(1, 4)
EPOCHS: Final = st.dictionaries(SMALL, ENDS, max_size=3)
STATES: Final = st.sampled_from((PartitionState.LIVE, PartitionState.LIVE, *PartitionState))
NODES: Final = st.lists(NODE, min_size=1, max_size=3, unique=True)
ASSIGNMENTS: Final = st.lists(NODES, min_size=1, max_size=3)
SOME_NAMES: Final = st.lists(NAMES, max_size=3, unique=True)
CONFIG_KEYS: Final = st.sampled_from(("unclean.leader.election.enable", "retention.ms"))
CONFIG_VALUES: Final = st.sampled_from(("true", "false"))


@st.composite
def replicas(draw: st.DrawFn) -> Any:
    epochs = sorted(draw(EPOCHS).items())
    topic = draw(NAMES)
    topic_id = draw(SOME_ID)
    return replica(
        topic,
        draw(NUMBERS),
        end=draw(MAYBE_END),
        epochs=epochs,
        batch_epoch=draw(MAYBE_SMALL),
        topic_id=None if topic_id is None else an_id(f"{topic} {topic_id}"),
        state=draw(STATES),
        producer_id=draw(MAYBE_LARGE),
    )


REPLICAS: Final = st.lists(replicas(), max_size=6)


@st.composite
def topics_of_a_copy(draw: st.DrawFn) -> list[Any]:
    found = []
    for name in draw(SOME_NAMES):
        partitions = draw(ASSIGNMENTS)
        topic_id = an_id(f"{name} {draw(KNOWN_ID)}")
        epoch = draw(SMALL)
        found += topic_records(name, partitions, topic_id=topic_id, leader_epoch=epoch)
        if draw(st.booleans()):
            found.append(config(name, draw(CONFIG_KEYS), draw(CONFIG_VALUES)))
    return found


TOPICS_OF_A_COPY: Final = topics_of_a_copy()
OTHERS: Final = st.lists(st.sampled_from((acl("x"), acl("y"), broker(1), broker(2))), max_size=3)
GONE: Final = st.lists(NAMES, max_size=2)
VOTERS: Final = st.sets(NODE)


@st.composite
def copies(draw: st.DrawFn) -> Any:
    extra = draw(OTHERS)
    next_id = record("PRODUCER_IDS_RECORD", brokerId=1, brokerEpoch=1, nextProducerId=draw(LARGE))
    gone = draw(GONE)
    return copy(
        *draw(TOPICS_OF_A_COPY),
        *{repr(each): each for each in extra}.values(),
        next_id,
        end=draw(NODE) * 100,
        epoch=draw(SMALL),
        highest_offset=draw(LARGE),
        highest_epoch=draw(ENDS),
        voters=tuple(CollectedVoter(each) for each in draw(VOTERS)),
        removed_topics=tuple(removed(name, an_id(f"{name} {draw(KNOWN_ID)}")) for name in gone),
    )


@st.composite
def claims(draw: st.DrawFn) -> Any:
    partition = ClaimedPartition(draw(SMALL), draw(MAYBE_SMALL), draw(MAYBE_END))
    return claim(draw(CLAIMED_TOPICS), partition, source=draw(SOURCES))


CLAIMED_TOPICS: Final = st.sampled_from((*TOPICS, "lost"))
SOURCES: Final = st.sampled_from(("__consumer_offsets", "__remote_log_metadata"))
CLAIMS: Final = st.lists(claims(), max_size=2)
PATHS: Final = st.sampled_from(("/d1", "/d2"))
MAYBE_COPY: Final = st.none() | copies()


@st.composite
def directories(draw: st.DrawFn) -> CollectedDirectory:
    partitions = draw(REPLICAS)
    return disk(
        draw(NODE),
        *{each.directory: each for each in partitions}.values(),
        path=draw(PATHS),
        claims=tuple(draw(CLAIMS)),
        metadata=draw(MAYBE_COPY),
        highest_transactional_producer_id=draw(MAYBE_LARGE),
        has_streams_groups=draw(st.booleans()),
        broker_epoch=draw(MAYBE_LARGE),
        is_clean_shutdown=draw(st.booleans()),
    )


COLLECTIONS: Final = st.lists(
    st.builds(
        lambda found, time: collected(*found, created_ms=time),
        st.lists(directories(), max_size=2),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=4,
)


def plan_for(hosts: list[DiskCollection], *settings: tuple[str, str]) -> ClusterPlan:
    settings = (("cluster.id", "a-cluster"), *settings)
    return plan_cluster(PlanRequest(hosts, (CONTROLLER,), settings))


def latest(hosts: list[DiskCollection]) -> list[CollectedDirectory]:
    """The directories that are in the plan's inputs only once."""
    found = [each for host in hosts for each in host.log_directories]
    ids = [each.directory_id for each in found]
    return [each for each in found if ids.count(each.directory_id) == 1]


@given(COLLECTIONS)
def test_no_partition_of_a_disk_is_missing_unless_the_plan_asks(
    hosts: list[DiskCollection],
) -> None:
    plan = plan_for(hosts)
    planned = {
        (topic.name, topic.topic_id, each.partition)
        for topic in plan.topics
        for each in topic.partitions
    }
    asked = {topic for _, topic in refusing(plan)}
    for directory in latest(hosts):
        for each in directory.partitions:
            if each.state is PartitionState.LIVE and each.topic_id is not None:
                key = each.topic, each.topic_id, each.partition
                assert key in planned or each.topic in asked


@given(COLLECTIONS)
def test_epochs_are_above_all_that_are_on_disk(hosts: list[DiskCollection]) -> None:
    plan = plan_for(hosts)
    epochs = {
        (topic.topic_id, each.partition): each.leader_epoch
        for topic in plan.topics
        for each in topic.partitions
    }
    for directory in latest(hosts):
        for each in directory.partitions:
            epoch = epochs.get((each.topic_id or "", each.partition))
            assert epoch is None or each.highest_epoch is None or epoch > each.highest_epoch
        metadata = directory.metadata
        if metadata is not None:
            assert plan.snapshot_offset > max(metadata.end_offset, metadata.highest_offset)
            assert plan.snapshot_epoch > max(metadata.epoch, metadata.highest_epoch)
            image = image_of_records(metadata.records, LogEnd(0, 0))
            assert plan.next_producer_id >= image.of(EntityKind.NEXT_PRODUCER_ID)[""]
            for (topic_id, number), partition in image.of(EntityKind.PARTITION).items():
                epoch = epochs.get((topic_id, number))
                assert epoch is None or epoch > partition.leader_epoch
        highest = [each.highest_producer_id for each in directory.partitions]
        highest.append(directory.highest_transactional_producer_id)
        assert all(plan.next_producer_id > each for each in highest if each is not None)


@given(COLLECTIONS)
def test_no_other_replica_is_more_advanced_than_the_leader(hosts: list[DiskCollection]) -> None:
    plan = plan_for(hosts)
    ends: dict[tuple[str | None, int], dict[int, tuple[int, int]]] = {}
    for directory in latest(hosts):
        assert directory.node_id is not None
        for each in directory.partitions:
            if each.state is PartitionState.LIVE:
                end = DiskReplica(directory.node_id, directory, each).end
                nodes = ends.setdefault((each.topic_id, each.partition), {})
                nodes[directory.node_id] = max(end, nodes.get(directory.node_id, end))
    for topic in plan.topics:
        for partition in topic.partitions:
            nodes = ends.get((topic.topic_id, partition.partition), {})
            if partition.leader in nodes:
                others = [nodes[node] for node in partition.replicas if node in nodes]
                assert nodes[partition.leader] == max(others)
                assert partition.isr == (partition.leader,)


@given(COLLECTIONS, st.randoms(use_true_random=False))
def test_the_order_of_the_collections_does_not_matter(
    hosts: list[DiskCollection], order: random.Random
) -> None:
    shuffled = [
        replace(
            host,
            log_directories=tuple(order.sample(host.log_directories, len(host.log_directories))),
        )
        for host in order.sample(hosts, len(hosts))
    ]
    assert plan_for(shuffled) == plan_for(hosts)


@given(COLLECTIONS)
def test_a_plan_can_be_read_back_and_written_as_records(hosts: list[DiskCollection]) -> None:
    plan = plan_for(hosts, ("stray", "keep"))
    assert decode_plan(b"".join(encode_plan(plan))) == plan
    image = image_of_records(plan.records(), LogEnd(plan.snapshot_epoch, plan.snapshot_offset))
    assert len(list(records_of(image, on_loss=lambda _loss: None))) > 0
    assert len({topic.topic_id for topic in plan.topics}) == len(plan.topics)
    assert {each.topic_id for each in image.of(EntityKind.TOPIC).values()} == {
        topic.topic_id for topic in plan.topics
    }
