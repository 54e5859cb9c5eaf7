"""Read logs through the data source ``kafka-log`` on one core, and print the rate.

    python bench/records.py PATH... [--columns NAME[,NAME...]] [--spark] [--runs N]

Without ``--spark``, the records are read in this process as a worker of Spark would read them, and
processor time is measured, so that other load does not matter. With it, a warm session of
``local[1]`` counts the records and adds up the sizes of keys and values, and wall time is measured.
One run before each measurement excludes start-up. The rate of the fastest of several runs is
printed in millions of records per second.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

COLUMNS = "offset,timestamp,key"
MILLION = 1_000_000


def read_in_process(paths: Sequence[str], columns: str) -> int:
    """Read all records to Arrow batches of ``columns``; return their number."""
    from kdump.payloads.record_payloads import RecordPayloads
    from kdump.processes.heap import keep_freed_memory
    from kdump.tables.kafka_log.options import parse_options
    from kdump.tables.kafka_log.pushed_filters import PushedFilters
    from kdump.tables.kafka_log.reader import SourceReading
    from kdump.tables.kafka_log.splits import plan_splits

    keep_freed_memory()
    count = 0
    for path in paths:
        options = parse_options({"path": path, "columns": columns})
        reading = SourceReading.of(options, options.columns, PushedFilters(), RecordPayloads())
        for split in plan_splits(options, PushedFilters()):
            count += sum(table.num_rows for table in reading.read(split))
    return count


def open_spark() -> Callable[[Sequence[str], str], int]:
    """Start Spark on one core; return a function like :func:`read_in_process`."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    import kdump.pipeline

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = builder.config("spark.log.level", "ERROR").getOrCreate()
    kdump.pipeline.register(session)

    def read(paths: Sequence[str], columns: str) -> int:
        names = columns.split(",")
        sizes = [f"sum(length({name}))" for name in names if name in ("key", "value")]
        frame = session.read.format("kafka-log").option("columns", columns).load(list(paths))
        row = frame.selectExpr("count(offset)", "max(timestamp)", *sizes).first()
        assert row is not None
        return int(row[0])

    return read


def measure(read: Callable[[], int], runs: int, clock: Callable[[], float]) -> tuple[int, float]:
    """Return the number of records, and the seconds of the fastest of ``runs`` runs."""
    count = read()
    seconds = []
    for _ in range(runs):
        begin = clock()
        read()
        seconds.append(clock() - begin)
    return count, min(seconds)


def main() -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="+", metavar="PATH", help="log directory, partition, log")
    parser.add_argument("--spark", action="store_true", help="read by a warm session of local[1]")
    parser.add_argument("--columns", default=COLUMNS, help=f"columns to read ({COLUMNS})")
    parser.add_argument(
        "--runs", type=int, default=3, help="number of runs; the fastest counts (3)"
    )
    asked = parser.parse_args()
    read = open_spark() if asked.spark else read_in_process
    clock = time.perf_counter if asked.spark else time.process_time
    count, seconds = measure(partial(read, asked.paths, asked.columns), asked.runs, clock)
    print(f"{count / seconds / MILLION:.2f} M/s and core: {count} records in {seconds:.3f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
