"""Divide partitions among the members of a group of the consumer protocol.

They stand for ``RangeAssignor`` and ``UniformAssignor`` of the group coordinator. Ranges are those
of a broker. What the uniform one assigns is as even and as sticky, but may be divided otherwise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec import Struct

from kdump.formats.names import TopicPartition


class Subscriber(Struct, frozen=True):
    """A member, and what it should have.

    Attributes:
        topics: it may have partitions of these.
    """

    member_id: str
    instance_id: str | None
    topics: AbstractSet[str]
    had: AbstractSet[TopicPartition]


Targets = dict[str, frozenset[TopicPartition]]
"""The partitions of each member, by its id."""


def assign_ranges(members: Iterable[Subscriber], partitions: Mapping[str, int]) -> Targets:
    """Give each member a range of each topic that it subscribes to.

    Args:
        partitions: the number of partitions of each topic.
    """
    targets = {each.member_id: set[TopicPartition]() for each in members}
    ordered = sorted(
        members, key=lambda each: (each.instance_id is None, each.instance_id or each.member_id)
    )
    for topic, count in partitions.items():
        own = [each for each in ordered if topic in each.topics]
        start = 0
        for number, each in enumerate(own):
            end = start + count // len(own) + (number < count % len(own))
            targets[each.member_id] |= {TopicPartition(topic, n) for n in range(start, end)}
            start = end
    return {member_id: frozenset(own) for member_id, own in targets.items()}


def assign_uniformly(members: Sequence[Subscriber], partitions: Mapping[str, int]) -> Targets:
    """Give all members about the same number of partitions, and move as few as that allows."""
    subscribers: dict[str, list[str]] = defaultdict(list)
    for each in members:
        for topic in each.topics & partitions.keys():
            subscribers[topic].append(each.member_id)
    free = {
        TopicPartition(topic, number)
        for topic in subscribers
        for number in range(partitions[topic])
    }
    most = -(-len(free) // len(members)) if members else 0
    targets: _Drafts = {}
    for each in members:
        kept = sorted(key for key in each.had if key.topic in each.topics and key in free)
        targets[each.member_id] = dict.fromkeys(kept[:most])
        free.difference_update(kept[:most])
    # Those that few members may have come first: the others make up for them.
    for key in sorted(free, key=lambda key: (len(subscribers[key.topic]), key)):
        targets[_least(targets, subscribers[key.topic])][key] = None
    while (move := _next_move(targets, subscribers)) is not None:
        key, giver, taker = move
        del targets[giver][key]
        targets[taker][key] = None
    return {member_id: frozenset(own) for member_id, own in targets.items()}


_Drafts = dict[str, dict[TopicPartition, None]]
"""What each member may get; its partitions have an order, so that the result does not depend on
hashes."""


def _next_move(
    targets: _Drafts, subscribers: Mapping[str, Sequence[str]]
) -> tuple[TopicPartition, str, str] | None:
    """A partition that one of the members with most can give to one with at least two less."""
    for giver in sorted(targets, key=lambda member_id: -len(targets[member_id])):
        # One partition of each topic stands for all: any subscriber may have them, or none.
        for key in {key.topic: key for key in targets[giver]}.values():
            taker = _least(targets, subscribers[key.topic])
            if len(targets[taker]) + 1 < len(targets[giver]):
                return key, giver, taker
    return None


def _least(targets: _Drafts, member_ids: Iterable[str]) -> str:
    return min(member_ids, key=lambda member_id: len(targets[member_id]))


Assignor = Callable[[Sequence[Subscriber], Mapping[str, int]], Targets]
ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
"""By name; the first one is the default. Follows ``group.consumer.assignors``."""
DEFAULT_ASSIGNOR: Final = "uniform"
