"""The reader of the table ``records``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from msgspec import Struct

from kdump.jobs.table_rows.source_schemas import read_payloads
from kdump.payloads.record_payloads import RecordPayloads
from kdump.storage.parallel_reads import with_files_at_hand
from kdump.storage.places import concurrent_reads
from kdump.tables.kafka_log.columns import SourceColumn, columns_named
from kdump.tables.kafka_log.damage import unreadable_logged
from kdump.tables.kafka_log.options import SourceOptions, parse_options
from kdump.tables.kafka_log.pushed_filters import PushedFilters
from kdump.tables.kafka_log.reader import SourceReading
from kdump.tables.kafka_log.splits import SourceSplit, grouped, plan_splits


class RecordsReader(Struct, frozen=True):
    """Reads records.

    Attributes:
        skips_unreadable: whether what cannot be read is logged and left out.
        reads: how many small files to read at the same time before they are needed.
    """

    options: SourceOptions
    columns: tuple[SourceColumn, ...]
    payloads: RecordPayloads
    skips_unreadable: bool = False
    reads: int = 1

    def splits(self, filters: PushedFilters, /) -> Sequence[tuple[SourceSplit, ...]]:
        splits = plan_splits(self.options, filters, skips_unreadable=self.skips_unreadable)
        return grouped(splits, self.options)

    def read(
        self, split: Sequence[SourceSplit], filters: PushedFilters, /
    ) -> Iterator[pa.RecordBatch]:
        reading = SourceReading.of(self.options, self.columns, filters, self.payloads)
        for each in with_files_at_hand(split, SourceSplit.small_files, self.reads):
            with unreadable_logged(is_skipped=self.skips_unreadable):
                yield from reading.read(each)


def open_records(
    options: Mapping[str, str],
    names: Sequence[str] | None,
    payloads: RecordPayloads | None,
    *,
    skips_unreadable: bool,
) -> RecordsReader:
    """The reader of records; takes what ``open_table`` does."""
    parsed = parse_options(options)
    columns = parsed.columns if names is None else columns_named(names, parsed.corrupt_column)
    if payloads is None:
        payloads = read_payloads(parsed)
    return RecordsReader(parsed, columns, payloads, skips_unreadable, concurrent_reads())
