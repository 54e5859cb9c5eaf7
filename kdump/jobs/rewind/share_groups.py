"""What share groups had delivered where logs are cut, and what has to be said of it again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from kdump.formats.names import TopicPartition
from kdump.jobs.groups.coordinator_logs import SHARE_STATE_TOPIC
from kdump.jobs.known_cluster import KnownCluster
from kdump.repair.rewind.log_facts import NotRewindableError
from kdump.repair.rewind.share_offsets import (
    ShareKey,
    ShareStates,
    WrittenShare,
    share_log_of,
    written_shares,
)

LogShares = Mapping[TopicPartition, ShareStates]
"""What each log of ``__share_group_state`` says."""


class LostShare(Struct, frozen=True):
    """A partition that a share group cannot read before its offset is reset.

    Attributes:
        topic: that it reads; None if nobody knows the name.
    """

    group: str
    topic: str | None
    topic_id: str
    partition: int


def furthest(replicas: Iterable[tuple[TopicPartition, ShareStates]]) -> LogShares:
    """Of each log, what the replica says that knows most."""
    best: dict[TopicPartition, ShareStates] = {}
    for key, each in replicas:
        known = best.get(key)
        # A follower that was behind lacks the last ones; any may have deleted the first ones.
        if known is None or _reach(each) > _reach(known):
            best[key] = each
    return best


def _reach(states: ShareStates) -> tuple[int, int]:
    return states.end_offset, -states.first_offset


def shares_to_write(
    logs: LogShares,
    whole: Collection[TopicPartition],
    ends: Mapping[TopicPartition, int],
    given: Collection[TopicPartition],
    cluster: KnownCluster,
) -> dict[TopicPartition, list[WrittenShare]]:
    """Find what has to be said again of share groups, by log.

    Args:
        logs: what they had delivered.
        whole: the logs whose replicas are all there.
        ends: where logs end to which offsets are lowered.
        given: the partitions whose ends were asked for.

    Raises:
        NotRewindableError: other brokers would say something else.
    """
    found: dict[TopicPartition, list[WrittenShare]] = {}
    for key, each in logs.items():
        # Other brokers may have deleted other records, and have to write the same.
        was = each.on_disk if key in whole else each.kept
        if key not in whole:
            _require_names(key, was, given, cluster)
        if written := written_shares(was, each.kept, ends, cluster.topics):
            found[key] = written
    return found


def _require_names(
    key: TopicPartition,
    states: Iterable[ShareKey],
    given: Collection[TopicPartition],
    cluster: KnownCluster,
) -> None:
    unnamed = any(topic_id not in cluster.topics for _, topic_id, _ in states)
    missing = sorted({each.topic for each in given} - {*cluster.topics.values()})
    if unnamed and missing and cluster.image is None:
        raise NotRewindableError(
            f"{key}: share groups know topics by their ids, and these log directories do not"
            f" say which id {missing[0]} has: give the log directory with a copy of the"
            " cluster's metadata, too; nothing was changed"
        )


def lost_shares(
    expected: Iterable[ShareKey],
    logs: LogShares,
    written: Mapping[TopicPartition, Sequence[WrittenShare]],
    cluster: KnownCluster,
    *,
    are_all_given: bool,
) -> Iterator[LostShare]:
    """Find the states that share groups expect, and that are not on disk any more.

    Args:
        expected: by the records of groups.
        written: what is said again.
        are_all_given: whether without metadata the logs at hand are all that there are.
    """
    topic = None if cluster.image is None else cluster.image.topics.get(SHARE_STATE_TOPIC)
    count = len(topic.partitions) if topic is not None else len(logs)
    if not count or (topic is None and not are_all_given):
        return
    if any(
        share_log_of(share, count) != key.partition
        for key, each in logs.items()
        for share in each.on_disk
    ):
        return  # there are more partitions than are known
    for share in sorted({*expected}):
        group, topic_id, number = share
        key = TopicPartition(SHARE_STATE_TOPIC, share_log_of(share, count))
        if key not in logs or (cluster.image is not None and topic_id not in cluster.topics):
            continue
        own = logs[key].kept.get(share)
        is_written = any(
            (each.group, each.topic_id, each.number) == share for each in written.get(key, ())
        )
        if not is_written and (own is None or own.write_timestamp_ms is None):
            yield LostShare(group, cluster.topics.get(topic_id), topic_id, number)
