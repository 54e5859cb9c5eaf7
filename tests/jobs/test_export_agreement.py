"""Queries, the data source, exported files and the official consumer have the same records."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import duckdb
import pytest

from builders.batches import batch, record
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.log_directories import write_partition
from kdump.engine.spark import SparkEngine
from kdump.pipeline.data_source import sql_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as SqlSession

pytestmark = pytest.mark.slow

COLLECTIONS: Final = ("clean", "recovered", "legacy")

Digest = tuple[int, int, str]
"""Of the records of a partition: how many, the sum of their offsets, and a hash of all lines."""

OF_SPARK: Final = """
    SELECT regexp_extract(segment, '^(.*)/', 1) AS directory, count(*), sum(offset),
      sha2(concat_ws('\\n', transform(array_sort(collect_list(struct(offset, concat_ws(
        '|', offset, coalesce(hex(key), '-'), coalesce(hex(value), '-'), unix_millis(timestamp)
      ) AS line))), each -> each.line)), 256)
    FROM records GROUP BY directory
"""
OF_DUCKDB: Final = """
    SELECT regexp_extract(segment, '^(.*)/', 1) AS directory, count(*), sum("offset")::BIGINT,
      sha256(string_agg(concat_ws(
        '|', "offset", coalesce(hex(key), '-'), coalesce(hex(value), '-'), epoch_ms("timestamp")
      ), chr(10) ORDER BY "offset"))
    FROM read_parquet('FILES') GROUP BY directory
"""


@pytest.fixture(scope="module")
def sql(spark: SparkEngine) -> SqlSession:
    session: SqlSession = sql_session(spark._session.context)
    return session


def consumed(fixtures: Path, collection: str, level: str) -> dict[str, Digest]:
    """The digests of what the official consumer returned, by directory."""
    suffix = "" if collection == "clean" else f".{collection}"
    found = {}
    for path in (fixtures / "out").glob(f"expected{suffix}/*.{level}.jsonl"):
        partition = path.name.removesuffix(f".{level}.jsonl")
        (directory,) = (fixtures / "out" / collection).glob(f"*/{partition}")
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        if rows:
            text = "\n".join(
                f"{row['offset']}|{in_hex(row['key'])}|{in_hex(row['value'])}|{row['timestamp']}"
                for row in rows
            )
            digest = hashlib.sha256(text.encode()).hexdigest()
            found[str(directory)] = len(rows), sum(row["offset"] for row in rows), digest
    return found


def in_hex(text: str | None) -> str:
    return "-" if text is None else base64.b64decode(text).hex().upper()


@pytest.mark.parametrize(
    "level", ["committed", pytest.param("uncommitted", marks=pytest.mark.soak)]
)
def test_counts_sums_and_hashes_agree(
    level: str, fixtures: Path, tmp_path: Path, sql: SqlSession
) -> None:
    theirs: dict[str, dict[str, Digest]] = {}
    for collection in COLLECTIONS:
        theirs[collection] = consumed(fixtures, collection, level)
        if not theirs[collection]:
            continue  # message sets have no transactions
        out = tmp_path / collection
        args = ["export", "--out", str(out), "--isolation-level", f"read_{level}"]
        assert run_kdump([*args, *theirs[collection]], tmp_path).exit_status == 0
        files = f"{out}/**/*.parquet"
        rows = duckdb.execute(OF_DUCKDB.replace("FILES", files)).fetchall()
        assert {directory: digest for directory, *digest in rows} == {
            directory: list(digest) for directory, digest in theirs[collection].items()
        }
        summary = json.loads((out / "_manifest.json").read_text())["totals"]
        assert summary["records"] == sum(digest[0] for digest in theirs[collection].values())

    everything = {path: digest for found in theirs.values() for path, digest in found.items()}
    assert len(everything) > 50
    reader = sql.read.format("kafka-log").option("columns", "key,value,offset,timestamp,segment")
    log = reader.option("kafka.isolation.level", f"read_{level}").load(list(everything))
    log.createOrReplaceTempView("records")
    assert {row[0]: tuple(row)[1:] for row in sql.sql(OF_SPARK).collect()} == everything

    args = ["query", "--output", "jsonl", "--isolation-level", f"read_{level}", OF_SPARK]
    answer = objects(run_kdump([*args, *everything], tmp_path).stdout)
    found = [tuple(each["row"].values()) for each in answer if each["type"] == "row"]
    assert {directory: digest for directory, *digest in found} == {
        directory: list(digest) for directory, digest in everything.items()
    }


def test_names_of_topics_are_the_same_in_spark_and_duckdb(tmp_path: Path, sql: SqlSession) -> None:
    topics = {
        *("orders", "__consumer_offsets", "0042", "2026-01-01", "NaN", "-1.5", "1e3"),
        *("__HIVE_DEFAULT_PARTITION__", "a b", "a=b", "100%", "50%25", "'\"", "a\nb", "\u202eé"),
        *("{x}", "[y]", "a:b?c*", "back\\slash"),
    }
    for topic in topics:
        write_partition(tmp_path / "logs" / f"{topic}-0", {0: batch([record(0)])})
    paths = [str(path) for path in (tmp_path / "logs").iterdir()]

    assert run_kdump(["export", "--out", str(tmp_path / "out"), *paths], tmp_path).exit_status == 0

    in_spark = sql.read.parquet(str(tmp_path / "out")).select("topic", "partition").collect()
    assert {tuple(row) for row in in_spark} == {(topic, 0) for topic in topics}
    files = f"{tmp_path}/out/**/*.parquet"
    in_duckdb = duckdb.execute(
        f"SELECT topic, partition FROM read_parquet('{files}', hive_partitioning = true)"
    ).fetchall()
    assert set(in_duckdb) == {(topic, 0) for topic in topics}


def test_spark_writes_the_same_files_as_this_process(tmp_path: Path) -> None:
    for number in range(3):
        content = batch([record(at, b"k", b"%d" % number) for at in range(5)])
        write_partition(tmp_path / "logs" / f"orders-{number}", {0: content})
    for engine in ("local", "spark"):
        out = str(tmp_path / engine)
        args = ["export", "--engine", engine, "--out", out, str(tmp_path / "logs")]
        if engine == "spark":
            args += ["--master", "local[1]"]
        assert run_kdump(args, tmp_path).exit_status == 0
    written = [
        {
            str(path.relative_to(tmp_path / engine)): path.read_bytes()
            for path in (tmp_path / engine).rglob("*")
            if path.is_file()
        }
        for engine in ("local", "spark")
    ]
    assert written[0] == written[1]
    assert len(written[0]) == 5
