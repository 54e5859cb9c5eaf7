"""The batches of a log as Arrow tables: their headers, without their records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kdump.formats.compression import Codec
from kdump.formats.record_batch import CODEC_MASK
from kdump.scan.batches import BatchColumns, Column
from kdump.scan.control_batches import is_control, is_transactional
from kdump.tables.kafka_log.rows import RecordOrigin
from kdump.tables.table import TableColumn, arrow_schema, timestamps

_CODEC_NAMES: Final = pa.array(
    [
        Codec(number).label if number in list(Codec) else "unknown"
        for number in range(CODEC_MASK + 1)
    ],
    pa.string(),
)


def batch_table(
    origin: RecordOrigin, batches: BatchColumns, columns: Sequence[TableColumn]
) -> pa.RecordBatch:
    """Batches of a log as rows of some columns of the table ``batches``."""
    arrays = [_COLUMNS[column.name](origin, batches).cast(column.arrow_type) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def _known(values: Column) -> pa.Array:
    """Give a column with null where Kafka writes -1 for "none"."""
    return pa.array(values, mask=np.asarray(values) < 0)


_COLUMNS: Final[dict[str, Callable[[RecordOrigin, BatchColumns], pa.Array]]] = {
    "topic": lambda origin, b: _repeated(origin.topic, pa.string(), b),
    "partition": lambda origin, b: _repeated(origin.partition, pa.int32(), b),
    "segment": lambda origin, b: _repeated(origin.segment, pa.string(), b),
    "log_dir": lambda origin, b: _repeated(origin.log_dir, pa.string(), b),
    "position": lambda _, b: pa.array(b.position),
    "size_bytes": lambda _, b: pa.array(b.size_bytes),
    "base_offset": lambda _, b: pa.array(b.base_offset),
    "last_offset": lambda _, b: pa.array(b.last_offset),
    "records_count": lambda _, b: _known(b.records_count),
    "magic": lambda _, b: pa.array(b.magic),
    "codec": lambda _, b: _CODEC_NAMES.take(pa.array(b.attributes & CODEC_MASK)),
    "leader_epoch": lambda _, b: _known(b.partition_leader_epoch),
    "base_timestamp": lambda _, b: timestamps(b.base_timestamp, b.base_timestamp >= 0),
    "max_timestamp": lambda _, b: timestamps(b.max_timestamp, b.max_timestamp >= 0),
    "producer_id": lambda _, b: _known(b.producer_id),
    "producer_epoch": lambda _, b: _known(b.producer_epoch),
    "base_sequence": lambda _, b: _known(b.base_sequence),
    "is_transactional": lambda _, b: pa.array(is_transactional(b)),
    "is_control": lambda _, b: pa.array(is_control(b)),
}


def _repeated(value: Any, arrow_type: pa.DataType, batches: BatchColumns) -> pa.Array:
    return pa.repeat(pa.scalar(value, arrow_type), batches.count)
