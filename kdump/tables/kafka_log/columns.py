"""The columns of the data source ``kafka-log``, and how records become Arrow batches.

First come the columns of Spark's own Kafka source, with its names and types, so that its queries
run on both; then kdump's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kdump.errors import UsageProblem
from kdump.formats import record_batch
from kdump.formats.compression import CODEC_MASK, Codec
from kdump.formats.errors import FormatError
from kdump.formats.internal_topics import control_record_value
from kdump.scan.batches import Column
from kdump.state.markers import is_control
from kdump.state.transaction_outcomes import TransactionState
from kdump.tables.kafka_log.rows import HEADERS_TYPE, RecordOrigin, Rows

SPARK_HEADERS: Final = "headers"
TRANSACTION_STATE: Final = "transactionState"

TRANSACTION_STATES: Final = tuple(
    None if state is TransactionState.NONE else state.name.lower() for state in TransactionState
)
"""The values of ``transactionState``, by :class:`TransactionState`."""

_TIMESTAMP_TYPE: Final = pa.timestamp("us", tz="UTC")
_US_PER_MS: Final = 1000
MOST_TIMESTAMP_MS: Final = (2**63 - 1) // _US_PER_MS
"""The last time that a column can hold; a later one becomes null."""
LEAST_TIMESTAMP_MS: Final = -MOST_TIMESTAMP_MS

_NO_TIMESTAMP_TYPE: Final = -1
"""``TimestampType`` of a message of magic 0; 0 is CreateTime, 1 LogAppendTime."""


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column.

    Attributes:
        name: of the column.
        sql_type: in Spark's DDL.
        arrow_type: in the Arrow batches.
        make: builds the column for some records; None for the column about damage.
        is_default: whether it is returned if no columns are named.
    """

    name: str
    sql_type: str
    arrow_type: pa.DataType
    make: Callable[[Rows], pa.Array] | None = field(repr=False)
    is_default: bool = True

    @property
    def arrow_field(self) -> pa.Field:
        return pa.field(self.name, self.arrow_type)


def _repeated(value: Any, arrow_type: pa.DataType, count: int) -> pa.Array:
    scalar = pa.scalar(value, arrow_type)
    return pa.repeat(scalar, count) if value is not None else pa.nulls(count, arrow_type)


def _key(rows: Rows) -> pa.Array:
    return rows.key()


def _value(rows: Rows) -> pa.Array:
    return rows.value()


def _topic(rows: Rows) -> pa.Array:
    return _repeated(rows.origin.topic, pa.string(), rows.count)


def _partition(rows: Rows) -> pa.Array:
    return _repeated(rows.origin.partition, pa.int32(), rows.count)


def _segment(rows: Rows) -> pa.Array:
    return _repeated(rows.origin.segment, pa.string(), rows.count)


def _offset(rows: Rows) -> pa.Array:
    return pa.array(rows.offset)


def _timestamp(rows: Rows) -> pa.Array:
    ms = rows.timestamp
    is_held = (ms >= LEAST_TIMESTAMP_MS) & (ms <= MOST_TIMESTAMP_MS)
    mask = None if is_held.all() else ~is_held
    return pa.array(ms * _US_PER_MS, mask=mask).cast(_TIMESTAMP_TYPE)


def _timestamp_type(rows: Rows) -> pa.Array:
    batches = rows.batches
    of_batch = (batches.attributes & record_batch.LOG_APPEND_TIME_FLAG != 0).astype(np.int32)
    of_batch[batches.magic == 0] = _NO_TIMESTAMP_TYPE
    return pa.array(of_batch[rows.batch])


def _headers_column(rows: Rows) -> pa.Array:
    return rows.headers()


def _of_batch(values: Column, batch: Column, number_type: pa.DataType) -> pa.Array:
    """A number of each record's batch; null where Kafka has -1."""
    each = values[batch]
    is_none = each < 0
    return pa.array(each, mask=is_none if is_none.any() else None).cast(number_type)


def _leader_epoch(rows: Rows) -> pa.Array:
    return _of_batch(rows.batches.partition_leader_epoch, rows.batch, pa.int32())


def _producer_id(rows: Rows) -> pa.Array:
    return _of_batch(rows.batches.producer_id, rows.batch, pa.int64())


def _producer_epoch(rows: Rows) -> pa.Array:
    return _of_batch(rows.batches.producer_epoch, rows.batch, pa.int32())


def _sequence(rows: Rows) -> pa.Array:
    return _of_batch(rows.sequence, np.arange(rows.count), pa.int32())


def _transaction_state(rows: Rows) -> pa.Array:
    if rows.state is None or not rows.state.any():
        return pa.nulls(rows.count, pa.string())
    return pa.array(TRANSACTION_STATES, pa.string()).take(pa.array(rows.state[rows.batch]))


def _control_type(rows: Rows) -> pa.Array:
    if not is_control(rows.batches).any():
        return pa.nulls(rows.count, pa.string())
    flags = is_control(rows.batches)[rows.batch].tolist()
    pairs = zip(flags, rows.key().to_pylist(), rows.value().to_pylist(), strict=True)
    names = [_control_name(key, value) if flag else None for flag, key, value in pairs]
    return pa.array(names, pa.string())


def _control_name(key: bytes | None, value: bytes | None) -> str:
    try:
        return str(control_record_value(key, value)["type"])
    except FormatError:
        return "UNKNOWN"


