"""The data source ``kafka-log`` in Spark."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from google.type import money_pb2

from builders import batches, large_segments, log_directories, schema_topic
from builders.large_segments import LargeSegment
from builders.read_tables import table_rows
from builders.schema_topic import new_client
from builders.source_tables import table_of
from kdump.jobs.table_rows.all_tables import TABLES
from kdump.pipeline.data_source import sql_session
from kdump.tables.kafka_log.columns import COLUMNS, corrupt_record_column
from kdump.tables.table import arrow_schema, ddl

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql import SparkSession as SqlSession

BATCHES = 300


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two topics of one partition each; ``orders`` is large enough for several splits."""
    path = log_directories.write_log_directory(tmp_path_factory.mktemp("data"))
    segment = LargeSegment.of(BATCHES)
    large_segments.write(path, segment, index=segment.index(), topic="orders")
    small = b"".join(batches.batches(2))
    log_directories.write_partition(path / "payments-0", {0: small})
    return path


def load(sql: SqlSession, *paths: Path, **options: str) -> DataFrame:
    reader = sql.read.format("kafka-log").options(**options)
    return reader.load(str(paths[0])) if len(paths) == 1 else reader.load([str(p) for p in paths])


def test_the_schema_begins_with_the_schema_of_sparks_own_source(
    sql: SqlSession, log_dir: Path
) -> None:
    fields = load(sql, log_dir, includeHeaders="true").schema.fields
    assert [(each.name, each.dataType.simpleString()) for each in fields[:8]] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]


@pytest.mark.usefixtures("sql")
@pytest.mark.parametrize("name", TABLES)
def test_every_column_has_the_arrow_type_that_spark_expects(name: str) -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    columns = (*TABLES[name].columns, corrupt_record_column("_corrupt_record"))
    row = StructType.fromDDL(ddl(columns))
    assert isinstance(row, StructType)
    assert to_arrow_schema(row, timezone="UTC") == arrow_schema(columns)


def test_spark_reads_the_same_rows_as_kdump_without_spark(sql: SqlSession, log_dir: Path) -> None:
    names = [column.name for column in COLUMNS]
    theirs = load(sql, log_dir, columns=",".join(names)).toArrow().sort_by("segment")
    ours = table_of(log_dir, columns=",".join(names))
    keys = [("topic", "ascending"), ("offset", "ascending")]
    assert theirs.sort_by(keys).to_pylist() == ours.sort_by(keys).to_pylist()


@pytest.mark.parametrize("name", [name for name in TABLES if name != "records"])
def test_spark_reads_the_same_rows_of_other_tables(
    name: str, sql: SqlSession, log_dir: Path
) -> None:
    topics = {"subscribe": "payments"}
    theirs = load(sql, log_dir, table=name, **topics).toArrow()
    assert theirs.to_pylist() == table_rows(name, log_dir, **topics)


def test_tasks_have_the_schemas_of_payloads(sql: SqlSession, tmp_path: Path) -> None:
    client = new_client()
    money = ProtobufSerializer(money_pb2.Money, client)
    values = [
        money(money_pb2.Money(units=number), schema_topic.context("prices")) for number in range(40)
    ]
    log = b"".join(batches.batch([batches.record(at, None, v)]) for at, v in enumerate(values))
    root = log_directories.write_log_directory(tmp_path / "logs")
    log_directories.write_partition(root / "prices-0", {0: log})
    records = [schema_topic.schema_record(one) for one in schema_topic.registered(client)]
    schema_topic.write_schemas_topic(root, records)
    options = {"subscribe": "prices", "columns": "offset,value_text", "valueFormat": "protobuf"}
    frame = load(sql, root, **options, minPartitions="4")
    assert frame.rdd.getNumPartitions() >= 4
    rows = sorted(frame.collect())
    assert [json.loads(row["value_text"])["units"] for row in rows] == list(map(str, range(40)))


def test_patterns_are_all_that_they_match(sql: SqlSession, log_dir: Path) -> None:
    whole = load(sql, log_dir, mode="DROPMALFORMED").select("topic", "partition").distinct()
    # Directories of other tests may lie beside it.
    named = log_dir.with_name(f"[{log_dir.name[0]}]{log_dir.name[1:]}")
    matched = load(sql, named / "*-[0-9]*", mode="DROPMALFORMED")
    assert matched.count() > 0
    assert sorted(matched.select("topic", "partition").distinct().collect()) == sorted(
        whole.collect()
    )


def test_a_path_that_is_not_there_is_named(sql: SqlSession, log_dir: Path) -> None:
    """The words are those of Spark's own file sources."""
    for path in (log_dir / "nope", log_dir / "nope*", log_dir / "{nope,nor}"):
        with pytest.raises(Exception, match=f"Path does not exist: {re.escape(str(path))}"):
            load(sql, log_dir, path).count()
        with pytest.raises(Exception, match="Path does not exist: "):
            sql.read.text(str(path)).count()


def test_several_paths_are_read_together(sql: SqlSession, log_dir: Path) -> None:
    frame = load(sql, log_dir / "orders-0", log_dir / "payments-0", columns="topic")
    counts = {row["topic"]: row["count"] for row in frame.groupBy("topic").count().collect()}
    assert counts == {"orders": 3 * BATCHES, "payments": 6}


def test_one_segment_is_read_by_several_tasks(sql: SqlSession, log_dir: Path) -> None:
    frame = load(sql, log_dir / "orders-0", columns="offset", minPartitions="4")
    assert frame.rdd.getNumPartitions() >= 4
    assert frame.count() == 3 * BATCHES


