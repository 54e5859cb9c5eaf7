"""Answers about groups: those on the disk, and those that read here, which go on from there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode
from msgspec import Struct

from kdump.formats.names import TopicPartition
from kdump.formats.uuids import parse_uuid
from kdump.jobs.groups.group_report import ShareOffsetReport
from kdump.serve.answering import Answering, Caller, Serving, ServingAnswers, numbers_by_topic
from kdump.serve.classic_groups import ClassicGroup
from kdump.serve.consumer_groups import ConsumerGroup
from kdump.serve.disk_groups import DiskGroups, FoundGroups
from kdump.serve.group_refusal import GroupRefusal
from kdump.serve.kept_commits import KeptCommits, ServedOffset
from kdump.serve.live_groups import LiveGroups
from kdump.serve.messages import Answer, Request
from kdump.serve.streams_descriptions import described_streams
from kdump.state.groups.group_image import CommittedOffset, Group, GroupState, GroupType
from kdump.state.groups.group_members import AssignedPartitions, Assignment

OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
DESCRIBE_GROUPS: Final = 15
LIST_GROUPS: Final = 16
CONSUMER_GROUP_DESCRIBE: Final = 69
SHARE_GROUP_DESCRIBE: Final = 77
STREAMS_GROUP_DESCRIBE: Final = 89
DESCRIBE_SHARE_GROUP_OFFSETS: Final = 90

_UNKNOWN: Final = -1
_WITH_TOPIC_IDS: Final = 10
"""From these versions of ``OffsetFetch`` and ``OffsetCommit`` on, topics are named by their ids."""
_WITH_NOT_FOUND: Final = 6
"""From this version of ``DescribeGroups`` on, a group that does not exist is an error."""
_LARGEST_METADATA: Final = 4096
"""Follows ``offset.metadata.max.bytes``."""
_DEAD: Final = "Dead"
_CONSUMERS: Final = "consumer"
"""The protocol type of consumers."""
_OF_CONSUMER_PROTOCOL: Final = 1
"""The type of a member in ``ConsumerGroupDescribe``."""


class _NamedTopic(Struct, frozen=True):
    """A topic of a request, by its name or its id; the other is filled in as far as it is known."""

    name: str | None
    topic_id: UUID | None

    def fields(self) -> dict[str, Any]:
        return {"name": self.name, "topic_id": self.topic_id}


CommitCheck = Callable[[_NamedTopic, Any], ErrorCode]
"""Says whether the offset of a partition may be committed, as it stands in a request."""


class GroupAnswers(ServingAnswers):
    """Answers everything about groups, but for what their members say.

    A group that is named again in a request is answered once: a response stays as large as what is
    known.
    """

    def __init__(self, serving: Serving) -> None:
        super().__init__(serving)
        self._disk = DiskGroups(serving.cluster, serving.notices)
        self._commits = KeptCommits()
        self.live = LiveGroups()

    def handlers(self) -> Mapping[int, Answering]:
        return {
            OFFSET_COMMIT: self.offset_commit,
            OFFSET_FETCH: self.offset_fetch,
            DESCRIBE_GROUPS: self.describe_groups,
            LIST_GROUPS: self.list_groups,
            CONSUMER_GROUP_DESCRIBE: self.consumer_group_describe,
            SHARE_GROUP_DESCRIBE: self.share_group_describe,
            STREAMS_GROUP_DESCRIBE: self.streams_group_describe,
            DESCRIBE_SHARE_GROUP_OFFSETS: self.describe_share_group_offsets,
        }

    async def _found(self) -> FoundGroups:
        return await self._serving.threads.run(self._disk.found)

    # ---- Offsets ----

    async def offset_fetch(self, request: Request, _caller: Caller) -> Answer:
        found = await self._found()
        body = request.body
        groups = getattr(body, "groups", None)
        if groups is None:
            return self._offsets(body.group_id, body.topics, request.version, found)
        return {
            "groups": [
                {
                    "group_id": each.group_id,
                    **(
                        self._offsets(each.group_id, each.topics, request.version, found)
                        if (error := self._reader_error(each)) is ErrorCode.none
                        else {"error_code": error, "topics": ()}
                    ),
                }
                for each in _once(groups)
            ]
        }

    def _reader_error(self, asked: Any) -> ErrorCode:
        """Why a member may not read offsets. Follows ``ConsumerGroup.validateOffsetFetch``."""
        member_id = getattr(asked, "member_id", None)
        group = self.live.by_id.get(asked.group_id)
        if not isinstance(group, ConsumerGroup) or (member_id is None and asked.member_epoch < 0):
            return ErrorCode.none
        member = group.members.get(member_id or "")
        if member is None:
            return ErrorCode.unknown_member_id
        is_current = asked.member_epoch == member.epoch
        return ErrorCode.none if is_current else ErrorCode.stale_member_epoch

    def _offsets(
        self, group_id: str, asked: Iterable[Any] | None, version: int, found: FoundGroups
    ) -> Answer:
        """The offsets of a group: those of clients, and for other partitions those on the disk."""
        self._disk.note_use(group_id, found)
        is_by_id = asked is not None and version >= _WITH_TOPIC_IDS
        offsets = {
            key: ServedOffset(
                each.offset,
                _UNKNOWN if each.leader_epoch is None else each.leader_epoch,
                each.metadata,
            )
            for key, each in found.offsets(group_id).items()
            if not (is_by_id and self._is_of_another_topic(key.topic, each))
        }
        offsets |= self._commits.of(group_id)
        if asked is None:
            wanted = numbers_by_topic(offsets)
            topics = [(self._by_name(name), numbers) for name, numbers in wanted.items()]
            if version >= _WITH_TOPIC_IDS:
                topics = [each for each in topics if each[0].topic_id is not None]
        else:
            topics = [(self._named(each), each.partition_indexes) for each in asked]
        return {
            "topics": [
                {
                    **topic.fields(),
                    "partitions": [_offset_answer(topic, each, offsets) for each in numbers],
                }
                for topic, numbers in topics
            ]
        }

    def _is_of_another_topic(self, name: str, committed: CommittedOffset) -> bool:
        """Whether an offset was committed for an earlier topic of a name.

        Follows ``OffsetMetadataManager.isMismatchedTopicId``.
        """
        topic_id = self._by_name(name).topic_id
        if topic_id is None or committed.topic_id is None:
            return False
        return parse_uuid(committed.topic_id) != topic_id

    async def offset_commit(self, request: Request, _caller: Caller) -> Answer:
        """Keep offsets in memory; nothing is written."""
        body = request.body
        try:
            check = self._committer_check(body)
        except GroupRefusal as refusal:
            check = _always(refusal.error)
        return {
            "topics": [
                {
                    **topic.fields(),
                    "partitions": [
                        {
                            "partition_index": each.partition_index,
                            "error_code": check(topic, each)
                            or self._commit(body.group_id, topic, each),
                        }
                        for each in partitions
                    ],
                }
                for topic, partitions in (
                    (self._named(each), each.partitions) for each in body.topics
                )
            ]
        }

    def _committer_check(self, body: Any) -> CommitCheck:
        """What says of each partition whether a client may commit an offset of it.

        Raises:
            GroupRefusal: it may not commit any of this group.
        """
        epoch = getattr(body, "generation_id_or_member_epoch", _UNKNOWN)
        group = self.live.by_id.get(body.group_id)
        if group is None or not group.members:
            if epoch >= 0:
                raise GroupRefusal(ErrorCode.illegal_generation)
            return _always(ErrorCode.none)
        if isinstance(group, ConsumerGroup):
            return _by_assignment(group, body.member_id, epoch)
        if epoch < 0:
            raise GroupRefusal(ErrorCode.unknown_member_id)
        group.member(body.member_id, epoch)
        return _always(ErrorCode.none)

    def _commit(self, group_id: str, topic: _NamedTopic, asked: Any) -> ErrorCode:
        if topic.name is None:
            return ErrorCode.unknown_topic_id
        key = TopicPartition(topic.name, asked.partition_index)
        if self._cluster.partition(key) is None:
            return ErrorCode.unknown_topic_or_partition
        metadata = asked.committed_metadata or ""
        if len(metadata) > _LARGEST_METADATA:
            return ErrorCode.offset_metadata_too_large
        epoch = getattr(asked, "committed_leader_epoch", _UNKNOWN)
        offset = ServedOffset(asked.committed_offset, epoch, metadata)
        is_kept = self._commits.keep(group_id, key, offset)
        return ErrorCode.none if is_kept else ErrorCode.policy_violation

    def _named(self, asked: Any) -> _NamedTopic:
        name = getattr(asked, "name", None)
        if name is not None:
            return self._by_name(name)
        topic = self._cluster.topic_with_id(asked.topic_id)
        return _NamedTopic(None if topic is None else topic.name, asked.topic_id)

    def _by_name(self, name: str) -> _NamedTopic:
        topic = self._cluster.topics.get(name)
        return _NamedTopic(name, None if topic is None else topic.topic_id)

    # ---- Descriptions ----

    async def list_groups(self, request: Request, _caller: Caller) -> Answer:
        found = await self._found()
        states = {each.lower() for each in getattr(request.body, "states_filter", ())}
        types = {each.lower() for each in getattr(request.body, "types_filter", ())}
        rows = {
            **{group_id: _listed(_only_offsets(group_id)) for group_id in self._commits},
            **{group_id: _listed(each.group) for group_id, each in found.groups.items()},
            **{each.group_id: _listed_live(each) for each in self._lived()},
        }
        return {
            "groups": [
                each
                for _, each in sorted(rows.items())
                if (not states or each["group_state"].lower() in states)
                and (not types or each["group_type"].lower() in types)
            ]
        }

    def _lived(self) -> Iterator[ClassicGroup | ConsumerGroup]:
        """The groups that read here; others of the same name on the disk are over."""
        return (each for each in self.live.by_id.values() if each.has_lived)

    def _lived_group(self, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        found = self.live.by_id.get(group_id)
        return found if found is not None and found.has_lived else None

    async def describe_groups(self, request: Request, _caller: Caller) -> Answer:
        found = await self._found()
        return {
            "groups": [
                {"group_id": group_id, **self._described(group_id, found, request.version)}
                for group_id in dict.fromkeys(request.body.groups)
            ]
        }

    def _described(self, group_id: str, found: FoundGroups, version: int) -> Answer:
        """A classic group; others are not found, as in a coordinator."""
        live = self._lived_group(group_id)
        if isinstance(live, ClassicGroup):
            return _described_live(live)
        report = None if live is not None else found.groups.get(group_id)
        group = None if report is None else report.group
        if group is None and group_id in self._commits:
            group = _only_offsets(group_id)
        if group is not None and group.type in (GroupType.CLASSIC, None):
            return _described_classic(group)
        answer = {"group_state": _DEAD, "protocol_type": "", "protocol_data": "", "members": ()}
        if version < _WITH_NOT_FOUND:
            return answer
        why = f"Group {group_id} not found."
        return {**answer, "error_code": ErrorCode.group_id_not_found, "error_message": why}

    async def consumer_group_describe(self, request: Request, _caller: Caller) -> Answer:
        return await self._described_members(request, GroupType.CONSUMER)

    async def share_group_describe(self, request: Request, _caller: Caller) -> Answer:
        return await self._described_members(request, GroupType.SHARE)

    async def streams_group_describe(self, request: Request, _caller: Caller) -> Answer:
        return await self._described_members(request, GroupType.STREAMS)

    async def _described_members(self, request: Request, wanted: GroupType) -> Answer:
        found = await self._found()
        return {
            "groups": [
                {"group_id": group_id, **self._described_group(group_id, found, wanted)}
                for group_id in dict.fromkeys(request.body.group_ids)
            ]
        }

    def _described_group(self, group_id: str, found: FoundGroups, wanted: GroupType) -> Answer:
        live = self._lived_group(group_id)
        if isinstance(live, ConsumerGroup) and wanted is GroupType.CONSUMER:
            return self._described_consumers(live)
        report = None if live is not None else found.groups.get(group_id)
        if report is None or report.group.type is not wanted:
            return _not_found(group_id, wanted)
        group, names = report.group, found.report.topic_names
        described: dict[str, Any] = {
            "group_state": _state(group),
            "group_epoch": group.epoch or 0,
            "assignment_epoch": group.assignment_epoch or 0,
        }
        if wanted is GroupType.STREAMS:
            return {**described, **described_streams(group)}
        return {
            **described,
            "assignor_name": group.protocol or "",
            "members": [
                {
                    "member_id": each.member_id,
                    "instance_id": each.instance_id,
                    "rack_id": each.rack_id,
                    "member_epoch": each.epoch or 0,
                    "client_id": each.client_id or "",
                    "client_host": each.client_host or "",
                    "subscribed_topic_names": each.subscribed_topics or (),
                    "subscribed_topic_regex": each.subscribed_regex,
                    "assignment": self._assignment(each.assigned, names),
                    "target_assignment": self._assignment(each.target or (), names),
                    "member_type": _OF_CONSUMER_PROTOCOL,
                }
                for each in group.members
            ],
        }

    def _described_consumers(self, group: ConsumerGroup) -> Answer:
        return {
            "group_state": group.state_name,
            "group_epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
            "assignor_name": group.assignor,
            "members": [
                {
                    "member_id": each.member_id,
                    "instance_id": each.instance_id,
                    "rack_id": each.rack_id,
                    "member_epoch": each.epoch,
                    "client_id": each.client_id,
                    "client_host": each.client_host,
                    "subscribed_topic_names": sorted(each.topic_names),
                    "subscribed_topic_regex": each.topic_regex or None,
                    "assignment": self._partitions(each.assigned),
                    "target_assignment": self._partitions(
                        group.targets.get(each.member_id, frozenset())
                    ),
                    "member_type": _OF_CONSUMER_PROTOCOL,
                }
                for each in group.members.values()
            ],
        }

    def _partitions(self, keys: Iterable[TopicPartition]) -> Answer:
        return {
            "topic_partitions": [
                {
                    "topic_id": self._by_name(name).topic_id,
                    "topic_name": name,
                    "partitions": numbers,
                }
                for name, numbers in numbers_by_topic(keys).items()
            ]
        }

    async def describe_share_group_offsets(self, request: Request, _caller: Caller) -> Answer:
        """How far share groups have delivered.

        Follows ``GroupCoordinatorService.describeShareGroupOffsets``.
        """
        found = await self._found()
        return {
            "groups": [
                {"group_id": each.group_id, **self._share_offsets(each, found)}
                for each in _once(request.body.groups)
            ]
        }

    def _share_offsets(self, asked: Any, found: FoundGroups) -> Answer:
        report = found.groups.get(asked.group_id)
        if report is None or report.group.type is not GroupType.SHARE:
            why = f"Group {asked.group_id} not found."
            return {
                "topics": (),
                "error_code": ErrorCode.group_id_not_found,
                "error_message": why,
            }
        offsets = {
            TopicPartition(each.topic, each.state.partition): each
            for each in report.share_offsets
            if each.topic is not None
        }
        if asked.topics is None:
            wanted = numbers_by_topic(offsets)
        else:
            wanted = {each.topic_name: list(each.partitions) for each in asked.topics}
        return {
            "topics": [
                {
                    "topic_name": name,
                    "topic_id": self._by_name(name).topic_id,
                    "partitions": [
                        {
                            "partition_index": number,
                            **_share_offset(offsets.get(TopicPartition(name, number))),
                        }
                        for number in numbers
                    ],
                }
                for name, numbers in wanted.items()
            ]
        }

    def _assignment(self, assigned: Assignment, names: Mapping[Any, str]) -> Answer:
        topics = []
        for each in assigned:
            if isinstance(each, AssignedPartitions):
                name = each.topic or names.get(each.topic_id, "")
                topic = self._by_name(name)
                topics.append(
                    {
                        "topic_id": topic.topic_id,
                        "topic_name": name,
                        "partitions": each.partitions,
                    }
                )
        return {"topic_partitions": topics}


def _once(asked: Iterable[Any]) -> Iterable[Any]:
    """The groups of a request, each as it is named first."""
    found: dict[str, Any] = {}
    for each in asked:
        found.setdefault(each.group_id, each)
    return found.values()


def _always(error: ErrorCode) -> CommitCheck:
    return lambda _topic, _partition: error


def _by_assignment(group: ConsumerGroup, member_id: str, epoch: int) -> CommitCheck:
    """The check of a member of the consumer protocol.

    Follows ``ConsumerGroup.validateOffsetCommit``: with an earlier epoch it may commit offsets of
    the partitions that it had then, and still has.

    Raises:
        GroupRefusal: it is no member, or its epoch is to come.
    """
    member = group.members.get(member_id)
    if member is None:
        raise GroupRefusal(ErrorCode.unknown_member_id)
    if epoch > member.epoch:
        raise GroupRefusal(ErrorCode.stale_member_epoch)
    if epoch == member.epoch:
        return _always(ErrorCode.none)

    def check(topic: _NamedTopic, asked: Any) -> ErrorCode:
        since = member.epoch_of(TopicPartition(topic.name or "", asked.partition_index))
        is_owner = since is not None and epoch >= since
        return ErrorCode.none if is_owner else ErrorCode.stale_member_epoch

    return check


def _offset_answer(
    topic: _NamedTopic, number: int, offsets: Mapping[TopicPartition, ServedOffset]
) -> Answer:
    found = None if topic.name is None else offsets.get(TopicPartition(topic.name, number))
    offset = found or ServedOffset(_UNKNOWN)
    return {
        "partition_index": number,
        "committed_offset": offset.offset,
        "committed_leader_epoch": offset.leader_epoch,
        "metadata": offset.metadata,
        "error_code": ErrorCode.unknown_topic_id if topic.name is None else ErrorCode.none,
    }


def _state(group: Group) -> str:
    return (group.state or GroupState.EMPTY).value


def _listed(group: Group) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "protocol_type": group.protocol_type,
        "group_state": _state(group),
        "group_type": (group.type or GroupType.CLASSIC).value,
    }


def _listed_live(group: ClassicGroup | ConsumerGroup) -> dict[str, Any]:
    if isinstance(group, ClassicGroup):
        protocol_type, group_type = group.protocol_type, GroupType.CLASSIC
    else:
        protocol_type, group_type = _CONSUMERS, GroupType.CONSUMER
    return {
        "group_id": group.group_id,
        "protocol_type": protocol_type,
        "group_state": group.state_name,
        "group_type": group_type.value,
    }


def _described_live(group: ClassicGroup) -> Answer:
    return {
        "group_state": group.state_name,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [
            {
                "member_id": each.member_id,
                "group_instance_id": each.instance_id,
                "client_id": each.client_id,
                "client_host": each.client_host,
                "member_metadata": each.protocols.get(group.protocol, b""),
                "member_assignment": each.assignment,
            }
            for each in group.members.values()
        ],
    }


def _described_classic(group: Group) -> Answer:
    is_stable = group.state is GroupState.STABLE
    return {
        "group_state": _state(group),
        "protocol_type": group.protocol_type,
        "protocol_data": (group.protocol or "") if is_stable else "",
        "members": [
            {
                "member_id": each.member_id,
                "group_instance_id": each.instance_id,
                "client_id": each.client_id or "",
                "client_host": each.client_host or "",
                "member_metadata": each.subscription if is_stable else b"",
                "member_assignment": each.assignment if is_stable else b"",
            }
            for each in group.members
        ],
    }


def _only_offsets(group_id: str) -> Group:
    """A group that only clients of this server know, by what they committed."""
    return Group(group_id, GroupType.CLASSIC, GroupState.EMPTY)


def _share_offset(found: ShareOffsetReport | None) -> Answer:
    if found is None:
        return {"start_offset": _UNKNOWN, "leader_epoch": 0}
    return {
        "start_offset": found.state.start_offset,
        "leader_epoch": max(found.state.leader_epoch, 0),
        "lag": _UNKNOWN if found.lag is None else found.lag,
    }


def _not_found(group_id: str, wanted: GroupType) -> Answer:
    return {
        "error_code": ErrorCode.group_id_not_found,
        "error_message": f"Group {group_id} is not a {wanted.value} group.",
        "group_state": _DEAD,
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "topology": None,
        "members": (),
    }
