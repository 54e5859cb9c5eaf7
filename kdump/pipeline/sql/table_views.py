"""The tables as views of a Spark session, each with what one statement needs of it.

A view reads its table by a function over Arrow batches, not through the data source ``kafka-log``:
the data source is planned by two more Python processes for each view, which takes longer than most
statements, and cannot tell the driver about damage. Both read by the same
:class:`~kdump.jobs.table_rows.table_reader.TableReader`.

A view always has all columns. One that the statement does not need fails if Spark asks for it after
all, so that a mistake here never gives wrong rows.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from msgspec import Struct

from kdump.engine.sights import AnotherPlaceError, DriverSights, Sight, require_same
from kdump.engine.spark_session import is_local_master
from kdump.errors import ExitStatus, KdumpError
from kdump.jobs.table_rows.table_reader import TableReader, open_table, places_of
from kdump.payloads.record_payloads import RecordPayloads
from kdump.pipeline.sql.statement_needs import TableNeeds
from kdump.processes.heap import keep_freed_memory
from kdump.tables.kafka_log.damage import STATUS_FIELD, failure_status, failure_text
from kdump.tables.kafka_log.pushed_filters import PushedFilters
from kdump.tables.table import Table, TableColumn, arrow_schema

NOT_READ: Final = "kdump has not read column"
"""Begins Spark's message if a statement needs a column that was not read."""

_LOGGER: Final = "kdump"
_NUMBERS: Final = frozenset({pa.int32(), pa.int64(), pa.bool_()})


class SkippedData(Struct, frozen=True):
    """Something that could not be read, or is damaged, and was left out.

    Attributes:
        what: where, and what is wrong.
    """

    what: str
    status: ExitStatus


class TaskEnd(Struct, frozen=True):
    """A task has read its split."""


Report = SkippedData | TaskEnd | AnotherPlaceError


class TableRead(Struct, frozen=True):
    """What a statement reads of a table.

    Attributes:
        tasks: how many read it.
    """

    table: str
    needs: TableNeeds
    tasks: int


