"""SQL statements over log directories: what they read, and that no row is lost."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest

from builders import large_segments, log_directories
from builders.batches import batch, batches, record
from builders.large_segments import LargeSegment
from kdump.engine.spark import SparkEngine
from kdump.errors import KdumpError
from kdump.jobs.table_rows.table_reader import open_table
from kdump.pipeline.sql import sql_session
from kdump.pipeline.sql.sql_session import SqlSession, _Running
from kdump.pipeline.sql.sql_statements import StatementError, with_quoted_offset
from kdump.pipeline.sql.statement_needs import TableNeeds, statement_needs
from kdump.pipeline.sql.table_views import TaskEnd
from kdump.tables.kafka_log.pushed_filters import PushedFilters

pytestmark = pytest.mark.slow

NO_TOPIC: Final = PushedFilters(topics=frozenset())
MOMENT: Final = "2026-11-21 00:00:00"


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write partitions of three topics, one of them with several segments."""
    path = log_directories.write_log_directory(tmp_path_factory.mktemp("data"))
    for number in range(2):
        parts = {
            base: b"".join(
                batch([record(base + at + n, b"k%d" % n, b"v%d" % (base + at)) for n in range(5)])
                for at in range(0, 20, 5)
            )
            for base in (0, 20, 40)
        }
        log_directories.write_partition(path / f"orders-{number}", parts)
    log_directories.write_partition(path / "payments-0", {0: b"".join(batches(4))})
    segment = LargeSegment.of(300)
    large_segments.write(path, segment, index=segment.index(), topic="large")
    return path


@pytest.fixture(scope="module")
def session(running_spark: SparkEngine, log_dir: Path) -> Iterator[SqlSession]:
    assert running_spark.name == "spark"
    with SqlSession({"paths": json.dumps([str(log_dir)])}) as opened:
        yield opened


def rows(session: SqlSession, statement: str, most_rows: int | None = None) -> list[dict[str, Any]]:
    result = session.query(statement, most_rows)
    found = pa.Table.from_batches(list(result.batches), result.schema).to_pylist()
    assert result.problems == []
    return list(found)


def parsed(session: SqlSession, statement: str) -> Any:
    """Return Spark's plan of a statement, not analysed."""
    parser = session._sql._jsparkSession.sessionState().sqlParser()
    return parser.parsePlan(with_quoted_offset(statement))


def needs_of(session: SqlSession, statement: str) -> dict[str, TableNeeds]:
    """Return what the statement needs, as it is planned."""
    session.start()
    session._views.show_columns(session.tables)
    plan = session._checked_plan(parsed(session, statement))
    found = statement_needs(plan, session._pushed)
    assert found is not None
    return found


def filters_of(session: SqlSession, condition: str) -> PushedFilters:
    needs = needs_of(session, f"SELECT key FROM records WHERE {condition}")
    # Spark does not even ask for the table if no row can meet the condition.
    return needs["records"].filters if "records" in needs else NO_TOPIC


def splits_of(log_dir: Path, filters: PushedFilters) -> list[Any]:
    return list(open_table({"path": str(log_dir)}, ["offset"]).splits(filters))


def test_text_of_a_statement_is_not_replaced(session: SqlSession) -> None:
    """Records may have such a text, and Spark would put variables of the environment there."""
    text = "${env:PATH} ${system:user.home} ${spark.app.name}"

    assert rows(session, f"SELECT '{text}' AS text") == [{"text": text}]


def test_a_statement_reads_only_its_columns(session: SqlSession) -> None:
    needs = needs_of(
        session, "SELECT max(offset) FROM records WHERE topic LIKE 'o%' GROUP BY codec"
    )
    assert needs["records"].columns == frozenset({"offset", "topic", "codec"})
    assert needs_of(session, "SELECT count(*) FROM records")["records"].columns == frozenset()
    assert needs_of(session, "SELECT 1") == {}