def test_a_session_is_active_in_each_thread_that_asked_for_it(
    sql: SqlSession, log_dir: Path
) -> None:
    def partitions() -> int:
        session = sql_session(sql.sparkContext)
        frame = load(session, log_dir / "orders-0", columns="offset", minPartitions="4")
        return int(frame.rdd.getNumPartitions())

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(partitions).result() >= 4


def test_a_users_schema_selects_columns(sql: SqlSession, log_dir: Path) -> None:
    frame = sql.read.format("kafka-log").schema("offset BIGINT, key BINARY").load(str(log_dir))
    assert frame.columns == ["offset", "key"]
    assert frame.where("offset = 5").first() == (5, b"key")


def test_a_schema_with_another_type_is_rejected(sql: SqlSession, log_dir: Path) -> None:
    frame = sql.read.format("kafka-log").schema("offset STRING").load(str(log_dir))
    with pytest.raises(Exception, match="column offset of kafka-log is BIGINT, not STRING"):
        frame.count()


def test_a_not_null_column_is_rejected(sql: SqlSession, log_dir: Path) -> None:
    frame = sql.read.format("kafka-log").schema("key BINARY NOT NULL").load(str(log_dir))
    with pytest.raises(Exception, match="column key of kafka-log is nullable, not NOT NULL"):
        frame.count()


def test_columns_keep_the_case_of_the_users_schema(sql: SqlSession, log_dir: Path) -> None:
    frame = sql.read.format("kafka-log").schema("OFFSET BIGINT").load(str(log_dir / "payments-0"))
    assert frame.where("OFFSET > 4").toArrow().to_pylist() == [{"OFFSET": 5}]


@pytest.mark.parametrize("push_down", ["true", "false"])
def test_a_view_may_be_queried_in_several_branches(
    sql: SqlSession, log_dir: Path, push_down: str
) -> None:
    sql.conf.set("spark.sql.python.filterPushdown.enabled", push_down)
    load(sql, log_dir / "payments-0", columns="offset").createOrReplaceTempView("payments")
    both = "SELECT offset FROM payments WHERE offset {} UNION ALL SELECT offset FROM payments"
    assert sql.sql(both.format("< 1")).count() == 7
    assert sql.sql(f"{both.format('< 1')} WHERE offset > 2").count() == 4
    counted = "SELECT (SELECT count(*) FROM payments WHERE offset < 1), count(*) FROM payments"
    assert sql.sql(counted).first() == (1, 6)
    assert sql.table("payments").count() == 6


def test_an_option_error_is_at_the_end_of_sparks_message(sql: SqlSession, log_dir: Path) -> None:
    with pytest.raises(Exception, match=r"kafka-log finds no order in \S+; run kdump ls") as caught:
        load(sql, log_dir, subscribe="order").count()
    lines = str(caught.value).strip().splitlines()
    assert "finds no order" in lines[-2]
    assert len(lines) < 8, "a mistyped name must not print a stack trace of kdump"


def test_writing_is_rejected(sql: SqlSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="kafka-log is read-only"):
        sql.range(1).write.format("kafka-log").mode("append").save(str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_sql_can_create_a_temporary_view(sql: SqlSession, log_dir: Path) -> None:
    sql.sql(
        "CREATE TEMPORARY VIEW orders USING `kafka-log`"
        f" OPTIONS (path '{log_dir}', subscribe 'orders', columns 'offset')"
    )
    assert sql.sql("SELECT count(*) FROM orders WHERE offset < 9").first() == (9,)


def test_a_table_of_sparks_catalog_is_rejected(sql: SqlSession, log_dir: Path) -> None:
    with pytest.raises(Exception, match="kafka-log supports only temporary views"):
        sql.sql(f"CREATE TABLE payments USING `kafka-log` LOCATION '{log_dir}/payments-0'")


def test_a_damaged_batch_fails_the_query_with_its_file_and_bytes(
    sql: SqlSession, damaged: Path
) -> None:
    with pytest.raises(Exception, match=r"00000000000000000000\.log: bytes \d+ to \d+: its check"):
        load(sql, damaged, columns="offset").collect()


def test_a_damaged_batch_is_a_row_in_mode_permissive(sql: SqlSession, damaged: Path) -> None:
    frame = load(sql, damaged, mode="PERMISSIVE", columnNameOfCorruptRecord="broken")
    assert frame.columns[-1] == "broken"
    rows = frame.where("broken IS NOT NULL").collect()
    assert [(row["topic"], row["offset"]) for row in rows] == [("orders", None)]
    assert "its checksum is wrong" in rows[0]["broken"]
    assert frame.where("offset IS NOT NULL").count() == 6


def test_a_damaged_batch_is_skipped_in_mode_dropmalformed(sql: SqlSession, damaged: Path) -> None:
    assert load(sql, damaged, mode="dropMalformed").count() == 6


def test_a_pattern_that_matches_no_topic_gives_an_empty_table(
    sql: SqlSession, log_dir: Path
) -> None:
    assert load(sql, log_dir, subscribePattern="nothing").count() == 0


def test_offsets_by_partition_work_as_in_sparks_own_source(sql: SqlSession, log_dir: Path) -> None:
    frame = load(
        sql,
        log_dir,
        startingOffsets=json.dumps({"orders": {"0": 4}, "payments": {"0": -2}}),
        endingOffsets=json.dumps({"orders": {"0": 7}, "payments": {"0": -1}}),
    )
    found = sorted((row["topic"], row["offset"]) for row in frame.collect())
    assert found == [("orders", n) for n in (4, 5, 6)] + [("payments", n) for n in range(6)]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a partition of three batches; the second has a flipped bit."""
    parts = batches.batches(3)
    log = bytearray(b"".join(parts))
    log[len(parts[0]) + 70] ^= 1
    path = tmp_path_factory.mktemp("damaged") / "orders-0"
    return log_directories.write_partition(path, {0: bytes(log)})
