"""Reading a table: into splits, and each split into Arrow batches.

This is what the Spark data source, SQL and exports call::

    reader = open_table({"table": "segments", "path": "/data/kafka"})
    for split in reader.splits(PushedFilters()):
        for batch in reader.read(split, PushedFilters()):
            ...

Splits are planned on the driver and may be read anywhere, in any order and by different processes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from kdump.errors import ExitStatus
from kdump.jobs.table_rows.all_tables import RECORDS, table_of
from kdump.jobs.table_rows.log_tables import BATCHES, FINDINGS, TOPICS
from kdump.jobs.table_rows.state_tables import CONFIGS, GROUP_OFFSETS, TRANSACTIONS
from kdump.payloads.record_payloads import RecordPayloads
from kdump.storage.location import Location
from kdump.storage.places import missing_in_archives
from kdump.tables.kafka_log.damage import with_status
from kdump.tables.kafka_log.pushed_filters import PushedFilters
from kdump.tables.table import TableColumn, named_columns
from kdump.tables.table_options import parse_table_options

_LOG: Final = logging.getLogger(__name__)


class TableReader(Protocol):
    """Reads one table, with its options; a frozen value that can be pickled, as its splits can."""

    @property
    def columns(self) -> Sequence[TableColumn]:
        """The columns of the batches, in order."""
        ...

    def splits(self, filters: PushedFilters, /) -> Sequence[Any]:
        """Divide the work into tasks; none if there is nothing to read.

        Args:
            filters: what rows have to match. Rows that cannot match are left out as far as that
                saves reading; the others still have to be filtered by who asks.

        Raises:
            UsageProblem: a path is not Kafka's, or what an option names is not there.
            KdumpError: a selected partition cannot be listed.
            OSError: a file cannot be read.
        """
        ...

    def read(self, split: Any, filters: PushedFilters, /) -> Iterator[pa.RecordBatch]:
        """The rows of a split, as batches of :attr:`columns`.

        Args:
            split: one of :meth:`splits`.
            filters: those that the splits were planned with.

        Raises:
            KdumpError: it cannot be read; in records and batches also damage in ``FAILFAST``.
            OSError: a file cannot be read.
        """
        ...


def open_table(
    options: Mapping[str, str],
    names: Sequence[str] | None = None,
    payloads: RecordPayloads | None = None,
    *,
    skips_unreadable: bool = False,
) -> TableReader:
    """The reader of the table that ``options`` describe.

    Args:
        options: those of the data source, with ``path`` or ``paths``; the case of their names does
            not matter. ``table`` is the name of the table (default: ``records``).
        names: the columns to return; None for those of the option ``columns``, or the default ones.
        payloads: how keys and values of records become text; None to read the schemas that the
            options need.
        skips_unreadable: for records and batches, log what cannot be listed or read, and return
            the other rows. Other tables always do.

    Raises:
        UsageProblem: there is no such table, column or option, or an option has an invalid value.
        KdumpError: schemas are damaged or cannot be read, in ``FAILFAST``.
    """
    # Each reader imports what its table needs.
    table = table_of(options)
    if table is RECORDS:
        from kdump.jobs.table_rows.records_reader import open_records

        return open_records(options, names, payloads, skips_unreadable=skips_unreadable)
    if table is BATCHES:
        from kdump.jobs.table_rows.batch_rows import open_batches

        return open_batches(options, names, skips_unreadable=skips_unreadable)
    parsed = parse_table_options(options, table)
    columns = parsed.columns
    if names is not None:
        columns = named_columns(names, table.columns, f"table {table.name} of kafka-log")
    if table is FINDINGS:
        from kdump.jobs.table_rows.finding_rows import FindingsReader

        return FindingsReader(parsed, columns)
    if table in (TOPICS, CONFIGS, GROUP_OFFSETS, TRANSACTIONS):
        from kdump.jobs.table_rows.whole_rows import WholeReader

        return WholeReader(parsed, columns)
    from kdump.jobs.table_rows.partition_rows import ListingReader

    return ListingReader(parsed, columns)


def places_of(split: Any) -> Iterator[Location]:
    """The files and directories that are read for a split of a table."""
    for each in split if isinstance(split, tuple) else (split,):
        yield from each.read_places()


def log_incomplete_archives(options: Mapping[str, str]) -> None:
    """Log what the archives lack that the options of a table name, once its splits are known.

    Of records and batches the splits themselves fail, or are logged.
    """
    table = table_of(options)
    if table in (RECORDS, BATCHES):
        return
    for what in missing_in_archives(parse_table_options(options, table).paths):
        _LOG.warning("%s", what, extra=with_status(ExitStatus.OPERATIONAL_ERROR))
