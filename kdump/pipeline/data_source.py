"""The Spark data source ``kafka-log``: log directories as tables.

This module has only the classes that Spark calls. They derive from PySpark's, so a function creates
them: PySpark is not imported before it is needed. Planning and reading need no Spark and are in
:mod:`~kdump.jobs.table_rows.table_reader`.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NoReturn

import pyarrow as pa

from kdump.engine.sights import DriverSights, Sight, require_same
from kdump.engine.spark_installation import NoSparkError, find_spark
from kdump.errors import KdumpError, UsageProblem
from kdump.jobs.table_rows.records_stream import (
    RecordsStream,
    StreamOffsets,
    offsets_as_json,
    offsets_of_json,
    open_records_stream,
)
from kdump.jobs.table_rows.table_reader import (
    TableReader,
    log_incomplete_archives,
    open_table,
    places_of,
)
from kdump.payloads.record_payloads import RecordPayloads
from kdump.processes.heap import keep_freed_memory
from kdump.tables.kafka_log.pushed_filters import PushedFilters
from kdump.tables.table import ddl

FORMAT: Final = "kafka-log"
_SAFE_PATH: Final = "PYTHONSAFEPATH"


def register(spark: Any) -> None:
    """Register ``spark.read.format("kafka-log")`` with a session.

    Spark's workers need a Python that has kdump: for a local session, set ``PYSPARK_PYTHON`` to
    ``sys.executable`` before it starts. Also set ``PYTHONSAFEPATH`` to ``1``: Spark's workers
    would otherwise import modules from the current directory.

    Args:
        spark: a ``pyspark.sql.SparkSession``.

    Raises:
        KdumpError: pyspark is not installed.
    """
    try:
        find_spark()
    except NoSparkError as failure:
        raise KdumpError(f"{failure.reason}: the data source needs it") from failure
    source = source_class()
    from pyspark.sql import SparkSession

    # A client of Spark Connect has no context: the workers are on the server.
    if not isinstance(spark, SparkSession):
        spark.dataSource.register(source)
        return
    context: Any = spark.sparkContext
    if not context._jvm.java.lang.System.getenv(_SAFE_PATH):
        warnings.warn(
            f"Spark's workers import modules from the current directory: set {_SAFE_PATH}=1 in"
            " os.environ before Spark starts",
            RuntimeWarning,
            stacklevel=3,
        )
    with _safe_path(context.environment):
        spark.dataSource.register(source)


@contextlib.contextmanager
def _safe_path(worker_environment: dict[str, str]) -> Iterator[None]:
    """Keep workers of functions registered meanwhile from importing from the current directory.

    Spark copies the variables at registration: the session's other functions are not affected.
    """
    before = worker_environment.get(_SAFE_PATH)
    worker_environment[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del worker_environment[_SAFE_PATH]
        else:
            worker_environment[_SAFE_PATH] = before


def sql_session(context: Any) -> Any:
    """The ``pyspark.sql.SparkSession`` of a ``pyspark.SparkContext``, with ``kafka-log``.

    It is active in this thread.
    """
    from pyspark.sql import SparkSession

    session: Any = SparkSession(context)
    # PySpark makes a session active only in the thread that made the first one. In others, RDDs of
    # data frames and writers would find neither its properties nor its data sources.
    SparkSession._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)
    register(session)
    return session


@functools.cache
def source_class() -> type[Any]:
    """The class that Spark instantiates for each ``load``, with the reader for its workers.

    The reader takes no filters of Spark: Spark 4.3.0 keeps those of one query with the relation
    (``PythonDataSourceV2``), and the next over the same view, or the same query's other branch
    over it, would silently lack rows.
    """
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        InputPartition,
    )
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
    from pyspark.sql.types import StructType

    class KafkaLogReader(DataSourceReader):
        """Plans on the driver and reads on the workers."""

        def __init__(self, options: dict[str, str], schema: StructType) -> None:
            self.options = options
            # With the schemas of payloads: Spark pickles it for the tasks before it plans them.
            self.opened = open_table(options, schema.fieldNames())
            _check_types(schema, self.opened)
            # In the case that the user wrote: Spark compares names with their case.
            self.names = schema.fieldNames()

        @_with_plain_errors
        def partitions(self) -> Sequence[InputPartition]:
            splits = self.opened.splits(PushedFilters())
            log_incomplete_archives(self.options)
            # Spark turns no partitions into one partition without a value.
            return [InputPartition((each,)) for each in _seen(splits)] or [InputPartition(())]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            def read(split: Any) -> Iterator[pa.RecordBatch]:
                return self.opened.read(split, PushedFilters())

            return _read_seen(partition.value, read, self.names)

    class KafkaLogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
        """Plans micro-batches on the driver and reads on the workers.

        Nothing is opened before it is needed: if creating a reader fails, PySpark 4.3.0 tries to
        stop it and shows that failure instead.
        """

        def __init__(self, options: dict[str, str], schema: StructType) -> None:
            self.options = options
            self.schema = schema
            self.names = schema.fieldNames()
            self.opened: RecordsStream | None = None
            self.last: StreamOffsets | None = None

        @property
        def stream(self) -> RecordsStream:
            if self.opened is None:
                self.opened = open_records_stream(self.options, self.names)
                _check_types(self.schema, self.opened.reader)
            return self.opened

        @_with_plain_errors
        def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802
            return offsets_as_json(self.stream.initial())

        @_with_plain_errors
        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            most = self.stream.most_offsets
            return ReadAllAvailable() if most is None else ReadMaxRows(most)

        @_with_plain_errors
        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self.last = self.stream.ends()

        @_with_plain_errors
        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            return offsets_as_json(self.stream.latest(offsets_of_json(start), most, self.last))

        @_with_plain_errors
        def partitions(
            self, start: dict[str, Any], end: dict[str, Any]
        ) -> Sequence[InputPartition]:
            splits = self.stream.splits(offsets_of_json(start), offsets_of_json(end))
            return [InputPartition((each,)) for each in _seen(splits)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            return _read_seen(partition.value, self.stream.read, self.names)

    class KafkaLogSource(DataSource):
        """The data source of one ``load``."""

        @classmethod
        def name(cls) -> str:
            return FORMAT

        @_with_plain_errors
        def schema(self) -> str:
            payloads = RecordPayloads()
            try:
                opened = open_table(self.options, payloads=payloads)
            except UsageProblem as problem:
                # Spark asks before it says whether this is for a query.
                try:
                    opened = open_records_stream(self.options, payloads=payloads).reader
                except UsageProblem:
                    raise problem from None
            return ddl(opened.columns)

        @_with_plain_errors
        def reader(self, schema: StructType) -> DataSourceReader:
            return KafkaLogReader(dict(self.options), schema)

        def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
            raise UsageProblem("kafka-log is read-only")

        def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: N802
            self.writer(schema, overwrite)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            return KafkaLogStream(dict(self.options), schema)

    return KafkaLogSource


def _with_plain_errors(method: Callable[..., Any]) -> Callable[..., Any]:
    """Raise errors without their traceback, which Spark would show to the user."""

    @functools.wraps(method)
    def call(*arguments: Any, **named: Any) -> Any:
        try:
            return method(*arguments, **named)
        except KdumpError as problem:
            raise problem.with_traceback(None) from None

    return call


def _seen(splits: Iterable[Any]) -> Iterator[tuple[Any, tuple[Sight, ...]]]:
    """Splits, each with what the driver sees of it."""
    sights = DriverSights()
    for split in splits:
        yield split, sights.of(places_of(split))


def _read_seen(
    seen: Iterable[tuple[Any, tuple[Sight, ...]]],
    read: Callable[[Any], Iterator[pa.RecordBatch]],
    names: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """The batches of splits, on a worker."""
    keep_freed_memory()
    try:
        for split, sights in seen:
            require_same(sights)
            for batch in read(split):
                yield batch.rename_columns(names)
    except KdumpError as problem:
        raise problem.with_traceback(None) from None


def _check_types(schema: Any, reader: TableReader) -> None:
    """Check a ``StructType``: kdump's own schema or the user's.

    Raises:
        UsageProblem: a column has another type.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    asked_types = to_arrow_schema(schema, timezone="UTC").types
    for column, asked, asked_type in zip(reader.columns, schema.fields, asked_types, strict=True):
        if asked_type != column.arrow_type:
            raise UsageProblem(
                f"column {column.name} of kafka-log is {column.sql_type},"
                f" not {asked.dataType.simpleString().upper()}"
            )
        if not asked.nullable:
            raise UsageProblem(f"column {column.name} of kafka-log is nullable, not NOT NULL")
