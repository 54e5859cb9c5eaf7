"""``kdump query``: its arguments, its output, and what it says of damage."""

from __future__ import annotations

import base64
import csv
import io
import shlex
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer
from docutils import nodes

from builders import log_directories, schema_topic
from builders.batches import batch, batches, record
from builders.in_process import Outcome, run_kdump, run_on_terminal
from builders.json_answers import all_objects, objects
from builders.json_schemas import problem_of_answer
from builders.manual import document_of
from builders.trees import contents_of
from builders.verified import LogModel
from cli.test_exit_statuses import CELLS
from kdump.engine.spark import SparkEngine

HOSTILE: Final = (b"=cmd()", b"a,\"b\"\n'c'", "\u202e\x1b[2J<script>".encode(), b"\xff\x00", None)


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a directory with a topic of hostile values, and two as people have them."""
    path = log_directories.write_log_directory(tmp_path_factory.mktemp("a b%20`c`") / "logs")
    values = [record(at, b"k%d" % at, value) for at, value in enumerate(HOSTILE)]
    log_directories.write_partition(path / "hostile-0", {0: batch(values)})
    for topic in ("orders", "payments"):
        log_directories.write_partition(path / f"{topic}-0", {0: b"".join(batches(3))})
    return path


def query(*args: str | Path) -> Outcome:
    return run_kdump(["query", *map(str, args)], Path.cwd())


def said(outcome: Outcome) -> str:
    return (outcome.stdout + outcome.stderr).decode()


# Arguments, for which Spark does not run


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (["SELECT 1"], 16, "missing DIR after the statement"),
        (["DIR", "SELECT 1"], 16, "a statement comes before the directories: SELECT 1"),
        (["SELECT 1", "SELECT 2", "DIR"], 16, "a statement comes before the directories: SELECT 2"),
        (["INSERT INTO a SELECT 1", "DIR"], 16, "runs only statements that read: they begin with"),
        (["my logs", "DIR"], 8, "my logs: No such file or directory; a statement begins with"),
        (["--file", "/dev/null", "DIR"], 16, "the file has no statement"),
        (["no-such", "DIR"], 8, "no-such: No such file or directory\n"),
        (
            ["SELECT 1", "EMPTY"],
            8,
            "empty: not a Kafka log directory or partition; it is empty: is its disk mounted?",
        ),
        (["/* ; */ SELECT 1; DROP TABLE a", "DIR"], 16, "SET, and nothing else is dropped"),
        (["CREATE TABLE a AS SELECT 1", "DIR"], 16, "SET, and nothing else is created"),
        (["CACHE TABLE records", "DIR"], 16, "DROP VIEW or SET, not with CACHE"),
        (["--output", "parquet", "SELECT 1", "DIR"], 16, "--output parquet requires --out FILE"),
        (
            ["--out", "/tmp/no-such.parquet", "SELECT 1", "DIR"],
            16,
            "--out requires --output parquet",
        ),
        (["--force", "SELECT 1", "DIR"], 16, "--force requires --out"),
        (
            ["--output", "parquet", "--out", "OUT", "SELECT 1; SET a=b; TABLE b", "DIR"],
            16,
            "--output parquet takes one statement with rows, not 2",
        ),
        (["DIR"], 16, "a prompt needs a terminal"),
        (["--output", "csv", "DIR"], 16, "--output csv requires a statement"),
    ],
)
def test_wrong_arguments_are_explained(
    args: list[str], status: int, message: str, log_dir: Path, tmp_path: Path
) -> None:
    directories = {"DIR": log_dir, "EMPTY": tmp_path / "empty", "OUT": tmp_path / "out"}
    directories["EMPTY"].mkdir()
    outcome = query(*(directories.get(word, word) for word in args))
    assert message in said(outcome)
    assert outcome.exit_status == status


def test_a_directory_may_look_like_a_statement(tmp_path: Path) -> None:
    log_directories.write_log_directory(tmp_path / "select")
    outcome = run_kdump(["query", "./select"], tmp_path)
    assert "a prompt needs a terminal" in said(outcome)


# Output


@pytest.mark.slow
@pytest.mark.usefixtures("running_spark")
class TestOutput:
    """What is printed in each format."""

    STATEMENT: Final = "SELECT offset, key, value FROM records WHERE topic = 'hostile' ORDER BY 1"

    def test_programs_get_every_byte_as_base64(self, log_dir: Path) -> None:
        answer = all_objects(query("--output", "json", self.STATEMENT, log_dir).stdout)
        assert problem_of_answer("query", answer) is None
        found = [each["row"]["value"] for each in answer if each["type"] == "row"]
        encoded = [None if each is None else base64.b64encode(each).decode() for each in HOSTILE]
        assert found == encoded
        text = query("--output", "csv", self.STATEMENT, log_dir).stdout.decode()
        read = list(csv.DictReader(io.StringIO(text)))
        assert [each["value"] for each in read] == [each or "" for each in encoded]

    def test_people_see_text_without_control_characters(self, log_dir: Path) -> None:
        text = query(self.STATEMENT, log_dir).stdout.decode()
        lines = text.splitlines()
        assert [line.split() for line in lines[:2]] == [
            ["OFFSET", "KEY", "VALUE"],
            ["0", "k0", "=cmd()"],
        ]
        assert lines[4].endswith("\\xff\\x00")
        assert lines[5].endswith("NULL")
        assert text.replace("\n", "").isprintable()

    def test_a_time_after_the_year_9999_is_a_number(self, log_dir: Path) -> None:
        """A producer that takes microseconds for milliseconds writes such times."""
        time = "timestamp_millis(760206902400000)"
        statement = f"SELECT {time} AS time, array({time}) AS times, timestamp_millis(0) AS zero"
        answer = objects(query("--output", "jsonl", statement, log_dir).stdout)
        (row,) = (each["row"] for each in answer if each["type"] == "row")
        assert row == {
            "time": "760206902400000 ms",
            "times": [760206902400000000],
            "zero": "1970-01-01T00:00:00.000Z",
        }

    def test_a_parquet_file_has_all_types(self, log_dir: Path, tmp_path: Path) -> None:
        out = tmp_path / "a.parquet"
        statement = "SELECT *, 1.5 AS decimal, map('a', 1) AS map FROM records WHERE offset < 2"
        outcome = query("--output", "parquet", "--out", out, statement, log_dir)
        assert (outcome.exit_status, outcome.stderr) == (0, b"")
        table = pq.read_table(out)
        assert table.num_rows == 6
        assert [str(table.schema.field(name).type) for name in ("value", "timestamp", "map")] == [
            "binary",
            "timestamp[us, tz=UTC]",
            "map<string, int32 ('map')>",
        ]
        refused = query("--output", "parquet", "--out", out, statement, log_dir)
        assert "exists" in said(refused)
        assert refused.exit_status == 16

    def test_values_of_all_types(self, log_dir: Path) -> None:
        statement = (
            "SELECT TIMESTAMP '2026-11-21 05:00:00.5' AS t, DATE '2026-11-21' AS d, 1.50 AS n,"
            " double('NaN') AS f, array(X'ff', NULL) AS a, map('a', X'61') AS m,"
            " named_struct('b', true) AS s, NULL AS z, INTERVAL '26' HOUR AS i,"
            " array(INTERVAL '3' MONTH) AS y, make_interval(1, 2) AS c,"
            " parse_json('{\"a\":1}') AS v"
        )
        (row,) = [
            each["row"]
            for each in objects(query("--output", "jsonl", statement, log_dir).stdout)
            if each["type"] == "row"
        ]
        assert row == {
            "t": "2026-11-21T05:00:00.500Z",
            "d": "2026-11-21",
            "n": "1.50",
            "f": "NaN",
            "a": ["/w==", None],
            "m": {"a": "YQ=="},
            "s": {"b": True},
            "z": None,
            "i": "INTERVAL '26' HOUR",
            "y": ["INTERVAL '3' MONTH"],
            "c": "1 years 2 months",
            "v": '{"a":1}',
        }

    def test_csv_has_quotes_around_an_empty_text_and_nothing_for_null(self, log_dir: Path) -> None:
        statement = "SELECT NULL AS n, '' AS e, X'' AS b, 'a \"b\"' AS q, ',' AS c"
        text = query("--output", "csv", statement, log_dir).stdout.decode()
        assert text == 'n,e,b,q,c\n,"","","a ""b""",","\n'
        one = query("--output", "csv", "SELECT NULL AS n", log_dir).stdout.decode()
        assert one == 'n\n""\n'

    def test_programs_need_different_names(self, log_dir: Path) -> None:
        outcome = query("--output", "csv", "SELECT 1 AS a, 2 AS a", log_dir)
        assert "more than one is named 'a': name one with AS" in said(outcome)
        assert outcome.exit_status == 16

    def test_a_limit_is_said(self, log_dir: Path) -> None:
        outcome = query("--limit", "2", "SELECT topic FROM records ORDER BY 1", log_dir)
        assert outcome.stdout.decode().splitlines() == [
            "TOPIC",
            "hostile",
            "hostile",
            "",
            "The first 2 rows; there are more: --limit 0 prints all",
        ]
        assert query("--limit", "1", "SELECT 1 AS a", log_dir).stdout == b"A\n1\n"

    def test_a_narrow_terminal_shows_rows_as_blocks(self, log_dir: Path) -> None:
        statement = "SELECT * FROM records WHERE topic = 'orders' AND offset = 4"
        lines = run_on_terminal(["query", "--no-progress", statement, str(log_dir)], Path.cwd(), 80)
        assert "offset:            4" in lines
        assert lines[-1] == "1 row"
        short = ["query", "--no-progress", "SELECT 1 AS a", str(log_dir)]
        assert run_on_terminal(short, Path.cwd(), 80) == ["A", "1", "", "1 row"]

    def test_statements_of_a_file_are_run_in_order(self, log_dir: Path, tmp_path: Path) -> None:
        script = tmp_path / "a.sql"
        script.write_text("SELECT 'x;' AS a; -- b\n\nSELECT 2 AS b;")
        assert query("--file", script, log_dir).stdout == b"A\nx;\n\nB\n2\n"

    SCRIPT: Final = (
        "SET TIME ZONE 'Asia/Tokyo'; CREATE TEMPORARY VIEW a AS SELECT 1 AS a, 'x' AS b;"
        "TABLE a; DROP VIEW a; SELECT 2 AS c WHERE false; SELECT hour(timestamp_millis(0)) AS d"
    )

    def test_programs_get_the_results_of_several_statements_in_order(self, log_dir: Path) -> None:
        for form in ("json", "jsonl"):
            answer = all_objects(query("--output", form, self.SCRIPT, log_dir).stdout)
            assert problem_of_answer("query", answer) is None
            results = [
                (each.get("statement"), each.get("row"), each.get("rows")) for each in answer[1:-1]
            ]
            assert results == [
                (3, None, None),
                (None, {"a": 1, "b": "x"}, None),
                (None, None, 1),
                (5, None, None),
                (None, None, 0),
                (6, None, None),
                (None, {"d": 9}, None),
                (None, None, 1),
            ]

    def test_ndjson_has_only_the_rows(self, log_dir: Path) -> None:
        statements = "SELECT 'a' AS name, 1 AS n; SELECT unhex('ff') AS data, NULL AS n"
        outcome = query("--output", "ndjson", statements, log_dir)
        assert outcome.stdout == b'{"name":"a","n":1}\n{"data":"/w==","n":null}\n'

    def test_ndjson_says_elsewhere_that_there_are_more_rows(self, log_dir: Path) -> None:
        outcome = query("--output", "ndjson", "--limit", "1", "VALUES (1), (2)", log_dir)
        assert outcome.stdout == b'{"col1":1}\n'
        assert b"there are more" in outcome.stderr

    def test_csv_has_an_empty_line_between_results(self, log_dir: Path) -> None:
        outcome = query("--output", "csv", self.SCRIPT, log_dir)
        assert outcome.stdout == b"a,b\n1,x\n\nc\n\nd\n9\n"

    def test_a_parquet_file_may_have_a_view(self, log_dir: Path, tmp_path: Path) -> None:
        script = "CREATE TEMPORARY VIEW a AS SELECT 7 AS b; TABLE a; DROP VIEW a"
        out = tmp_path / "a.parquet"
        outcome = query("--output", "parquet", "--out", out, script, log_dir)
        assert (outcome.exit_status, outcome.stderr) == (0, b"")
        assert pq.read_table(out).to_pylist() == [{"b": 7}]

    def test_what_was_printed_before_a_wrong_statement_is_complete(self, log_dir: Path) -> None:
        outcome = query("--output", "json", "SELECT 1 AS a; SELECT nope FROM records", log_dir)
        answer = all_objects(outcome.stdout)
        assert [each["type"] for each in answer[1:]] == ["columns", "row", "summary", "end"]
        assert answer[-1]["exit_status"] == outcome.exit_status == 16

    def test_a_plan_is_text_with_what_would_be_read(self, log_dir: Path) -> None:
        statement = "EXPLAIN SELECT key FROM records WHERE topic = 'orders' AND offset < 2"
        lines = query(statement, log_dir).stdout.decode().splitlines()
        assert lines[:2] == ["PLAN", "== Physical Plan =="]
        assert lines[-1] == (
            "records: columns key, offset, topic; topic orders; offset up to 1; 1 task"
        )

    @pytest.mark.parametrize(
        ("wrong", "expected"),
        [
            ("SELECT\n  nope FROM records", "line 4, column 3: "),
            ("SELECT 3 AS c; SELCT 4", "line 3: kdump query runs only"),
            ("SELECT 3 AS c;   SELECT FROM", "line 3, column "),
            ("\n/* why */ SET a.b=1", "line 4: a.b cannot be set"),
            ("\n\nEXPLAIN INSERT INTO a SELECT 1", "line 5: kdump query runs only"),
            ("DROP\nVIEW a", "line 3: there is no view a"),
        ],
    )
    def test_what_is_wrong_in_a_file_has_the_line_of_the_file(
        self, wrong: str, expected: str, log_dir: Path, tmp_path: Path
    ) -> None:
        script = tmp_path / "a.sql"
        script.write_text(f"SELECT 1 AS a;\n-- why\n{wrong};\n")
        error = query("--file", script, log_dir).stderr.decode()
        assert error.startswith(f"kdump: {script}: {expected}")

    def test_a_wrong_statement_is_one_line_with_its_place(self, log_dir: Path) -> None:
        outcome = query("SELECT\n  nope FROM records", log_dir)
        (line,) = outcome.stderr.decode().splitlines()
        assert line.startswith("kdump: line 2, column 3: ")
        assert "`nope`" in line
        assert (outcome.stdout, outcome.exit_status) == (b"", 16)

    def test_nothing_is_written_to_the_log_directory(self, log_dir: Path) -> None:
        before = contents_of(log_dir)
        run_kdump(["query", "SELECT count(*) FROM records", "."], log_dir)
        assert contents_of(log_dir) == before


