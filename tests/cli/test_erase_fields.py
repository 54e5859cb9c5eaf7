"""``kdump erase --where``: records that are named by a field of their decoded key or value."""

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
from builders.freeing import of_type
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.json_schemas import problem_of_document
from builders.log_directories import write_log_directory, write_partition
from builders.message_sets import message
from builders.read_records import all_records, data_records
from builders.schema_topic import (
    context,
    new_client,
    registered,
    schema_key,
    schema_record,
    schema_value,
    write_schemas_topic,
)
from kdump.jobs.erase.certificate import keyed_hash
from kdump.payloads.named_fields import NamedField
from kdump.repair.erase.erased_list import FILE_NAME

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
    assert f"1 record in {root}/orders-0 cannot be decoded, or only in part, and a field" in said
    assert "alice" not in said


def test_records_with_a_field_can_be_masked(root: Path) -> None:
    options = ("--mask", "--where", "value.customer.id = alice", "--where", "key.id = alice")
    assert erase(root, *options).exit_status & 1

    found = {
        each.offset: (each.key, each.value) for each in data_records(all_records(root / "orders-0"))
    }
    assert sorted(found) == [0, 1, 2, 3, 4, 5]
    assert {at for at, (key, _) in found.items() if len(key or b"") == 64} == {0, 4}
    assert set(found[0][1] or b"") == set(b"*")
    # Masked again, they stay; and nothing hides in them.
    again = erase(root, *options, "--output", "jsonl")
    (partition,) = of_type(objects(again.stdout), "partition")
    assert (partition["erased_records"], partition["undecoded_records"]) == (0, 4)
    row, _ = finish(root)
    assert (row["keys"], row["undecoded_records"]) == (0, 4)


def test_without_schemas_their_records_cannot_be_decoded(root: Path, tmp_path: Path) -> None:
    (root / "_schemas-0").rename(tmp_path / "_schemas-0")

    outcome = erase(root, "--where", "value.id = alice", "--output", "jsonl")
    (partition,) = of_type(objects(outcome.stdout), "partition")
    assert (partition["erased_records"], partition["undecoded_records"]) == (0, 4)

    (elsewhere := tmp_path / "schemas").mkdir()
    (tmp_path / "_schemas-0").rename(elsewhere / "_schemas-0")
    erase(root, "--where", "value.id = alice", "--schemas", str(elsewhere))
    assert offsets(root) == [0, 2, 3, 4, 5]


@pytest.mark.parametrize("is_old", [False, True])
def test_fields_that_a_schema_does_not_know_are_not_passed_over(
    is_old: bool, tmp_path: Path
) -> None:
    """As with the schemas of another registry."""
    text = (
        'syntax = "proto3"; message Order { Customer who = 1; } message Customer { string id = 1; }'
    )
    rows = [
        record(at, b"shop", b"\0\0\0\0\1\0" + body)
        for at, body in enumerate(
            [
                b"\x0a\x05\x0a\x03bob",
                b"\x0a\x05\x0a\x03bob\x12\x05alice",  # Order has no field 2,
                b"\x0a\x07\x12\x05alice",  # and Customer none
                b"\x0a\x07\x0a\x05alice\x12\x00",
            ]
        )
    ]
    root = write_log_directory(tmp_path / "logs", clean=True)
    log = b"".join(message(each.offset, each.key, each.value) for each in rows)
    write_partition(root / "orders-0", {0: log if is_old else batch(rows)})
    write_schemas_topic(
        root, [(schema_key("orders", 1), schema_value("orders", 1, 1, text, kind="PROTOBUF"))]
    )

    outcome = erase(root, "--where", "value.who.id = alice", "--output", "jsonl")

    assert outcome.exit_status == 5
    (partition,) = of_type(objects(outcome.stdout), "partition")
    assert (partition["erased_records"], partition["undecoded_records"]) == (1, 2)
    assert offsets(root) == [0, 1, 2]
    row, outcome = finish(root)
    assert (row["undecoded_records"], outcome.exit_status) == (2, 4)
    assert any("2 records" in each for each in certificate_of(root)["not_reached"])


def finish(root: Path, *options: str) -> tuple[dict[str, Any], Outcome]:
    """Finish; return the last row, and what was said."""
    certificate = root.parent / "certificate.json"
    words = ["erase", "--finish", "--certificate", str(certificate), *options, str(root)]
    outcome = run_kdump([*words, "--output", "jsonl"], root)
    (row,) = of_type(objects(outcome.stdout), "certificate")
    return row, outcome


