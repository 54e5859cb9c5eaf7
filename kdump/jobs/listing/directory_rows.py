"""The rows of ``kdump info``: fields of log directories, partitions and other directories."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from kdump.jobs.listing.certain_end import IS_END_CERTAIN
from kdump.rows.row_type import (
    COUNT,
    FLAG,
    INT,
    INTEGER,
    SIZE,
    TEXT,
    TIME,
    Field,
    JsonAnswer,
    Kind,
    RowType,
    list_of,
    map_of,
    one_of,
)

FIELDS: Final = (
    Field("path", TEXT, "As typed.", "Directory"),
    Field("kind", TEXT, "What the directory is.", "Kind"),
    Field("log_directories", list_of(TEXT), "Log directories inside it.", "Log directories below"),
    Field("cluster_id", TEXT.or_null, "From meta.properties.", "Cluster id"),
    Field("node_id", INTEGER.or_null, "From meta.properties.", "Node id"),
    Field("directory_id", TEXT.or_null, "From meta.properties.", "Directory id"),
    Field(
        "is_clean",
        FLAG,
        "Whether the clean shutdown marker is present; absent for a metadata directory.",
        "Clean shutdown",
        alert=True,
        is_optional=True,
    ),
    Field(
        "broker_epoch", INTEGER, "From the clean shutdown marker.", "Broker epoch", is_optional=True
    ),
    Field(
        "in_use_by",
        TEXT.or_none,
        "The process that holds the lock; null for none.",
        "In use by",
        alert=True,
    ),
    Field("has_lock_file", FLAG, "Whether the file `.lock` is present.", "Lock file"),
    Field(
        "broker_generation",
        replace(TEXT, unknown="-"),
        "Versions of Kafka that the last broker can have had.",
        "Last broker",
    ),
    Field("topic", TEXT.or_null, "From the directory's name.", "Topic"),
    Field("partition", INT.or_null, "From the directory's name.", "Partition"),
    Field("state", one_of("live", "future", "delete", "stray"), "", "State"),
    Field("topic_id", TEXT.or_none, "From partition.metadata.", "Topic id"),
    Field("topics", COUNT, "How many topics it has.", "Topics"),
    Field("partitions", COUNT, "How many live partitions it has.", "Partitions"),
    Field(
        "future_partitions",
        COUNT,
        "Partitions that are moving from another disk.",
        "  moving (-future)",
    ),
    Field("delete_partitions", COUNT, "Partitions that are deleted soon.", "  deleted (-delete)"),
    Field(
        "stray_partitions",
        COUNT,
        "Partitions that a broker renamed because they are not its own.",
        "  stray (-stray)",
    ),
    Field("segments", COUNT, "How many segments.", "Segments"),
    Field(
        "generations",
        map_of(COUNT),
        "Segments by the Kafka version that wrote them.",
        "  written by Kafka",
    ),
    Field(
        "remote_segments",
        COUNT,
        "Segments that are read from tiered storage; only with --remote.",
        "  in tiered storage",
        is_optional=True,
    ),
    Field("log_bytes", SIZE, "Size of the logs.", "Size of logs"),
    Field(
        "remote_log_bytes",
        SIZE,
        "Size of their logs; only with --remote.",
        "  in tiered storage",
        is_optional=True,
    ),
    Field("total_bytes", SIZE, "Size of all files.", "Size of all files"),
    Field(
        "largest_topics",
        replace(map_of(SIZE), kind=Kind.BYTES),
        "The topics that take the most space, largest first: the size of all files in bytes.",
        "Largest topics",
    ),
    Field("log_start_offset", INTEGER.or_null, "Log start offset.", "Log start offset"),
    Field(
        "local_log_start_offset",
        INTEGER.or_none,
        "Where the local log begins; only with --remote.",
        "Local start offset",
        is_optional=True,
    ),
    Field("log_end_offset", INTEGER.or_null, "Log end offset.", "Log end offset"),
    IS_END_CERTAIN,
    Field(
        "gaps",
        COUNT.or_null,
        "Segments that begin after the end of the previous one.",
        "Gaps between segments",
    ),
    Field(
        "recovery_point", INTEGER.or_null, "Recovery point, from the checkpoint.", "Recovery point"
    ),
    Field(
        "high_watermark", INTEGER.or_null, "High watermark, from the checkpoint.", "High watermark"
    ),
    Field("earliest_timestamp_ms", TIME.or_none, "Time of the first record.", "Earliest"),
    Field("latest_timestamp_ms", TIME.or_none, "Latest time of a record.", "Latest"),
    Field(
        "leader_epoch", INTEGER.or_none, "The latest of leader-epoch-checkpoint.", "Leader epoch"
    ),
    Field(
        "quorum_leader_id", INTEGER.or_null, "From quorum-state.", "Quorum leader", is_optional=True
    ),
    Field(
        "quorum_leader_epoch",
        INTEGER.or_null,
        "From quorum-state.",
        "Quorum epoch",
        is_optional=True,
    ),
    Field(
        "metadata_snapshot",
        TEXT.or_none,
        "Name of the newest snapshot.",
        "Metadata snapshot",
        is_optional=True,
    ),
    Field(
        "leftovers",
        map_of(COUNT),
        "Leftover files by kind: deleted, cleaned, swap, orphan, temporary.",
        "Leftover files",
        alert=True,
    ),
    Field(
        "refused",
        list_of(TEXT),
        "Names that make a broker refuse to start.",
        "Refused names",
        alert=True,
    ),
    Field(
        "unreadable",
        list_of(TEXT),
        "Names of directories that cannot be read.",
        "Unreadable",
        alert=True,
    ),
    Field("foreign", list_of(TEXT), "Names of files that are not Kafka's.", "Foreign files"),
    Field("batches", COUNT, "How many batches.", "Batches", is_optional=True),
    Field(
        "records",
        COUNT.or_null,
        "Null if compressed message sets of magic 0 or 1 hide the number.",
        "Records",
        is_optional=True,
    ),
    Field("formats", map_of(COUNT), "Batches by magic.", "Formats", is_optional=True),
    Field("codecs", map_of(COUNT), "Batches by codec.", "Codecs", is_optional=True),
    Field("producers", COUNT, "Distinct producer ids.", "Producer ids", is_optional=True),
    Field(
        "transactional_batches",
        COUNT,
        "Batches of transactions.",
        "Transactional",
        is_optional=True,
    ),
    Field(
        "control_batches", COUNT, "Batches of control records.", "Control batches", is_optional=True
    ),
)
"""All fields, in the order of lines for people."""
_COUNTS: Final = frozenset(
    {
        "batches",
        "records",
        "formats",
        "codecs",
        "producers",
        "transactional_batches",
        "control_batches",
    }
)
"""What ``--deep`` adds."""
_OF_PARTITIONS: Final = frozenset(
    {
        "segments",
        "generations",
        "remote_segments",
        "log_bytes",
        "remote_log_bytes",
        "total_bytes",
        "quorum_leader_id",
        "quorum_leader_epoch",
        "metadata_snapshot",
        "leftovers",
        "foreign",
    }
)
_OF_LOG_DIRECTORY: Final = frozenset(
    {
        "cluster_id",
        "node_id",
        "directory_id",
        "is_clean",
        "broker_epoch",
        "in_use_by",
        "has_lock_file",
        "broker_generation",
        "topics",
        "partitions",
        "future_partitions",
        "delete_partitions",
        "stray_partitions",
        "largest_topics",
        "refused",
        "unreadable",
    }
)
_OF_PARTITION: Final = frozenset(
    {
        "topic",
        "partition",
        "state",
        "topic_id",
        "log_start_offset",
        "local_log_start_offset",
        "log_end_offset",
        "is_end_certain",
        "gaps",
        "recovery_point",
        "high_watermark",
        "earliest_timestamp_ms",
        "latest_timestamp_ms",
        "leader_epoch",
    }
)


def _directory(name: str, what: str, names: frozenset[str], *kinds: str) -> RowType:
    named = {"path", "kind", *_COUNTS, *names}
    fields = (
        replace(each, type=one_of(*kinds)) if each.name == "kind" else each
        for each in FIELDS
        if each.name in named
    )
    return RowType("directory", what, tuple(fields), name=name)


ANSWERS: Final = (
    JsonAnswer(
        "info",
        (
            _directory(
                "log_directory",
                "A log directory. With --deep it has the counts of batches too.",
                _OF_PARTITIONS | _OF_LOG_DIRECTORY,
                "log directory",
                "metadata log directory",
                "log directory of Kafka 0.7",
            ),
            _directory(
                "partition_directory",
                "A partition. With --deep it has the counts of batches too.",
                _OF_PARTITIONS | _OF_PARTITION,
                "partition",
                "partition of Kafka 0.7",
            ),
            _directory(
                "other_directory",
                "A directory that is not one of Kafka's.",
                frozenset({"log_directories"}),
                "not a directory of Kafka's",
            ),
        ),
    ),
)
