"""How the server divides partitions among the members of a group."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kdump.formats.names import TopicPartition
from kdump.serve.assignors import Subscriber, Targets, assign_ranges, assign_uniformly

TOPICS = ("a", "b", "c")


def keys(topic: str, *numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


def members(topics: Sequence[frozenset[str]], had: Targets | None = None) -> list[Subscriber]:
    return [
        Subscriber(f"m{number}", None, each, (had or {}).get(f"m{number}", frozenset()))
        for number, each in enumerate(topics)
    ]


subscriptions = st.lists(st.frozensets(st.sampled_from(TOPICS)), min_size=1, max_size=6)
partition_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12))


@given(subscriptions, partition_counts, st.sampled_from([assign_ranges, assign_uniformly]))
def test_each_partition_that_someone_wants_is_assigned_once(
    topics: list[frozenset[str]], partitions: dict[str, int], assign: object
) -> None:
    assert callable(assign)
    targets: Targets = assign(members(topics), partitions)
    assigned = [key for own in targets.values() for key in own]
    wanted = frozenset().union(*topics)
    assert sorted(assigned) == [
        TopicPartition(topic, number)
        for topic in sorted(wanted & partitions.keys())
        for number in range(partitions[topic])
    ]
    for number, each in enumerate(topics):
        assert {key.topic for key in targets[f"m{number}"]} <= each


@given(subscriptions, partition_counts)
def test_no_member_has_two_more_than_another_that_could_take_one(
    topics: list[frozenset[str]], partitions: dict[str, int]
) -> None:
    targets = assign_uniformly(members(topics), partitions)
    for giver in targets.values():
        for taker, subscribed in zip(targets.values(), topics, strict=True):
            if any(key.topic in subscribed for key in giver):
                assert len(giver) - len(taker) < 2


@given(st.integers(1, 6), partition_counts)
def test_a_new_member_takes_only_its_share(count: int, partitions: dict[str, int]) -> None:
    everything = frozenset(TOPICS)
    before = assign_uniformly(members([everything] * count), partitions)
    after = assign_uniformly(members([everything] * (count + 1), before), partitions)
    kept = sum(len(before[each] & after[each]) for each in before)
    assert kept == sum(partitions.values()) - len(after[f"m{count}"])


def test_ranges_follow_each_other_in_the_order_of_instances_and_members() -> None:
    """As ``RangeAssignor``: those with an instance id first, the larger ranges first."""
    both = frozenset(TOPICS)
    group = [
        Subscriber("z", "i2", both, frozenset()),
        Subscriber("b", None, both, frozenset()),
        Subscriber("y", "i1", frozenset({"a"}), frozenset()),
        Subscriber("a", None, both, frozenset()),
    ]
    targets = assign_ranges(group, {"a": 6, "b": 4})
    assert targets == {
        "y": keys("a", 0, 1),
        "z": keys("a", 2, 3) | keys("b", 0, 1),
        "a": keys("a", 4) | keys("b", 2),
        "b": keys("a", 5) | keys("b", 3),
    }
    ordered = [
        sorted(key.partition for key in targets[each] if key.topic == "a") for each in "yzab"
    ]
    assert all(first[-1] + 1 == second[0] for first, second in pairwise(ordered))