def certificate_of(root: Path) -> dict[str, Any]:
    written: dict[str, Any] = json.loads((root.parent / "certificate.json").read_bytes())
    assert problem_of_document("erase-certificate", written) is None
    return written


def test_a_json_schema_is_a_schema(tmp_path: Path) -> None:
    client = new_client()
    schema = {"title": "Customer", "type": "object", "properties": {"id": {"type": "string"}}}
    serializer = JSONSerializer(json.dumps(schema), client)
    values = [serializer({"id": name}, context("orders")) for name in ("alice", "bob")]
    root = write_log_directory(tmp_path / "logs", clean=True)
    rows = [record(at, None, value) for at, value in enumerate(values)]
    write_partition(root / "orders-0", {0: batch(rows)})
    write_schemas_topic(root, [schema_record(one) for one in registered(client)])

    erase(root, "--where", "value.id = alice")

    assert offsets(root) == [1]


def test_records_of_others_with_the_same_key_do_not_keep_an_erasure_from_being_finished(
    root: Path,
) -> None:
    erase(root, "--where", "value.customer.id = alice")

    row, _ = finish(root)

    assert (row["keys"], row["fields"], row["records_without_key"]) == (0, 1, 1)
    assert certificate_of(root)["records_without_key"] == 1
    assert offsets(root) == [1, 2, 3, 4, 5]


def test_the_certificate_says_which_records_could_not_be_decoded(root: Path) -> None:
    erase(root, "--where", "value.customer.id = alice")

    row, outcome = finish(root)

    written = certificate_of(root)
    assert outcome.exit_status == 4
    assert row["undecoded_records"] == written["undecoded_records"] == 1
    assert any("fields of 1 record of these topics" in each for each in written["not_reached"])
    (field,) = written["fields"]
    salt = bytes.fromhex(written["hash"]["salt"])
    hashed = keyed_hash(salt, NamedField.parse("value.customer.id=alice").identity)
    assert field == {"hash": hashed, "topic": "orders"}
    assert "alice" not in json.dumps(written)


def test_without_the_schemas_no_field_is_found_in_the_end(root: Path, tmp_path: Path) -> None:
    erase(root, "--where", "value.id = alice")
    elsewhere = tmp_path / "schemas"
    elsewhere.mkdir()
    (root / "_schemas-0").rename(elsewhere / "_schemas-0")

    row, _ = finish(root, "--dry-run")
    assert row["undecoded_records"] == 3
    row, _ = finish(root, "--dry-run", "--schemas", str(elsewhere))
    assert row["undecoded_records"] == 1


ALICES: Final = batch([record(0, b"shop", b'{"customer": {"id": "alice"}}')])


@pytest.mark.parametrize(
    ("name", "log", "remains"),
    [
        (f"orders-1.{'a' * 32}-delete/{0:020d}.log", ALICES, 1),
        (f"orders-0/{0:020d}.log.deleted", ALICES, 1),
        (f"orders-0/{0:020d}.log.deleted", message(0, b"shop", b'{"customer":{"id":"alice"}}'), 1),
        ("saved.log", ALICES, 1),
        (f"backup-2026/orders-0/{0:020d}.log", ALICES, 1),
        # A field of another topic may mean something else.
        (f"prices-0/{0:020d}.log", ALICES, 0),
    ],
)
def test_a_field_that_is_elsewhere_keeps_an_erasure_from_being_finished(
    name: str, log: bytes, remains: int, root: Path
) -> None:
    erase(root, "--where", "value.customer.id = alice")
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(log)

    row, outcome = finish(root)

    found = of_type(objects(outcome.stdout), "remains")
    assert [(each["file"], each["records"]) for each in found] == [(name, 1)] * remains
    assert (row["file"] is None) is bool(remains)
    assert outcome.exit_status == 4


def verify(root: Path, *options: str) -> tuple[list[dict[str, Any]], dict[str, Any], Outcome]:
    words = ["erase", "--verify", str(root.parent / "certificate.json"), *options, str(root)]
    outcome = run_kdump([*words, "--output", "jsonl"], root)
    said = objects(outcome.stdout)
    (row,) = of_type(said, "certificate")
    return of_type(said, "remains"), row, outcome


