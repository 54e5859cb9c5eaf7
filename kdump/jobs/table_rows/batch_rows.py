"""The reader of the table ``batches``: the headers of valid batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

import numpy as np
import pyarrow as pa
from msgspec import Struct

from kdump.jobs.table_rows.log_tables import BATCHES
from kdump.log.living_windows import log_windows
from kdump.log.valid_windows import Damage, OnDamage
from kdump.tables.batch_tables import batch_table
from kdump.tables.kafka_log.damage import DamagedLogError, SkippedRanges, unreadable_logged
from kdump.tables.kafka_log.options import Mode, RecordParser, SourceOptions, given_options
from kdump.tables.kafka_log.pushed_filters import PushedFilters
from kdump.tables.kafka_log.splits import SourceSplit, grouped, plan_splits
from kdump.tables.table import TableColumn, named_columns

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
