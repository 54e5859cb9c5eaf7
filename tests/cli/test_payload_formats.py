"""``--key-format`` and ``--value-format``: payloads of Confluent's serializers as text."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField
from google.type import money_pb2

from builders.batches import batch, record
from builders.in_process import run_kdump
from builders.json_answers import all_objects, objects
from builders.json_schemas import problem_of_answer, problem_of_document
from builders.log_directories import write_log_directory, write_partition
from builders.message_sets import message
from builders.schema_topic import (
    context,
    new_client,
    registered,
    schema_record,
    write_schemas_topic,
)

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "payloads.md"
LOG: Final = f"{0:020d}.log"
ORDER: Final = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}],
}
UNKNOWN: Final = b"\0\0\0\x01\xc8\xff"
Row = dict[str, Any]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with the schemas and one record of each kind of payload."""
    client = new_client()
    avro = AvroSerializer(client, json.dumps(ORDER))
    text = AvroSerializer(client, '"string"')
    schema = {"type": "object", "title": "Note"}
    values = [
        avro({"id": 1, "note": "grüße"}, context("orders")),
        ProtobufSerializer(money_pb2.Money, client)(
            money_pb2.Money(currency_code="EUR", units=12), context("prices")
        ),
        JSONSerializer(json.dumps(schema), client)({"note": "hello"}, context("notes")),
        b"plain text",
        UNKNOWN,
        None,
    ]
    keys = [text(f"key-{number}", context("orders", MessageField.KEY)) for number in range(5)]
    root = write_log_directory(tmp_path_factory.mktemp("payloads") / "logs")
    rows = [
        record(n, key, value)
        for n, (key, value) in enumerate(zip([*keys, None], values, strict=True))
    ]
    write_partition(root / "orders-0", {0: batch(rows)})
    write_schemas_topic(root, [schema_record(one) for one in registered(client)])
    return root


def rows_of(words: list[str], root: Path, *, expected: int = 0) -> list[Row]:
    outcome = run_kdump([*words, "--output", "json"], root)
    assert outcome.exit_status == expected, outcome.stderr
    assert problem_of_answer(words[0], all_objects(outcome.stdout)) is None
    return [row for row in objects(outcome.stdout) if row["type"] == "record"]


def test_dump_segment_decodes_values_by_the_schemas_of_the_same_log_directory(root: Path) -> None:
    rows = rows_of(["dump-segment", f"orders-0/{LOG}", "--value-format", "auto"], root)
    assert [row["decoded_value"] for row in rows] == [
        '{"id":1,"note":"grüße"}',
        '{"currencyCode":"EUR","units":"12","nanos":0}',
        '{"note":"hello"}',
        "plain text",
        None,
        None,
    ]
    assert [row["value_problem"] for row in rows][3:] == [None, "no schema has id 456", None]
    assert rows[4]["value_encoding"] == "base64"
    assert "decoded_key" not in rows[0]


def test_grep_finds_decoded_text_and_shows_it(root: Path) -> None:
    (row,) = rows_of(
        ["grep", '"id":1\\b', ".", "--topic", "orders", "--value-format", "auto"],
        root,
        expected=8,
    )
    assert (row["offset"], row["decoded_value"]) == (0, '{"id":1,"note":"grüße"}')
    outcome = run_kdump(["grep", 'key-[03]"$', "orders-0", "--key-format", "avro"], root)
    lines = outcome.stdout.decode(errors="replace").splitlines()
    assert [line.partition(" key: ")[2][:7] for line in lines] == ['"key-0"', '"key-3"']


EXPORTED: Final = ("--partition", "orders-*", "--value-format", "auto", "--key-format", "hex")


def exported(out: Path, root: Path, *options: str, expected: int = 8) -> list[Row]:
    """Export, and return the rows of the files."""
    outcome = run_kdump(["export", "--out", str(out), ".", *options], root)
    assert outcome.exit_status == expected, outcome.stderr
    manifest = json.loads((out / "_manifest.json").read_text())
    assert problem_of_document("export-manifest", manifest) is None
    tables = [pq.ParquetFile(path).read() for path in sorted(out.rglob("*.parquet"))]
    rows: list[Row] = pa.concat_tables(tables).to_pylist()
    return rows


