"""All tables by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kdump.errors import UsageProblem
from kdump.jobs.table_rows.log_tables import BATCHES, FINDINGS, PARTITIONS, SEGMENTS, TOPICS
from kdump.jobs.table_rows.state_tables import CONFIGS, GROUP_OFFSETS, PRODUCERS, TRANSACTIONS
from kdump.tables.kafka_log.columns import COLUMNS
from kdump.tables.kafka_log.options import OPTIONS, TABLE_OPTION
from kdump.tables.table import Table

RECORDS: Final = Table(
    "records",
    "a record",
    COLUMNS,
    OPTIONS,
    {
        "topic": "topic",
        "partition": "partition",
        "offset": "offset",
        "timestamp": "timestamp",
    },
)
TABLES: Final = {
    table.name: table
    for table in (
        RECORDS,
        BATCHES,
        SEGMENTS,
        PARTITIONS,
        TOPICS,
        CONFIGS,
        GROUP_OFFSETS,
        TRANSACTIONS,
        PRODUCERS,
        FINDINGS,
    )
}


def table_of(options: Mapping[str, str]) -> Table:
    """The table that the option ``table`` names; ``records`` without it.

    Raises:
        UsageProblem: there is no such table.
    """
    lowered = {name.lower(): value for name, value in options.items()}
    name = str(lowered.get(TABLE_OPTION, RECORDS.name))
    found = TABLES.get(name.lower())
    if found is None:
        raise UsageProblem(f"kafka-log has no table {name!r}; it has {', '.join(TABLES)}")
    return found
