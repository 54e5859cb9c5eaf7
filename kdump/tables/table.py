"""What a table is: its columns, and how rows become Arrow batches.

A table is defined once. The Spark data source, SQL, exports and documentation take its columns and
their types from here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

import pyarrow as pa
from msgspec import Struct, field

from kdump.errors import UsageProblem
from kdump.rows.row_type import TIME, Field, ValueType
from kdump.scan.batches import Column, Flags

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
US_PER_MS: Final = 1000
MOST_TIMESTAMP_MS: Final = (2**63 - 1) // US_PER_MS
"""The last time that a column can hold; a later one becomes null."""
LEAST_TIMESTAMP_MS: Final = -MOST_TIMESTAMP_MS

ROWS_PER_BATCH: Final = 4096

_SQL_TYPES: Final = {
    pa.binary(): "BINARY",
    pa.string(): "STRING",
    pa.bool_(): "BOOLEAN",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    TIMESTAMP: "TIMESTAMP",
}
_ARROW_TYPES: Final = {name: arrow_type for arrow_type, name in _SQL_TYPES.items()}
_MS: Final = "_ms"

PushedColumn = Literal["topic", "partition", "offset", "base_offset", "last_offset", "timestamp"]
"""What a condition on a column restricts."""


class TableColumn(Struct, frozen=True):
    """A column.

    Attributes:
        arrow_type: of its values; every column may be null.
        what: its meaning, for people.
        is_default: whether it is returned if no columns are named.
    """

    name: str
    arrow_type: pa.DataType
    what: str
    is_default: bool = True

    @property
    def sql_type(self) -> str:
        """The type in Spark's DDL."""
        return sql_type(self.arrow_type)

    @property
    def quoted_name(self) -> str:
        """The name as SQL quotes it."""
        return "`" + self.name.replace("`", "``") + "`"

    @property
    def row_key(self) -> str:
        """The key of its value in a row, which has the names of the JSON output.

        A time is a number of milliseconds there, and its name ends in ``_ms``.
        """
        return self.name + _MS if self.arrow_type == TIMESTAMP else self.name


class Table(Struct, frozen=True):
    """A table.

    Attributes:
        name: for the option ``table``, and of the view in SQL.
        what: what a row is, for people.
        columns: all of them, in order.
        options: the options of the data source that it takes.
        pushed: columns whose conditions reduce what is read, and what they restrict.
    """

    name: str
    what: str
    columns: tuple[TableColumn, ...]
    options: tuple[str, ...]
    pushed: Mapping[str, PushedColumn] = field(default_factory=dict)

    @property
    def default_columns(self) -> tuple[TableColumn, ...]:
        """The columns that are returned if none are named."""
        return tuple(column for column in self.columns if column.is_default)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of all columns."""
        return arrow_schema(self.columns)


def sql_type(arrow_type: pa.DataType) -> str:
    """An Arrow type in Spark's DDL."""
    if pa.types.is_map(arrow_type):
        return f"MAP<{sql_type(arrow_type.key_type)}, {sql_type(arrow_type.item_type)}>"
    if pa.types.is_list(arrow_type):
        return f"ARRAY<{sql_type(arrow_type.value_type)}>"
    if pa.types.is_struct(arrow_type):
        return (
            "STRUCT<"
            + ", ".join(f"{each.name}: {sql_type(each.type)}" for each in arrow_type)
            + ">"
        )
    return _SQL_TYPES[arrow_type]


def list_of(value_type: pa.DataType) -> pa.DataType:
    """A list whose values have the name that Spark gives them."""
    return pa.list_(pa.field("element", value_type))


def table_columns(*fields: Field) -> tuple[TableColumn, ...]:
    """Columns of fields that rows are declared with; texts that are made for people are not."""
    return tuple(
        TableColumn(_column_name(each), _arrow_type(each.type), each.what)
        for each in fields
        if each.for_programs
    )


