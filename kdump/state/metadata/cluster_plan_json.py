"""The JSON of a plan for a cluster's metadata. The names of its fields are those of the attributes.

People edit plans. So what contradicts itself is refused with the field named, and so is a field
that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import asdict

from kdump.formats.json_document import (
    MOST_INT32,
    DocumentError,
    JsonObject,
    document_lines,
    read_document,
)
from kdump.state.metadata.cluster_plan import (
    ClusterPlan,
    FirstLeader,
    MovedAside,
    Notice,
    NoticeKind,
    PlannedConfig,
    PlannedController,
    PlannedFeature,
    PlannedRecord,
    PlannedTopic,
    PlannedTopicPartition,
    ResourceConfig,
    SeenOnDisks,
    Source,
    SourceKind,
    Sources,
)
from kdump.state.metadata.metadata_entities import RECOVERY_CODES

PLAN_FORMAT: Final = "kdump metadata plan"
PLAN_VERSION: Final = 2
_MOST_INT16: Final = (1 << 15) - 1
_MOST_PORT: Final = (1 << 16) - 1

# --- to JSON

_SPREAD: Final = (
    *("controllers", "features", "topics", "configs", "partitions", "brokers", "acls", "scram"),
    *("quotas", "delegation_tokens", "move_aside", "first_leaders", "notices"),
)
"""Lists with a line for each element."""


def encode_plan(plan: ClusterPlan) -> Iterator[bytes]:
    """Yield the text of the document."""
    document: dict[str, Any] = {"format": PLAN_FORMAT, "version": PLAN_VERSION} | asdict(plan)
    for name in ("features", "configs", *_KEPT_RECORDS):
        document[name] = [_sourced(each) for each in document[name]]
    for name in ("controllers", "move_aside", "first_leaders"):
        document[name] = [asdict(each) for each in document[name]]
    document["seen"] = asdict(plan.seen)
    document["sources"] = _sources_fields(plan.sources)
    document["topics"] = [_topic_fields(each) for each in plan.topics]
    document["notices"] = [asdict(each) | {"kind": each.kind.value} for each in plan.notices]
    # What people want to read comes first.
    notices = {name: document.pop(name) for name in _FIRST}
    head = {name: document.pop(name) for name in ("format", "version", "kdump", "created_ms")}
    yield from document_lines(head | notices | document, _SPREAD)


_KEPT_RECORDS: Final = ("brokers", "acls", "scram", "quotas", "delegation_tokens")
_FIRST: Final = ("is_loss_accepted", "notices", "move_aside", "first_leaders")


def _sourced(value: Any) -> dict[str, Any]:
    return asdict(value) | {"source": str(value.source)}


def _sources_fields(sources: Sources) -> dict[str, str]:
    return {name: str(source) for name, source in sources.items()}


def _topic_fields(topic: PlannedTopic) -> dict[str, Any]:
    return _sourced(topic) | {
        "configs": [_sourced(each) for each in topic.configs],
        "partitions": [
            asdict(each) | {"sources": _sources_fields(each.sources)} for each in topic.partitions
        ],
    }


# --- from JSON


def decode_plan(data: bytes) -> ClusterPlan:
    """Read the document, which people may have edited.

    Raises:
        DocumentError: it is another file, or contradicts itself; the message names the field.
    """
    document = read_document(data, PLAN_FORMAT, PLAN_VERSION)
    document.has_only(_PLAN_FIELDS)
    return ClusterPlan(
        kdump=document.text("kdump"),
        created_ms=document.number("created_ms"),
        cluster_id=document.text("cluster_id"),
        snapshot_offset=document.number("snapshot_offset", least=1),
        snapshot_epoch=document.number("snapshot_epoch", least=1, most=MOST_INT32 - 1),
        kraft_version=document.number("kraft_version", most=1),
        controller_listener=document.text("controller_listener"),
        controllers=_controllers(document),
        next_producer_id=document.number("next_producer_id"),
        seen=_seen(document.object("seen")),
        sources=_sources(document),
        features=_unique(document, "features", _feature, lambda each: each.name),
        topics=_topics(document),
        configs=_unique(
            document,
            "configs",
            _resource_config,
            lambda each: (each.resource_type, each.resource_name, each.name),
        ),
        brokers=_records(document, "brokers"),
        acls=_records(document, "acls"),
        scram=_records(document, "scram"),
        quotas=_records(document, "quotas"),
        delegation_tokens=_records(document, "delegation_tokens"),
        move_aside=tuple(map(_moved_aside, document.objects("move_aside"))),
        first_leaders=tuple(map(_first_leader, document.objects("first_leaders"))),
        notices=tuple(map(_notice, document.objects("notices"))),
        is_loss_accepted=document.flag("is_loss_accepted"),
    )


def _seen(document: JsonObject) -> SeenOnDisks:
    document.has_only(SeenOnDisks.__struct_fields__)
    return SeenOnDisks(
        document.optional(document.text, "cluster_id"),
        document.number("highest_offset"),
        document.number("highest_epoch", most=MOST_INT32),
        document.number("highest_producer_id", least=-1),
    )


_PLAN_FIELDS: Final = ("format", "version", *ClusterPlan.__struct_fields__)
_SOURCE_KINDS: Final = {each.value: each for each in SourceKind}
_NOTICE_KINDS: Final = {each.value: each for each in NoticeKind}
RECORD_TYPES_OF: Final = {
    "brokers": "REGISTER_BROKER_RECORD",
    "acls": "ACCESS_CONTROL_ENTRY_RECORD",
    "scram": "USER_SCRAM_CREDENTIAL_RECORD",
    "quotas": "CLIENT_QUOTA_RECORD",
    "delegation_tokens": "DELEGATION_TOKEN_RECORD",
}
"""The type of the records in each list of the plan that has records."""


def _unique(document: JsonObject, name: str, decode: Any, key: Any) -> tuple[Any, ...]:
    """Decode a list in which no two elements may have the same key."""
    found: dict[Any, Any] = {}
    for each in document.objects(name):
        value = decode(each)
        if key(value) in found:
            raise DocumentError(f"{each.where}: {key(value)} is in the list twice")
        found[key(value)] = value
    return tuple(found.values())


def _parsed_source(text: str, where: str) -> Source:
    kind, colon, detail = text.partition(": ")
    if not colon or kind not in _SOURCE_KINDS:
        raise DocumentError(f"{where}: not one of {', '.join(_SOURCE_KINDS)}, and a detail: {text}")
    return Source(_SOURCE_KINDS[kind], detail)


def _source(document: JsonObject) -> Source:
    return _parsed_source(document.text("source"), document.path("source"))


def _sources(document: JsonObject) -> Sources:
    sources = document.object("sources")
    return {name: _parsed_source(sources.text(name), sources.path(name)) for name in sources.fields}


def _controllers(document: JsonObject) -> tuple[PlannedController, ...]:
    found: tuple[PlannedController, ...] = _unique(
        document, "controllers", _controller, lambda each: each.node_id
    )
    if not found:
        raise DocumentError("controllers: there is none")
    if document.number("kraft_version", most=1) and any(not each.directory_id for each in found):
        raise DocumentError(
            "controllers: with kraft_version 1 each controller needs a directory_id"
        )
    return found


def _controller(document: JsonObject) -> PlannedController:
    document.has_only(PlannedController.__struct_fields__)
    return PlannedController(
        document.number("node_id", most=MOST_INT32),
        document.text("host"),
        document.number("port", least=1, most=_MOST_PORT),
        document.optional(document.uuid, "directory_id"),
    )


def _feature(document: JsonObject) -> PlannedFeature:
    document.has_only(PlannedFeature.__struct_fields__)
    return PlannedFeature(
        document.text("name"), document.number("level", most=_MOST_INT16), _source(document)
    )


def _config(document: JsonObject) -> PlannedConfig:
    document.has_only(PlannedConfig.__struct_fields__)
    return PlannedConfig(document.text("name"), document.text("value"), _source(document))


def _resource_config(document: JsonObject) -> ResourceConfig:
    document.has_only(ResourceConfig.__struct_fields__)
    return ResourceConfig(
        document.number("resource_type", most=127),
        document.text("resource_name"),
        document.text("name"),
        document.text("value"),
        _source(document),
    )


def _topics(document: JsonObject) -> tuple[PlannedTopic, ...]:
    topics: tuple[PlannedTopic, ...] = _unique(document, "topics", _topic, lambda each: each.name)
    ids: dict[str, str] = {}
    for topic in topics:
        if topic.topic_id in ids:
            raise DocumentError(
                f"topics: {ids[topic.topic_id]} and {topic.name} have the same id {topic.topic_id}"
            )
        ids[topic.topic_id] = topic.name
    return topics


def _topic(document: JsonObject) -> PlannedTopic:
    document.has_only(PlannedTopic.__struct_fields__)
    topic = PlannedTopic(
        document.text("name"),
        document.uuid("topic_id"),
        _source(document),
        _unique(document, "configs", _config, lambda each: each.name),
        _unique(document, "partitions", _partition, lambda each: each.partition),
    )
    numbers = {each.partition for each in topic.partitions}
    missing = next((each for each in range(len(numbers)) if each not in numbers), None)
    if not numbers or missing is not None:
        raise DocumentError(f"{document.path('partitions')}: partition {missing or 0} is missing")
    return topic


def _partition(document: JsonObject) -> PlannedTopicPartition:
    document.has_only(PlannedTopicPartition.__struct_fields__)
    partition = PlannedTopicPartition(
        partition=document.number("partition", most=MOST_INT32),
        replicas=_nodes(document, "replicas"),
        directories=document.uuids("directories"),
        isr=_nodes(document, "isr"),
        elr=_nodes(document, "elr"),
        last_known_elr=_nodes(document, "last_known_elr"),
        removing_replicas=_nodes(document, "removing_replicas"),
        adding_replicas=_nodes(document, "adding_replicas"),
        leader=document.number("leader", least=-1, most=MOST_INT32),
        leader_recovery_state=document.word(
            "leader_recovery_state", {word: word for word in RECOVERY_CODES}
        ),
        leader_epoch=document.number("leader_epoch", most=MOST_INT32),
        partition_epoch=document.number("partition_epoch", most=MOST_INT32),
        sources=_sources(document),
    )
    _check_partition(document, partition)
    return partition


def _check_partition(document: JsonObject, partition: PlannedTopicPartition) -> None:
    replicas = set(partition.replicas)
    if not replicas:
        raise DocumentError(f"{document.path('replicas')}: there is none")
    if len(partition.directories) != len(partition.replicas):
        raise DocumentError(f"{document.path('directories')}: not one for each replica")
    for name in ("isr", "elr", "last_known_elr", "removing_replicas", "adding_replicas"):
        others = set(getattr(partition, name)) - replicas
        if others:
            raise DocumentError(f"{document.path(name)}: {min(others)} is not a replica")
    if partition.leader >= 0 and partition.leader not in partition.isr:
        raise DocumentError(f"{document.path('leader')}: {partition.leader} is not in the ISR")


def _nodes(document: JsonObject, name: str) -> tuple[int, ...]:
    nodes = document.numbers(name, most=MOST_INT32)
    if len(set(nodes)) < len(nodes):
        raise DocumentError(f"{document.path(name)}: a node is in the list twice")
    return nodes


def _records(document: JsonObject, name: str) -> tuple[PlannedRecord, ...]:
    return tuple(_kept_record(each, RECORD_TYPES_OF[name]) for each in document.objects(name))


def _kept_record(document: JsonObject, record_type: str) -> PlannedRecord:
    document.has_only(PlannedRecord.__struct_fields__)
    return PlannedRecord(
        document.word("type", {record_type: record_type}),
        document.number("version", most=_MOST_INT16),
        document.object("data").fields,
        _source(document),
    )


def _moved_aside(document: JsonObject) -> MovedAside:
    document.has_only(MovedAside.__struct_fields__)
    return MovedAside(
        document.number("node_id", most=MOST_INT32),
        document.text("log_dir"),
        document.optional(document.uuid, "directory_id"),
        document.text("why"),
    )


def _first_leader(document: JsonObject) -> FirstLeader:
    document.has_only(FirstLeader.__struct_fields__)
    return FirstLeader(
        document.text("topic"),
        document.number("partition", most=MOST_INT32),
        document.number("node_id", most=MOST_INT32),
    )


def _notice(document: JsonObject) -> Notice:
    document.has_only(Notice.__struct_fields__)
    return Notice(
        document.word("kind", _NOTICE_KINDS),
        document.text("code"),
        document.optional(document.text, "topic"),
        document.optional_int32("partition"),
        document.text("what"),
        document.flag("needs_acceptance"),
        document.optional(document.text, "override"),
    )