@pytest.mark.parametrize(
    ("condition", "let_through", "left_out"),
    [
        ("topic = 'orders'", ("orders", 1, 3), ("payments", 0, 3)),
        ("topic IN ('orders', 'large')", ("large", 0, 3), ("payments", 0, 3)),
        ("topic LIKE 'pay%'", ("payments", 0, 1), ("orders", 0, 1)),
        ("partition = 1 AND offset >= 7", ("orders", 1, 7), ("orders", 1, 6)),
        ("offset BETWEEN 5 AND 7", ("orders", 0, 7), ("orders", 0, 8)),
        ("offset = 3 OR offset IN (6, 9)", ("orders", 0, 6), ("orders", 0, 10)),
        ("NOT offset < 10", ("orders", 0, 10), ("orders", 0, 9)),
        ("7L >= offset", ("orders", 0, 7), ("orders", 0, 8)),
        ("partition = '1'", ("orders", 1, 7), ("orders", 0, 7)),
        (
            f"offset IN ({','.join(map(str, range(20)))}) AND partition < 1",
            ("orders", 0, 19),
            ("orders", 0, 20),
        ),
    ],
)
def test_conditions_restrict_what_is_read(
    condition: str,
    let_through: tuple[str, int, int],
    left_out: tuple[str, int, int],
    session: SqlSession,
) -> None:
    filters = filters_of(session, condition)
    assert has(filters, *let_through)
    assert not has(filters, *left_out)


def has(
    filters: PushedFilters, topic: str, partition: int, offset: int, timestamp_ms: int | None = None
) -> bool:
    return (
        filters.has_topic(topic)
        and filters.has_partition(partition)
        and filters.offsets.has(offset)
        and (timestamp_ms is None or filters.timestamps_ms.has(timestamp_ms))
    )


@pytest.mark.parametrize(
    "condition",
    [
        "offset = 3 OR key IS NULL",
        "NOT (offset = 3)",
        "offset % 2 = 1",
        "offset + 1 > 30",
        "topic = 'orders' COLLATE UTF8_LCASE",
        "coalesce(offset, 0) > 5",
        "(offset > 5) IS NOT FALSE",
    ],
)
def test_other_conditions_restrict_nothing(condition: str, session: SqlSession) -> None:
    assert filters_of(session, condition) == PushedFilters()


def test_fewer_segments_and_bytes_are_read(session: SqlSession, log_dir: Path) -> None:
    everything = splits_of(log_dir, PushedFilters())
    some = splits_of(log_dir, filters_of(session, "topic = 'orders' AND offset >= 45"))
    paths = [each.path.name for group in some for each in group]
    assert paths == [f"{40:020d}.log"] * 2
    assert size_of(some) < size_of(everything) / 10
    narrow = splits_of(log_dir, filters_of(session, "topic = 'large' AND offset = 700"))
    assert size_of(narrow) < size_of(splits_of(log_dir, PushedFilters(topics=frozenset({"large"}))))


def size_of(groups: list[Any]) -> int:
    return sum(split.size_bytes for group in groups for split in group)


def test_a_statement_with_several_uses_of_a_table_reads_what_each_needs(
    session: SqlSession,
) -> None:
    found = rows(
        session,
        "WITH a AS (SELECT * FROM records WHERE offset = 3), b AS (SELECT * FROM records"
        " WHERE offset = 41) SELECT a.offset, b.offset AS other FROM a JOIN b USING (topic,"
        " partition) WHERE topic = 'orders' UNION ALL SELECT partition, count(*) FROM records"
        " WHERE topic = 'payments' GROUP BY ALL ORDER BY 1, 2",
    )
    assert found == [{"offset": 0, "other": 12}, *[{"offset": 3, "other": 41}] * 2]


def test_a_statement_can_stop_early(session: SqlSession) -> None:
    some = rows(session, "SELECT offset FROM records WHERE topic = 'large'", 3)
    assert [each["offset"] for each in some[:3]] == [0, 1, 2]
    assert len(some) < 900
    last = rows(session, "SELECT offset FROM records WHERE topic = 'large' ORDER BY 1 DESC", 2)
    assert [each["offset"] for each in last] == [899, 898]


@pytest.mark.parametrize("most_rows", [None, 2, 20])
@pytest.mark.parametrize(
    ("statement", "offsets"),
    [
        ("SELECT offset FROM records WHERE topic = 'large' LIMIT 3", [0, 1, 2]),
        ("SELECT offset FROM records WHERE topic = 'large' ORDER BY 1 DESC LIMIT 2", [899, 898]),
        ("SELECT offset FROM records WHERE topic = 'large' LIMIT 0", []),
        ("SELECT offset FROM records WHERE topic = 'large' LIMIT 1 + 1", [0, 1]),
        ("SELECT offset FROM records WHERE topic = 'large' ORDER BY 1 LIMIT 2 OFFSET 4", [4, 5]),
        ("SELECT offset FROM (SELECT offset FROM records ORDER BY 1 LIMIT 1)", [0]),
    ],
)
def test_a_limit_of_a_statement_is_exact(
    statement: str, offsets: list[int], most_rows: int | None, session: SqlSession
) -> None:
    found = [each["offset"] for each in rows(session, statement, most_rows)]
    assert found == offsets if most_rows != 2 else found[:2] == offsets[:2]


