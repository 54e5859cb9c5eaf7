"""Spark's own source for Kafka, in a Spark of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from builders.serving import Read

LEVELS: Final = ("read_uncommitted", "read_committed")
_PROGRAM: Final = """
import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import base64, col, expr

jars, address, topics, levels, out = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)


def rows(reader, level):
    return (
        reader.format("kafka")
        .option("kafka.bootstrap.servers", address)
        .option("kafka.isolation.level", level)
        .option("subscribe", topics)
        .option("startingOffsets", "earliest")
        .load()
        .select(
            "topic",
            "partition",
            "offset",
            base64(col("key")).alias("key"),
            base64(col("value")).alias("value"),
            expr("unix_millis(timestamp)").alias("timestamp"),
        )
    )


for level in levels.split(","):
    rows(spark.read, level).write.json(f"{out}/{level}", ignoreNullFields=False)
stream = rows(spark.readStream, "read_uncommitted").writeStream.format("json")
stream = stream.option("path", f"{out}/stream").option("ignoreNullFields", "false")
stream = stream.option("checkpointLocation", f"{out}/checkpoint").trigger(availableNow=True)
stream.start().awaitTermination()
spark.stop()
"""

Rows = dict[tuple[str, int], list[Read]]


def read_with_spark(
    jars: Iterable[Path], address: str, topics: Iterable[str], folder: Path
) -> dict[str, Rows]:
    """All records of topics: by level, and as ``stream``; by topic and number, in order."""
    names = ",".join(map(str, jars)), address, ",".join(topics), ",".join(LEVELS), str(folder)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *names], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return {name: _rows(folder / name) for name in (*LEVELS, "stream")}


def _rows(folder: Path) -> Rows:
    found: Rows = {}
    for path in folder.glob("*.json"):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            read = Read(row["offset"], _data(row["key"]), _data(row["value"]), row["timestamp"])
            found.setdefault((row["topic"], row["partition"]), []).append(read)
    return {key: sorted(rows, key=lambda each: each.offset) for key, rows in found.items()}


def _data(text: Any) -> bytes | None:
    return None if text is None else b64decode(text)
