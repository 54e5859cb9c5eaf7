"""Groups and their committed offsets, as a group coordinator has them after loading its log.

Follows ``GroupCoordinatorShard.replay``, ``OffsetMetadataManager.replay`` and
``GroupMetadataManager.replay``, but from the latest record of each key
(:mod:`kdump.state.compacted.latest_records`): a record of one key is replaced by the next one of
that key, except that the record of a classic group, and the tombstone of a group of another type,
end all that the group was before. Where Kafka's replay fails, and the coordinator does not load the
partition, there is a problem in words, and the groups are read all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.formats.coordinator_records import decode_value
from kdump.formats.errors import FormatError
from kdump.formats.message_decoder import MessageValue
from kdump.formats.names import TopicPartition
from kdump.formats.schema import RecordType
from kdump.formats.schemas import group_coordinator as types
from kdump.formats.uuids import ZERO_UUID, format_uuid
from kdump.log.batch_validity import NO_OFFSET
from kdump.state.compacted.latest_records import Latest, LatestRecords
from kdump.state.groups.group_image import (
    CommittedOffset,
    Group,
    GroupState,
    GroupType,
    PartitionOffsets,
    PendingOffset,
)
from kdump.state.groups.group_members import (
    CONSUMER_PROTOCOL_TYPE,
    STABLE_MEMBER,
    GroupMember,
    MemberRecords,
    classic_members,
    modern_member,
    streams_member,
)
from kdump.state.groups.group_records import (
    GroupRecords,
    GroupRecordSorter,
    RecordEntry,
    WaitingOffset,
)
from kdump.state.groups.streams_topology import StreamsTopology, streams_topology
from kdump.words import counted

NO_EPOCH: Final = -1
_INITIAL_EPOCH: Final = 1
"""Of groups and target assignments without a record (``ModernGroup``)."""
_INITIAL_TOPOLOGY_EPOCH: Final = 0
_NO_TOPIC_ID: Final = format_uuid(ZERO_UUID)
_NO_TIMESTAMP: Final = -1


class GroupsFound(Struct, frozen=True):
    """The groups of a partition of ``__consumer_offsets``.

    Attributes:
        groups: by name.
        problems: why a coordinator does not load the partition.
        skipped_types: records of types that 4.3.1 does not know, and skips.
    """

    groups: tuple[Group, ...]
    problems: tuple[str, ...]
    skipped_types: int = 0


def read_groups(latest: LatestRecords, is_selected: Callable[[str], bool]) -> GroupsFound:
    """What the records of a partition of ``__consumer_offsets`` add up to.

    Args:
        is_selected: which groups, by name.
    """
    sorter = GroupRecordSorter(latest, is_selected)
    records = sorter.records()
    problems = sorter.problems
    groups = [
        group for each in records if (group := _GroupReader(each, problems).as_group()) is not None
    ]
    if latest.without_key:
        problems = [f"{counted(latest.without_key, 'record')} without a key", *problems]
    groups.sort(key=lambda group: group.group_id)
    return GroupsFound(tuple(groups), tuple(problems), sorter.skipped_types)


_MODERN_TYPES: Final = {
    GroupType.CONSUMER: (
        types.CONSUMER_GROUP_METADATA,
        types.CONSUMER_GROUP_MEMBER_METADATA,
        types.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        types.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
        types.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
        types.CONSUMER_GROUP_PARTITION_METADATA,
        types.CONSUMER_GROUP_REGULAR_EXPRESSION,
    ),
    GroupType.SHARE: (
        types.SHARE_GROUP_METADATA,
        types.SHARE_GROUP_MEMBER_METADATA,
        types.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        types.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA,
        types.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER,
        types.SHARE_GROUP_STATE_PARTITION_METADATA,
    ),
    GroupType.STREAMS: (
        types.STREAMS_GROUP_METADATA,
        types.STREAMS_GROUP_MEMBER_METADATA,
        types.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        types.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA,
        types.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER,
        types.STREAMS_GROUP_TOPOLOGY,
    ),
}
"""The records of groups that are not classic: of the group, its members, their current assignment,
the target assignment and that of a member come first."""


class _GroupReader:
    """Finds out what the latest records of one group add up to."""

    def __init__(self, records: GroupRecords, problems: list[str]) -> None:
        self.records = records
        self.group_id = records.group_id
        self.problems = problems

    def as_group(self) -> Group | None:
        """The group; None if a coordinator knows nothing of it."""
        offsets = dict(self._offsets())
        classic = self.records.entry(types.GROUP_METADATA)
        since = max(
            classic.last,
            *(self.records.entry(of_type[0]).tombstone for of_type in _MODERN_TYPES.values()),
        )
        modern = self._modern_types(since)
        if len(modern) > 1:
            words = " and ".join(each.value for each in modern)
            self.problems.append(f"group {self.group_id} has records of types {words}")
        if modern:
            group = self._modern_group(modern[-1], since)
            if classic.is_alive(since) and not self._classic_group(classic).is_simple:
                self.problems.append(
                    f"group {self.group_id} has records of type {modern[-1].value} after that of"
                    " a classic group"
                )
        elif classic.is_alive(since):
            group = self._classic_group(classic)
        elif self._last_commit() > since:
            group = Group(self.group_id, GroupType.CLASSIC, GroupState.EMPTY)
        elif offsets:
            group = Group(self.group_id, None, GroupState.DEAD)
        else:
            return None
        return replace(group, offsets=offsets)

    def _modern_types(self, since: int) -> list[GroupType]:
        """The types whose records made the group what it is, by the latest of them."""
        last = {
            group_type: max(
                (
                    entry.value.offset
                    for record_type in record_types
                    for entry in self.records.entries[record_type].values()
                ),
                default=NO_OFFSET,
            )
            for group_type, record_types in _MODERN_TYPES.items()
        }
        found = [group_type for group_type, offset in last.items() if offset > since]
        return sorted(found, key=lambda group_type: last[group_type])

    def _last_commit(self) -> int:
        """Offset of the latest record of a committed offset, in whatever transaction."""
        entries = (entry for by_type in self.records.offsets.values() for entry in by_type.values())
        committed = max((entry.value.offset for entry in entries), default=NO_OFFSET)
        return max(committed, self.records.last_commit)

    def _decoded(self, record_type: RecordType, latest: Latest) -> MessageValue | None:
        """The fields of a value; None if it cannot be decoded, which is a problem."""
        if latest.value is None:
            return None
        try:
            return decode_value(record_type, latest.value)
        except FormatError as problem:
            self.problems.append(f"the record at offset {latest.offset}: {problem.what}")
            return None

    def _classic_group(self, entry: RecordEntry) -> Group:
        value = self._decoded(types.GROUP_METADATA, entry.value)
        if value is None:
            return Group(self.group_id, GroupType.CLASSIC, None, record_offset=entry.value.offset)
        members = classic_members(value)
        topics = frozenset[str]()
        for member in members:
            topics |= frozenset(member.subscribed_topics or ())
        is_known = value["protocolType"] == CONSUMER_PROTOCOL_TYPE and not any(
            member.subscribed_topics is None for member in members
        )
        state_timestamp_ms = value.get("currentStateTimestamp", _NO_TIMESTAMP)
        return Group(
            self.group_id,
            GroupType.CLASSIC,
            GroupState.STABLE if members else GroupState.EMPTY,
            protocol_type=value["protocolType"],
            protocol=value["protocol"],
            generation=value["generation"],
            leader=value["leader"],
            state_timestamp_ms=None if state_timestamp_ms == _NO_TIMESTAMP else state_timestamp_ms,
            members=members,
            subscribed_topics=topics if is_known else None,
            record_offset=entry.value.offset,
        )

    def _modern_group(self, group_type: GroupType, since: int) -> Group:
        """A group of a type other than classic, from its records at or after ``since``."""
        metadata_type, *_ = record_types = _MODERN_TYPES[group_type]
        metadata = self._alive(metadata_type, "", since) or {}
        epoch = metadata.get("epoch", _INITIAL_EPOCH)
        assignment_epoch = self._assignment_epoch(record_types[3], since)
        members = self._members(group_type, since)
        topology = self._topology(since)
        is_ready = group_type is not GroupType.STREAMS or (
            topology is not None
            and topology.epoch == metadata.get("validatedTopologyEpoch", _INITIAL_TOPOLOGY_EPOCH)
        )
        return Group(
            self.group_id,
            group_type,
            _modern_state(group_type, members, epoch, assignment_epoch, is_ready=is_ready),
            protocol_type=group_type.value,
            protocol=_server_assignor(members),
            epoch=epoch,
            assignment_epoch=assignment_epoch,
            members=members,
            share_partitions=self._share_partitions(since),
            subscribed_topics=self._subscribed_topics(members, topology, since),
            topology=topology,
            record_offset=self.records.entry(metadata_type).value.offset,
        )

    def _topology(self, since: int) -> StreamsTopology | None:
        value = self._alive(types.STREAMS_GROUP_TOPOLOGY, "", since)
        return None if value is None else streams_topology(value)

    def _alive(self, record_type: RecordType, name: str, since: int) -> MessageValue | None:
        entry = self.records.entries[record_type].get(name)
        if entry is None or not entry.is_alive(since):
            return None
        return self._decoded(record_type, entry.value)

    def _assignment_epoch(self, record_type: RecordType, since: int) -> int:
        found = self._alive(record_type, "", since)
        if found is not None:
            return int(found["assignmentEpoch"])
        return NO_EPOCH if self.records.entry(record_type).tombstone > since else _INITIAL_EPOCH

    def _members(self, group_type: GroupType, since: int) -> tuple[GroupMember, ...]:
        _, metadata_type, current_type, _, target_type, *_ = _MODERN_TYPES[group_type]
        metadata, current = self.records.entries[metadata_type], self.records.entries[current_type]
        members = []
        for member_id in sorted(metadata.keys() | current.keys()):
            of_member = metadata.get(member_id, RecordEntry())
            of_current = current.get(member_id, RecordEntry())
            alive_since = max(since, of_member.tombstone)
            if max(of_member.value.offset, of_current.value.offset) <= alive_since:
                continue
            is_current = of_current.value.offset > alive_since
            records = MemberRecords(
                self._alive(metadata_type, member_id, since),
                self._decoded(current_type, of_current.value) if is_current else None,
                has_left=of_current.tombstone > max(alive_since, of_current.value.offset),
                target=self._alive(target_type, member_id, since),
            )
            is_streams = group_type is GroupType.STREAMS
            members.append((streams_member if is_streams else modern_member)(member_id, records))
        return tuple(members)

    def _share_partitions(self, since: int) -> dict[str, tuple[str, tuple[int, ...]]]:
        value = self._alive(types.SHARE_GROUP_STATE_PARTITION_METADATA, "", since)
        return {
            each["topicId"]: (each["topicName"], tuple(sorted(each["partitions"])))
            for each in (value["initializedTopics"] if value else ())
        }

    def _subscribed_topics(
        self, members: Iterable[GroupMember], topology: StreamsTopology | None, since: int
    ) -> frozenset[str]:
        topics: set[str] = set()
        for member in members:
            topics.update(member.subscribed_topics or ())
            if member.subscribed_regex is not None:
                resolved = self._alive(
                    types.CONSUMER_GROUP_REGULAR_EXPRESSION, member.subscribed_regex, since
                )
                topics.update(resolved["topics"] if resolved else ())
        if members and topology is not None:
            topics.update(*(each.read_topics for each in topology.subtopologies))
        return frozenset(topics)

    def _offsets(self) -> Iterator[tuple[TopicPartition, PartitionOffsets]]:
        for partition in sorted(self.records.offsets.keys() | self.records.pending.keys()):
            by_type = self.records.offsets.get(partition, {})
            buried = max((entry.tombstone for entry in by_type.values()), default=NO_OFFSET)
            committed, unreadable = None, None
            last = max(by_type.items(), key=lambda item: item[1].value.offset, default=None)
            if last is not None and last[1].value.offset > buried:
                record_type, entry = last
                committed = self._committed(record_type, entry.value)
                unreadable = entry.value.offset if committed is None else None
            pending = tuple(self._pending(partition, buried))
            if committed is not None or pending or unreadable is not None:
                yield partition, PartitionOffsets(committed, pending, unreadable)

    def _pending(self, partition: TopicPartition, buried: int) -> Iterator[PendingOffset]:
        # Records of an old and of a new type have different keys.
        last: dict[int, WaitingOffset] = {}
        for waiting in sorted(
            self.records.pending.get(partition, ()), key=lambda each: each.latest.offset
        ):
            last[waiting.producer_id] = waiting
        for producer_id, waiting in sorted(last.items()):
            if waiting.latest.offset > buried:
                committed = self._committed(waiting.record_type, waiting.latest)
                if committed is not None:
                    yield PendingOffset(producer_id, committed, waiting.is_undecided)

    def _committed(self, record_type: RecordType, latest: Latest) -> CommittedOffset | None:
        value = self._decoded(record_type, latest)
        if value is None:
            return None
        epoch, expires = value.get("leaderEpoch", NO_EPOCH), value.get("expireTimestamp", -1)
        topic_id = value.get("topicId", _NO_TOPIC_ID)
        return CommittedOffset(
            record_offset=latest.offset,
            offset=value["offset"],
            leader_epoch=None if epoch == NO_EPOCH else epoch,
            metadata=value["metadata"],
            commit_timestamp_ms=value["commitTimestamp"],
            expire_timestamp_ms=None if expires == _NO_TIMESTAMP else expires,
            topic_id=None if topic_id == _NO_TOPIC_ID else topic_id,
        )


def _modern_state(
    group_type: GroupType,
    members: tuple[GroupMember, ...],
    epoch: int,
    assignment_epoch: int,
    *,
    is_ready: bool,
) -> GroupState:
    """Follows ``maybeUpdateGroupState`` of each type of group."""
    if not members:
        return GroupState.EMPTY
    if group_type is GroupType.SHARE:
        return GroupState.STABLE
    if not is_ready:
        return GroupState.NOT_READY
    if epoch > assignment_epoch:
        return GroupState.ASSIGNING
    if any(m.state != STABLE_MEMBER or m.epoch != assignment_epoch for m in members):
        return GroupState.RECONCILING
    return GroupState.STABLE


def _server_assignor(members: Iterable[GroupMember]) -> str | None:
    """The assignor that most members ask for; None if they leave it to the coordinator."""
    asked = [member.server_assignor for member in members if member.server_assignor]
    return max(sorted(set(asked)), key=asked.count, default=None)
