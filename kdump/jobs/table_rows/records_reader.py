"""The reader of the table ``records``, and the schemas that it needs, read once for all tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
from msgspec import Struct

from kdump.errors import ExitStatus, KdumpError
from kdump.jobs.schemas import SchemasRead, log_directories_of, read_schemas
from kdump.payloads.record_payloads import RecordPayloads
from kdump.state.schema_registry import SCHEMAS_TOPIC, SchemaRegistry
from kdump.storage.parallel_reads import with_files_at_hand
from kdump.storage.places import concurrent_reads, parse_location, parse_locations
from kdump.tables.kafka_log.columns import SourceColumn, columns_named
from kdump.tables.kafka_log.damage import DamagedLogError, status_of, unreadable_logged, with_status
from kdump.tables.kafka_log.options import Mode, SourceOptions, parse_options
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


_LOG: Final = logging.getLogger(__name__)


def read_payloads(options: SourceOptions) -> RecordPayloads:
    """How keys and values become text, with the schemas that their formats need.

    Raises:
        KdumpError: schemas are damaged or cannot be read, and the mode is ``FAILFAST``.
    """
    registry = SchemaRegistry()
    formats = (options.key_format, options.value_format)
    if any(each is not None and each.uses_schemas for each in formats):
        places = list(map(parse_location, options.schemas)) or list(
            log_directories_of(parse_locations(options.paths))
        )
        found = read_schemas(places)
        _report(found, options.mode)
        if not found.has_source and not found.unreadable:
            named = ", ".join(map(str, places)) or "the directories around the data"
            _LOG.warning("no topic %s in %s", SCHEMAS_TOPIC, named)
        registry = found.registry
    return RecordPayloads.of(*formats, registry)


def _report(found: SchemasRead, mode: Mode) -> None:
    if mode is Mode.FAILFAST:
        for failure in found.unreadable:
            raise KdumpError(f"{failure.path}: {failure.what}")
        for damage in found.damage:
            raise DamagedLogError(damage)
    for failure in found.unreadable:
        _LOG.warning(
            "%s: %s",
            failure.path,
            failure.what,
            extra=with_status(ExitStatus.OPERATIONAL_ERROR),
        )
    for damage in found.damage:
        _LOG.warning("%s: schemas in it are missing", damage, extra=with_status(status_of(damage)))
    for problem in found.registry.problems:
        _LOG.warning("%s; it is left out", problem)