def test_a_certificate_can_be_verified_by_a_field(root: Path) -> None:
    erase(root, "--where", "value.customer.id = alice", "--where", "value.customer.age = 33")
    finish(root)

    remains, row, outcome = verify(root, "--where", 'value."customer".id = "alice"')
    assert (remains, row["fields"], row["unknown_fields"]) == ([], 1, 0)
    assert (row["undecoded_records"], outcome.exit_status) == (1, 4)

    # Another broker, or a record that was written since.
    (root / "orders-1").mkdir()
    (root / "orders-1" / f"{0:020d}.log").write_bytes(ALICES)
    remains, row, outcome = verify(root, "--where", "value.customer.id = alice")
    assert [each["file"] for each in remains] == [f"orders-1/{0:020d}.log"]
    remains, row, outcome = verify(root)
    assert (remains, row["fields"]) == ([], 0)

    remains, row, outcome = verify(root, "--where", "value.customer.id = bob")
    assert (remains, row["fields"], row["unknown_fields"]) == ([], 0, 1)
    assert b"is not about 1 of the given fields" in outcome.stderr
    assert outcome.exit_status == 4
    assert b"alice" not in outcome.stdout


def test_what_is_not_given_is_said_not_to_be_looked_for(root: Path) -> None:
    erase(root, "--where", "value.customer.id = alice", "--where", "value.id = bob")
    erase(root, "--key-prefix", "nobody-", "--key", "shop")
    finish(root)
    words = ["erase", "--verify", str(root.parent / "certificate.json"), str(root)]
    outcome = run_kdump(words, root)
    said = outcome.stdout.decode()
    assert outcome.exit_status == 4
    assert "2 fields of the certificate not looked for: use --where" in said
    assert "1 prefix of the certificate not looked for: use --key-prefix" in said

    same = ('value."customer".id=alice', "value.customer.id = alice")
    _, row, _ = verify(root, "--where", same[0], "--where", same[1], "--key-prefix=nobody-")
    assert (row["fields"], row["not_looked_for"]) == (1, 1)
    _, row, outcome = verify(root, "--key-prefix=others-", "--key-prefix=others-")
    assert row["not_looked_for"] == 3
    assert b"is not about 1 of the given prefixes" in outcome.stderr


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--where", "alice"], "expected key.FIELD = TEXT or value.FIELD.FIELD = TEXT"),
        (["--key=a", "--schemas", "."], "--schemas requires --where"),
        (["--where", "value.a=alice", "--schemas", "none"], "nothing has been changed"),
    ],
)
def test_what_names_nothing_is_refused(options: list[str], what: str, root: Path) -> None:
    before = offsets(root)
    outcome = erase(root, *options)
    assert outcome.exit_status in (8, 16)
    assert what in outcome.stderr.decode()
    assert b"alice" not in outcome.stderr
    assert offsets(root) == before


def test_without_the_list_fields_have_to_be_given_to_finish(root: Path) -> None:
    erase(root, "--where", "value.customer.id = alice")
    (root / FILE_NAME).unlink()

    words = ["erase", "--finish", "--certificate", str(root.parent / "c"), str(root)]
    refused = run_kdump(words, root)
    assert refused.exit_status == 16
    assert f"no {FILE_NAME}, which says what to look for".encode() in refused.stderr

    row, _ = finish(root, "--where", "value.customer.id = alice")
    assert (row["file"] is None, row["fields"]) == (False, 1)
    assert not list(root.glob(".kdump-*-old-*"))


@pytest.mark.parametrize("name", ["orders-old-0", f"orders-old-0.{'b' * 32}-delete"])
def test_fields_are_looked_for_in_every_selected_topic(
    name: str, root: Path, tmp_path: Path
) -> None:
    """Also in that of another directory, in which nothing was erased."""
    other = write_log_directory(tmp_path / "other", clean=True)
    write_partition(other / name, {0: ALICES})
    (other / name / f"{0:020d}.log.swap").write_bytes(ALICES)
    words = ["--topic=orders*", "--yes", "--where", "value.customer.id = alice"]
    run_kdump(["erase", *words, str(root), str(other)], root)
    (other / name / f"{0:020d}.log.swap").unlink()

    row, outcome = finish(root, str(other))

    (found,) = of_type(objects(outcome.stdout), "remains")
    assert (found["log_dir"], found["file"]) == (str(other), f"{name}/{0:020d}.log")
    assert row["file"] is None


def test_every_partition_that_loses_records_is_listed(tmp_path: Path) -> None:
    root = write_log_directory(tmp_path / "logs", clean=True)
    undecoded = batch([record(0, b"k", b"text")])
    for number in range(60):
        write_partition(root / f"orders-{number}", {0: ALICES if number % 2 else undecoded})

    said = erase(root, "--where", "value.customer.id = alice", "--dry-run").stdout.decode()

    assert said.count(": 1 of 1 record to erase, 1 batch rewritten\n") == 30
    assert said.count("cannot be decoded, or only in part, and a field") == 20
    assert "… and 10 more (--verbose shows all)" in said
