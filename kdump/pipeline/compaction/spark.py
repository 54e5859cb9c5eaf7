"""Finding the live records of logs on Spark, for more keys than one process should hold.

Tasks scan parts of logs and give each key with its last offset as Arrow columns. Spark brings what
belongs to one key together, and spills what it has no memory for; only the offsets of live records,
nine bytes each, reach the driver, and what else was found in each part: as a key of no log.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdump.clean.compaction.keys import KeyedRecords, LiveRecords
from kdump.clean.compaction.scan import ScannedPart
from kdump.errors import KdumpError
from kdump.pipeline.compaction.jobs import ScanJob, ScanSplit
from kdump.pipeline.loading import Unreadable
from kdump.pipeline.spark import SparkEngine
from kdump.pipeline.spark_session import first_line
from kdump.repair.refusal import Refusal

Found = ScannedPart | Refusal | Unreadable

_SCHEMA: Final = pa.schema(
    [("log", pa.int32()), ("key", pa.binary()), ("place", pa.int64()), ("mapped", pa.bool_())]
)
_SQL_SCHEMA: Final = "log int, key binary, place bigint, mapped boolean"
_SOURCE: Final = "kdump-keyed-records"
_ROWS: Final = 1 << 16
_PARTITION_BYTES: Final = 64 << 20
"""How much of the logs is behind one part of what is brought together."""


@dataclass(frozen=True, slots=True)
class LiveLog:
    """What is live of one log.

    Attributes:
        live: its live records.
        keys: how many distinct keys it has.
    """

    live: LiveRecords
    keys: int


def scan_on_spark(
    engine: SparkEngine, logs: Sequence[Sequence[ScanSplit]], *, all_dirty: bool
) -> tuple[list[list[Found]], list[LiveLog]]:
    """Scan logs, and find their live records.

    Args:
        engine: on Spark.
        logs: the splits of each, in order.
        all_dirty: whether no record of them is below the first dirty offset or was aborted, so
            that each replaces all earlier ones of its key.

    Returns:
        What was found in each split, without keys; and of each log what is live. Where a part of
        a log is refused, what is live of it means nothing.

    Raises:
        KdumpError: Spark failed.
    """
    from pyspark.sql import SparkSession

    tasks = [(log, split) for log, splits in enumerate(logs) for split in splits]
    context = engine.context
    total_bytes = sum(split.size_bytes for _, split in tasks)
    parts = max(context.defaultParallelism, total_bytes // _PARTITION_BYTES)
    try:
        session = SparkSession(context)
        session.conf.set("spark.sql.shuffle.partitions", str(parts))
        session.dataSource.register(_source_of(tasks))
        scanned = session.read.format(_SOURCE).load()
        live = _last_of_each_key(scanned) if all_dirty else _live_of_each_key(scanned)
        table: pa.Table = live.toArrow()
    except Exception as failure:
        raise KdumpError(f"the Spark job failed: {first_line(failure)}") from failure
    found = iter(_results(table, len(tasks)))
    return [[next(found) for _ in splits] for splits in logs], _by_log(table, len(logs))


def _source_of(tasks: Sequence[tuple[int, ScanSplit]]) -> type[Any]:
    """A data source whose rows are the keyed records of splits, each of which is a task."""
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def partitions(self) -> Sequence[InputPartition]:
            return [InputPartition((number, *task)) for number, task in enumerate(tasks)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            return _scan(*partition.value)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return _SOURCE

        def schema(self) -> str:
            return _SQL_SCHEMA

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader()

    return Source


def _scan(number: int, log: int, split: ScanSplit) -> Iterator[pa.RecordBatch]:
    """What a task does, on a worker: rows of keys, and then one of what else was found."""
    found = ScanJob().run(split)
    if isinstance(found, ScannedPart):
        yield from _rows(log, found.mapped, is_mapped=True)
        yield from _rows(log, found.unmapped, is_mapped=False)
        found = found.without_keys()
    # A log of its own for each: what is found in two parts can be the same.
    row = ([-1 - number], [pickle.dumps(found)], [0], [True])
    yield pa.RecordBatch.from_pydict(dict(zip(_SCHEMA.names, row, strict=True)), schema=_SCHEMA)


def _results(table: pa.Table, count: int) -> list[Found]:
    """What was found in each split."""
    others = table.filter(pc.less(table["log"], 0))
    found = zip(others["log"].to_pylist(), others["found"].to_pylist(), strict=True)
    # Tasks of this very job made them.
    by_number = {-1 - log: pickle.loads(each) for log, each in found}  # noqa: S301
    return [by_number[number] for number in range(count)]


def _rows(log: int, records: KeyedRecords, *, is_mapped: bool) -> Iterator[pa.RecordBatch]:
    for start in range(0, records.count, _ROWS):
        key = records.key.slice(start, _ROWS).cast(pa.binary())
        offset = records.offset[start : start + _ROWS]
        # Offset and tombstone in one number, of which the greatest can be found fast.
        place = offset * 2 + records.is_tombstone[start : start + _ROWS]
        count = len(offset)
        columns = [
            pa.array(np.full(count, log, np.int32)),
            key,
            pa.array(place),
            pa.array(np.full(count, is_mapped)),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def _last_of_each_key(scanned: Any) -> Any:
    """Where each record replaces the earlier ones of its key."""
    from pyspark.sql import functions

    last = scanned.groupBy("log", "key").agg(functions.max("place").alias("place"))
    return last.select("log", "place", functions.lit(True).alias("is_key"), _found_in("key"))


def _found_in(key: str) -> Any:
    """What is no key."""
    from pyspark.sql import functions

    return functions.when(functions.col("log") < 0, functions.col(key)).alias("found")


def _live_of_each_key(scanned: Any) -> Any:
    """Where some records replace none: they are live if none that replaces them is behind them."""
    from pyspark.sql import Window, functions

    key = Window.partitionBy("log", "key")
    column = functions.col
    last = functions.max(functions.when(column("mapped"), column("place"))).over(key)
    greatest = functions.max("place").over(key)
    marked = scanned.select("log", "key", "place", last.alias("last"), greatest.alias("greatest"))
    is_live = column("last").isNull() | (column("place") >= column("last"))
    is_key = functions.when(column("last").isNull(), column("place") == column("greatest"))
    is_key = is_key.otherwise(column("place") == column("last")).alias("is_key")
    return marked.where(is_live).select("log", "place", is_key, _found_in("key"))


def _by_log(table: pa.Table, logs: int) -> list[LiveLog]:
    log = table["log"].to_numpy()
    place = table["place"].to_numpy()
    is_key = table["is_key"].to_numpy()
    found = []
    for number in range(logs):
        own = log == number
        places = np.sort(place[own])
        live = LiveRecords(places >> 1, (places & 1).astype(np.bool_))
        found.append(LiveLog(live, int(is_key[own].sum())))
    return found
