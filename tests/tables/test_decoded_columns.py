"""``key_text`` and ``value_text`` of ``kafka-log``: payloads of Confluent's serializers as text."""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField
from google.type import money_pb2

from builders.batches import batch, record
from builders.log_directories import write_log_directory, write_partition
from builders.message_sets import message
from builders.recovery import marker, of_producer
from builders.schema_topic import (
    context,
    new_client,
    registered,
    schema_record,
    write_schemas_topic,
)
from builders.source_tables import rows_of
from kdump.errors import KdumpError
from kdump.jobs.table_rows.table_reader import open_table
from kdump.tables.kafka_log.damage import UndecodedError
from kdump.tables.kafka_log.pushed_filters import PushedFilters

LOG: Final = f"{0:020d}.log"
TEXTS: Final = ["key_text", "value_text", "value_problem"]
COLUMNS: Final = {"columns": "key_text,key_problem,value_text,value_problem", "subscribe": "orders"}
DECODED: Final = [
    ('"a"', '{"currencyCode":"EUR","units":"12","nanos":0}'),
    ('"b"', '"from a header"'),
    (None, None),
    ("plain", "text"),
]
"""The texts of the records, by offset."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with the schemas, and payloads with and without them."""
    client = new_client()
    text = AvroSerializer(client, '"string"')
    money = ProtobufSerializer(money_pb2.Money, client)
    key = context("orders", MessageField.KEY)
    value = text("from a header", context("orders"))
    euros = money(money_pb2.Money(currency_code="EUR", units=12), context("prices"))
    rows = [
        record(0, text("a", key), euros),
        record(1, text("b", key), value[5:], [(b"__value_schema_id", value[:5])]),
        record(2, None, b"\0\0\0\x01\xc8\xff"),
        record(3, b"plain", b"text"),
    ]
    root = write_log_directory(tmp_path_factory.mktemp("decoded") / "logs")
    write_partition(root / "orders-0", {0: batch(rows[:2]) + batch(rows[2:])})
    write_partition(root / "old-0", {0: message(0, b"k", euros)})
    write_schemas_topic(root, [schema_record(one) for one in registered(client)])
    return root


def texts_at(path: Path, **options: str) -> list[tuple[str | None, str | None]]:
    return [(row["key_text"], row["value_text"]) for row in rows_of(path, **COLUMNS, **options)]


@pytest.mark.parametrize("path", ["", "orders-0", f"orders-0/{LOG}", ".."])
def test_texts_are_decoded_by_the_schemas_beside_the_data(path: str, root: Path) -> None:
    assert texts_at(root / path, keyFormat="auto", valueFormat="AUTO") == DECODED


def test_each_format_is_for_its_column(root: Path) -> None:
    found = texts_at(root, valueFormat="hex")
    assert found[3] == ("plain", b"text".hex())
    assert found[2] == (None, "00000001c8ff")


def test_the_reason_for_a_missing_text_is_in_its_own_column(root: Path) -> None:
    rows = rows_of(root, **COLUMNS, keyFormat="avro", valueFormat="auto")
    unknown, no_schema = "no schema has id 456", "it does not begin with the id of a schema"
    assert [row["value_problem"] for row in rows] == [None, None, unknown, None]
    assert [row["key_problem"] for row in rows] == [None, None, None, no_schema]


def test_without_a_format_the_reason_is_that_bytes_are_not_text(root: Path) -> None:
    rows = rows_of(root, subscribe="orders", columns="value_text,value_problem")
    assert rows[2] == {"value_text": None, "value_problem": "it is not UTF-8 at byte 4"}
    assert rows_of(root, subscribe="orders", columns="value_text")[2] == {"value_text": None}


@pytest.mark.parametrize("columns", ["value_text", "value_text,key_problem"])
def test_a_missing_text_without_the_reason_fails_the_query(columns: str, root: Path) -> None:
    options = {"subscribe": "orders", "columns": columns, "valueFormat": "auto"}
    with pytest.raises(UndecodedError, match="offset 2, value: no schema has id 456"):
        rows_of(root, **options)


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_other_modes_count_missing_texts(
    mode: str, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"subscribe": "orders", "columns": "value_text", "valueFormat": "auto"}
    with caplog.at_level(logging.WARNING, "kdump"):
        assert len(rows_of(root, mode=mode, **options)) == len(DECODED)
    (problem,) = caplog.records
    assert "the key or value of 1 record cannot be decoded" in problem.getMessage()