def test_exported_files_have_the_text_that_dump_segment_has(root: Path, tmp_path: Path) -> None:
    dumped = rows_of(["dump-segment", f"orders-0/{LOG}", *EXPORTED[2:]], root)
    wanted = [(row["decoded_key"], row["decoded_value"]) for row in dumped]
    found = exported(tmp_path / "out", root, *EXPORTED)
    assert [(row["key_text"], row["value_text"]) for row in found] == wanted
    assert found[4]["value"] == UNKNOWN

    options = (*EXPORTED, "--format", "jsonl", "--columns", "offset,value_text")
    outcome = run_kdump(["export", "--out", str(tmp_path / "text"), ".", *options], root)
    assert outcome.exit_status == 8
    (path,) = (tmp_path / "text").rglob("*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["key_text"], line["value_text"]) for line in lines] == wanted


def test_an_export_counts_what_it_cannot_decode_also_when_it_is_run_again(
    root: Path, tmp_path: Path
) -> None:
    words = ["export", "--out", str(tmp_path / "out"), ".", *EXPORTED, "--output", "jsonl"]
    for written in (1, 0):
        outcome = run_kdump(words, root)
        assert outcome.exit_status == 8
        assert b"record cannot be decoded (first: offset 4, value: no schema has" in outcome.stderr
        row, summary = objects(outcome.stdout)
        assert problem_of_answer("export", all_objects(outcome.stdout)) is None
        assert row["undecoded_records"] == summary["undecoded_records"] == 1
        assert (summary["written"], summary["is_complete"]) == (written, True)
    manifest = json.loads((tmp_path / "out" / "_manifest.json").read_text())
    assert manifest["totals"]["undecoded_records"] == 1


@pytest.mark.parametrize("magic", [0, 2])
def test_grep_counts_what_it_cannot_decode(magic: int, tmp_path: Path) -> None:
    log = batch([record(0, None, UNKNOWN)]) if magic == 2 else message(0, value=UNKNOWN)
    partition = write_partition(tmp_path / "orders-0", {0: log})
    words = ["grep", "x", str(partition), "--value-format", "string", "--output", "json"]
    outcome = run_kdump(words, tmp_path)
    assert outcome.exit_status == 8 | 1
    assert b"of 1 record cannot be decoded (first: offset 0, value: it is not" in outcome.stderr
    (summary,) = objects(outcome.stdout)
    assert problem_of_answer("grep", all_objects(outcome.stdout)) is None
    assert summary["undecoded_records"] == 1


def test_an_export_is_not_continued_with_other_formats(root: Path, tmp_path: Path) -> None:
    exported(tmp_path / "out", root, *EXPORTED)
    for other in ((), ("--value-format", "json"), (*EXPORTED[2:], "--schemas", ".")):
        words = ["export", "--out", str(tmp_path / "out"), ".", *EXPORTED[:2], *other]
        outcome = run_kdump(words, root)
        assert (outcome.exit_status, b"with other options" in outcome.stderr) == (16, True)


def test_files_are_exported_again_if_the_schemas_change(tmp_path: Path) -> None:
    root = write_log_directory(tmp_path / "logs")
    write_partition(root / "orders-0", {0: batch([record(0, None, b"\0\0\0\0\1\x02a")])})
    rows = exported(tmp_path / "out", root, "--topic", "orders", "--value-format", "avro")
    assert [(row["value_text"], row["value_problem"]) for row in rows] == [
        (None, "no schema has id 1")
    ]
    client = new_client()
    AvroSerializer(client, '"string"')("", context("orders"))
    write_schemas_topic(root, [schema_record(one) for one in registered(client)])
    words = ("--topic", "orders", "--value-format", "avro")
    rows = exported(tmp_path / "out", root, *words, expected=0)
    assert [(row["value_text"], row["value_problem"]) for row in rows] == [('"a"', None)]


def test_nothing_is_exported_if_the_schemas_cannot_be_read(root: Path, tmp_path: Path) -> None:
    words = ["export", "--out", str(tmp_path / "out"), ".", *EXPORTED, "--schemas", "none"]
    outcome = run_kdump(words, root)
    assert (outcome.exit_status, b"nothing is exported" in outcome.stderr) == (8, True)
    assert not (tmp_path / "out").exists()


def test_lines_have_the_text_or_the_bytes_with_the_reason(root: Path) -> None:
    words = ["dump-segment", f"orders-0/{LOG}", "--value-format", "auto", "--key-format", "hex"]
    outcome = run_kdump(words, root)
    lines = outcome.stdout.decode().splitlines()
    assert [line.partition(" payload: ")[2] for line in lines if line.startswith("| ")] == [
        '{"id":1,"note":"grüße"}',
        '{"currencyCode":"EUR","units":"12","nanos":0}',
        '{"note":"hello"}',
        "plain text",
        "00000001c8ff (no schema has id 456)",
        "",
    ]
    assert " key: 00000000040a6b65792d30 " in lines[3]


@pytest.mark.parametrize("words", [["ls"], ["grep", "plain", "orders-0"]], ids=["ls", "grep"])
def test_without_a_format_nothing_is_decoded(words: list[str], root: Path) -> None:
    assert b"EUR" not in run_kdump([*words, "--output", "json"], root).stdout


def test_csv_and_tables_have_the_text(root: Path) -> None:
    for output in ("csv", "table"):
        for words in (["dump-segment", f"orders-0/{LOG}"], ["grep", "EUR", "orders-0"]):
            outcome = run_kdump([*words, "--value-format", "auto", "--output", output], root)
            assert b"EUR" in outcome.stdout, (output, words)


def test_inverted_and_counted_matches_are_those_of_the_text(root: Path) -> None:
    words = ["grep", "-c", "-v", '"[a-z]+":', "orders-0", "--value-format", "auto", "--in", "value"]
    assert run_kdump(words, root).stdout == f"orders-0/{LOG}:3\n".encode()


def test_old_message_sets_are_decoded_and_searched(root: Path, tmp_path: Path) -> None:
    value = b"\0\0\0\0\1\x02\x02\x02x"
    partition = write_partition(tmp_path / "old-0", {0: message(0, value=value, magic=1)})
    words = ["grep", '"note":"x"', str(partition), "--value-format", "avro", "--schemas", "."]
    (row,) = rows_of(words, root)
    assert row["decoded_value"] == '{"id":1,"note":"x"}'


def test_schemas_without_a_format_are_refused(root: Path) -> None:
    outcome = run_kdump(["grep", "x", ".", "--schemas", "."], root)
    assert outcome.exit_status == 16
    assert b"has no effect without --key-format or --value-format" in outcome.stderr


def test_formats_and_decoders_are_mutually_exclusive(root: Path) -> None:
    words = ["dump-segment", f"orders-0/{LOG}", "--value-format", "auto", "--offsets-decoder"]
    outcome = run_kdump(words, root)
    assert outcome.exit_status == 16
    assert b"--value-format and --offsets-decoder are mutually exclusive" in outcome.stderr


def test_a_directory_without_schemas_is_named_and_text_is_still_shown(tmp_path: Path) -> None:
    root = write_log_directory(tmp_path / "d1")
    write_partition(root / "orders-0", {0: batch([record(0, b"k", b"plain")])})
    outcome = run_kdump(["grep", "plain", "d1", "--value-format", "auto"], tmp_path)
    assert outcome.exit_status == 0
    assert b"payload: plain\n" in outcome.stdout
    assert outcome.stderr.startswith(b"kdump: no topic _schemas in ")
    assert outcome.stderr.endswith(b"; name schemas with --schemas\n")


def test_grep_reads_schemas_from_a_log_directory_without_matching_partitions(
    root: Path, tmp_path: Path
) -> None:
    log_dir = write_log_directory(tmp_path / "d2")
    write_partition(log_dir / "others-0", {0: batch([record(0, value=b"\0\0\0\0\1\2\2\2x")])})
    words = ["grep", '"note":"x"', str(root), str(log_dir), "--topic", "others"]
    (row,) = rows_of([*words, "--value-format", "avro"], tmp_path)
    assert row["decoded_value"] == '{"id":1,"note":"x"}'


def test_schemas_that_cannot_be_read_are_an_error_and_the_rest_is_shown(root: Path) -> None:
    words = ["grep", "plain", "orders-0", "--value-format", "auto", "--schemas", "missing"]
    outcome = run_kdump(words, root)
    assert outcome.exit_status == 8
    assert b"payload: plain text\n" in outcome.stdout
    assert outcome.stderr.startswith(b"kdump: missing: No such file or directory\n")


def test_the_commands_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    client = new_client()
    avro = AvroSerializer(client, json.dumps(ORDER))
    values = [avro({"id": number, "note": "gift"}, context("orders")) for number in (1, 2)]
    values.append(UNKNOWN)
    root = write_log_directory(tmp_path / "d1")
    rows = [record(offset, None, value) for offset, value in enumerate(values)]
    write_partition(root / "orders-0", {0: batch(rows)})
    write_schemas_topic(root, [schema_record(one) for one in registered(client)])
    shown = re.findall(
        r"^    \$ kdump (.*)\n((?:    [^$].*\n)*)", PAGE.read_text("utf-8"), re.MULTILINE
    )
    assert len(shown) == 2
    for command, expected in shown:
        outcome = run_kdump(shlex.split(command), tmp_path)
        assert outcome.exit_status == (8 if command.startswith("grep") else 0)
        assert outcome.stdout.decode() == re.sub("^    ", "", expected, flags=re.MULTILINE)
