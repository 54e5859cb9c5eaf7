"""``--key-format`` and ``--value-format``: payloads of Confluent's serializers as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField
from google.type import money_pb2

from builders.batches import batch, record
from builders.in_process import run_kdump
from builders.json_answers import all_objects, objects
from builders.json_schemas import problem_of_answer
from builders.log_directories import write_log_directory, write_partition
from builders.schema_topic import (
    context,
    new_client,
    registered,
    schema_record,
    write_schemas_topic,
)

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
        ["grep", '"id":1\\b', ".", "--topic", "orders", "--value-format", "auto"], root
    )
    assert (row["offset"], row["decoded_value"]) == (0, '{"id":1,"note":"grüße"}')
    outcome = run_kdump(["grep", 'key-[03]"$', "orders-0", "--key-format", "avro"], root)
    lines = outcome.stdout.decode(errors="replace").splitlines()
    assert [line.partition(" key: ")[2][:7] for line in lines] == ['"key-0"', '"key-3"']
