"""The Spark data source ``kafka-log``: log directories as a table.

What reads and plans needs no Spark and stands elsewhere; here is only what Spark calls. Its classes
derive from PySpark's, which is not imported before it is needed: they are made in a function.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from kdump.errors import UsageProblem
from kdump.pipeline.kafka_log.columns import (
    SourceColumn,
    columns_named,
    ddl,
)
from kdump.pipeline.kafka_log.filters import Wanted, push
from kdump.pipeline.kafka_log.options import parse_options
from kdump.pipeline.kafka_log.reader import SourceReading
from kdump.pipeline.kafka_log.splits import grouped, plan_splits

FORMAT: Final = "kafka-log"
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: Any) -> None:
    """Make ``spark.read.format("kafka-log")`` known to a session.

    Also lets Spark hand filters to sources that are written in Python, which it does not by
    itself. Its workers have to run a Python that has kdump: for a session of this machine, set
    ``PYSPARK_PYTHON`` to ``sys.executable`` before it begins.

    Args:
        spark: a ``pyspark.sql.SparkSession``.
    """
    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(source_class())


def sql_session(context: Any) -> Any:
    """The ``pyspark.sql.SparkSession`` of a ``pyspark.SparkContext``; it knows ``kafka-log``."""
    from pyspark.sql import SparkSession

    session = SparkSession(context)
    register(session)
    return session


@functools.cache
def source_class() -> type[Any]:
    """The class that Spark makes for each reading, with the reader that it carries to workers."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
    from pyspark.sql.types import StructType

    class KafkaLogReader(DataSourceReader):
        """Plans where the query is planned, and reads on the workers."""

        def __init__(self, options: dict[str, str], columns: tuple[SourceColumn, ...]) -> None:
            self.options = options
            self.columns = columns
            self.wanted = Wanted()

        def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
            self.wanted, left = _pushed(self.wanted, filters)
            return left

        def partitions(self) -> Sequence[InputPartition]:
            options = parse_options(self.options)
            splits = plan_splits(options, self.wanted)
            # Spark would make one without a value out of none.
            return [InputPartition(group) for group in grouped(splits, options)] or [
                InputPartition(())
            ]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            reading = SourceReading.of(parse_options(self.options), self.columns, self.wanted)
            for split in partition.value:
                yield from reading.read(split)

    class KafkaLogSource(DataSource):
        """One ``load``."""

        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> str:
            return ddl(parse_options(self.options).columns)

        def reader(self, schema: StructType) -> DataSourceReader:
            options = dict(self.options)
            return KafkaLogReader(options, _columns_of(schema, options))

    return KafkaLogSource


def _columns_of(schema: Any, options: dict[str, str]) -> tuple[SourceColumn, ...]:
    """The columns of a ``StructType``: kdump's own schema, or what the user put in its place.

    Raises:
        UsageProblem: there is no such column, or it has another type.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    columns = columns_named(schema.fieldNames(), parse_options(options).corrupt_column)
    asked_types = to_arrow_schema(schema, timezone="UTC")
    for column, asked, asked_type in zip(columns, schema.fields, asked_types, strict=True):
        if asked_type != column.arrow_field:
            raise UsageProblem(
                f"column {asked.name} of kafka-log is {column.name} {column.sql_type},"
                f" not {asked.dataType.simpleString()}"
            )
    return columns


def _pushed(wanted: Wanted, filters: Sequence[Any]) -> tuple[Wanted, list[Any]]:
    """What is wanted after these of Spark's filters, and those that it has still to apply."""
    left: list[Any] = []
    for each in filters:
        path: tuple[str, ...] = getattr(each, "attribute", ())
        is_done = False
        if len(path) == 1:
            value: Any = getattr(each, "value", None)
            wanted, is_done = push(wanted, type(each).__name__, path[0], value)
        if not is_done:
            left.append(each)
    return wanted, left