def test_a_limit_of_a_statement_ends_the_reading(session: SqlSession) -> None:
    started: list[range] = []
    collect = _Running.collect

    def counted(
        self: _Running, rdd: Any, partitions: range, *others: Any
    ) -> Iterator[pa.RecordBatch]:
        started.append(partitions)
        return collect(self, rdd, partitions, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Running, "collect", counted)
        rows(session, "SELECT offset FROM records WHERE topic = 'large' LIMIT 1")
    assert started == [range(1)]


def test_few_large_partitions_of_a_result_are_in_memory_at_a_time(
    session: SqlSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    waves: list[int] = []
    collect = sql_session._Running.collect

    def counted(running: Any, rdd: Any, partitions: range, *arguments: Any) -> Iterator[Any]:
        waves.append(len(partitions))
        return collect(running, rdd, partitions, *arguments)

    monkeypatch.setattr(sql_session._Running, "collect", counted)
    statement = "SELECT /*+ REPARTITION(12) */ offset, value FROM records WHERE topic = 'orders'"
    assert len(rows(session, statement)) == 120
    assert max(waves) > 1
    waves.clear()
    monkeypatch.setattr(sql_session, "_WAVE_BYTES", 1)
    assert len(rows(session, statement)) == 120
    assert waves == [1] * 12


def test_tasks_that_end_after_their_statement_do_not_count_for_the_next(
    session: SqlSession,
) -> None:
    session.start()
    stopped, running = (sql_session._Running(session._sql) for _ in range(2))
    taken: list[object] = []
    running.take = taken.append
    late, own = stopped.reports(), running.reports()
    late.add([TaskEnd()])
    assert taken == []
    own.add([TaskEnd()])
    assert taken == [TaskEnd()]


@pytest.mark.parametrize(
    "statement",
    [
        "WITH a AS (SELECT 1) INSERT INTO b SELECT * FROM a",
        "FROM records INSERT OVERWRITE DIRECTORY '/tmp/a' USING csv SELECT topic",
        "SELECT TRANSFORM (topic) USING 'cat' FROM records",
        "SELECT 1 WHERE EXISTS (SELECT TRANSFORM (topic) USING 'cat' FROM records)",
        "SELECT reflect('java.lang.System', 'exit', 1)",
        "SELECT system.builtin.java_method('java.lang.System', 'exit', 1)",
        "SELECT try_reflect('java.lang.System', 'exit', 1)",
        "SELECT * FROM csv.`/etc/passwd`",
        "SELECT nope FROM records",
        "SELECT 1/0",
        "SELECT CAST(topic AS INT) FROM records",
        "SELEC",
        "EXPLAIN INSERT INTO b SELECT 1",
        "EXPLAIN EXTENDED FROM records INSERT OVERWRITE DIRECTORY '/tmp/a' USING csv SELECT topic",
        "EXPLAIN CREATE TABLE a AS SELECT 1",
        "EXPLAIN CREATE TEMPORARY VIEW a AS SELECT 1",
        "EXPLAIN SELECT TRANSFORM (topic) USING 'cat' FROM records",
        "EXPLAIN SELECT reflect('java.lang.System', 'exit', 1)",
        "EXPLAIN EXPLAIN SELECT 1",
        "EXPLAIN SET spark.sql.ansi.enabled=false",
        "CREATE TEMPORARY VIEW a AS SELECT reflect('java.lang.System', 'exit', 1)",
        "CREATE TEMPORARY VIEW a AS SELECT TRANSFORM (topic) USING 'cat' FROM records",
        "CREATE TEMPORARY VIEW a AS SELECT * FROM csv.`/etc/passwd`",
        "CREATE TEMPORARY VIEW a USING csv OPTIONS (path '/etc/passwd')",
        "CREATE OR REPLACE TEMPORARY VIEW a AS FROM records INSERT INTO b SELECT topic",
        "CREATE OR REPLACE TEMPORARY VIEW `Records` AS SELECT 1",
        "CREATE TEMPORARY VIEW IDENTIFIER('rec' || 'ords') AS SELECT 1",
        "CREATE TEMPORARY VIEW IDENTIFIER('a') AS SELECT 1",
        "CREATE TEMPORARY VIEW a.b AS SELECT 1",
        "CREATE TEMPORARY VIEW a TBLPROPERTIES ('a' = 'b') AS SELECT 1",
        "DROP VIEW RECORDS",
        "DROP VIEW IDENTIFIER('rec' || 'ords')",
        "DROP VIEW default.a",
        "DROP VIEW nope",
        "SET spark.sql.warehouse.dir=/tmp/a",
        "SET `spark.sql.warehouse.dir`=/tmp/a",
        "SET SPARK.SQL.WAREHOUSE.DIR=/tmp/a",
        "SET /* a */ `Spark.Sql.Session.TimeZone` = `UTC`",
        "SET spark.sql.catalog.a=b",
        "SET spark.sql.runSQLOnFiles=true",
        "SET spark.sql.session.timeZone",
        "SET spark.sql.shuffle.partitions=many",
        "SET -v",
        "SET CATALOG a",
        "SET VARIABLE a = 1",
        "SET TIME ZONE 'nowhere'",
        "SET PATH = system.builtin",
    ],
)
def test_a_statement_that_is_wrong_or_writes_is_refused_in_one_line(
    statement: str, session: SqlSession
) -> None:
    with pytest.raises(StatementError) as caught:
        rows(session, statement)
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


@pytest.fixture
def own_session(running_spark: SparkEngine, log_dir: Path) -> Iterator[SqlSession]:
    """A session whose views and settings no other test sees."""
    assert running_spark.name == "spark"
    with SqlSession({"paths": json.dumps([str(log_dir)])}) as opened:
        yield opened


def changed(session: SqlSession, statement: str) -> str:
    result = session.query(statement)
    assert list(result.batches) == []
    assert result.done is not None
    return result.done


def test_a_view_reads_what_the_statement_needs_of_it(own_session: SqlSession) -> None:
    view = "CREATE TEMPORARY VIEW `große Köpfe` (o, t) AS SELECT offset, topic FROM records"
    assert changed(own_session, view) == "created view große Köpfe"
    changed(own_session, "CREATE TEMP VIEW b AS SELECT * FROM `große Köpfe` WHERE t = 'orders'")
    assert rows(own_session, "SELECT max(o) AS most FROM B WHERE o < 7") == [{"most": 6}]
    plan = rows(own_session, "EXPLAIN SELECT max(o) AS most FROM b WHERE o < 7")[-1]["plan"]
    assert plan == "records: columns offset, topic; topic orders; offset up to 6; 1 task"
    joined = (
        "SELECT count(*) AS n FROM b JOIN partitions p ON b.t = p.topic"
        " WHERE EXISTS (SELECT 1 FROM b AS c WHERE c.o = b.o + 1)"
    )
    inner = "(SELECT offset AS o, topic AS t FROM records WHERE topic = 'orders')"
    direct = joined.replace("FROM b JOIN", f"FROM {inner} AS b JOIN")
    direct = direct.replace("FROM b AS c", f"FROM {inner} AS c")
    assert rows(own_session, joined) == rows(own_session, direct)


def test_a_view_of_a_view_follows_the_one_below(own_session: SqlSession) -> None:
    changed(own_session, "CREATE TEMPORARY VIEW a AS SELECT topic FROM records")
    changed(own_session, "CREATE TEMPORARY VIEW b AS SELECT DISTINCT topic FROM a ORDER BY 1")
    assert [each["topic"] for each in rows(own_session, "TABLE b")] == [
        "large",
        "orders",
        "payments",
    ]
    changed(own_session, "CREATE OR REPLACE TEMPORARY VIEW a AS SELECT 'x' AS topic FROM topics")
    assert rows(own_session, "TABLE b") == [{"topic": "x"}]
    with pytest.raises(StatementError, match="already exists"):
        own_session.query("CREATE TEMPORARY VIEW A AS SELECT 1")
    with pytest.raises(StatementError, match=r"[Rr]ecursive"):
        own_session.query("CREATE OR REPLACE TEMPORARY VIEW a AS SELECT topic FROM b")
    assert changed(own_session, "DROP VIEW IF EXISTS A") == "dropped view A"
    assert own_session.views == ("b",)
    with pytest.raises(StatementError, match=r"^in the view b: the table or view `a` cannot be"):
        own_session.query("TABLE b")
    assert changed(own_session, "DROP VIEW IF EXISTS a") == "there was no view a"


def test_a_name_of_with_hides_a_view(own_session: SqlSession) -> None:
    changed(own_session, "CREATE TEMPORARY VIEW a AS SELECT 1 AS n")
    assert rows(own_session, "WITH a AS (SELECT 2 AS n) SELECT n FROM a") == [{"n": 2}]
    assert rows(own_session, "SHOW TABLES LIKE 'a'") == [
        {"namespace": "", "tableName": "a", "isTemporary": True}
    ]


def test_settings_are_those_of_all_later_statements(
    own_session: SqlSession, session: SqlSession
) -> None:
    """Some are read by Spark's parser, some in the tasks, some are set again for each statement."""
    quotient = "SELECT DISTINCT 1 / (partition - partition) AS a FROM records"
    with pytest.raises(StatementError, match="division by zero"):
        rows(own_session, quotient)
    changed(own_session, "SET spark.sql.ansi.enabled = false")
    changed(own_session, "SET TIME ZONE 'Asia/Tokyo'")
    changed(own_session, "SET `spark.sql.shuffle.partitions`=`3`")
    assert rows(own_session, quotient) == [{"a": None}]
    hour = "SELECT DISTINCT hour(timestamp_millis(partition * 0)) AS h FROM records"
    assert rows(own_session, hour) == [{"h": 9}]
    plan = rows(own_session, "EXPLAIN SELECT topic FROM segments DISTRIBUTE BY topic")
    assert any("hashpartitioning" in each["plan"] and ", 3)" in each["plan"] for each in plan)
    assert rows(session, hour) == [{"h": 0}]


def test_a_plan_is_explained_and_nothing_is_run(session: SqlSession) -> None:
    statement = "SELECT assert_true(offset < 0) FROM records WHERE topic LIKE 'o%'"
    for mode in ("", "EXTENDED", "CODEGEN", "COST", "FORMATTED"):
        plan = rows(session, f"EXPLAIN {mode} {statement}")
        assert plan[-1]["plan"].startswith("records: columns offset, topic; topics that begin")
    nothing = rows(session, "EXPLAIN SELECT 1")
    assert [each["plan"] for each in nothing[-2:]] == [
        "== Read from the log directories ==",
        "nothing",
    ]


def test_a_column_that_was_not_read_is_never_a_wrong_value(
    session: SqlSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = lambda plan, pushed: {"records": TableNeeds(frozenset({"topic"}))}  # noqa: E731
    monkeypatch.setattr(sql_session, "statement_needs", nothing)
    monkeypatch.setattr(sql_session, "mentions", lambda plan, text: False)
    with pytest.raises(KdumpError, match=r"kdump has not read column records\.offset"):
        rows(session, "SELECT topic, offset FROM records")


def test_a_branch_that_spark_keeps_only_without_its_columns_is_read(session: SqlSession) -> None:
    """Spark sees that the first branch is empty only if it knows the column of its condition."""
    statement = (
        "SELECT count(value) FROM (SELECT * FROM records WHERE offset BETWEEN 392 AND 35.0"
        " AND partition BETWEEN 0.5D AND 0.5D UNION ALL SELECT * FROM records WHERE partition = 1)"
        " WHERE (0 = partition OR partition != 0.5D) AND NOT (partition <= 0 AND offset + 1 > 28.0)"
    )
    assert rows(session, statement) == [{"count(value)": 60}]


# Random conditions


COLUMNS: Final = {
    "offset": ["0", "3", "7", "41", "899", "-1", "9223372036854775807"],
    "partition": ["0", "1", "2", "-1"],
    "topic": ["'orders'", "'payments'", "'large'", "''", "'Orders'"],
    "timestamp": [
        f"TIMESTAMP '{MOMENT}'",
        "TIMESTAMP '2026-11-21 05:00:00.001'",
        "TIMESTAMP '1970-01-01 00:00:00'",
        "TIMESTAMP '2100-01-01 00:00:00.0005'",
    ],
}


OF_BATCHES: Final = {
    "base_offset": COLUMNS["offset"],
    "last_offset": COLUMNS["offset"],
    "max_timestamp": COLUMNS["timestamp"],
    "topic": COLUMNS["topic"],
}


def random_condition(
    chance: random.Random, depth: int = 2, columns: Mapping[str, list[str]] = COLUMNS
) -> str:
    """Make a condition that Spark and DuckDB read alike."""
    if depth and chance.random() < 0.6:
        parts = [random_condition(chance, depth - 1, columns) for _ in range(2)]
        joined = f" {chance.choice(['AND', 'OR'])} ".join(f"({part})" for part in parts)
        return f"NOT ({joined})" if chance.random() < 0.2 else joined
    column = chance.choice(list(columns))
    values = columns[column]
    one, other = chance.choice(values), chance.choice(values)
    kind = chance.randrange(7)
    if kind == 0:
        return f"{column} IN ({one}, {other}, {chance.choice([one, 'NULL'])})"
    if kind == 1:
        return f"{column} NOT IN ({one}, {other})"
    if kind == 2:
        return f"{column} BETWEEN {one} AND {other}"
    if kind == 3:
        return f"{column} IS {chance.choice(['', 'NOT '])}NULL"
    if kind == 4 and column == "topic":
        return f"topic LIKE '{chance.choice(['o%', 'pay%', '%s', 'l_rge'])}'"
    comparison = chance.choice(["=", "<", "<=", ">", ">=", "<>"])
    sides = [column, one] if chance.random() < 0.7 else [one, column]
    return f"{sides[0]} {comparison} {sides[1]}"


@pytest.fixture(scope="module")
def judge(log_dir: Path) -> duckdb.DuckDBPyConnection:
    """Return DuckDB with all records, read without Spark."""
    reader = open_table({"path": str(log_dir)}, ["topic", "partition", "offset", "timestamp"])
    everything = [
        found
        for split in reader.splits(PushedFilters())
        for found in reader.read(split, PushedFilters())
    ]
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("records", pa.Table.from_batches(everything))
    return connection


def test_no_row_that_meets_a_random_condition_is_left_out(
    session: SqlSession, judge: duckdb.DuckDBPyConnection
) -> None:
    chance = random.Random(7)
    restricted = 0
    for _ in range(8):
        condition = random_condition(chance)
        filters = filters_of(session, condition)
        restricted += filters != PushedFilters()
        quoted = re.sub(r"\b(offset|partition|timestamp)\b", r'"\1"', condition)
        wanted = judge.execute(
            'SELECT DISTINCT topic, "partition", "offset", epoch_ms("timestamp") FROM records'
            f" WHERE {quoted}"
        ).fetchall()
        assert all(has(filters, *row) for row in wanted), condition
    assert restricted > 2


TEMPLATES: Final = (
    "SELECT topic, partition, offset, value FROM records WHERE {0}",
    "SELECT topic, count(*), sum(offset), max(timestamp) FROM records WHERE {0} GROUP BY topic",
    "SELECT count(*) FROM records WHERE {0}",
    (
        "SELECT a.topic, b.offset, a.key FROM (SELECT * FROM records WHERE {0}) a"
        " JOIN records b USING (topic, partition, offset)"
    ),
    (
        "SELECT offset FROM (SELECT * FROM records WHERE {0}) UNION ALL"
        " SELECT partition FROM records WHERE {1}"
    ),
    (
        "WITH a AS (SELECT * FROM records WHERE {0}) SELECT a.offset, b.n FROM a LEFT JOIN"
        " (SELECT topic, count(*) AS n FROM records WHERE {1} GROUP BY topic) b USING (topic)"
    ),
    (
        "SELECT topic, offset FROM records WHERE offset IN (SELECT offset FROM records WHERE {0})"
        " AND ({1})"
    ),
    (
        "SELECT topic, offset FROM records r WHERE NOT EXISTS (SELECT 1 FROM records s WHERE"
        " s.topic = r.topic AND s.offset = r.offset + 1 AND s.partition = 0) AND ({0})"
    ),
    "SELECT topic, (SELECT max(offset) FROM records WHERE {0}) FROM records WHERE {1}",
    (
        "SELECT topic, offset, rank() OVER (PARTITION BY topic, partition ORDER BY offset)"
        " FROM records WHERE {0}"
    ),
    "SELECT topic, partition, base_offset, max_timestamp FROM batches WHERE {0}",
    (
        "SELECT topic, count(*), max(last_offset) FROM (SELECT * FROM batches WHERE {0})"
        " WHERE {1} GROUP BY topic"
    ),
)


@pytest.mark.soak
def test_fifty_statements_give_the_rows_of_their_unfiltered_twins(
    session: SqlSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(50)
    for number in range(50):
        template = TEMPLATES[number % len(TEMPLATES)]
        columns = OF_BATCHES if "batches" in template else COLUMNS
        conditions = [random_condition(chance, columns=columns) for _ in range(2)]
        statement = template.format(*conditions)
        filtered = rows(session, statement)
        with monkeypatch.context() as patch:
            patch.setattr(sql_session, "statement_needs", lambda plan, pushed: None)
            twin = rows(session, statement)
        assert sorted(map(str, filtered)) == sorted(map(str, twin)), statement
