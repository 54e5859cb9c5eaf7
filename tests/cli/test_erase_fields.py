"""``kdump erase --where``: records that are named by a field of their decoded key or value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField
from google.type import money_pb2

from builders.batches import batch, record
from builders.freeing import of_type
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.log_directories import write_log_directory, write_partition
from builders.read_records import all_records, data_records
from builders.schema_topic import (
    context,
    new_client,
    registered,
    schema_record,
    write_schemas_topic,
)

CUSTOMER: Final = {
    "type": "record",
    "name": "Customer",
    "fields": [{"name": "id", "type": "string"}, {"name": "age", "type": ["null", "int"]}],
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a clean directory: Alice's are the offsets 0 (JSON), 1 (Avro) and 4 (an Avro key)."""
    client = new_client()
    avro = AvroSerializer(client, json.dumps(CUSTOMER))
    key = AvroSerializer(client, json.dumps(CUSTOMER))
    money = ProtobufSerializer(money_pb2.Money, client)
    alice = {"id": "alice", "age": 33}
    rows = [
        record(0, b"shop", json.dumps({"customer": alice}).encode()),
        record(1, b"shop", avro(alice, context("orders"))),
        record(2, b"shop", avro({"id": "bob", "age": None}, context("orders"))),
        record(3, b"shop", money(money_pb2.Money(currency_code="EUR"), context("prices"))),
        record(4, key(alice, context("orders", MessageField.KEY)), None),
        record(5, b"shop", b"\xff no text"),
    ]
    root = write_log_directory(tmp_path / "logs", clean=True)
    write_partition(root / "orders-0", {0: batch(rows)})
    write_schemas_topic(root, [schema_record(one) for one in registered(client)])
    return root


def erase(root: Path, *options: str) -> Outcome:
    return run_kdump(["erase", "--topic=orders", "--yes", *options, str(root)], root)


def offsets(root: Path) -> list[int]:
    return [each.offset for each in data_records(all_records(root / "orders-0"))]


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--where", "value.customer.id = alice"], [1, 2, 3, 4, 5]),
        (["--where", "value.id = alice"], [0, 2, 3, 4, 5]),
        (["--where", "value.age=33"], [0, 2, 3, 4, 5]),
        (["--where", "value.currencyCode = EUR"], [0, 1, 2, 4, 5]),
        (["--where", "value.id = bob", "--where", "value.customer.age=33"], [1, 3, 4, 5]),
        (["--where", "value.id = bob", "--key", "none", "--where", "key.id=alice"], [0, 1, 3, 5]),
    ],
)
def test_the_records_with_a_field_go(options: list[str], left: list[int], root: Path) -> None:
    erase(root, *options)

    assert offsets(root) == left


def test_what_cannot_be_decoded_is_counted(root: Path) -> None:
    outcome = erase(root, "--where", "value.id = alice", "--output", "jsonl", "--dry-run")

    (partition,) = of_type(objects(outcome.stdout), "partition")
    assert (partition["erased_records"], partition["undecoded_records"]) == (1, 1)
    assert outcome.exit_status & 4
    said = erase(root, "--where", "value.id = alice").stdout.decode()
    assert "orders-0: 1 record cannot be decoded: no field was looked for in them" in said
    assert "alice" not in said


def test_without_schemas_their_records_cannot_be_decoded(root: Path, tmp_path: Path) -> None:
    (root / "_schemas-0").rename(tmp_path / "_schemas-0")

    outcome = erase(root, "--where", "value.id = alice", "--output", "jsonl")
    (partition,) = of_type(objects(outcome.stdout), "partition")
    assert (partition["erased_records"], partition["undecoded_records"]) == (0, 4)

    (elsewhere := tmp_path / "schemas").mkdir()
    (tmp_path / "_schemas-0").rename(elsewhere / "_schemas-0")
    erase(root, "--where", "value.id = alice", "--schemas", str(elsewhere))
    assert offsets(root) == [0, 2, 3, 4, 5]


def test_records_of_others_with_the_same_key_do_not_keep_an_erasure_from_being_finished(
    root: Path, tmp_path: Path
) -> None:
    erase(root, "--where", "value.customer.id = alice")

    words = ["erase", "--finish", "--certificate", str(tmp_path / "certificate.json"), str(root)]
    finished = run_kdump([*words, "--output", "jsonl"], tmp_path)
    (certificate,) = of_type(objects(finished.stdout), "certificate")
    written: dict[str, Any] = json.loads((tmp_path / "certificate.json").read_bytes())

    assert (certificate["keys"], certificate["records_without_key"]) == (0, 1)
    assert written["records_without_key"] == 1
    assert offsets(root) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--where", "alice"], "expected key.FIELD = TEXT or value.FIELD.FIELD = TEXT"),
        (["--key=a", "--schemas", "."], "--schemas has no effect without --where"),
        (["--where", "value.a=alice", "--mask"], "--mask and --where are mutually exclusive"),
        (["--where", "value.a=alice", "--schemas", "none"], "nothing is erased"),
    ],
)
def test_what_names_nothing_is_refused(options: list[str], what: str, root: Path) -> None:
    before = offsets(root)
    outcome = erase(root, *options)
    assert outcome.exit_status in (8, 16)
    assert what in outcome.stderr.decode()
    assert b"alice" not in outcome.stderr
    assert offsets(root) == before


def test_a_field_is_not_searched_for_in_the_end(root: Path, tmp_path: Path) -> None:
    words = ["erase", "--finish", "--certificate", "c", "--where", "value.a=b", str(root)]
    outcome = run_kdump(words, tmp_path)
    assert outcome.exit_status == 16
    assert b"--where has no effect with --finish" in outcome.stderr
