"""The tables about what lies in log directories: partitions, segments, batches, findings."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from kdump.jobs.listing.listed_rows import LISTED_PARTITION
from kdump.jobs.verify.finding_row import FINDING
from kdump.tables.kafka_log.selected_offsets import BOUND_OPTIONS
from kdump.tables.table import TIMESTAMP, PushedColumn, Table, TableColumn, table_columns

LISTING_OPTIONS: Final = (
    "table",
    "path",
    "paths",
    "columns",
    "subscribe",
    "subscribePattern",
    "assign",
)
"""The options of tables that list partitions."""
TIERED_OPTIONS: Final = (*LISTING_OPTIONS, "remote", "privateKey")
"""The options of those that also list what is in tiered storage."""

OF_PARTITIONS: Final[dict[str, PushedColumn]] = {"topic": "topic", "partition": "partition"}

LOG_DIR_COLUMN: Final = TableColumn("log_dir", pa.string(), "The log directory, as it was named.")
DIRECTORY_COLUMN: Final = TableColumn(
    "directory", pa.string(), "The name of the partition's directory in it."
)
TOPIC_COLUMN: Final = TableColumn(
    "topic",
    pa.string(),
    "From the name of the directory; null if that is not the name of a partition.",
)
PARTITION_COLUMN: Final = TableColumn("partition", pa.int32(), "Likewise.")
STATE_COLUMN: Final = TableColumn(
    "state",
    pa.string(),
    "`live`, `future` (moving from another disk), `delete` or `stray`.",
)

PARTITIONS: Final = Table(
    "partitions",
    "a directory of a partition, as `kdump ls` lists it",
    table_columns(*LISTED_PARTITION.fields),
    TIERED_OPTIONS,
    OF_PARTITIONS,
)

SEGMENTS: Final = Table(
    "segments",
    "a segment of a partition, as a starting broker loads it",
    (
        LOG_DIR_COLUMN,
        DIRECTORY_COLUMN,
        TOPIC_COLUMN,
        PARTITION_COLUMN,
        STATE_COLUMN,
        TableColumn("path", pa.string(), "The log's file."),
        TableColumn(
            "base_offset",
            pa.int64(),
            "The first offset that it may hold; in Kafka 0.7 the position of its first byte.",
        ),
        TableColumn(
            "end_offset",
            pa.int64(),
            "After its last batch, by the chain of batch headers; the base offset if it is empty.",
        ),
        TableColumn(
            "latest_timestamp",
            TIMESTAMP,
            "The largest of a record, from the time index and the last batch headers.",
        ),
        TableColumn("log_bytes", pa.int64(), "Size of the log, with preallocated space."),
        TableColumn(
            "offset_index_bytes", pa.int64(), "Size of the `.index`; null if it is missing."
        ),
        TableColumn("time_index_bytes", pa.int64(), "Size of the `.timeindex`; likewise."),
        TableColumn("transaction_index_bytes", pa.int64(), "Size of the `.txnindex`; likewise."),
        TableColumn("is_active", pa.bool_(), "Whether it is the last one, which is written to."),
        TableColumn("is_remote", pa.bool_(), "Whether it is in tiered storage."),
    ),
    TIERED_OPTIONS,
    {**OF_PARTITIONS, "base_offset": "offset"},
)

TOPICS: Final = Table(
    "topics",
    "a topic that has partitions here, or that the cluster's metadata here has",
    (
        TableColumn("topic", pa.string(), "Its name."),
        TableColumn(
            "topic_id",
            pa.string(),
            "In the cluster's metadata; if that is not here, from `partition.metadata`.",
        ),
        TableColumn(
            "partitions",
            pa.int64(),
            "How many the cluster's metadata has; null if it is not here or has no such topic.",
        ),
        TableColumn(
            "is_committed",
            pa.bool_(),
            "Null if it is not known that the quorum committed the topic's record, or there is no"
            " metadata here.",
        ),
        TableColumn("partitions_here", pa.int64(), "How many have a live directory here."),
        TableColumn("replicas_here", pa.int64(), "How many live directories its partitions have."),
        TableColumn("segments", pa.int64(), "How many segments these have."),
        TableColumn("log_bytes", pa.int64(), "Size of their segments' logs."),
        TableColumn("total_bytes", pa.int64(), "Size of all their files."),
        TableColumn("earliest_timestamp", TIMESTAMP, "The smallest of its partitions."),
        TableColumn("latest_timestamp", TIMESTAMP, "The largest of its partitions."),
    ),
    TIERED_OPTIONS,
    {"topic": "topic"},
)

BATCHES: Final = Table(
    "batches",
    "a batch of records, by its header; of magic 0 and 1, a message or a compressed set of"
    " messages. Logs of Kafka 0.7 have none",
    (
        LOG_DIR_COLUMN,
        TOPIC_COLUMN,
        PARTITION_COLUMN,
        TableColumn("segment", pa.string(), "The log's file."),
        TableColumn("position", pa.int64(), "The byte where it begins."),
        TableColumn("size_bytes", pa.int64(), "Its size."),
        TableColumn("base_offset", pa.int64(), "Of its first record, before compaction."),
        TableColumn("last_offset", pa.int64(), "Of its last record, before compaction."),
        TableColumn("records_count", pa.int64(), "How many records it has."),
        TableColumn("magic", pa.int64(), "The version of its format."),
        TableColumn("codec", pa.string(), "How it is compressed."),
        TableColumn("leader_epoch", pa.int64(), "Of the leader that appended it."),
        TableColumn("base_timestamp", TIMESTAMP, "Of its first record."),
        TableColumn("max_timestamp", TIMESTAMP, "The largest, as the header says."),
        TableColumn("producer_id", pa.int64(), "Null without an idempotent producer."),
        TableColumn("producer_epoch", pa.int64(), "Likewise."),
        TableColumn("base_sequence", pa.int64(), "Likewise."),
        TableColumn("is_transactional", pa.bool_(), "Whether it belongs to a transaction."),
        TableColumn("is_control", pa.bool_(), "Whether it has control records."),
    ),
    (
        *LISTING_OPTIONS,
        *BOUND_OPTIONS,
        "failOnDataLoss",
        "startingOffsetsByTimestampStrategy",
        "mode",
        "minPartitions",
        "replicas",
        "remote",
        "privateKey",
    ),
    {
        **OF_PARTITIONS,
        "base_offset": "base_offset",
        "last_offset": "last_offset",
        # Time indexes have the largest of the headers, whatever is in the batches.
        "max_timestamp": "timestamp",
    },
)

FINDINGS: Final = Table(
    "findings",
    "a finding of `kdump verify`",
    (
        LOG_DIR_COLUMN,
        TableColumn(
            "directory",
            pa.string(),
            "Of the partition; null if it is about the log directory itself.",
        ),
        TableColumn("topic", pa.string(), "Likewise."),
        TableColumn("partition", pa.int32(), "Likewise."),
        *table_columns(*FINDING.fields),
    ),
    (*LISTING_OPTIONS, "level", "now"),
    OF_PARTITIONS,
)
