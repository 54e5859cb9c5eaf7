"""Answers for clients that look for their way: APIs, topics, the one broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kdump.serve.answering import Answering, Caller, Serving, ServingAnswers
from kdump.serve.messages import API_VERSIONS, Answer, Request, versions_of
from kdump.serve.served_cluster import ServedPartition, ServedTopic
from kdump.state.metadata.metadata_image import EntityKind

METADATA: Final = 3
FIND_COORDINATOR: Final = 10
DESCRIBE_CLUSTER: Final = 60
DESCRIBE_TOPIC_PARTITIONS: Final = 75
_BROKERS: Final = 1
"""Endpoint type of ``DescribeCluster``; the other one is the controllers'."""
_MOST_PARTITIONS: Final = 2000
"""Follows ``max.request.partition.size.limit``."""
_NO_LEADER: Final = -1
_MOST_LEVEL: Final = 32767


def _operations(*codes: int) -> int:
    return sum(1 << code for code in codes)


_READ, _DESCRIBE, _DESCRIBE_CONFIGS = 3, 8, 10
_TOPIC_OPERATIONS: Final = _operations(_READ, _DESCRIBE, _DESCRIBE_CONFIGS)
_CLUSTER_OPERATIONS: Final = _operations(_DESCRIBE, _DESCRIBE_CONFIGS)
"""Bits of ``AclOperation``: what a client may do here."""