# Damage


@pytest.mark.slow
@pytest.mark.usefixtures("running_spark")
def test_texts_are_decoded_by_the_schemas_beside_the_data(tmp_path: Path) -> None:
    client = schema_topic.new_client()
    avro = AvroSerializer(client, '{"type": "map", "values": "long"}')
    values = [avro({"id": at}, schema_topic.context("orders")) for at in range(3)]
    root = log_directories.write_log_directory(tmp_path / "logs")
    rows = [record(at, b"k", value) for at, value in enumerate([*values, b"\0\0\0\1\xc8"])]
    log_directories.write_partition(root / "orders-0", {0: batch(rows)})
    records = [schema_topic.schema_record(one) for one in schema_topic.registered(client)]
    schema_topic.write_schemas_topic(root, records)
    statement = "SELECT key_text, value_text FROM records WHERE topic = 'orders' ORDER BY offset"
    options = ["--value-format", "avro", "--output", "jsonl"]
    for place in ([root], [root / "orders-0"], [root / "orders-0", "--schemas", root]):
        outcome = query(*options, statement, *place)
        assert outcome.exit_status == 8
        assert b"record cannot be decoded (first: offset 3, value: no schema" in outcome.stderr
        rows_found = [each["row"] for each in objects(outcome.stdout) if each["type"] == "row"]
        assert [each["key_text"] for each in rows_found] == ["k"] * 4
        texts = [each["value_text"] for each in rows_found]
        assert texts == ['{"id":0}', '{"id":1}', '{"id":2}', None]
    missing = query(*options, statement, root, "--schemas", tmp_path / "nowhere")
    assert missing.exit_status == 8
    assert b"nowhere: No such file or directory" in missing.stderr


