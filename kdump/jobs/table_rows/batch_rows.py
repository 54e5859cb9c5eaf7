"""The table ``batches``: the headers of valid batches, without their records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa
from msgspec import Struct

from kdump.formats.compression import Codec
from kdump.formats.record_batch import CODEC_MASK
from kdump.jobs.table_rows.log_tables import BATCHES
from kdump.log.living_windows import log_windows
from kdump.log.valid_windows import Damage, OnDamage
from kdump.scan.batches import BatchColumns, Column
from kdump.scan.control_batches import is_control, is_transactional
from kdump.tables.kafka_log.damage import DamagedLogError, SkippedRanges, unreadable_logged
from kdump.tables.kafka_log.options import Mode, RecordParser, SourceOptions, given_options
from kdump.tables.kafka_log.pushed_filters import PushedFilters
from kdump.tables.kafka_log.rows import RecordOrigin
from kdump.tables.kafka_log.splits import SourceSplit, grouped, plan_splits
from kdump.tables.table import TableColumn, arrow_schema, named_columns, timestamps

_WHOSE = f"table {BATCHES.name} of kafka-log"


class BatchesReader(Struct, frozen=True):
    """Reads batches.

    Attributes:
        skips_unreadable: whether what cannot be read is logged and left out.
    """

    options: SourceOptions
    columns: tuple[TableColumn, ...]
    skips_unreadable: bool = False

    def splits(self, filters: PushedFilters, /) -> Sequence[tuple[SourceSplit, ...]]:
        splits = plan_splits(self.options, filters, skips_unreadable=self.skips_unreadable)
        return grouped(splits, self.options)

    def read(
        self, split: Sequence[SourceSplit], filters: PushedFilters, /
    ) -> Iterator[pa.RecordBatch]:
        for each in split:
            skipped = SkippedRanges()
            on_damage = _fail if self.options.mode is Mode.FAILFAST else skipped.add
            with unreadable_logged(is_skipped=self.skips_unreadable):
                yield from read_batches(each, self.columns, on_damage)
            skipped.log(each)


def _fail(damage: Damage) -> NoReturn:
    raise DamagedLogError(damage)


def open_batches(
    options: Mapping[str, str], names: Sequence[str] | None, *, skips_unreadable: bool
) -> BatchesReader:
    """The reader of batches; takes what ``open_table`` does."""
    given = given_options(options, BATCHES.options, _WHOSE)
    columns = given.pop("columns", None)
    parser = RecordParser(given)
    parsed = parser.parse()
    if parsed.mode is Mode.PERMISSIVE:
        parser.refuse("mode", "FAILFAST or DROPMALFORMED in the table batches")
    if names is None and columns is not None:
        names = [name.strip() for name in columns.split(",") if name.strip()]
    if names is None:
        return BatchesReader(parsed, BATCHES.default_columns, skips_unreadable)
    return BatchesReader(parsed, named_columns(names, BATCHES.columns, _WHOSE), skips_unreadable)


def read_batches(
    split: SourceSplit, columns: Sequence[TableColumn], on_damage: OnDamage
) -> Iterator[pa.RecordBatch]:
    """The valid batches of a split that reach into its offsets.

    Args:
        split: part of a log; one of Kafka 0.7 has no batches.
        columns: of :data:`~kdump.jobs.table_rows.log_tables.BATCHES`.
        on_damage: takes each damaged range.

    Raises:
        OSError: the log cannot be read.
    """
    if split.is_0_7:
        return
    for step in log_windows(split.path, split.part):
        if isinstance(step, Damage):
            on_damage(step)
            continue
        batches = step.batches
        is_selected = batches.last_offset >= split.from_offset
        if split.to_offset is not None:
            is_selected &= batches.base_offset < split.to_offset
        if is_selected.any():
            rows = batches if is_selected.all() else batches.rows(np.flatnonzero(is_selected))
            yield batch_table(split.origin, rows, columns)


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