def test_control_records_have_no_missing_text(tmp_path: Path) -> None:
    log = of_producer(0, 7, transactional=True) + marker(1, 7, commit=True)
    partition = write_partition(tmp_path / "orders-0", {0: log})
    options = {"columns": "value_text,controlType", "valueFormat": "auto"}
    rows = rows_of(partition, includeControlRecords="true", **options)
    assert [row["controlType"] for row in rows] == [None, "COMMIT"]


def test_bytes_stay_as_they_are_in_the_log(root: Path) -> None:
    options = {"subscribe": "orders", "columns": "key,value"}
    assert rows_of(root, valueFormat="auto", keyFormat="avro", **options) == rows_of(
        root, **options
    )


def test_messages_of_old_magic_are_decoded(root: Path) -> None:
    (row,) = rows_of(root, subscribe="old", columns="value_text", valueFormat="protobuf")
    assert row["value_text"] == DECODED[0][1]


@pytest.mark.parametrize("is_array", [False, True])
def test_schemas_are_read_where_the_option_says(is_array: bool, root: Path, tmp_path: Path) -> None:
    copied = write_partition(tmp_path / "orders-0", {0: (root / "orders-0" / LOG).read_bytes()})
    named = json.dumps([str(root)]) if is_array else str(root / "_schemas-0")
    options = {"keyFormat": "auto", "valueFormat": "auto", "schemas": named}
    assert texts_at(copied, **options) == DECODED


def test_tasks_decode_without_the_files_of_the_schemas(root: Path, tmp_path: Path) -> None:
    """Each task gets the reader by pickle; only the driver reads schemas."""
    data = write_partition(tmp_path / "orders-0", {0: (root / "orders-0" / LOG).read_bytes()})
    schemas = write_partition(
        tmp_path / "_schemas-0", {0: (root / "_schemas-0" / LOG).read_bytes()}
    )
    options = {"path": str(data), "schemas": str(schemas), "keyFormat": "auto"}
    reader = open_table({**options, "valueFormat": "auto"}, TEXTS)
    none = PushedFilters()
    splits = reader.splits(none)
    before = [
        row for split in splits for each in reader.read(split, none) for row in each.to_pylist()
    ]
    sent = pickle.loads(pickle.dumps(reader))
    (schemas / LOG).unlink()
    rows = [row for split in splits for each in sent.read(split, none) for row in each.to_pylist()]
    assert [(row["key_text"], row["value_text"]) for row in rows] == DECODED
    assert rows == before


def test_damaged_schemas_fail_the_query_or_are_missing(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = write_partition(tmp_path / "orders-0", {0: (root / "orders-0" / LOG).read_bytes()})
    log = bytearray((root / "_schemas-0" / LOG).read_bytes())
    log[-1] ^= 1
    schemas = write_partition(tmp_path / "_schemas-0", {0: bytes(log)})
    options = {"schemas": str(schemas), "keyFormat": "avro"}
    with pytest.raises(KdumpError, match="_schemas-0"):
        texts_at(data, **options)
    with caplog.at_level(logging.WARNING, "kdump"):
        assert len(texts_at(data, mode="DROPMALFORMED", **options)) == len(DECODED)
    assert "_schemas-0" in caplog.text


def test_missing_schemas_are_said(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = write_partition(tmp_path / "orders-0", {0: (root / "orders-0" / LOG).read_bytes()})
    with caplog.at_level(logging.WARNING, "kdump"):
        assert texts_at(data, valueFormat="auto")[3] == DECODED[3]
    assert "no topic _schemas" in caplog.text
    with pytest.raises(KdumpError, match="nowhere"):
        texts_at(data, valueFormat="auto", schemas=str(tmp_path / "nowhere"))
