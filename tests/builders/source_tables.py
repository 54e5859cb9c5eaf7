"""Tables of the data source ``kafka-log``, read in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from kdump.jobs.table_rows.records_reader import read_payloads
from kdump.tables.kafka_log.options import parse_options
from kdump.tables.kafka_log.pushed_filters import PushedFilters, push
from kdump.tables.kafka_log.reader import SourceReading
from kdump.tables.kafka_log.splits import SourceSplit, plan_splits
from kdump.tables.table import arrow_schema

Filter = tuple[str, str, Any]
"""Name of the filter's class, column, value."""


def wanted_by(filters: Sequence[Filter]) -> PushedFilters:
    """Return the filters that reach the splits."""
    wanted = PushedFilters()
    for each in filters:
        wanted = push(wanted, *each)
    return wanted


def splits_of(path: Path, filters: Sequence[Filter] = (), /, **options: str) -> list[SourceSplit]:
    """Return the splits of a query."""
    return plan_splits(parse_options({"path": str(path), **options}), wanted_by(filters))


def table_of(path: Path, filters: Sequence[Filter] = (), /, **options: str) -> pa.Table:
    """Read the result of a query as a table, in order."""
    parsed = parse_options({"path": str(path), **options})
    wanted = wanted_by(filters)
    reading = SourceReading.of(parsed, parsed.columns, wanted, read_payloads(parsed))
    tables = [table for split in plan_splits(parsed, wanted) for table in reading.read(split)]
    return pa.Table.from_batches(tables, arrow_schema(parsed.columns))


def rows_of(path: Path, filters: Sequence[Filter] = (), /, **options: str) -> list[dict[str, Any]]:
    """Read the result of a query as rows."""
    rows: list[dict[str, Any]] = table_of(path, filters, **options).to_pylist()
    return rows


def offsets_of(path: Path, filters: Sequence[Filter] = (), /, **options: str) -> list[int]:
    """Read the offsets of the result of a query."""
    found: list[int] = table_of(path, filters, columns="offset", **options)["offset"].to_pylist()
    return found