class FindingAnswers(ServingAnswers):
    """Answers ``ApiVersions``, ``Metadata``, ``FindCoordinator``, and two that describe more."""

    def __init__(self, serving: Serving) -> None:
        super().__init__(serving)
        self.offered: frozenset[int] = frozenset()

    def handlers(self) -> Mapping[int, Answering]:
        return {
            API_VERSIONS: self.api_versions,
            METADATA: self.metadata,
            FIND_COORDINATOR: self.find_coordinator,
            DESCRIBE_CLUSTER: self.describe_cluster,
            DESCRIBE_TOPIC_PARTITIONS: self.describe_topic_partitions,
        }

    # ---- APIs ----

    async def api_versions(self, request: Request, _caller: Caller) -> Answer:
        """The versions that are answered, and the features of the cluster.

        A client with a newer version of this request learns which one to use.
        """
        keys = [
            {"api_key": key, "min_version": oldest, "max_version": newest}
            for key in sorted(self.offered)
            for oldest, newest in [versions_of(key)]
        ]
        if request.body is None:
            return {"error_code": ErrorCode.unsupported_version, "api_keys": keys}
        return {"api_keys": keys, **self._features(request.version)}

    def _features(self, version: int) -> Mapping[str, Any]:
        image = self._cluster.image
        if image is None:
            return {}
        brokers = image.of(EntityKind.BROKER)
        broker = brokers.get(self._cluster.node_id)
        # Before version 4, clients do not understand that a feature begins at level 0.
        supported = [
            {"name": name, "min_version": lowest, "max_version": highest}
            for name, lowest, highest in (() if broker is None else broker.features)
            if version >= 4 or lowest > 0
        ]
        finalized = [
            {"name": name, "max_version_level": level, "min_version_level": level}
            for name, level in sorted(image.of(EntityKind.FEATURE).items())
            if 0 < level <= _MOST_LEVEL
        ]
        return {
            "supported_features": supported,
            "finalized_features": finalized,
            "finalized_features_epoch": image.end.offset - 1,
        }

    # ---- Topics ----

    async def metadata(self, request: Request, caller: Caller) -> Answer:
        body = request.body
        with_operations = bool(getattr(body, "include_topic_authorized_operations", False))
        # In version 0 no topics stand for all; later null does.
        if body.topics is None or (request.version == 0 and not body.topics):
            found = [
                self._topic(each, with_operations=with_operations)
                for each in self._cluster.topics.values()
            ]
        else:
            # As in a broker, a topic that is named again is answered once.
            asked = dict.fromkeys(
                (getattr(each, "name", None), getattr(each, "topic_id", None))
                for each in body.topics
            )
            found = [
                self._asked(name, topic_id, with_operations=with_operations)
                for name, topic_id in asked
            ]
        answer = {
            "brokers": [self._serving.broker(caller)],
            "cluster_id": self._cluster.cluster_id,
            "controller_id": self._cluster.node_id,
            "topics": found,
        }
        if getattr(body, "include_cluster_authorized_operations", False):
            answer["cluster_authorized_operations"] = _CLUSTER_OPERATIONS
        return answer

    def _asked(self, name: str | None, topic_id: Any, *, with_operations: bool) -> Answer:
        """A topic by its name, or by its id where it has no name."""
        if name is None:
            topic = self._cluster.topic_with_id(topic_id)
            error = ErrorCode.unknown_topic_id
        else:
            topic = self._cluster.topics.get(name)
            error = ErrorCode.unknown_topic_or_partition
        if topic is None:
            return {"error_code": error, "name": name, "topic_id": topic_id, "partitions": ()}
        return self._topic(topic, with_operations=with_operations)

    def _topic(
        self,
        topic: ServedTopic,
        partitions: Sequence[ServedPartition] | None = None,
        *,
        with_operations: bool,
    ) -> Answer:
        every = topic.partitions.values() if partitions is None else partitions
        answer: dict[str, Any] = {
            "name": topic.name,
            "topic_id": topic.topic_id,
            "is_internal": topic.is_internal,
            "partitions": list(map(self._partition, every)),
        }
        if with_operations:
            answer["topic_authorized_operations"] = _TOPIC_OPERATIONS
        return answer

    def _partition(self, partition: ServedPartition) -> Answer:
        """A partition; the one node leads it, whoever led it before."""
        node_id, registration = self._cluster.node_id, partition.registration
        is_here = partition.log is not None
        answer: dict[str, Any] = {
            "error_code": ErrorCode.none if is_here else ErrorCode.leader_not_available,
            "partition_index": partition.number,
            "leader_id": node_id if is_here else _NO_LEADER,
            "leader_epoch": partition.leader_epoch,
            "replica_nodes": (node_id,) if registration is None else registration.replicas,
            "isr_nodes": (node_id,) if registration is None else registration.isr,
        }
        if registration is not None:
            answer["eligible_leader_replicas"] = registration.elr
            answer["last_known_elr"] = registration.last_known_elr
        return answer

    async def describe_topic_partitions(self, request: Request, _caller: Caller) -> Answer:
        """Some topics after the other, cut where the client asks.

        Follows ``DescribeTopicPartitionsRequestHandler``.
        """
        body = request.body
        names = sorted({each.name for each in body.topics} or self._cluster.topics)
        first = 0
        if body.cursor is not None:
            names = [name for name in names if name >= body.cursor.topic_name]
            if names and names[0] == body.cursor.topic_name:
                first = body.cursor.partition_index
        left = max(1, min(body.response_partition_limit, _MOST_PARTITIONS))
        found: list[Answer] = []
        for name in names:
            topic = self._cluster.topics.get(name)
            if topic is None:
                found.append(self._asked(name, None, with_operations=True))
                continue
            rest = [each for number, each in topic.partitions.items() if number >= first]
            if left == 0:
                return _cut(found, name, 0)
            found.append(self._topic(topic, rest[:left], with_operations=True))
            if len(rest) > left:
                return _cut(found, name, rest[left].number)
            left -= len(rest)
            first = 0
        return {"topics": found}

    # ---- The cluster ----

    async def find_coordinator(self, request: Request, caller: Caller) -> Answer:
        """The one node, whoever coordinated it before."""
        broker = {**self._serving.broker(caller), "error_message": None}
        keys = getattr(request.body, "coordinator_keys", ())
        return {**broker, "coordinators": [{"key": key, **broker} for key in keys]}

    async def describe_cluster(self, request: Request, caller: Caller) -> Answer:
        if getattr(request.body, "endpoint_type", _BROKERS) != _BROKERS:
            return {
                "error_code": ErrorCode.mismatched_endpoint_type,
                "error_message": "the brokers are served, not the controllers",
                "endpoint_type": _BROKERS,
                "cluster_id": "",
                "brokers": (),
            }
        answer = {
            "endpoint_type": _BROKERS,
            "cluster_id": self._cluster.cluster_id or "",
            "controller_id": self._cluster.node_id,
            "brokers": [{**self._serving.broker(caller), "is_fenced": False}],
        }
        if request.body.include_cluster_authorized_operations:
            answer["cluster_authorized_operations"] = _CLUSTER_OPERATIONS
        return answer


def _cut(topics: Iterable[Answer], name: str, partition: int) -> Answer:
    """An answer that goes on at a partition, if the client asks again."""
    cursor = {"topic_name": name, "partition_index": partition}
    return {"topics": list(topics), "next_cursor": cursor}
