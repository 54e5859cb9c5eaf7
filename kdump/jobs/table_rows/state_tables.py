"""The tables about what records add up to: configurations, groups, transactions, producers."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from kdump.jobs.groups.offset_rows import OFFSET
from kdump.jobs.table_rows.log_tables import LISTING_OPTIONS, OF_PARTITIONS
from kdump.tables.table import TIMESTAMP, Table, TableColumn, list_of, table_columns

STATE_OPTIONS: Final = (*LISTING_OPTIONS, "now")
"""The options of tables that depend on the clock."""

CONFIGS: Final = Table(
    "configs",
    "a property in the cluster's metadata, as `kdump metadata show` prints it",
    (
        TableColumn("resource", pa.string(), "such as `topic:orders` or `broker:1`"),
        TableColumn("topic", pa.string(), "the topic; null for other resources"),
        TableColumn("property", pa.string(), "Kafka's name"),
        TableColumn("value", pa.string(), "its value; `[redacted]` for a password"),
        TableColumn(
            "is_committed",
            pa.bool_(),
            "null if it is not known that the quorum committed the last change",
        ),
    ),
    LISTING_OPTIONS,
    {"topic": "topic"},
)

GROUP_OFFSETS: Final = Table(
    "group_offsets",
    "what a consumer group committed for a partition, as `kdump groups` shows it",
    table_columns(*OFFSET.fields),
    STATE_OPTIONS,
    OF_PARTITIONS,
)

TRANSACTIONS: Final = Table(
    "transactions",
    "a transactional id as its coordinator knows it (`type` is `transaction`), or a transaction"
    " that is open in a partition (`open_transaction`), as `kdump txns` shows them",
    (
        TableColumn("type", pa.string(), "`transaction` or `open_transaction`"),
        TableColumn("transactional_id", pa.string(), "null if no coordinator here knows it"),
        TableColumn("producer_id", pa.int64(), "its producer"),
        TableColumn("producer_epoch", pa.int64(), "the epoch of the producer"),
        TableColumn("start_time", TIMESTAMP, "when it began"),
        TableColumn("state", pa.string(), "of a transactional id: `Ongoing`, `Empty` and others"),
        TableColumn("last_change", TIMESTAMP, "of a transactional id: when its state changed"),
        TableColumn("timeout_ms", pa.int64(), "of a transactional id"),
        TableColumn(
            "partitions", list_of(pa.string()), "of a transactional id: those it writes to"
        ),
        TableColumn("open_partitions", list_of(pa.string()), "those where it is open"),
        TableColumn("missing_partitions", list_of(pa.string()), "those that were not read"),
        TableColumn("previous_producer_id", pa.int64(), "of a transactional id"),
        TableColumn("next_producer_id", pa.int64(), "of a transactional id"),
        TableColumn("client_transaction_version", pa.int64(), "of a transactional id"),
        TableColumn(
            "is_certain",
            pa.bool_(),
            "of a transactional id: whether no later record may be in damaged bytes",
        ),
        TableColumn("coordinator_partition", pa.int32(), "the partition of `__transaction_state`"),
        TableColumn("topic", pa.string(), "of an open transaction, as what follows"),
        TableColumn("partition", pa.int32(), "where it is open"),
        TableColumn("coordinator_epoch", pa.int64(), "of the last marker of its producer"),
        TableColumn("first_offset", pa.int64(), "its first offset"),
        TableColumn("last_offset", pa.int64(), "its last offset"),
        TableColumn("last_time", TIMESTAMP, "of its last batch"),
        TableColumn("batches", pa.int64(), "how many batches it has"),
        TableColumn("records", pa.int64(), "how many records it has"),
        TableColumn("size_bytes", pa.int64(), "the size of these batches"),
        TableColumn("pinned_bytes", pa.int64(), "the size of the log from its start on"),
        TableColumn("coordinator_state", pa.string(), "the state of its transactional id"),
        TableColumn("is_open", pa.bool_(), "null if damage may hide its marker"),
        TableColumn("is_ongoing", pa.bool_(), "whether its coordinator will end it"),
        TableColumn("is_hanging", pa.bool_(), "whether nothing will end it"),
        TableColumn("end_command", pa.string(), "the command that ends it"),
        TableColumn("end_command_before_3_0", pa.string(), "the same for brokers before 3.0"),
        TableColumn("log_dir", pa.string(), "the log directory that was read"),
    ),
    STATE_OPTIONS,
    OF_PARTITIONS,
)

PRODUCERS: Final = Table(
    "producers",
    "an idempotent or transactional producer of a partition, as a starting broker has it in"
    " memory; none expires",
    (
        TableColumn("log_dir", pa.string(), "the log directory, as it was named"),
        TableColumn("directory", pa.string(), "the name of the partition's directory in it"),
        TableColumn("topic", pa.string(), "from the name of the directory"),
        TableColumn("partition", pa.int32(), "likewise"),
        TableColumn("producer_id", pa.int64(), "the producer"),
        TableColumn("producer_epoch", pa.int64(), "of its last batch or marker"),
        TableColumn("coordinator_epoch", pa.int64(), "of its last marker; null without one"),
        TableColumn("first_sequence", pa.int64(), "of its last batch; null without one"),
        TableColumn("last_sequence", pa.int64(), "likewise"),
        TableColumn("last_offset", pa.int64(), "likewise"),
        TableColumn("offset_delta", pa.int64(), "from its first offset to its last"),
        TableColumn("timestamp", TIMESTAMP, "of its last batch or marker"),
        TableColumn(
            "current_txn_first_offset",
            pa.int64(),
            "where its open transaction begins; null if none is open",
        ),
    ),
    LISTING_OPTIONS,
    OF_PARTITIONS,
)
