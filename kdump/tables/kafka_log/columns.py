"""The columns of the data source ``kafka-log``, and how records become Arrow batches.

First come the columns of Spark's own Kafka source, with its names and types, so that its queries
run on both; then kdump's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kdump.formats import record_batch
from kdump.formats.compression import Codec
from kdump.formats.errors import FormatError
from kdump.formats.internal_topics import control_record_value
from kdump.scan.batches import Column
from kdump.scan.control_batches import is_control
from kdump.state.transactions.transaction_outcomes import TransactionState
from kdump.tables.kafka_log.rows import HEADERS_TYPE, RecordOrigin, Rows
from kdump.tables.table import TIMESTAMP, TableColumn, arrow_value, named_columns, timestamps

SPARK_HEADERS: Final = "headers"
TRANSACTION_STATE: Final = "transactionState"
KEY_PROBLEM: Final = "key_problem"
VALUE_PROBLEM: Final = "value_problem"

TRANSACTION_STATES: Final = tuple(
    None if state is TransactionState.NONE else state.name.lower() for state in TransactionState
)
"""The values of ``transactionState``, by :class:`TransactionState`."""
Numbers = npt.NDArray[np.signedinteger[Any]]

_NO_TIMESTAMP_TYPE: Final = -1
"""``TimestampType`` of a message of magic 0; 0 is CreateTime, 1 LogAppendTime."""
LABEL: Final = pa.dictionary(pa.int32(), pa.string())
"""The type of texts that many records share; readers get it if they ask for it."""


class SourceColumn(TableColumn, frozen=True):
    """A column about records.

    Attributes:
        is_of_damage: whether it says what is wrong with damaged bytes.
    """

    is_of_damage: bool = False


def _repeated(value: Any, arrow_type: pa.DataType, count: int) -> pa.Array:
    scalar = pa.scalar(value, arrow_type)
    return pa.repeat(scalar, count) if value is not None else pa.nulls(count, arrow_type)


def _repeated_text(value: str | None, count: int) -> pa.Array:
    if value is None:
        return pa.nulls(count, LABEL)
    return _labels(np.zeros(count, np.int32), [value])


def _labels(number: Numbers, texts: Sequence[str | None]) -> pa.Array:
    """For each record the text of this number; null for a negative one."""
    is_none = number < 0
    indices = pa.array(number, pa.int32(), mask=is_none if is_none.any() else None)
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))


def _reasons(problems: Mapping[int, str], count: int) -> pa.Array:
    if not problems:
        return pa.nulls(count, pa.string())
    type_ = pa.string()
    return pa.array([arrow_value(problems.get(row), type_) for row in range(count)], type_)


def _of_each(of_batch: Numbers, rows: Rows) -> Numbers:
    """A value of each record's batch."""
    if len(of_batch) and (of_batch == of_batch[0]).all():
        return np.full(rows.count, of_batch[0], of_batch.dtype)
    return of_batch[rows.batch]


def _timestamp_type(rows: Rows) -> pa.Array:
    batches = rows.batches
    of_batch = (batches.attributes & record_batch.LOG_APPEND_TIME_FLAG != 0).astype(np.int32)
    of_batch[batches.magic == 0] = _NO_TIMESTAMP_TYPE
    return pa.array(_of_each(of_batch, rows), pa.int32())


def _of_batch(of_batch: Column, rows: Rows, number_type: pa.DataType) -> pa.Array:
    """A number of each record's batch; null where Kafka has -1."""
    # Few batches are converted faster than many records.
    numbers: Numbers = of_batch.astype(np.int32) if number_type == pa.int32() else of_batch
    return _numbers(_of_each(numbers, rows), number_type)


def _numbers(values: Numbers, number_type: pa.DataType) -> pa.Array:
    """A number of each record; null where Kafka has -1."""
    is_none = values < 0
    if is_none.all():
        return pa.nulls(len(values), number_type)
    return pa.array(values, number_type, mask=is_none if is_none.any() else None)


def _transaction_state(rows: Rows) -> pa.Array:
    if rows.state is None:
        return pa.nulls(rows.count, LABEL)
    return _labels(_of_each(rows.state.astype(np.int32) - 1, rows), TRANSACTION_STATES[1:])