def _column_name(field: Field) -> str:
    return field.name.removesuffix(_MS) if field.type.sql == TIME.sql else field.name


def _arrow_type(value: ValueType) -> pa.DataType:
    if value.sql:
        return _ARROW_TYPES[value.sql]
    if value.fields:
        return pa.struct([(_column_name(each), _arrow_type(each.type)) for each in value.fields])
    assert value.items is not None, "SQL has no values of any type"
    items = _arrow_type(value.items)
    return list_of(items) if value.json == "array" else pa.map_(pa.string(), items)


Chosen = TypeVar("Chosen", bound=TableColumn)


def named_columns(
    names: Sequence[str], columns: Sequence[Chosen], whose: str
) -> tuple[Chosen, ...]:
    """The columns with these names, regardless of case.

    Args:
        names: in the order to return.
        whose: the table, for messages.

    Raises:
        UsageProblem: a name is unknown or repeated.
    """
    known = {column.name.lower(): column for column in columns}
    lowered = [name.lower() for name in names]
    if twice := sorted({name for name in lowered if lowered.count(name) > 1}):
        raise UsageProblem(f"{whose}: column {', '.join(twice)} is selected more than once")
    missing = [name for name in names if name.lower() not in known]
    if missing or not names:
        raise UsageProblem(
            f"{whose} has no column {', '.join(map(repr, missing)) or 'to return'}; it has "
            + ", ".join(column.name for column in known.values())
        )
    return tuple(known[name.lower()] for name in names)


def arrow_schema(columns: Sequence[TableColumn]) -> pa.Schema:
    """The schema of batches of these columns."""
    return pa.schema([pa.field(column.name, column.arrow_type) for column in columns])


def ddl(columns: Sequence[TableColumn]) -> str:
    """The schema as Spark DDL."""
    return ", ".join(f"{column.quoted_name} {column.sql_type}" for column in columns)


def row_batches(
    rows: Iterable[Mapping[str, Any]], columns: Sequence[TableColumn]
) -> Iterator[pa.RecordBatch]:
    """Rows with the names and values of the JSON output, as Arrow batches of ``columns``.

    Values that the rows do not have are null. So are times that a column cannot hold.
    """
    schema = arrow_schema(columns)
    remaining = iter(rows)
    while some := list(itertools.islice(remaining, ROWS_PER_BATCH)):
        arrays = [
            _array([row.get(column.row_key) for row in some], column.arrow_type)
            for column in columns
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def timestamps(ms: Column, is_known: Flags | None = None) -> pa.Array:
    """Times in epoch milliseconds as a column; null where a time is not known, or not held."""
    is_held = (ms >= LEAST_TIMESTAMP_MS) & (ms <= MOST_TIMESTAMP_MS)
    if is_known is not None:
        is_held &= is_known
    mask = None if is_held.all() else ~is_held
    return pa.array(ms * US_PER_MS, pa.int64(), mask=mask).cast(TIMESTAMP)


def _array(values: Sequence[Any], arrow_type: pa.DataType) -> pa.Array:
    return pa.array([arrow_value(value, arrow_type) for value in values], arrow_type)


def arrow_value(value: Any, arrow_type: pa.DataType) -> Any:
    """A value of the JSON output as Arrow takes it."""
    if value is None:
        return None
    if arrow_type == TIMESTAMP:
        is_held = LEAST_TIMESTAMP_MS <= value <= MOST_TIMESTAMP_MS
        return value * US_PER_MS if is_held else None
    if pa.types.is_map(arrow_type):
        return list(value.items())
    if pa.types.is_list(arrow_type):
        return [arrow_value(each, arrow_type.value_type) for each in value]
    if pa.types.is_struct(arrow_type):
        return {
            each.name: arrow_value(
                value.get(each.name + _MS if each.type == TIMESTAMP else each.name), each.type
            )
            for each in arrow_type
        }
    if arrow_type == pa.string():
        # Bytes of a file name that are not UTF-8 are escaped as in JSON.
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value