def _magic(rows: Rows) -> pa.Array:
    return _of_batch(rows.batches.magic, rows.batch, pa.int32())


def _codec(rows: Rows) -> pa.Array:
    ids = rows.batches.attributes & CODEC_MASK
    if len(ids) and (ids == ids[0]).all():
        return _repeated(_CODEC_LABELS[int(ids[0])], pa.string(), rows.count)
    return pa.array(_CODEC_LABELS, pa.string()).take(pa.array(ids[rows.batch]))


_CODEC_LABELS: Final = tuple(
    Codec(number).label if number in list(Codec) else "unknown" for number in range(CODEC_MASK + 1)
)


def _batch_position(rows: Rows) -> pa.Array:
    return pa.array(rows.batches.position[rows.batch])


COLUMNS: Final = (
    SourceColumn("key", "BINARY", pa.binary(), _key),
    SourceColumn("value", "BINARY", pa.binary(), _value),
    SourceColumn("topic", "STRING", pa.string(), _topic),
    SourceColumn("partition", "INT", pa.int32(), _partition),
    SourceColumn("offset", "BIGINT", pa.int64(), _offset),
    SourceColumn("timestamp", "TIMESTAMP", _TIMESTAMP_TYPE, _timestamp),
    SourceColumn("timestampType", "INT", pa.int32(), _timestamp_type),
    SourceColumn(
        SPARK_HEADERS,
        "ARRAY<STRUCT<key: STRING, value: BINARY>>",
        HEADERS_TYPE,
        _headers_column,
        is_default=False,
    ),
    SourceColumn("leaderEpoch", "INT", pa.int32(), _leader_epoch),
    SourceColumn("producerId", "BIGINT", pa.int64(), _producer_id),
    SourceColumn("producerEpoch", "INT", pa.int32(), _producer_epoch),
    SourceColumn("sequence", "INT", pa.int32(), _sequence),
    SourceColumn(TRANSACTION_STATE, "STRING", pa.string(), _transaction_state),
    SourceColumn("controlType", "STRING", pa.string(), _control_type),
    SourceColumn("magic", "INT", pa.int32(), _magic),
    SourceColumn("codec", "STRING", pa.string(), _codec),
    SourceColumn("segment", "STRING", pa.string(), _segment),
    SourceColumn("batchPosition", "BIGINT", pa.int64(), _batch_position),
)
"""All columns about records, in order."""


def corrupt_record_column(name: str) -> SourceColumn:
    """The column that says what is wrong, in a row for damaged bytes."""
    return SourceColumn(name, "STRING", pa.string(), None)


def columns_named(names: Sequence[str], corrupt_column: str | None) -> tuple[SourceColumn, ...]:
    """The columns with these names, regardless of case.

    Args:
        names: in the order to return.
        corrupt_column: name of the column for damage; None for none.

    Raises:
        UsageProblem: a name is unknown or repeated.
    """
    known = {column.name.lower(): column for column in COLUMNS}
    if corrupt_column is not None:
        known[corrupt_column.lower()] = corrupt_record_column(corrupt_column)
    lowered = [name.lower() for name in names]
    if twice := sorted({name for name in lowered if lowered.count(name) > 1}):
        raise UsageProblem(f"kafka-log: column {', '.join(twice)} is selected more than once")
    missing = [name for name in names if name.lower() not in known]
    if missing or not names:
        raise UsageProblem(
            f"kafka-log has no column {', '.join(map(repr, missing)) or 'to return'}; it has "
            + ", ".join(column.name for column in known.values())
        )
    return tuple(known[name.lower()] for name in names)


def default_columns(
    *, with_headers: bool, corrupt_column: str | None = None
) -> tuple[SourceColumn, ...]:
    """The columns to return if none are named."""
    chosen = [c for c in COLUMNS if c.is_default or (with_headers and c.name == SPARK_HEADERS)]
    if corrupt_column is not None:
        chosen.append(corrupt_record_column(corrupt_column))
    return tuple(chosen)


def arrow_schema(columns: Sequence[SourceColumn]) -> pa.Schema:
    """The schema of batches of these columns."""
    return pa.schema([column.arrow_field for column in columns])


def ddl(columns: Sequence[SourceColumn]) -> str:
    """The schema as Spark DDL."""
    quoted = [column.name.replace("`", "``") for column in columns]
    return ", ".join(f"`{n}` {c.sql_type}" for n, c in zip(quoted, columns, strict=True))


def record_table(rows: Rows, columns: Sequence[SourceColumn], schema: pa.Schema) -> pa.RecordBatch:
    """Records as an Arrow batch of ``columns``; ``schema`` is theirs."""
    arrays = [
        pa.nulls(rows.count, column.arrow_type) if column.make is None else column.make(rows)
        for column in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def damage_table(
    origin: RecordOrigin,
    position: int,
    what: str,
    columns: Sequence[SourceColumn],
    schema: pa.Schema,
) -> pa.RecordBatch:
    """One row for damaged bytes: only where they are and what is wrong."""
    known = {
        "topic": origin.topic,
        "partition": origin.partition,
        "segment": origin.segment,
        "batchPosition": position,
    }
    arrays = [
        pa.array([what if column.make is None else known.get(column.name)], column.arrow_type)
        for column in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
