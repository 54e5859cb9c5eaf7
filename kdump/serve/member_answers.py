"""Answers to the members of groups that read here."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kdump.formats.names import TopicPartition
from kdump.serve.answering import Answering, Caller, Serving, numbers_by_topic
from kdump.serve.assignors import ASSIGNORS
from kdump.serve.classic_groups import LiveMember
from kdump.serve.consumer_groups import AWAY, HEARTBEAT_S, JOINING, LEAVING, Said
from kdump.serve.group_refusal import GroupRefusal
from kdump.serve.live_groups import LARGEST_MEMBER_BYTES, LiveGroups
from kdump.serve.messages import Answer, Request

JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
CONSUMER_GROUP_HEARTBEAT: Final = 68
WAITING: Final = frozenset({JOIN_GROUP, SYNC_GROUP})
"""Requests that are answered when other members have come."""

_KNOWING_IDS: Final = 4
"""From this version of ``JoinGroup`` on, a new member joins with an id that it was given."""
_NAMING_ITSELF: Final = 1
"""From this version of ``ConsumerGroupHeartbeat`` on, a new member joins with an id of its own."""


class MemberAnswers:
    """Answers what members of groups say."""

    def __init__(self, serving: Serving, live: LiveGroups) -> None:
        self._live = live
        self._cluster = serving.cluster
        # Members name partitions by topic ids: topics without one cannot be assigned.
        self._partitions = {
            each.name: len(each.partitions)
            for each in serving.cluster.topics.values()
            if each.topic_id is not None
        }

    def handlers(self) -> Mapping[int, Answering]:
        return {
            JOIN_GROUP: self.join_group,
            HEARTBEAT: self.heartbeat,
            LEAVE_GROUP: self.leave_group,
            SYNC_GROUP: self.sync_group,
            CONSUMER_GROUP_HEARTBEAT: self.consumer_group_heartbeat,
        }

    # ---- The classic protocol ----

    async def join_group(self, request: Request, caller: Caller) -> Answer:
        body = request.body
        session_s = body.session_timeout.total_seconds()
        rebalance = getattr(body, "rebalance_timeout", None)
        rebalance_s = session_s if rebalance is None else rebalance.total_seconds()
        member = LiveMember(
            body.member_id,
            getattr(body, "group_instance_id", None),
            request.client_id or "",
            f"/{caller.peer}",
            session_s,
            rebalance_s if rebalance_s > 0 else session_s,
            {each.name: bytes(each.metadata) for each in body.protocols},
        )
        try:
            if member.size_bytes > LARGEST_MEMBER_BYTES:
                raise GroupRefusal(ErrorCode.invalid_request)
            self._live.require_room(member.size_bytes)
            member_id, joined = await self._live.classic_to_join(body.group_id).join(
                member, body.protocol_type, must_know_id=request.version >= _KNOWING_IDS
            )
        except GroupRefusal as refusal:
            return {
                "error_code": refusal.error,
                "protocol_name": "",
                "leader": "",
                "member_id": refusal.member_id or body.member_id,
                "members": (),
            }
        return {
            "generation_id": joined.generation,
            "protocol_type": joined.protocol_type,
            "protocol_name": joined.protocol,
            "leader": joined.leader,
            "member_id": member_id,
            "members": [
                {"member_id": each, "group_instance_id": instance_id, "metadata": metadata}
                for each, instance_id, metadata in joined.members
            ],
        }

    async def sync_group(self, request: Request, _caller: Caller) -> Answer:
        body = request.body
        try:
            group = self._live.classic(body.group_id)
            given = {each.member_id: bytes(each.assignment) for each in body.assignments}
            self._live.require_room(sum(map(len, given.values())))
            assignment = await group.sync(body.member_id, body.generation_id, given)
        except GroupRefusal as refusal:
            return {"error_code": refusal.error, "assignment": b""}
        return {
            "protocol_type": group.protocol_type,
            "protocol_name": group.protocol,
            "assignment": assignment,
        }

    async def heartbeat(self, request: Request, _caller: Caller) -> Answer:
        body = request.body
        return _refused(
            lambda: self._live.classic(body.group_id).heartbeat(body.member_id, body.generation_id)
        )

    async def leave_group(self, request: Request, _caller: Caller) -> Answer:
        body = request.body
        if not hasattr(body, "members"):
            return _refused(lambda: self._live.classic(body.group_id).leave(body.member_id, None))
        return {
            "members": [
                {
                    "member_id": each.member_id,
                    "group_instance_id": each.group_instance_id,
                    **self._leave(body.group_id, each),
                }
                for each in body.members
            ]
        }

    def _leave(self, group_id: str, member: Any) -> Answer:
        return _refused(
            lambda: self._live.classic(group_id).leave(member.member_id, member.group_instance_id)
        )

    # ---- The consumer protocol ----

    async def consumer_group_heartbeat(self, request: Request, caller: Caller) -> Answer:
        body = request.body
        try:
            _check(body, request.version)
            said = self._said(request, caller)
            if said.epoch in (LEAVING, AWAY):
                self._live.consumers(body.group_id).leave(said)
                return {
                    "member_id": said.member_id,
                    "member_epoch": said.epoch,
                    "heartbeat_interval": dt.timedelta(),
                }
            if said.epoch == JOINING:
                group = self._live.consumers_to_join(
                    body.group_id, said.member_id, self._partitions
                )
            else:
                group = self._live.consumers(body.group_id)
            member, is_told = group.heartbeat(said)
        except GroupRefusal as refusal:
            return {
                "error_code": refusal.error,
                "error_message": refusal.what,
                "member_epoch": 0,
                "heartbeat_interval": dt.timedelta(),
            }
        return {
            "member_id": member.member_id,
            "member_epoch": member.epoch,
            "heartbeat_interval": dt.timedelta(seconds=HEARTBEAT_S),
            "assignment": self._assignment(member.assigned) if is_told else None,
        }

    def _said(self, request: Request, caller: Caller) -> Said:
        body = request.body
        names, owned = body.subscribed_topic_names, body.topic_partitions
        rebalance_s = body.rebalance_timeout.total_seconds()
        return Said(
            body.member_id,
            body.member_epoch,
            request.client_id or "",
            f"/{caller.peer}",
            body.instance_id,
            body.rack_id,
            rebalance_s if rebalance_s >= 0 else None,
            None if names is None else frozenset(names),
            getattr(body, "subscribed_topic_regex", None),
            body.server_assignor,
            None if owned is None else frozenset(self._owned(owned)),
        )

    def _owned(self, asked: Iterable[Any]) -> Iterable[TopicPartition]:
        """What a member reads, of the partitions that there are: others could be any number."""
        for each in asked:
            topic = self._cluster.topic_with_id(each.topic_id)
            if topic is not None:
                for number in each.partitions:
                    if number in topic.partitions:
                        yield TopicPartition(topic.name, number)

    def _assignment(self, keys: Iterable[TopicPartition]) -> Answer:
        return {
            "topic_partitions": [
                {"topic_id": self._cluster.topics[name].topic_id, "partitions": numbers}
                for name, numbers in numbers_by_topic(keys).items()
            ]
        }


def _check(body: Any, version: int) -> None:
    """Follows ``GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid``.

    Raises:
        GroupRefusal: a heartbeat of the consumer protocol says what cannot be.
    """
    epoch = body.member_epoch
    must_name_itself = version >= _NAMING_ITSELF or epoch > JOINING or epoch == LEAVING
    regex = getattr(body, "subscribed_topic_regex", None)
    names = body.subscribed_topic_names or ()
    wrong = {
        "MemberId can't be empty.": must_name_itself and not body.member_id.strip(),
        "GroupId can't be empty.": not body.group_id.strip(),
        "InstanceId can't be empty.": body.instance_id is not None and not body.instance_id.strip(),
        "RackId can't be empty.": body.rack_id is not None and not body.rack_id.strip(),
        "MemberEpoch is invalid.": epoch < AWAY,
        "InstanceId can't be null.": epoch == AWAY and body.instance_id is None,
        "The subscription is too large.": (
            sum(map(len, (*names, regex or ""))) > LARGEST_MEMBER_BYTES
        ),
    }
    if epoch == JOINING:
        wrong |= {
            "RebalanceTimeoutMs must be provided in first request.": (
                body.rebalance_timeout.total_seconds() < 0
            ),
            "TopicPartitions must be empty when (re-)joining.": body.topic_partitions != (),
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when"
            " (re-)joining.": body.subscribed_topic_names is None and regex is None,
        }
    for what, is_wrong in wrong.items():
        if is_wrong:
            raise GroupRefusal(ErrorCode.invalid_request, what=what)
    if body.server_assignor is not None and body.server_assignor not in ASSIGNORS:
        known = ", ".join(ASSIGNORS)
        what = f"ServerAssignor {body.server_assignor} is not supported: {known} are."
        raise GroupRefusal(ErrorCode.unsupported_assignor, what=what)


def _refused(act: Callable[[], None]) -> Answer:
    """The error of what a member asked for."""
    try:
        act()
    except GroupRefusal as refusal:
        return {"error_code": refusal.error}
    return {"error_code": ErrorCode.none}
