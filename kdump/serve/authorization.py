"""What a client may see: requests and answers, as the ACLs of the cluster's metadata allow.

Each API has its rule here. An API without a rule is not answered where ACLs are enforced. The
rules follow the handlers of ``KafkaApis``.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode
from msgspec import Struct

from kdump.serve.config_answers import DESCRIBE_CONFIGS, LIST_CONFIG_RESOURCES
from kdump.serve.consumer_groups import matching_topics
from kdump.serve.finding_answers import (
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    FIND_COORDINATOR,
    METADATA,
)
from kdump.serve.group_answers import (
    CONSUMER_GROUP_DESCRIBE,
    DESCRIBE_GROUPS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SHARE_GROUP_DESCRIBE,
    STREAMS_GROUP_DESCRIBE,
)
from kdump.serve.group_refusal import GroupRefusal
from kdump.serve.member_answers import (
    CONSUMER_GROUP_HEARTBEAT,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
)
from kdump.serve.message_shapes import nested_entity
from kdump.serve.messages import API_VERSIONS, FETCH, Answer, Request
from kdump.serve.metadata_answers import (
    DESCRIBE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    LIST_PARTITION_REASSIGNMENTS,
)
from kdump.serve.offset_answers import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from kdump.serve.quorum_answers import DESCRIBE_QUORUM
from kdump.serve.refusing_answers import PRODUCE
from kdump.serve.served_cluster import ServedCluster
from kdump.serve.transaction_answers import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
)
from kdump.state.metadata.authorizer import Authorizer

_CLUSTER: Final = "kafka-cluster"
_NO_TOPIC_ERROR: Final = ErrorCode.topic_authorization_failed
_NO_GROUP_ERROR: Final = ErrorCode.group_authorization_failed
_NO_CLUSTER_ERROR: Final = ErrorCode.cluster_authorization_failed
_NO_TRANSACTION_ERROR: Final = ErrorCode.transactional_id_authorization_failed
_OPERATION_BITS: Final = {
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
    "IDEMPOTENT_WRITE": 12,
}
_GROUP_COORDINATOR, _TRANSACTION_COORDINATOR = 0, 1
"""Numbers of ``FindCoordinatorRequest.CoordinatorType``."""
_SINGLE_COORDINATOR: Final = 3
"""Up to this version ``FindCoordinator`` asks for one."""
_WITH_GROUP_ERROR: Final = 2
"""From this version on ``OffsetFetch`` has an error for a whole group."""
_TOPIC_RESOURCE, _GROUP_RESOURCE = 2, 32
"""Numbers of ``ConfigResource.Type``."""
_ASSIGNMENTS: Final[Mapping[int, tuple[str, ...]]] = {
    DESCRIBE_GROUPS: (),
    CONSUMER_GROUP_DESCRIBE: ("assignment", "target_assignment"),
    SHARE_GROUP_DESCRIBE: ("assignment",),
    STREAMS_GROUP_DESCRIBE: (),
}
"""The fields of a member whose topics one has to be allowed to describe."""
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_UNSET_OPERATIONS: Final = -(2**31)

Ask = Callable[[Request], Awaitable[Answer]]
"""Answers a request without asking who sent it."""


class Access(Struct, frozen=True):
    """What one client may do.

    Attributes:
        principal: such as ``User:alice``.
        host: its address, as Java writes it.
    """

    authorizer: Authorizer
    principal: str
    host: str

    def may(self, operation: str, resource_type: str, name: str) -> bool:
        """Whether the client may do something to a resource."""
        return self.authorizer.allows(self.principal, self.host, operation, resource_type, name)

    def may_topic(self, operation: str, name: str) -> bool:
        return self.may(operation, "TOPIC", name)

    def may_group(self, operation: str, name: str) -> bool:
        return self.may(operation, "GROUP", name)

    def may_cluster(self, operation: str) -> bool:
        return self.may(operation, "CLUSTER", _CLUSTER)


Rule = Callable[["Authorization", Request, Access, Ask], Awaitable[Answer]]


class Authorization:
    """Answers what a client may see, and refuses the rest as a broker does."""

    def __init__(self, cluster: ServedCluster) -> None:
        self._cluster = cluster

    async def answer(self, request: Request, access: Access, ask: Ask) -> Answer:
        """Answer a request of an API that has a rule.

        Args:
            access: of the client.
            ask: answers what is allowed.
        """
        return await RULES[request.api_key](self, request, access, ask)

    def _name(self, asked: Any) -> str | None:
        """The name of a topic of a request; None if its id is not known, which is no secret."""
        name = getattr(asked, "name", None) or getattr(asked, "topic", None)
        if name is None:
            topic = self._cluster.topic_with_id(getattr(asked, "topic_id", None))
            name = None if topic is None else topic.name
        return name

    async def _for_everyone(self, request: Request, _access: Access, ask: Ask) -> Answer:
        return await ask(request)

    # ---- Topics ----

    async def _metadata(self, request: Request, access: Access, ask: Ask) -> Answer:
        answer = await ask(request)
        asked = request.body.topics
        is_everything = asked is None or (request.version == 0 and not asked)
        by_id = {each.topic_id for each in asked or () if getattr(each, "name", None) is None}
        topics = []
        for each in answer["topics"]:
            name = each["name"]
            if name is None:
                topics.append(each)
            elif access.may_topic("DESCRIBE", name):
                topics.append(_with_operations(each, "topic_authorized_operations", access, name))
            elif not is_everything:
                topics.append(
                    {"error_code": _NO_TOPIC_ERROR, "name": None, "partitions": ()}
                    | (
                        {"topic_id": each["topic_id"]}
                        if each.get("topic_id") in by_id and each["topic_id"] is not None
                        else {"name": name, "topic_id": None}
                    )
                )
        return _with_operations(
            {**answer, "topics": topics}, "cluster_authorized_operations", access, None
        )

    async def _topic_partitions(self, request: Request, access: Access, ask: Ask) -> Answer:
        """Topics, from that of the cursor on. Follows ``DescribeTopicPartitionsRequestHandler``."""
        body = request.body
        first = "" if body.cursor is None else body.cursor.topic_name
        asked = {each.name for each in body.topics}
        names = sorted(name for name in asked or self._cluster.topics if name >= first)
        allowed = [name for name in names if access.may_topic("DESCRIBE", name)]
        denied = [
            {"error_code": _NO_TOPIC_ERROR, "name": name, "topic_id": None, "partitions": ()}
            for name in sorted(set(names) - set(allowed))
            if asked
        ]
        if not allowed:
            # To ask for no topics would be to ask for all.
            return {"topics": denied}
        (field,) = (each for each in dataclasses.fields(body) if each.name == "topics")
        make: Any = nested_entity(field)
        answer = await ask(_changed(request, topics=tuple(make(name=name) for name in allowed)))
        topics = [
            _with_operations(each, "topic_authorized_operations", access, each["name"])
            for each in answer["topics"]
        ]
        return {**answer, "topics": [*topics, *denied]}

    async def _describe_cluster(self, request: Request, access: Access, ask: Ask) -> Answer:
        answer = await ask(request)
        return _with_operations(answer, "cluster_authorized_operations", access, None)

    async def _fetch(self, request: Request, access: Access, ask: Ask) -> Answer:
        def refused(each: Any) -> Answer:
            return {
                "partition_index": each.partition,
                "error_code": _NO_TOPIC_ERROR,
                "high_watermark": -1,
                "aborted_transactions": None,
                "records": b"",
            }

        return await self._by_topic(
            request, access, ask, operation="READ", answered="responses", refused=refused
        )

    async def _list_offsets(self, request: Request, access: Access, ask: Ask) -> Answer:
        return await self._by_topic(request, access, ask, refused=_refused_index)

    async def _epochs(self, request: Request, access: Access, ask: Ask) -> Answer:
        if access.may_cluster("CLUSTER_ACTION"):
            return await ask(request)

        def refused(each: Any) -> Answer:
            return {"partition": each.partition, "error_code": _NO_TOPIC_ERROR}

        return await self._by_topic(request, access, ask, refused=refused)

    async def _producers(self, request: Request, access: Access, ask: Ask) -> Answer:
        topics = request.body.topics
        allowed = tuple(each for each in topics if access.may_topic("READ", each.name))
        answer = await ask(_changed(request, topics=allowed))
        denied = [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": number,
                        "error_code": _NO_TOPIC_ERROR,
                        "active_producers": (),
                    }
                    for number in topic.partition_indexes
                ],
            }
            for topic in topics
            if not access.may_topic("READ", topic.name)
        ]
        return {**answer, "topics": [*answer["topics"], *denied]}

    async def _by_topic(
        self,
        request: Request,
        access: Access,
        ask: Ask,
        *,
        refused: Callable[[Any], Answer],
        operation: str = "DESCRIBE",
        answered: str = "topics",
    ) -> Answer:
        """Ask about the topics that are allowed; what is not is refused for each partition."""
        allowed, denied = [], []
        for topic in request.body.topics:
            name = self._name(topic)
            if name is None or access.may_topic(operation, name):
                allowed.append(topic)
            else:
                denied.append(
                    {
                        **{
                            field: getattr(topic, field)
                            for field in ("name", "topic", "topic_id")
                            if hasattr(topic, field)
                        },
                        "partitions": [refused(each) for each in topic.partitions],
                    }
                )
        answer = await ask(_changed(request, topics=tuple(allowed)))
        if answer.get("error_code", ErrorCode.none) is not ErrorCode.none:
            return answer
        return {**answer, answered: [*answer[answered], *denied]}

    # ---- Groups ----

    async def _coordinators(self, request: Request, access: Access, ask: Ask) -> Answer:
        kind = getattr(request.body, "key_type", _GROUP_COORDINATOR)

        def error_of(key: str) -> ErrorCode:
            if kind == _GROUP_COORDINATOR:
                return ErrorCode.none if access.may_group("DESCRIBE", key) else _NO_GROUP_ERROR
            if kind == _TRANSACTION_COORDINATOR:
                is_allowed = access.may("DESCRIBE", "TRANSACTIONAL_ID", key)
                return ErrorCode.none if is_allowed else _NO_TRANSACTION_ERROR
            return ErrorCode.none if access.may_cluster("CLUSTER_ACTION") else _NO_CLUSTER_ERROR

        def refusal(error: ErrorCode) -> Answer:
            nowhere = {"node_id": -1, "host": "", "port": -1}
            return {"error_code": error, "error_message": None, **nowhere}

        if request.version <= _SINGLE_COORDINATOR:
            error = error_of(request.body.key)
            return await ask(request) if error is ErrorCode.none else refusal(error)
        answer = await ask(request)
        found = []
        for each in answer["coordinators"]:
            error = error_of(each["key"])
            found.append(
                each if error is ErrorCode.none else {**refusal(error), "key": each["key"]}
            )
        return {**answer, "coordinators": found}

    async def _member(self, request: Request, access: Access, ask: Ask) -> Answer:
        """Whether a client may be a member of a group."""
        if access.may_group("READ", request.body.group_id):
            return await ask(request)
        if request.api_key == JOIN_GROUP:
            return {
                "error_code": _NO_GROUP_ERROR,
                "generation_id": -1,
                "protocol_type": None,
                "protocol_name": "",
                "leader": "",
                "member_id": "",
                "members": (),
            }
        return {"error_code": _NO_GROUP_ERROR, "assignment": b"", "members": ()}

    async def _consumer(self, request: Request, access: Access, ask: Ask) -> Answer:
        """Whether a client may be a member of a group of the consumer protocol.

        A regular expression stands for the topics that the client may describe.
        """
        body = request.body
        refusal = {"member_epoch": 0, "heartbeat_interval": dt.timedelta()}
        if not access.may_group("READ", body.group_id):
            return {"error_code": _NO_GROUP_ERROR, **refusal}
        names = body.subscribed_topic_names or ()
        if not all(access.may_topic("DESCRIBE", name) for name in names):
            return {"error_code": _NO_TOPIC_ERROR, **refusal}
        regex = getattr(body, "subscribed_topic_regex", None)
        if regex:
            try:
                topics = matching_topics(regex, self._cluster.topics)
            except GroupRefusal as invalid:
                return {"error_code": invalid.error, "error_message": invalid.what, **refusal}
            names = (*names, *(each for each in topics if access.may_topic("DESCRIBE", each)))
            request = _changed(request, subscribed_topic_names=names, subscribed_topic_regex="")
        return await ask(request)

    async def _commit(self, request: Request, access: Access, ask: Ask) -> Answer:
        body = request.body
        if not access.may_group("READ", body.group_id):
            return {
                "topics": [
                    {
                        "name": getattr(topic, "name", None),
                        "topic_id": getattr(topic, "topic_id", None),
                        "partitions": [
                            {
                                "partition_index": each.partition_index,
                                "error_code": _NO_GROUP_ERROR,
                            }
                            for each in topic.partitions
                        ],
                    }
                    for topic in body.topics
                ]
            }
        return await self._by_topic(request, access, ask, operation="READ", refused=_refused_index)

    async def _offsets(self, request: Request, access: Access, ask: Ask) -> Answer:
        answer = await ask(request)
        groups = getattr(request.body, "groups", None)
        if groups is None:
            return self._offsets_of(request, request.body, answer, access)
        return {
            "groups": [
                self._offsets_of(request, asked, found, access)
                for asked, found in zip(groups, answer["groups"], strict=True)
            ]
        }

    def _offsets_of(self, request: Request, asked: Any, found: Answer, access: Access) -> Answer:
        """The offsets of one group. Follows ``OffsetFetchResponse.groupError``."""
        if not access.may_group("DESCRIBE", asked.group_id):
            if request.version >= _WITH_GROUP_ERROR:
                return {"group_id": asked.group_id, "error_code": _NO_GROUP_ERROR, "topics": ()}
            return {"topics": [_without_offsets(each, _NO_GROUP_ERROR) for each in found["topics"]]}
        topics = []
        for topic in found["topics"]:
            name = topic["name"]
            if name is None or access.may_topic("DESCRIBE", name):
                topics.append(topic)
            elif asked.topics is not None:
                topics.append(_without_offsets(topic, _NO_TOPIC_ERROR))
        return {**found, "topics": topics}

    async def _share_offsets(self, request: Request, access: Access, ask: Ask) -> Answer:
        answer = await ask(request)
        groups = []
        for asked, found in zip(request.body.groups, answer["groups"], strict=True):
            if not access.may_group("DESCRIBE", asked.group_id):
                groups.append(_refused_group(asked.group_id) | {"topics": ()})
                continue
            topics = []
            for topic in found["topics"]:
                if access.may_topic("DESCRIBE", topic["topic_name"]):
                    topics.append(topic)
                elif asked.topics is not None:
                    topics.append(
                        {
                            "topic_name": topic["topic_name"],
                            "topic_id": None,
                            "partitions": [
                                {
                                    **each,
                                    "start_offset": -1,
                                    "leader_epoch": 0,
                                    "lag": -1,
                                    "error_code": _NO_TOPIC_ERROR,
                                    "error_message": None,
                                }
                                for each in topic["partitions"]
                            ],
                        }
                    )
            groups.append({**found, "topics": topics})
        return {**answer, "groups": groups}

    async def _list_groups(self, request: Request, access: Access, ask: Ask) -> Answer:
        answer = await ask(request)
        if access.may_cluster("DESCRIBE"):
            return answer
        groups = [
            each for each in answer["groups"] if access.may_group("DESCRIBE", each["group_id"])
        ]
        return {**answer, "groups": groups}

    async def _describe_groups(self, request: Request, access: Access, ask: Ask) -> Answer:
        """Descriptions of groups; one that names a topic that is not allowed is refused."""
        answer = await ask(request)
        groups = []
        for each in answer["groups"]:
            if not access.may_group("DESCRIBE", each["group_id"]):
                groups.append(_refused_group(each["group_id"]))
            elif not all(
                access.may_topic("DESCRIBE", name)
                for name in (
                    *_assigned_topics(each, _ASSIGNMENTS[request.api_key]),
                    *_topology_topics(each.get("topology")),
                )
            ):
                why = (
                    "The group has described topic(s) that the client is not authorized to"
                    " describe."
                )
                error = {"error_code": _NO_TOPIC_ERROR, "error_message": why}
                groups.append({**_refused_group(each["group_id"]), **error})
            else:
                groups.append(each)
        return {**answer, "groups": groups}

    # ---- Transactions ----

    async def _list_transactions(self, request: Request, access: Access, ask: Ask) -> Answer:
        answer = await ask(request)
        return {
            **answer,
            "transaction_states": [
                each
                for each in answer["transaction_states"]
                if access.may("DESCRIBE", "TRANSACTIONAL_ID", each["transactional_id"])
            ],
        }

    async def _describe_transactions(self, request: Request, access: Access, ask: Ask) -> Answer:
        answer = await ask(request)
        found = []
        for each in answer["transaction_states"]:
            if access.may("DESCRIBE", "TRANSACTIONAL_ID", each["transactional_id"]):
                topics = [
                    topic
                    for topic in each["topics"]
                    if access.may_topic("DESCRIBE", topic["topic"])
                ]
                found.append({**each, "topics": topics})
            else:
                found.append(
                    {
                        **each,
                        "error_code": _NO_TRANSACTION_ERROR,
                        "transaction_state": "",
                        "producer_id": -1,
                        "producer_epoch": -1,
                        "transaction_timeout": dt.timedelta(0),
                        "transaction_start_time": _EPOCH,
                        "topics": (),
                    }
                )
        return {**answer, "transaction_states": found}

    # ---- The cluster ----

    async def _configs(self, request: Request, access: Access, ask: Ask) -> Answer:
        allowed, denied = [], []
        for each in request.body.resources:
            if each.resource_type == _TOPIC_RESOURCE:
                is_allowed = access.may_topic("DESCRIBE_CONFIGS", each.resource_name)
                error = _NO_TOPIC_ERROR
            elif each.resource_type == _GROUP_RESOURCE:
                is_allowed = access.may_group("DESCRIBE_CONFIGS", each.resource_name)
                error = _NO_GROUP_ERROR
            else:
                is_allowed = access.may_cluster("DESCRIBE_CONFIGS")
                error = _NO_CLUSTER_ERROR
            if is_allowed:
                allowed.append(each)
            else:
                denied.append(
                    {
                        "error_code": error,
                        "error_message": None,
                        "resource_type": each.resource_type,
                        "resource_name": each.resource_name,
                        "configs": (),
                    }
                )
        answer = await ask(_changed(request, resources=tuple(allowed)))
        return {**answer, "results": [*answer["results"], *denied]}

    async def _tokens(self, request: Request, access: Access, ask: Ask) -> Answer:
        """One's own tokens, and those that one may describe.

        Follows ``DelegationTokenManager.filterToken``.
        """

        def is_seen(token: Answer) -> bool:
            owner = _principal(token)
            own = {
                owner,
                _principal(token, "token_requester_"),
                *map(_principal, token["renewers"]),
            }
            return (
                access.principal in own
                or access.may("DESCRIBE", "DELEGATION_TOKEN", token["token_id"])
                or access.may("DESCRIBE_TOKENS", "USER", owner)
            )

        answer = await ask(request)
        return {**answer, "tokens": list(filter(is_seen, answer["tokens"]))}


def _of_cluster(operation: str, **empty: Any) -> Rule:
    """A rule for what the whole cluster has to be asked for; refused with an empty answer."""

    async def rule(_self: Authorization, request: Request, access: Access, ask: Ask) -> Answer:
        if access.may_cluster(operation):
            return await ask(request)
        return {"error_code": _NO_CLUSTER_ERROR, "error_message": None, **empty}

    return rule


def _principal(fields: Answer, prefix: str = "") -> str:
    return f"{fields[f'{prefix}principal_type']}:{fields[f'{prefix}principal_name']}"


def _changed(request: Request, **fields: Any) -> Request:
    body = dataclasses.replace(request.body, **fields)  # noqa: TID251 - kio has dataclasses
    return request._replace(body=body)


def _with_operations(answer: Answer, field: str, access: Access, topic: str | None) -> Answer:
    """Leave those operations that the client may do, if it asked for them."""
    known = answer.get(field)
    if known is None or known == _UNSET_OPERATIONS:
        return answer
    if topic is None and not access.may_cluster("DESCRIBE"):
        return {**answer, field: 0}
    allowed = 0
    for operation, bit in _OPERATION_BITS.items():
        is_allowed = (
            access.may_cluster(operation) if topic is None else access.may_topic(operation, topic)
        )
        allowed |= is_allowed << bit
    return {**answer, field: known & allowed}


def _refused_index(asked: Any) -> Answer:
    return {"partition_index": asked.partition_index, "error_code": _NO_TOPIC_ERROR}


def _without_offsets(topic: Answer, error: ErrorCode) -> Answer:
    none = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}
    return {
        **topic,
        "partitions": [
            {"partition_index": each["partition_index"], **none, "error_code": error}
            for each in topic["partitions"]
        ],
    }


def _refused_group(group_id: str) -> dict[str, Any]:
    return {
        "error_code": _NO_GROUP_ERROR,
        "error_message": None,
        "group_id": group_id,
        "group_state": "",
        "protocol_type": "",
        "protocol_data": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "topology": None,
        "members": (),
    }


def _topology_topics(topology: Answer | None) -> Iterator[str]:
    """All topics that a group of Kafka Streams reads and writes."""
    for each in () if topology is None else topology["subtopologies"]:
        yield from each["source_topics"]
        yield from each["repartition_sink_topics"]
        for topic in (*each["repartition_source_topics"], *each["state_changelog_topics"]):
            yield topic["name"]


def _assigned_topics(group: Answer, assignments: Iterable[str]) -> Iterable[str]:
    """The topics that members of a group have or shall have."""
    for member in group.get("members", ()):
        for field in assignments:
            for topic in member[field]["topic_partitions"]:
                yield topic["topic_name"]


RULES: Final[Mapping[int, Rule]] = {
    API_VERSIONS: Authorization._for_everyone,
    PRODUCE: Authorization._for_everyone,
    METADATA: Authorization._metadata,
    DESCRIBE_TOPIC_PARTITIONS: Authorization._topic_partitions,
    DESCRIBE_CLUSTER: Authorization._describe_cluster,
    FETCH: Authorization._fetch,
    LIST_OFFSETS: Authorization._list_offsets,
    OFFSET_FOR_LEADER_EPOCH: Authorization._epochs,
    DESCRIBE_PRODUCERS: Authorization._producers,
    FIND_COORDINATOR: Authorization._coordinators,
    **dict.fromkeys((JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP), Authorization._member),
    CONSUMER_GROUP_HEARTBEAT: Authorization._consumer,
    OFFSET_COMMIT: Authorization._commit,
    OFFSET_FETCH: Authorization._offsets,
    DESCRIBE_SHARE_GROUP_OFFSETS: Authorization._share_offsets,
    LIST_GROUPS: Authorization._list_groups,
    **dict.fromkeys(
        _ASSIGNMENTS,
        Authorization._describe_groups,
    ),
    LIST_TRANSACTIONS: Authorization._list_transactions,
    DESCRIBE_TRANSACTIONS: Authorization._describe_transactions,
    DESCRIBE_CONFIGS: Authorization._configs,
    DESCRIBE_DELEGATION_TOKEN: Authorization._tokens,
    LIST_CONFIG_RESOURCES: _of_cluster("DESCRIBE_CONFIGS", config_resources=()),
    DESCRIBE_CLIENT_QUOTAS: _of_cluster("DESCRIBE_CONFIGS", entries=None),
    DESCRIBE_ACLS: _of_cluster("DESCRIBE", resources=()),
    DESCRIBE_LOG_DIRS: _of_cluster("DESCRIBE", results=()),
    DESCRIBE_USER_SCRAM_CREDENTIALS: _of_cluster("DESCRIBE", results=()),
    LIST_PARTITION_REASSIGNMENTS: _of_cluster("DESCRIBE", topics=()),
    DESCRIBE_QUORUM: _of_cluster("DESCRIBE", topics=(), nodes=()),
}
"""What each API asks for; one that is not here is not answered where ACLs are enforced."""
