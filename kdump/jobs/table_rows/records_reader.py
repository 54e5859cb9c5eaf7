"""The reader of the table ``records``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from kdump.tables.kafka_log.columns import SourceColumn, columns_named
from kdump.tables.kafka_log.options import SourceOptions, parse_options
from kdump.tables.kafka_log.pushed_filters import PushedFilters
from kdump.tables.kafka_log.reader import SourceReading
from kdump.tables.kafka_log.splits import SourceSplit, grouped, plan_splits


@dataclass(frozen=True, slots=True)
class RecordsReader:
    """Reads records.

    Attributes:
        options: what to read, and how.
        columns: to return.
    """

    options: SourceOptions
    columns: tuple[SourceColumn, ...]

    def splits(self, filters: PushedFilters, /) -> Sequence[tuple[SourceSplit, ...]]:
        return grouped(plan_splits(self.options, filters), self.options)

    def read(
        self, split: Sequence[SourceSplit], filters: PushedFilters, /
    ) -> Iterator[pa.RecordBatch]:
        reading = SourceReading.of(self.options, self.columns, filters)
        for each in split:
            yield from reading.read(each)


def open_records(options: Mapping[str, str], names: Sequence[str] | None) -> RecordsReader:
    """The reader of records; takes what ``open_table`` does."""
    parsed = parse_options(options)
    if names is None:
        return RecordsReader(parsed, parsed.columns)
    return RecordsReader(parsed, columns_named(names, parsed.corrupt_column))
