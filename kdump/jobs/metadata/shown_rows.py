"""The cluster's metadata as rows: its tables, events and differences."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kdump.jobs.metadata.planned_rows import (
    APPLY,
    COLLECT_SUMMARY,
    COLLECTED_DIRECTORY,
    NOTICE,
    PLAN_SUMMARY,
)
from kdump.rows.common_rows import INTERRUPTED
from kdump.rows.row_type import (
    ANYTHING,
    FLAG,
    INT,
    INTEGER,
    NUMBER,
    TEXT,
    TIME,
    Field,
    JsonAnswer,
    Kind,
    RowType,
    ValueType,
    list_of,
    map_of,
    object_of,
    objects_of,
    one_of,
)
from kdump.state.metadata.event_words import EVENTS

_ENTITY: Final = one_of(
    "topic",
    "partition",
    "config",
    "feature",
    "quota",
    "acl",
    "scram",
    "delegation_token",
    "broker",
    "controller",
    "voter",
    "quorum_leader",
    "next_producer_id",
)
_IS_COMMITTED: Final = Field(
    "is_committed",
    FLAG.or_null,
    "True if the records that made it so are known to be committed; null if the disks do not say.",
    "Committed",
    dropped=9,
)
_LEVELS: Final = object_of(Field("min", INTEGER), Field("max", INTEGER))
_SUPPORTED_FEATURES: Final = Field("features", map_of(_LEVELS), json_only=True)
_SECURITY_PROTOCOLS: Final = Field(
    "security_protocols",
    map_of(TEXT.or_null),
    "Of each listener by name; null for an unknown one.",
    json_only=True,
)
_ENTITY_FIELDS: Final = (
    Field("entity", _ENTITY, "", "Entity"),
    Field(
        "name", TEXT, "What it is, within its kind: orders, orders-3, topic:orders, an id.", "Name"
    ),
    Field("topic", TEXT.or_null, "Of a topic, a partition or a topic's configuration."),
    Field("partition", INT.or_null),
)
SHOWN_TOPIC: Final = RowType(
    "topic",
    "",
    (
        Field("topic", TEXT, "", "Topic"),
        Field("topic_id", TEXT, "", "Topic id", dropped=1),
        Field("partitions", INTEGER, "", "Partitions"),
        _IS_COMMITTED,
    ),
    title="Topics",
)

SHOWN_PARTITION: Final = RowType(
    "partition",
    "",
    (
        Field("topic", TEXT, "", "Topic"),
        Field("partition", INT, "", "Partition"),
        Field(
            "leader",
            replace(INTEGER, kind=Kind.TEXT, unknown="none"),
            "-1 if there is none.",
            "Leader",
        ),
        Field("leader_epoch", INTEGER, "", "Epoch", dropped=5),
        Field("replicas", list_of(INTEGER), "", "Replicas"),
        Field("isr", list_of(INTEGER), "", "ISR", dropped=7),
        Field("elr", list_of(INTEGER), "", "ELR", dropped=4),
        Field("last_known_elr", list_of(INTEGER)),
        Field("removing_replicas", list_of(INTEGER), "", "Removing", dropped=3),
        Field("adding_replicas", list_of(INTEGER), "", "Adding", dropped=2),
        Field(
            "leader_recovery_state",
            one_of("RECOVERED", "RECOVERING"),
            "RECOVERING after an unclean election.",
        ),
        Field("partition_epoch", INTEGER),
        Field(
            "directories",
            list_of(TEXT),
            "Id of the log directory of each replica.",
            "Log directories",
            dropped=1,
        ),
        _IS_COMMITTED,
    ),
    title="Partitions",
)

SHOWN_CONFIG: Final = RowType(
    "config",
    "",
    (
        Field("resource", TEXT, "", "Resource"),
        Field("property", TEXT, "", "Property"),
        Field("value", TEXT, "", "Value"),
        _IS_COMMITTED,
    ),
    title="Configurations",
)

SHOWN_FEATURE: Final = RowType(
    "feature",
    "",
    (
        Field("feature", TEXT, "", "Feature"),
        Field("level", INTEGER, "", "Level"),
        _IS_COMMITTED,
    ),
    title="Features",
)

SHOWN_BROKER: Final = RowType(
    "broker",
    "",
    (
        Field("node_id", INTEGER, "", "Broker"),
        Field("epoch", INTEGER, "", "Epoch", dropped=3),
        Field("fenced", FLAG, "", "Fenced"),
        Field("in_controlled_shutdown", FLAG, "", "Shutting down", dropped=4),
        Field("rack", TEXT.or_none, "", "Rack", dropped=2),
        Field("endpoints", list_of(TEXT), "NAME://HOST:PORT of each listener.", "Listeners"),
        Field("directories", list_of(TEXT), "", "Log directories", dropped=1),
        _IS_COMMITTED,
        Field("cordoned_directories", list_of(TEXT).or_null, json_only=True),
        _SECURITY_PROTOCOLS,
        Field("incarnation_id", TEXT, json_only=True),
        Field("is_migrating_zk_broker", FLAG, json_only=True),
        _SUPPORTED_FEATURES,
    ),
    title="Brokers",
)

SHOWN_CONTROLLER: Final = RowType(
    "controller",
    "",
    (
        Field("node_id", INTEGER, "", "Controller"),
        Field("endpoints", list_of(TEXT), "", "Listeners"),
        _IS_COMMITTED,
        Field("incarnation_id", TEXT, json_only=True),
        Field("zk_migration_ready", FLAG, json_only=True),
        _SECURITY_PROTOCOLS,
        _SUPPORTED_FEATURES,
    ),
    title="Controllers",
)

SHOWN_VOTER: Final = RowType(
    "voter",
    "",
    (
        Field("node_id", INTEGER, "", "Voter"),
        Field(
            "directory_id",
            TEXT.or_null,
            "Of its metadata directory; null with kraft.version 0.",
            "Log directory",
            dropped=1,
        ),
        Field("endpoints", list_of(TEXT), "", "Listeners"),
        _IS_COMMITTED,
        Field(
            "kraft_versions",
            _LEVELS.or_null,
            "Levels of kraft.version that the voter supports; null with kraft.version 0.",
            json_only=True,
        ),
    ),
    title="Voters",
)

SHOWN_ACL: Final = RowType(
    "acl",
    "",
    (
        Field("principal", TEXT, "", "Principal"),
        Field("permission_type", TEXT, "", "Permission"),
        Field("operation", TEXT, "", "Operation"),
        Field("resource_type", TEXT, "", "Resource type"),
        Field("pattern_type", TEXT, "", "Pattern"),
        Field("resource_name", TEXT, "", "Name"),
        Field("host", TEXT, "", "Host", dropped=2),
        Field("acl_id", TEXT, "", "Id", dropped=1),
        _IS_COMMITTED,
    ),
    title="ACLs",
)

SHOWN_SCRAM: Final = RowType(
    "scram",
    "",
    (
        Field("user", TEXT, "The user.", "User"),
        Field("mechanism", TEXT, "", "Mechanism"),
        Field("iterations", INTEGER, "", "Iterations"),
        _IS_COMMITTED,
    ),
    title="SCRAM credentials (salts and keys are never shown)",
)

SHOWN_QUOTA: Final = RowType(
    "quota",
    "",
    (
        Field("entity", TEXT, "", "Client"),
        Field("quota", TEXT, "", "Quota"),
        Field("value", TEXT, "", "Value"),
        _IS_COMMITTED,
    ),
    title="Client quotas",
)

SHOWN_TOKEN: Final = RowType(
    "delegation_token",
    "",
    (
        Field("token_id", TEXT, "", "Token"),
        Field("owner", TEXT, "", "Owner"),
        Field("renewers", list_of(TEXT), "", "Renewers", dropped=1),
        Field("expiration_timestamp_ms", TIME, "", "Expires"),
        _IS_COMMITTED,
        Field("requester", TEXT, json_only=True),
        Field("issue_timestamp_ms", TIME, json_only=True),
        Field("max_timestamp_ms", TIME, json_only=True),
    ),
    title="Delegation tokens",
)
SECTIONS: Final = (
    SHOWN_TOPIC,
    SHOWN_PARTITION,
    SHOWN_CONFIG,
    SHOWN_FEATURE,
    SHOWN_BROKER,
    SHOWN_CONTROLLER,
    SHOWN_VOTER,
    SHOWN_ACL,
    SHOWN_SCRAM,
    SHOWN_QUOTA,
    SHOWN_TOKEN,
)
_IN_JSON: Final = {
    ("broker", "node_id"): "id",
    ("controller", "node_id"): "id",
    ("voter", "node_id"): "id",
    ("acl", "acl_id"): "id",
    ("scram", "user"): "name",
}


def _json_object(row: RowType) -> ValueType:
    """The rows of a table as they are in the object ``metadata``, where keys have other names."""
    return object_of(
        *(
            replace(each, name=_IN_JSON.get((row.type, each.name), each.name))
            for each in row.fields
            if (row.type, each.name) != ("partition", "topic")
        )
    )


METADATA: Final = RowType(
    "metadata",
    "metadata show: the cluster's metadata at an offset.",
    (
        Field("path", TEXT, "The copy that was read: the most advanced one."),
        Field("log_dir", TEXT),
        Field("node_id", INTEGER.or_null, "Of the node whose copy it is."),
        Field("cluster_id", TEXT.or_null),
        Field(
            "committed_end_offset",
            INTEGER.or_null,
            "The records before this offset are known to be committed; null if the disks do not"
            " say.",
        ),
        Field(
            "open_transaction_offset",
            INTEGER.or_null,
            "Offset of the record that began a metadata transaction that is open; its records do"
            " not count.",
        ),
        Field("next_offset", INTEGER, "The records before this offset count."),
        Field("epoch", INTEGER, "Of the last batch."),
        Field("timestamp_ms", TIME.or_null, "When the last batch was appended."),
        Field(
            "leader",
            INTEGER.or_null,
            "Node id of the controller elected last; null if it was elected before the snapshot.",
        ),
        Field("kraft_version", INTEGER),
        Field("next_producer_id", INTEGER.or_null),
        Field(
            "topics",
            objects_of(
                Field("name", TEXT),
                Field("id", TEXT),
                Field("partitions", list_of(_json_object(SHOWN_PARTITION))),
                _IS_COMMITTED,
            ),
        ),
        Field(
            "configs",
            map_of(map_of(TEXT)),
            "Properties by resource: topic:NAME, broker:ID (broker: for all brokers),"
            " client_metrics:NAME, group:NAME. Passwords are [redacted].",
        ),
        Field("features", map_of(INTEGER), "Levels by name."),
        Field("acls", list_of(_json_object(SHOWN_ACL))),
        Field("scram", list_of(_json_object(SHOWN_SCRAM))),
        Field(
            "quotas",
            objects_of(
                Field(
                    "entity",
                    map_of(TEXT.or_null),
                    "user, client-id and ip; null is the default.",
                ),
                Field("quotas", map_of(NUMBER)),
                _IS_COMMITTED,
            ),
        ),
        Field("delegation_tokens", list_of(_json_object(SHOWN_TOKEN))),
        Field("brokers", list_of(_json_object(SHOWN_BROKER))),
        Field("controllers", list_of(_json_object(SHOWN_CONTROLLER))),
        Field("voters", list_of(_json_object(SHOWN_VOTER))),
        Field(
            "uncommitted",
            objects_of(
                Field("entity", _ENTITY),
                Field(
                    "name",
                    TEXT,
                    "What it is, within its kind: orders, orders-3, topic:orders, an id.",
                ),
                Field("topic", TEXT.or_null, "Of a topic, a partition or a topic's configuration."),
                Field("partition", INT.or_null),
                Field("change", one_of("added", "removed", "changed")),
                Field(
                    "old",
                    map_of(ANYTHING).or_null,
                    "Fields as in the object metadata; passwords are [redacted].",
                ),
                Field(
                    "new",
                    map_of(ANYTHING).or_null,
                    "Fields as in the object metadata; passwords are [redacted].",
                ),
            ),
        ),
        Field(
            "other_copies",
            objects_of(
                Field("path", TEXT),
                Field("node_id", INTEGER.or_null),
                Field("end_offset", INTEGER),
                Field("epoch", INTEGER),
                Field(
                    "verdict",
                    one_of("same", "prefix", "diverged"),
                    "prefix: one has all records of the other, and more; diverged: each has"
                    " records that the other has not.",
                ),
                Field("common_end_offset", INTEGER, "Up to which both have the same records."),
                Field("common_epoch", INTEGER),
                Field(
                    "differing_offset",
                    INTEGER.or_null,
                    "A batch whose content differs although its epoch is the same: one copy is"
                    " damaged.",
                ),
            ),
        ),
    ),
)

EVENT: Final = RowType(
    "event",
    "metadata history: something that happened.",
    (
        Field("offset", INTEGER, "", "Offset"),
        Field("epoch", INTEGER),
        Field("timestamp_ms", TIME, "When the record was appended.", "Time", dropped=5),
        *_ENTITY_FIELDS,
        Field(
            "event",
            one_of(*sorted(EVENTS)),
            "",
            "Event",
        ),
        Field(
            "election",
            one_of("clean", "unclean").or_null_as(""),
            "Of a partition's leader.",
            "Election",
            dropped=4,
        ),
        Field(
            "old",
            map_of(ANYTHING).or_none,
            "Fields as in the object metadata; passwords are [redacted].",
            "Old",
            dropped=1,
        ),
        Field(
            "new",
            map_of(ANYTHING).or_none,
            "Fields as in the object metadata; passwords are [redacted].",
            "New",
            dropped=2,
        ),
        replace(_IS_COMMITTED, dropped=3),
    ),
)

DIFFERENCE: Final = RowType(
    "difference",
    "metadata diff: something that only one side has, or that differs.",
    (
        *_ENTITY_FIELDS,
        Field(
            "change",
            one_of("added", "removed", "changed", "recreated"),
            "added: only the right side has it.",
            "Change",
        ),
        Field("old", map_of(ANYTHING).or_none, "Fields of the left side.", "Left"),
        Field("new", map_of(ANYTHING).or_none, "Fields of the right side.", "Right"),
    ),
)

HISTORY_SUMMARY: Final = RowType(
    "summary",
    "metadata history.",
    (
        Field("path", TEXT),
        Field("begin_offset", INTEGER, "Nothing is known of what happened before."),
        Field("end_offset", INTEGER),
        Field("committed_end_offset", INTEGER.or_null),
        Field("events", INTEGER),
        Field("uncommitted_events", INTEGER),
        Field(
            "unknown",
            objects_of(Field("begin_offset", INTEGER), Field("end_offset", INTEGER)),
            "Offsets, the ends exclusive, that damage makes unreadable.",
        ),
    ),
    name="history_summary",
)

METADATA_DIFF_SUMMARY: Final = RowType(
    "summary",
    "metadata diff.",
    (
        Field("left", TEXT),
        Field("right", TEXT),
        Field("left_end_offset", INTEGER),
        Field("left_epoch", INTEGER),
        Field("right_end_offset", INTEGER),
        Field("right_epoch", INTEGER),
        Field(
            "verdict",
            one_of("same", "prefix", "diverged").or_null,
            "How two copies relate; null for two offsets of one.",
        ),
        Field("common_end_offset", INTEGER.or_null),
        Field("common_epoch", INTEGER.or_null),
        Field("differing_offset", INTEGER.or_null),
        Field("differences", INTEGER),
    ),
    name="diff_summary",
)

ANSWERS: Final = (
    JsonAnswer(
        "metadata",
        (
            METADATA,
            EVENT,
            DIFFERENCE,
            COLLECTED_DIRECTORY,
            NOTICE,
            HISTORY_SUMMARY,
            METADATA_DIFF_SUMMARY,
            COLLECT_SUMMARY,
            PLAN_SUMMARY,
            APPLY,
            INTERRUPTED,
        ),
        (
            "metadata show",
            "metadata history",
            "metadata diff",
            "metadata collect",
            "metadata plan",
            "metadata apply",
            "metadata rebuild",
        ),
    ),
)