class ReadTask(Struct, frozen=True):
    """The function that reads a table in Spark's workers.

    Attributes:
        filters: those that the splits were planned with.
        splits: of all tasks, each with what the driver sees there.
        reports: an accumulator of reports.
    """

    reader: TableReader
    filters: PushedFilters
    splits: Sequence[tuple[Any, tuple[Sight, ...]]]
    reports: Any

    def __call__(self, indexes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the splits with these indexes, which are the only column of the batches."""
        keep_freed_memory()
        for batch in indexes:
            for index in batch.column(0).to_pylist():
                yield from self._read(*self.splits[index])

    def _read(self, split: Any, sights: tuple[Sight, ...]) -> Iterator[pa.RecordBatch]:
        try:
            require_same(sights)
        except AnotherPlaceError as refusal:
            self.reports.add([refusal])
            return
        with problems_logged(lambda problem: self.reports.add([problem])):
            try:
                yield from self.reader.read(split, self.filters)
            except (OSError, KdumpError) as failure:
                self.reports.add([problem_of(failure)])
        self.reports.add([TaskEnd()])


def problem_of(failure: OSError | KdumpError) -> SkippedData:
    """A failure to read as a problem."""
    return SkippedData(failure_text(failure), failure_status(failure))


@contextlib.contextmanager
def problems_logged(take: Callable[[SkippedData], None]) -> Iterator[None]:
    """Pass on what readers log about damage and failures, instead of logging it."""
    logger = logging.getLogger(_LOGGER)
    handler = _Handler(take)
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagated


class _Handler(logging.Handler):
    def __init__(self, take: Callable[[SkippedData], None]) -> None:
        super().__init__(logging.WARNING)
        self._take_problem = take

    def emit(self, record: logging.LogRecord) -> None:
        arguments = record.args if isinstance(record.args, tuple) else ()
        is_failure = any(isinstance(each, OSError | KdumpError) for each in arguments)
        guessed = ExitStatus.OPERATIONAL_ERROR if is_failure else ExitStatus.DAMAGE_LEFT
        status: ExitStatus = getattr(record, STATUS_FIELD, guessed)
        self._take_problem(SkippedData(record.getMessage(), status))


def start_worker(context: Any) -> None:
    """Let Spark start a worker, which takes a second, while it plans the first statement.

    Args:
        context: a ``pyspark.SparkContext``.
    """
    # Whatever fails here fails again in the statement, which reports it.
    with contextlib.suppress(Exception):
        context.parallelize([None], 1).foreachPartition(_import_readers)


def _import_readers(partition: Iterable[None]) -> None:
    """Import what a worker needs to read records."""
    import kdump.jobs.table_rows.records_reader  # noqa: F401


class TableViews(Struct, frozen=True):
    """Makes views over the tables of some directories.

    Attributes:
        sql: a ``pyspark.sql.SparkSession``.
        tables: by name.
        options: of the data source, for all tables.
        payloads: how keys and values of records become text.
    """

    sql: Any
    tables: Mapping[str, Table]
    options: Mapping[str, str]
    payloads: RecordPayloads

    def show_columns(self, names: Collection[str]) -> None:
        """Make views that have all columns and no rows, and remove all others.

        Args:
            names: of the tables; each view takes a tenth of a second.
        """
        for table in self.tables.values():
            if table.name not in names:
                # It has only what the last statement needed.
                self.sql.catalog.dropTempView(table.name)
                continue
            frame = self._frame(table, _nothing, table.columns, 1)
            frame.createOrReplaceTempView(table.name)

    def read(self, needs: Mapping[str, TableNeeds], reports: Any) -> list[TableRead]:
        """Make the views for a statement, and return what they read.

        Args:
            needs: of the statement, for each table.
            reports: an accumulator of reports.

        Raises:
            UsageProblem: a path is not Kafka's.
            KdumpError: a selected partition cannot be listed.
            OSError: a file cannot be read.
        """
        return [
            TableRead(name, each, self._read_table(self.tables[name], each, reports))
            for name, each in sorted(needs.items())
        ]

    def _read_table(self, table: Table, needs: TableNeeds, reports: Any) -> int:
        columns = _columns_read(table, needs)
        taken = {name for name in table.options if name in self.options}
        options = {name: self.options[name] for name in taken} | {"table": table.name}
        names = [column.name for column in columns]
        reader = open_table(options, names, self.payloads, skips_unreadable=True)
        splits = reader.splits(needs.filters)
        is_local = is_local_master(self.sql.sparkContext.master)
        sights = None if is_local else DriverSights()
        seen = [(split, sights.of(places_of(split)) if sights else ()) for split in splits]
        task = ReadTask(reader, needs.filters, seen, reports)
        frame = self._frame(table, task, columns, len(splits))
        shown = [
            each.quoted_name if each.name in names else _unread(table, each)
            for each in table.columns
        ]
        frame.selectExpr(*shown).createOrReplaceTempView(table.name)
        return len(splits)

    def _frame(
        self, table: Table, read: Callable[..., Any], columns: Sequence[TableColumn], tasks: int
    ) -> Any:
        from pyspark.sql import DataFrame
        from pyspark.sql.pandas.types import from_arrow_schema
        from pyspark.sql.udf import UserDefinedFunction
        from pyspark.util import PythonEvalType

        # DataFrame.mapInArrow would need pandas.
        function = UserDefinedFunction(
            read,
            returnType=from_arrow_schema(arrow_schema(columns)),
            name=table.name,
            evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
        )
        indexes = self.sql.range(0, tasks, 1, max(1, tasks))
        column = function(indexes["id"])
        return DataFrame(indexes._jdf.mapInArrow(column._jc, False, None), self.sql)


def _columns_read(table: Table, needs: TableNeeds) -> Sequence[TableColumn]:
    """The columns to read; a narrow one if the statement only counts rows."""
    if needs.columns is None:
        return table.columns
    chosen = [column for column in table.columns if column.name in needs.columns]
    narrow = [column for column in table.columns if column.arrow_type in _NUMBERS]
    return chosen or (narrow or table.columns)[:1]


def _unread(table: Table, column: TableColumn) -> str:
    failing = f"raise_error('{NOT_READ} {table.name}.{column.name}')"
    return f"CAST({failing} AS {column.sql_type}) AS {column.quoted_name}"


def _nothing(indexes: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read nothing."""
    yield from ()