@pytest.mark.slow
@pytest.mark.parametrize("expected", CELLS["query"])
def test_each_status_of_the_manual_occurs(
    expected: int, running_spark: SparkEngine, tmp_path: Path
) -> None:
    assert running_spark.name == "spark"
    root = LogModel().write(tmp_path / "logs").parent
    args, happening = CELLS["query"][expected]
    happening(root)
    outcome = run_kdump(args, root)
    assert outcome.exit_status == expected
    assert (b"skipped" in outcome.stderr) == (expected == 4)


# The manual


def recipes() -> list[str]:
    """Return the commands of the manual page."""
    blocks = [each.astext() for each in document_of("kdump-query").findall(nodes.literal_block)]
    return [text for text in blocks if text.startswith("kdump query")]


@pytest.mark.soak
@pytest.mark.usefixtures("running_spark")
def test_the_recipes_of_the_manual_run_as_printed(log_dir: Path, tmp_path: Path) -> None:
    found = recipes()
    assert len(found) >= 12
    for text in found:
        words = shlex.split(text.replace("\\\n", " "))[1:]
        words = [word.replace("/tmp/", f"{tmp_path}/") for word in words]
        words[-1] = str(log_dir)
        outcome = run_kdump(words, tmp_path)
        assert (outcome.exit_status, outcome.stderr) == (0, b""), text
