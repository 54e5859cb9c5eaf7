"""The rows of a collection of disks, and of the plan that is made of it."""

from __future__ import annotations

from typing import Final

from kdump.rows.common_rows import OPERATION
from kdump.rows.row_type import (
    BYTES,
    FLAG,
    INT,
    INTEGER,
    SIZE,
    TEXT,
    TIME,
    Field,
    RowType,
    list_of,
    object_of,
    objects_of,
    one_of,
)

VOTERS: Final = objects_of(
    Field("id", INTEGER),
    Field(
        "directory_id",
        TEXT.or_null,
        "Of its metadata directory; null with kraft.version 0.",
    ),
    Field("endpoints", list_of(TEXT)),
    Field(
        "kraft_versions",
        object_of(Field("min", INTEGER), Field("max", INTEGER)).or_null,
    ),
)
_BY_SOURCE: Final = object_of(
    *(
        Field(name, INTEGER, is_optional=True)
        for name in ("copy", "old-copy", "disk", "claim", "rule", "guess", "set")
    )
)
COLLECTED_DIRECTORY: Final = RowType(
    "directory",
    "A log directory that metadata collect read.",
    (
        Field("log_dir", TEXT, "", "Log dir"),
        Field("node_id", INTEGER.or_null, "From meta.properties.", "Node"),
        Field("cluster_id", TEXT.or_null, "From meta.properties."),
        Field("directory_id", TEXT.or_null, "From meta.properties.", "Directory id", dropped=1),
        Field(
            "is_clean_shutdown",
            FLAG,
            "Whether it has the clean shutdown marker.",
            "Clean",
            dropped=6,
        ),
        Field(
            "live_partitions",
            INTEGER,
            "Partitions by state, without __cluster_metadata; likewise the next three.",
            "Live",
        ),
        Field("future_partitions", INTEGER, "Directories of this state.", "Future", dropped=2),
        Field("deleted_partitions", INTEGER, "Directories of this state.", "Deleted", dropped=4),
        Field("stray_partitions", INTEGER, "Directories of this state.", "Stray", dropped=5),
        Field(
            "highest_leader_epoch",
            INTEGER.or_none,
            "In checkpoints and batch headers; null if there is none.",
            "Max epoch",
            dropped=3,
        ),
        Field(
            "highest_producer_id",
            INTEGER.or_none,
            "In batches, producer snapshots and __transaction_state; null if there is none.",
            "Max producer",
            dropped=3,
        ),
        Field(
            "metadata_epoch",
            INTEGER.or_none,
            "Where the copy of the cluster's metadata ends; null without one.",
            "Metadata epoch",
            dropped=7,
        ),
        Field("metadata_end_offset", INTEGER.or_none, "Likewise.", "Metadata end"),
        Field(
            "problems",
            INTEGER,
            "What is damaged or could not be read; standard error has the lines.",
            "Problems",
            alert=True,
        ),
    ),
    title="Log directories",
)

COLLECT_SUMMARY: Final = RowType(
    "summary",
    "metadata collect.",
    (
        Field("file", TEXT, "The file of --out."),
        Field("size_bytes", BYTES, "Its size."),
        Field("log_dirs", INTEGER),
        Field(
            "cluster_ids", list_of(TEXT), "Of the log directories; several are of several clusters."
        ),
        Field("node_ids", list_of(INTEGER)),
        Field("topics", INTEGER, "Topics with a live partition here."),
        Field("partitions", INTEGER, "Live partitions here."),
        Field(
            "directories_without_topic_id",
            INTEGER,
            "Live partitions whose partition.metadata has no topic id, or cannot be read.",
        ),
        Field(
            "claimed_topics", INTEGER, "Topics with partitions that only the internal topics name."
        ),
        Field("claimed_partitions", INTEGER, "Partitions that only the internal topics name."),
        Field(
            "metadata_log_dir",
            TEXT.or_null,
            "The log directory with the most advanced copy of the metadata; null without any.",
        ),
        Field("metadata_epoch", INTEGER.or_null, "Where it ends."),
        Field("metadata_end_offset", INTEGER.or_null, "Likewise."),
        Field("problems", INTEGER),
    ),
    name="collect_summary",
)

