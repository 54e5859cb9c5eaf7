"""The tables about what records add up to: configurations, groups, transactions, producers."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from kdump.jobs.groups.offset_rows import OFFSET
from kdump.jobs.table_rows.log_tables import LISTING_OPTIONS, OF_PARTITIONS
from kdump.jobs.transactions.transaction_rows import OPEN_TRANSACTION, TRANSACTION
from kdump.tables.table import TIMESTAMP, Table, TableColumn, table_columns

STATE_OPTIONS: Final = (*LISTING_OPTIONS, "now")
"""The options of tables that depend on the clock."""

CONFIGS: Final = Table(
    "configs",
    "a property in the cluster's metadata, as `kdump metadata show` prints it",
    (
        TableColumn("resource", pa.string(), "Such as `topic:orders` or `broker:1`."),
        TableColumn("topic", pa.string(), "The topic; null for other resources."),
        TableColumn("property", pa.string(), "Kafka's name."),
        TableColumn("value", pa.string(), "Its value; `[redacted]` for a password."),
        TableColumn(
            "is_committed",
            pa.bool_(),
            "Null if it is not known that the quorum committed the last change.",
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

_TRANSACTION_FIELDS: Final = (*TRANSACTION.fields, *OPEN_TRANSACTION.fields)
TRANSACTIONS: Final = Table(
    "transactions",
    "a transactional id as its coordinator knows it (`type` is `transaction`), or a transaction"
    " that is open in a partition (`open_transaction`), as `kdump txns` shows them",
    (
        TableColumn("type", pa.string(), "`transaction` or `open_transaction`."),
        *table_columns(*{each.name: each for each in _TRANSACTION_FIELDS}.values()),
    ),
    STATE_OPTIONS,
    OF_PARTITIONS,
)

PRODUCERS: Final = Table(
    "producers",
    "an idempotent or transactional producer of a partition, as a starting broker has it in"
    " memory; none expires",
    (
        TableColumn("log_dir", pa.string(), "The log directory, as it was named."),
        TableColumn("directory", pa.string(), "The name of the partition's directory in it."),
        TableColumn("topic", pa.string(), "From the name of the directory."),
        TableColumn("partition", pa.int32(), "Likewise."),
        TableColumn("producer_id", pa.int64(), "The producer."),
        TableColumn("producer_epoch", pa.int64(), "Of its last batch or marker."),
        TableColumn("coordinator_epoch", pa.int64(), "Of its last marker; null without one."),
        TableColumn("first_sequence", pa.int64(), "Of its last batch; null without one."),
        TableColumn("last_sequence", pa.int64(), "Likewise."),
        TableColumn("last_offset", pa.int64(), "Likewise."),
        TableColumn("offset_delta", pa.int64(), "From its first offset to its last."),
        TableColumn("timestamp", TIMESTAMP, "Of its last batch or marker."),
        TableColumn(
            "current_txn_first_offset",
            pa.int64(),
            "Where its open transaction begins; null if none is open.",
        ),
    ),
    LISTING_OPTIONS,
    OF_PARTITIONS,
)
