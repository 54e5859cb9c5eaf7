"""Tables other than ``records``, read in this process."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from builders.source_tables import Filter
from kdump.jobs.table_rows.all_tables import TABLES
from kdump.jobs.table_rows.table_reader import open_table
from kdump.tables.kafka_log.pushed_filters import PushedFilters, push
from kdump.tables.table import arrow_schema

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def read_table(
    name: str, paths: Path | Sequence[Path], filters: Sequence[Filter] = (), /, **options: str
) -> pa.Table:
    """Read a table; only ``filters`` that reach the splits are applied."""
    named = [paths] if isinstance(paths, Path) else paths
    reader = open_table({"table": name, "paths": json.dumps(list(map(str, named))), **options})
    pushed = PushedFilters()
    for kind, column, value in filters:
        pushed = push(pushed, kind, TABLES[name].pushed[column], value)
    batches = [batch for split in reader.splits(pushed) for batch in reader.read(split, pushed)]
    return pa.Table.from_batches(batches, arrow_schema(reader.columns))


def table_rows(
    name: str, paths: Path | Sequence[Path], filters: Sequence[Filter] = (), /, **options: str
) -> list[dict[str, Any]]:
    """Read a table as rows."""
    rows: list[dict[str, Any]] = read_table(name, paths, filters, **options).to_pylist()
    return rows


def as_in_json(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as the JSON output has them: times are milliseconds, and named so."""
    struct = pa.struct(list(table.schema))
    return [_plain(row, struct) for row in table.to_pylist()]


def _plain(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        return (value - _EPOCH) // dt.timedelta(milliseconds=1)
    if pa.types.is_map(kind):
        return dict(value)
    if pa.types.is_list(kind):
        return [_plain(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        return {
            each.name + ("_ms" if pa.types.is_timestamp(each.type) else ""): _plain(
                value[each.name], each.type
            )
            for each in kind
        }
    return value