NOTICE: Final = RowType(
    "notice",
    "metadata plan: something that people must know of the plan.",
    (
        Field(
            "kind",
            one_of("loss", "contradiction", "warning", "guess"),
            "loss: some disk has it and the plan drops it, or it is gone for good. contradiction:"
            " disks disagree, and the plan decided. warning: to be known or done before the"
            " brokers start. guess: nothing on the disks says it.",
            "Kind",
        ),
        Field("code", TEXT, "What it is; the words do not change.", "Code"),
        Field("topic", TEXT.or_null, "The topic that it is about.", "Topic"),
        Field(
            "partition",
            INT.or_null,
            "The partition that it is about; null for all of them.",
            "Partition",
        ),
        Field("what", TEXT, "A sentence.", "What"),
        Field(
            "needs_acceptance",
            FLAG,
            "Whether the plan is refused without --accept-loss.",
            "Needs acceptance",
        ),
        Field("override", TEXT.or_null, "The --set that decides otherwise.", "Override"),
    ),
    title="Notices",
)

PLAN_SUMMARY: Final = RowType(
    "summary",
    "metadata plan, metadata rebuild.",
    (
        Field("file", TEXT.or_null, "The file of --out; null for rebuild."),
        Field(
            "size_bytes", BYTES.or_null, "Its size; null if the plan was refused, and for rebuild."
        ),
        Field(
            "is_refused",
            FLAG,
            "Whether nothing was written because the plan drops something that a disk has.",
        ),
        Field("cluster_id", TEXT),
        Field(
            "moment_ms",
            TIME.or_null,
            "Of --to, when the metadata was collected: topics, configurations, ACLs, quotas and"
            " credentials are those of that time. Null without it.",
        ),
        Field("snapshot_offset", INTEGER, "Above every offset in any copy."),
        Field("snapshot_epoch", INTEGER, "Above every epoch in any copy."),
        Field("metadata_version", INTEGER.or_null),
        Field("kraft_version", INTEGER),
        Field("next_producer_id", INTEGER),
        Field("topics", INTEGER),
        Field(
            "topics_by_source",
            _BY_SOURCE,
            "How many come from where; sources as in the plan.",
        ),
        Field("partitions", INTEGER),
        Field(
            "partitions_by_source",
            _BY_SOURCE,
            "Likewise, by why they exist.",
        ),
        Field("partitions_without_leader", INTEGER, "Partitions that no collected disk has."),
        Field("brokers", INTEGER, "Registrations that a copy has; likewise the next four."),
        Field("acls", INTEGER),
        Field("scram", INTEGER),
        Field("quotas", INTEGER),
        Field("delegation_tokens", INTEGER),
        Field("losses", INTEGER, "Notices of this kind; likewise the next three."),
        Field("contradictions", INTEGER),
        Field("warnings", INTEGER),
        Field("guesses", INTEGER),
        Field(
            "need_acceptance",
            INTEGER,
            "Notices for which the plan is refused without --accept-loss.",
        ),
    ),
    name="plan_summary",
)

CONTROLLER_CHANGES: Final = (
    Field("lost_bytes", SIZE, "Bytes that are removed; undo data keeps them."),
    Field("needed_bytes", SIZE, "Free space that the changes need while they are made."),
    Field("is_applied", FLAG),
    Field("undos", list_of(TEXT), "Ids for 'kdump undo'; empty without undo data."),
    Field("failure", TEXT.or_null, "Null if nothing failed."),
    Field("is_dry_run", FLAG),
    Field("operations", list_of(OPERATION)),
)
"""The changes to a metadata directory."""
APPLY: Final = RowType(
    "apply",
    "What 'metadata apply' or 'metadata rebuild' makes of a directory.",
    (
        Field("log_dir", TEXT),
        Field("plan", TEXT.or_null, "The plan's file; null for rebuild."),
        Field("node_id", INTEGER),
        Field("cluster_id", TEXT),
        Field("kraft_version", INTEGER, "With 0, the configuration has the voters."),
        Field("topics", INTEGER),
        Field("partitions", INTEGER),
        Field(
            "snapshot",
            TEXT.or_null,
            "Name of the file; null on a broker, like the other fields of the snapshot.",
        ),
        Field("end_offset", INTEGER.or_null, "The first offset after the snapshot."),
        Field("epoch", INTEGER.or_null, "Epoch of the snapshot."),
        Field("records", INTEGER.or_null, "Without control records."),
        Field("snapshot_bytes", BYTES.or_null),
        Field("lost", list_of(TEXT).or_null, "What the metadata.version cannot hold."),
        Field(
            "voters",
            VOTERS.or_null,
            "The new voters.",
        ),
        Field(
            "moved_to",
            TEXT.or_null,
            "New name of a broker's copy that is moved aside; null for a controller.",
        ),
        *CONTROLLER_CHANGES,
    ),
)