def _control_type(rows: Rows) -> pa.Array:
    if not is_control(rows.batches).any():
        return pa.nulls(rows.count, LABEL)
    flags = is_control(rows.batches)[rows.batch].tolist()
    pairs = zip(flags, rows.key().to_pylist(), rows.value().to_pylist(), strict=True)
    names = [_control_name(key, value) if flag else None for flag, key, value in pairs]
    return pa.array(names, pa.string()).dictionary_encode()


def _control_name(key: bytes | None, value: bytes | None) -> str:
    try:
        return str(control_record_value(key, value)["type"])
    except FormatError:
        return "UNKNOWN"


def _codec(rows: Rows) -> pa.Array:
    ids = np.minimum(rows.batches.attributes & record_batch.CODEC_MASK, len(Codec))
    return _labels(_of_each(ids.astype(np.int32), rows), _CODEC_LABELS)


_CODEC_LABELS: Final = (*(codec.label for codec in sorted(Codec)), "unknown")
"""By the numbers of codecs, which are without gaps; a dictionary has each text once."""


COLUMNS: Final = (
    SourceColumn("key", pa.binary(), "The key, as it is in the log."),
    SourceColumn("value", pa.binary(), "The value, as it is in the log."),
    SourceColumn(
        "topic",
        pa.string(),
        "From the name of the directory; null if that is not the name of a partition.",
    ),
    SourceColumn("partition", pa.int32(), "Likewise."),
    SourceColumn("offset", pa.int64(), "Its offset."),
    SourceColumn(
        "timestamp",
        TIMESTAMP,
        "One millisecond before 1970 for records of magic 0, which have none, as in Spark's"
        " source; null for a time that the type cannot hold.",
    ),
    SourceColumn("timestampType", pa.int32(), "0 CreateTime, 1 LogAppendTime, -1 none."),
    SourceColumn(
        SPARK_HEADERS,
        HEADERS_TYPE,
        "With `includeHeaders`, or when named; null for none.",
        is_default=False,
    ),
    SourceColumn("leaderEpoch", pa.int32(), "Null in magic 0 and 1."),
    SourceColumn("producerId", pa.int64(), "Null without an idempotent producer."),
    SourceColumn("producerEpoch", pa.int32(), "Likewise."),
    SourceColumn("sequence", pa.int32(), "Likewise."),
    SourceColumn(
        TRANSACTION_STATE,
        pa.string(),
        "`committed`, `aborted`, `open`; null outside of transactions.",
    ),
    SourceColumn(
        "controlType",
        pa.string(),
        "`COMMIT`, `ABORT` and others; null for data.",
    ),
    SourceColumn("magic", pa.int32(), "Of the batch."),
    SourceColumn("codec", pa.string(), "Of the batch."),
    SourceColumn("segment", pa.string(), "The file."),
    SourceColumn("batchPosition", pa.int64(), "The byte where the batch begins."),
    SourceColumn(
        "key_text",
        pa.string(),
        "The key as text, decoded with `keyFormat`, or UTF-8 without it; null if it has none.",
        is_default=False,
    ),
    SourceColumn(
        "value_text",
        pa.string(),
        "The value as text, decoded with `valueFormat`, or UTF-8 without it; null if it has none.",
        is_default=False,
    ),
    SourceColumn(
        KEY_PROBLEM,
        pa.string(),
        "Why the key has no text; null if it has one, or is null.",
        is_default=False,
    ),
    SourceColumn(VALUE_PROBLEM, pa.string(), "Likewise the value.", is_default=False),
    SourceColumn(
        "log_dir",
        pa.string(),
        "The log directory, as it was named.",
        is_default=False,
    ),
)
"""All columns about records, in order."""

TIMESTAMP_MS: Final = SourceColumn("timestamp_ms", pa.int64(), "Epoch milliseconds; -1 for none.")
"""Takes the place of ``timestamp`` where times are numbers: it holds every time of a log."""


