"""The members of groups of all types, with their subscriptions and assignments.

Follows ``ClassicGroupMember``, ``ConsumerGroupMember``, ``ShareGroupMember`` and
``StreamsGroupMember``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.formats.cursor import Cursor
from kdump.formats.errors import FormatError
from kdump.formats.message_decoder import MessageValue, decode
from kdump.formats.schemas.consumer_protocol import (
    CONSUMER_PROTOCOL_ASSIGNMENT,
    CONSUMER_PROTOCOL_SUBSCRIPTION,
)
from kdump.state.groups.streams_topology import KeyValue, key_values

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
LEFT_EPOCH: Final = -1
"""Epoch of a member that left (``LEAVE_GROUP_MEMBER_EPOCH``)."""
STABLE_MEMBER: Final = "stable"

_NEW_EPOCH: Final = 0
_MEMBER_STATES: Final = {
    0: STABLE_MEMBER,
    1: "unrevoked_partitions",
    2: "unreleased_partitions",
}
"""``MemberState`` of consumer and share groups by its number."""
_STREAMS_MEMBER_STATES: Final = {
    1: STABLE_MEMBER,
    2: "unrevoked_tasks",
    3: "unreleased_tasks",
}
"""The same of Kafka Streams."""
_UNKNOWN_STATE: Final = "unknown"


class AssignedPartitions(Struct, frozen=True):
    """Partitions of a topic.

    Attributes:
        topic: its name; None where only the id is recorded.
        topic_id: as Kafka writes it; None where only the name is recorded.
        partitions: the numbers, rising.
    """

    topic: str | None
    topic_id: str | None
    partitions: tuple[int, ...]


class AssignedTasks(Struct, frozen=True):
    """Tasks of a subtopology of Kafka Streams.

    Attributes:
        kind: ``active``, ``standby`` or ``warmup``.
        partitions: the numbers, rising.
    """

    kind: str
    subtopology: str
    partitions: tuple[int, ...]


Assignment = tuple[AssignedPartitions | AssignedTasks, ...]


class Endpoint(Struct, frozen=True):
    """Where a member answers interactive queries."""

    host: str
    port: int


class StreamsProcess(Struct, frozen=True):
    """What a member of a group of Kafka Streams says of itself.

    The fields have the names of ``StreamsGroupDescribeResponse``.

    Attributes:
        process_id: the same for all members in one process.
        topology_epoch: of the topology that it has.
        user_endpoint: None without one.
    """

    process_id: str
    topology_epoch: int
    user_endpoint: Endpoint | None
    client_tags: tuple[KeyValue, ...]


class GroupMember(Struct, frozen=True):
    """A member of a group.

    Attributes:
        instance_id: of a static member.
        client_id: as the client set it; None where the record with it is missing.
        rack_id: if it has one.
        epoch: of a member of a group with the new protocols; None for a classic group.
        state: whether it has what it was assigned, in Kafka's words; None for a classic group.
        subscribed_topics: names; None if they cannot be read.
        subscribed_regex: the pattern that it subscribes to.
        assigned: what it has now.
        target: what it shall have; None for a classic group.
        subscription: of a member of a classic group, as it sent it; likewise its assignment.
        process: of a member of a group of Kafka Streams; None where the record with it is missing.
    """

    member_id: str
    instance_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    rack_id: str | None = None
    epoch: int | None = None
    state: str | None = None
    subscribed_topics: tuple[str, ...] | None = None
    subscribed_regex: str | None = None
    server_assignor: str | None = None
    assigned: Assignment = ()
    target: Assignment | None = None
    subscription: bytes = b""
    assignment: bytes = b""
    process: StreamsProcess | None = None


class MemberRecords(Struct):
    """The records of a member that count, by what they are about.

    Attributes:
        metadata: its subscription and client.
        has_left: whether a tombstone of the current assignment came after it.
        target: its target assignment.
    """

    metadata: MessageValue | None = None
    current: MessageValue | None = None
    has_left: bool = False
    target: MessageValue | None = None


def classic_members(group: MessageValue) -> tuple[GroupMember, ...]:
    """The members in the record of a classic group."""
    of_consumers = group["protocolType"] == CONSUMER_PROTOCOL_TYPE
    return tuple(
        GroupMember(
            member_id=member["memberId"],
            instance_id=member.get("groupInstanceId"),
            client_id=member["clientId"],
            client_host=member["clientHost"],
            subscribed_topics=_subscribed(member["subscription"]) if of_consumers else None,
            assigned=_assigned(member["assignment"]) if of_consumers else (),
            subscription=member["subscription"],
            assignment=member["assignment"],
        )
        for member in group["members"]
    )


def _subscribed(data: bytes) -> tuple[str, ...] | None:
    """The topics that a member subscribes to; None if its bytes say nothing that Kafka reads.

    As ``ClassicGroup.computeSubscribedTopics`` does, only what version 0 has is read.
    """
    cursor = Cursor(data)
    try:
        cursor.int16()
        return tuple(sorted(set(decode(CONSUMER_PROTOCOL_SUBSCRIPTION, cursor, 0)["topics"])))
    except FormatError:
        return None


def _assigned(data: bytes) -> Assignment:
    cursor = Cursor(data)
    try:
        version = cursor.int16()
        found = decode(CONSUMER_PROTOCOL_ASSIGNMENT, cursor, version)
    except FormatError:
        return ()
    return tuple(
        sorted(
            (
                AssignedPartitions(each["topic"], None, tuple(sorted(each["partitions"])))
                for each in found["assignedPartitions"]
            ),
            key=lambda each: each.topic or "",
        )
    )


def modern_member(member_id: str, records: MemberRecords) -> GroupMember:
    """A member of a consumer or share group, from its records."""
    metadata = records.metadata or {}
    topics = metadata.get("subscribedTopicNames")
    return replace(
        _client(member_id, metadata),
        epoch=_epoch(records),
        state=_state(records.current, _MEMBER_STATES),
        subscribed_topics=None if topics is None else tuple(sorted(topics)),
        subscribed_regex=metadata.get("subscribedTopicRegex") or None,
        server_assignor=metadata.get("serverAssignor"),
        assigned=() if records.has_left else _partitions(records.current, "assignedPartitions"),
        target=_partitions(records.target, "topicPartitions"),
    )


def streams_member(member_id: str, records: MemberRecords) -> GroupMember:
    """A member of a group of Kafka Streams, from its records."""
    current = records.current
    return replace(
        _client(member_id, records.metadata or {}),
        # Kafka leaves these unset, too, where it has defaults for other groups.
        epoch=None if current is None and not records.has_left else _epoch(records),
        state=None if current is None else _state(current, _STREAMS_MEMBER_STATES),
        assigned=() if records.has_left else _tasks(current),
        target=_tasks(records.target),
        process=None if records.metadata is None else _process(records.metadata),
    )


def _process(metadata: MessageValue) -> StreamsProcess:
    endpoint = metadata["userEndpoint"]
    return StreamsProcess(
        metadata["processId"],
        metadata["topologyEpoch"],
        None if endpoint is None else Endpoint(endpoint["host"], endpoint["port"]),
        key_values(metadata["clientTags"]),
    )


def _client(member_id: str, metadata: MessageValue) -> GroupMember:
    """A member, with no more than its client."""
    return GroupMember(
        member_id=member_id,
        instance_id=metadata.get("instanceId"),
        client_id=metadata.get("clientId"),
        client_host=metadata.get("clientHost"),
        rack_id=metadata.get("rackId"),
    )


def _epoch(records: MemberRecords) -> int:
    if records.has_left:
        return LEFT_EPOCH
    return _NEW_EPOCH if records.current is None else int(records.current["memberEpoch"])


def _state(current: MessageValue | None, names: Mapping[int, str]) -> str:
    return STABLE_MEMBER if current is None else names.get(current["state"], _UNKNOWN_STATE)


def _partitions(found: MessageValue | None, name: str) -> Assignment:
    return tuple(
        AssignedPartitions(None, each["topicId"], tuple(sorted(each["partitions"])))
        for each in (() if found is None else found[name])
    )


def _tasks(found: MessageValue | None) -> Assignment:
    if found is None:
        return ()
    return tuple(
        AssignedTasks(kind, each["subtopologyId"], tuple(sorted(each["partitions"])))
        for kind in ("active", "standby", "warmup")
        for each in found[f"{kind}Tasks"]
    )
