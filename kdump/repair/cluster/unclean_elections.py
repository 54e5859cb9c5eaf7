"""Topics with unclean leader election, where the first broker to start leads.

With ``unclean.leader.election.enable=true`` a controller does not wait for the planned leader: the
first replica that is up leads, and a better one truncates to it. Either the brokers are started in
an order in which no better replica comes late, or the election has to be switched off.
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kdump.repair.cluster import notice_codes
from kdump.repair.cluster.config_choice import UNCLEAN_ELECTION
from kdump.repair.cluster.evidence import NOTHING, DiskReplica
from kdump.repair.cluster.notice_codes import Notices
from kdump.repair.cluster.overrides import Overrides
from kdump.repair.cluster.topic_choice import TopicChoice
from kdump.state.epochs.follower_truncation import lost_as_follower
from kdump.state.metadata.cluster_plan import (
    FirstLeader,
    PlannedConfig,
    PlannedTopic,
    Source,
    SourceKind,
)
from kdump.state.metadata.config_keys import is_true


class _Race(Struct, frozen=True):
    """A partition whose leader must be up before replicas that have less."""

    topic: str
    partition: int
    leader: int
    behind: tuple[int, ...]


def settle_unclean_elections(
    topics: Sequence[PlannedTopic],
    choices: Mapping[str, TopicChoice],
    default: bool,
    overrides: Overrides,
    notices: Notices,
) -> tuple[list[PlannedTopic], tuple[FirstLeader, ...]]:
    """Find an order in which the brokers can start, or switch unclean leader election off.

    Args:
        choices: by name.
        default: whether it is on where a topic does not say.
        overrides: ``unclean=off`` switches it off, ``unclean=on`` leaves it on without an order.
        notices: takes what is decided.

    Returns:
        The topics, and the leaders that must start first.
    """
    races = [
        race
        for topic in topics
        if _is_on(topic, default)
        for race in _races(topic, choices[topic.name])
    ]
    order = _start_order(races)
    is_off = overrides.is_unclean_kept is False or (
        order is None and overrides.is_unclean_kept is None
    )
    if races and is_off:
        return _switched_off(topics, {each.topic for each in races}, order is None, notices), ()
    for race in races:
        which = "" if order is None else f"; start the brokers in the order {_words(order)}"
        behind = ", ".join(map(str, race.behind))
        notices.add(
            notice_codes.START_ORDER,
            f"node {race.leader} must be up before {behind}{which}",
            race.topic,
            race.partition,
            override="unclean=off",
        )
    return list(topics), tuple(
        FirstLeader(each.topic, each.partition, each.leader) for each in races
    )


def _is_on(topic: PlannedTopic, default: bool) -> bool:
    values = {each.name: each.value for each in topic.configs}
    value = values.get(UNCLEAN_ELECTION)
    return default if value is None else is_true(value)


def _races(topic: PlannedTopic, choice: TopicChoice) -> Iterable[_Race]:
    for partition in topic.partitions:
        replicas = {
            each.node_id: each for each in reversed(choice.replicas.get(partition.partition, ()))
        }
        best = replicas.get(partition.leader)
        if best is None:
            continue
        behind = tuple(
            node
            for node in partition.replicas
            if node != partition.leader and _is_behind(replicas.get(node), best)
        )
        if behind:
            yield _Race(topic.name, partition.partition, partition.leader, behind)


def _is_behind(replica: DiskReplica | None, leader: DiskReplica) -> bool:
    """Whether the leader would lose records as a follower of the replica."""
    if replica is None or replica.end != leader.end:
        return (NOTHING if replica is None else replica.end) < leader.end
    own, other = leader.loaded, replica.loaded
    return own is not None and other is not None and any(lost_as_follower(own, other))


def _start_order(races: Iterable[_Race]) -> list[int] | None:
    """Nodes in an order in which each leader comes before those behind it; None without one."""
    before: dict[int, set[int]] = {}
    for race in races:
        before.setdefault(race.leader, set())
        for node in race.behind:
            before.setdefault(node, set()).add(race.leader)
    sorter = graphlib.TopologicalSorter({node: sorted(before[node]) for node in sorted(before)})
    try:
        sorter.prepare()
    except graphlib.CycleError:
        return None
    order: list[int] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        order += ready
        sorter.done(*ready)
    return order


def _words(order: Iterable[int]) -> str:
    return ", ".join(map(str, order))


def _switched_off(
    topics: Iterable[PlannedTopic], names: set[str], is_unordered: bool, notices: Notices
) -> list[PlannedTopic]:
    why = "no order of starts is right for all partitions" if is_unordered else "--set unclean=off"
    source = Source(SourceKind.RULE if is_unordered else SourceKind.SET, why)
    found = []
    for topic in topics:
        if topic.name not in names:
            found.append(topic)
            continue
        notices.add(
            notice_codes.UNCLEAN_OFF,
            f"{why}; switch it on again when all replicas are in sync",
            topic.name,
            override="unclean=on" if is_unordered else None,
        )
        kept = [each for each in topic.configs if each.name != UNCLEAN_ELECTION]
        off = PlannedConfig(UNCLEAN_ELECTION, "false", source)
        configs = tuple(sorted([*kept, off], key=lambda each: each.name))
        found.append(replace(topic, configs=configs))
    return found