_MAKERS: Final[Mapping[str, Callable[[Rows], pa.Array]]] = {
    "key": lambda rows: rows.key(),
    "value": lambda rows: rows.value(),
    "topic": lambda rows: _repeated_text(rows.origin.topic, rows.count),
    "partition": lambda rows: _repeated(rows.origin.partition, pa.int32(), rows.count),
    "offset": lambda rows: pa.array(rows.offset, pa.int64()),
    "timestamp": lambda rows: timestamps(rows.timestamp),
    "timestampType": _timestamp_type,
    SPARK_HEADERS: lambda rows: rows.headers(),
    "leaderEpoch": lambda rows: _of_batch(rows.batches.partition_leader_epoch, rows, pa.int32()),
    "producerId": lambda rows: _of_batch(rows.batches.producer_id, rows, pa.int64()),
    "producerEpoch": lambda rows: _of_batch(rows.batches.producer_epoch, rows, pa.int32()),
    "sequence": lambda rows: _numbers(rows.sequence, pa.int32()),
    TRANSACTION_STATE: _transaction_state,
    "controlType": _control_type,
    "magic": lambda rows: _of_batch(rows.batches.magic, rows, pa.int32()),
    "codec": _codec,
    "segment": lambda rows: _repeated_text(rows.origin.segment, rows.count),
    "batchPosition": lambda rows: pa.array(rows.batches.position[rows.batch], pa.int64()),
    "key_text": lambda rows: rows.key_texts.column,
    "value_text": lambda rows: rows.value_texts.column,
    KEY_PROBLEM: lambda rows: _reasons(rows.key_texts.problems, rows.count),
    VALUE_PROBLEM: lambda rows: _reasons(rows.value_texts.problems, rows.count),
    "log_dir": lambda rows: _repeated_text(rows.origin.log_dir, rows.count),
    "timestamp_ms": lambda rows: pa.array(rows.timestamp, pa.int64()),
}
"""Builds each column for some records."""


def corrupt_record_column(name: str) -> SourceColumn:
    """The column that says what is wrong, in a row for damaged bytes."""
    return SourceColumn(name, pa.string(), "What is wrong with damaged bytes.", is_of_damage=True)


def columns_named(names: Sequence[str], corrupt_column: str | None) -> tuple[SourceColumn, ...]:
    """The columns with these names, regardless of case.

    Args:
        corrupt_column: name of the column for damage; None for none.

    Raises:
        UsageProblem: a name is unknown or repeated.
    """
    known = list(COLUMNS)
    if corrupt_column is not None:
        known.append(corrupt_record_column(corrupt_column))
    return named_columns(names, known, "kafka-log")


def default_columns(
    *, with_headers: bool, corrupt_column: str | None = None
) -> tuple[SourceColumn, ...]:
    """The columns to return if none are named."""
    chosen = [c for c in COLUMNS if c.is_default or (with_headers and c.name == SPARK_HEADERS)]
    if corrupt_column is not None:
        chosen.append(corrupt_record_column(corrupt_column))
    return tuple(chosen)


def record_table(rows: Rows, columns: Sequence[SourceColumn], schema: pa.Schema) -> pa.RecordBatch:
    """Records as an Arrow batch of ``columns``; ``schema`` is theirs, with or without labels."""
    arrays = [
        _made(column, rows, arrow_type)
        for column, arrow_type in zip(columns, schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _made(column: SourceColumn, rows: Rows, arrow_type: pa.DataType) -> pa.Array:
    if column.is_of_damage:
        return pa.nulls(rows.count, arrow_type)
    made = _MAKERS[column.name](rows)
    return made.dictionary_decode() if made.type == LABEL != arrow_type else made


def with_labels(schema: pa.Schema) -> pa.Schema:
    """The schema of some columns, in which texts that many records share are labels."""
    return pa.schema([each.with_type(LABEL) if each.name in _LABELS else each for each in schema])


_LABELS: Final = frozenset(
    {"topic", TRANSACTION_STATE, "controlType", "codec", "segment", "log_dir"}
)


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
        "log_dir": origin.log_dir,
        "batchPosition": position,
    }
    arrays = [
        pa.array([what if column.is_of_damage else known.get(column.name)], arrow_type)
        for column, arrow_type in zip(columns, schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
