"""The JSON of a plan for a cluster's metadata. The names of its fields are those of the attributes.

People edit plans. So what contradicts itself is refused with the field named, and so is a field
that does not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from kdump.formats.json_document import (
    DocumentError,
    checked_word,
    document_lines,
    read_document,
)
from kdump.formats.json_struct import decode_struct, encode_struct
from kdump.state.metadata.cluster_plan import ClusterPlan, PlannedTopic, PlannedTopicPartition

Value = TypeVar("Value")

PLAN_FORMAT: Final = "kdump metadata plan"
PLAN_VERSION: Final = 3
_HEAD: Final = {"format": PLAN_FORMAT, "version": PLAN_VERSION}
_SPREAD: Final = (
    *("controllers", "features", "topics", "configs", "partitions", "brokers", "acls", "scram"),
    *("quotas", "delegation_tokens", "move_aside", "first_leaders", "notices"),
)
"""Lists with a line for each element."""
_FIRST: Final = (
    *("format", "version", "kdump", "created_ms"),
    *("is_loss_accepted", "notices", "move_aside", "first_leaders"),
)
"""What people want to read comes first."""
RECORD_TYPES_OF: Final = {
    "brokers": "REGISTER_BROKER_RECORD",
    "acls": "ACCESS_CONTROL_ENTRY_RECORD",
    "scram": "USER_SCRAM_CREDENTIAL_RECORD",
    "quotas": "CLIENT_QUOTA_RECORD",
    "delegation_tokens": "DELEGATION_TOKEN_RECORD",
}
"""The type of the records in each list of the plan that has records."""


def encode_plan(plan: ClusterPlan) -> Iterator[bytes]:
    """Yield the text of the document."""
    document = _HEAD | encode_struct(plan)
    head = {name: document.pop(name) for name in _FIRST}
    yield from document_lines(head | document, _SPREAD)


def decode_plan(data: bytes) -> ClusterPlan:
    """Read the document, which people may have edited.

    Raises:
        DocumentError: it is another file, or contradicts itself; the message names the field.
    """
    plan = decode_struct(ClusterPlan, read_document(data, PLAN_FORMAT, PLAN_VERSION), _HEAD)
    _check_controllers(plan)
    _require_unique(plan.features, "features", lambda each: each.name)
    _require_unique(
        plan.configs, "configs", lambda each: (each.resource_type, each.resource_name, each.name)
    )
    _check_topics(plan.topics)
    for name, record_type in RECORD_TYPES_OF.items():
        for index, record in enumerate(getattr(plan, name)):
            checked_word(record.type, f"{name}[{index}].type", {record_type: record_type})
    return plan


def _require_unique(values: Sequence[Value], where: str, key: Callable[[Value], Any]) -> None:
    """Refuse a list in which two elements have the same key."""
    found = set()
    for index, each in enumerate(values):
        if key(each) in found:
            raise DocumentError(f"{where}[{index}]: {key(each)} is in the list twice")
        found.add(key(each))


def _check_controllers(plan: ClusterPlan) -> None:
    _require_unique(plan.controllers, "controllers", lambda each: each.node_id)
    if not plan.controllers:
        raise DocumentError("controllers: there is none")
    if plan.kraft_version and any(not each.directory_id for each in plan.controllers):
        raise DocumentError(
            "controllers: with kraft_version 1 each controller needs a directory_id"
        )


def _check_topics(topics: Sequence[PlannedTopic]) -> None:
    _require_unique(topics, "topics", lambda each: each.name)
    ids: dict[str, str] = {}
    for index, topic in enumerate(topics):
        _check_topic(topic, f"topics[{index}]")
        if topic.topic_id in ids:
            raise DocumentError(
                f"topics: {ids[topic.topic_id]} and {topic.name} have the same id {topic.topic_id}"
            )
        ids[topic.topic_id] = topic.name


def _check_topic(topic: PlannedTopic, where: str) -> None:
    _require_unique(topic.configs, f"{where}.configs", lambda each: each.name)
    _require_unique(topic.partitions, f"{where}.partitions", lambda each: each.partition)
    for index, partition in enumerate(topic.partitions):
        _check_partition(partition, f"{where}.partitions[{index}]")
    numbers = {each.partition for each in topic.partitions}
    missing = next((each for each in range(len(numbers)) if each not in numbers), None)
    if not numbers or missing is not None:
        raise DocumentError(f"{where}.partitions: partition {missing or 0} is missing")


def _check_partition(partition: PlannedTopicPartition, where: str) -> None:
    replicas = set(partition.replicas)
    if not replicas:
        raise DocumentError(f"{where}.replicas: there is none")
    if len(partition.directories) != len(partition.replicas):
        raise DocumentError(f"{where}.directories: not one for each replica")
    for name in ("isr", "elr", "last_known_elr", "removing_replicas", "adding_replicas"):
        others = set(getattr(partition, name)) - replicas
        if others:
            raise DocumentError(f"{where}.{name}: {min(others)} is not a replica")
    if partition.leader >= 0 and partition.leader not in partition.isr:
        raise DocumentError(f"{where}.leader: {partition.leader} is not in the ISR")
