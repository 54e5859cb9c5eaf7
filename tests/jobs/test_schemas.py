"""Schemas from log directories, from files, and from what is damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builders.log_directories import write_log_directory, write_partition
from builders.schema_topic import (
    SchemaRecord,
    compact_json,
    schema_key,
    schema_log,
    schema_value,
    write_schemas_topic,
)
from kdump.jobs.schemas import SchemasRead, read_schemas
from kdump.payloads.payload_decoder import PayloadDecoder
from kdump.payloads.payload_format import PayloadFormat
from kdump.storage.local_disk import local


def version(schema_id: int, text: str, subject: str = "t-value") -> SchemaRecord:
    return schema_key(subject, schema_id), schema_value(subject, schema_id, schema_id, text)


def read(*paths: Path) -> SchemasRead:
    return read_schemas([local(str(path)) for path in paths])


def texts(found: SchemasRead) -> dict[int, str]:
    return {each.schema_id: each.text for each in found.registry.versions.values()}


def test_the_topic_of_a_log_directory_is_read(tmp_path: Path) -> None:
    root = write_log_directory(tmp_path / "d1")
    deleted = version(2, '"int"')
    write_schemas_topic(root, [version(1, '"long"'), deleted, (deleted[0], None)])
    write_partition(root / "orders-0", {0: b""})
    found = read(root)
    assert texts(found) == {1: '"long"'}
    assert found.has_source
    assert not found.damage + found.unreadable


def test_a_topic_of_another_name_is_read_if_its_partition_is_named(tmp_path: Path) -> None:
    root = write_log_directory(tmp_path / "d1")
    partition = write_partition(root / "our-schemas-0", {0: schema_log([version(1, '"long"')])})
    assert not read(root).has_source
    assert texts(read(partition)) == {1: '"long"'}


def test_of_several_replicas_the_one_that_reaches_furthest_is_read(tmp_path: Path) -> None:
    records = [version(1, '"long"'), version(2, '"int"')]
    for name, own in (("d1", records[:1]), ("d2", records), ("d3", [])):
        write_schemas_topic(write_log_directory(tmp_path / name), own)
    assert texts(read(*(tmp_path / name for name in ("d1", "d2", "d3")))) == {
        1: '"long"',
        2: '"int"',
    }


def test_schemas_after_a_damaged_batch_are_read(tmp_path: Path) -> None:
    records = [version(number, '"long"', f"s{number}") for number in (1, 2, 3)]
    log = bytearray(schema_log(records))
    log[log.index(b'"s2"') + 1] ^= 0x40
    root = write_log_directory(tmp_path / "d1")
    write_partition(root / "_schemas-0", {0: bytes(log)})
    found = read(root)
    assert texts(found) == {1: '"long"', 3: '"long"'}
    assert len(found.damage) == 1


def test_the_answer_of_a_registry_is_read_as_an_array_or_as_lines(tmp_path: Path) -> None:
    values: list[Any] = [version(n, f'"{kind}"')[1] for n, kind in enumerate(("int", "long"), 1)]
    array, lines = tmp_path / "schemas.json", tmp_path / "schemas.jsonl"
    array.write_text(json.dumps(values, indent=2))
    lines.write_bytes(b"\n".join(map(compact_json, values)) + b"\n")
    assert texts(read(array)) == texts(read(lines)) == {1: '"int"', 2: '"long"'}


@pytest.mark.parametrize("content", [b"", b"\xff", b"[1]", b'{"id": 1}', b"[" * 100_000, b"[]]"])
def test_a_file_that_is_not_such_an_answer_is_reported(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "schemas.json"
    path.write_bytes(content)
    found = read(path)
    assert not found.registry.versions
    assert [each.path for each in found.unreadable] == [str(path)] or content == b""


def test_the_files_of_a_directory_are_named_by_ids_and_use_each_other(tmp_path: Path) -> None:
    files = {
        "7.avsc": '{"type": "record", "name": "A", "namespace": "n",'
        ' "fields": [{"name": "b", "type": "n.B"}]}',
        "b.avsc": '{"type": "record", "name": "B", "namespace": "n",'
        ' "fields": [{"name": "x", "type": "int"}]}',
        "8.json": '{"type": "object"}',
        "9.proto": 'syntax = "proto3"; import "part.proto"; message M { Part part = 1; }',
        "part.proto": 'syntax = "proto3"; message Part { int32 n = 1; }',
        "README.md": "not a schema",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    decoder = PayloadDecoder(PayloadFormat.AUTO, read(tmp_path).registry)
    payloads = [b"\0\0\0\0\7\2", b"\0\0\0\0\x08{}", b"\0\0\0\0\x09\0\x0a\2\x08\5"]
    assert [decoder.decode(each).text for each in payloads] == [
        '{"b":{"x":1}}',
        "{}",
        '{"part":{"n":5}}',
    ]


def test_what_is_missing_is_reported(tmp_path: Path) -> None:
    found = read(tmp_path / "nothing.json")
    assert [each.what for each in found.unreadable] == ["No such file or directory"]
    assert not found.has_source


def test_a_device_is_reported_without_advice_to_remove_it() -> None:
    found = read(Path("/dev/zero"))
    assert [each.what for each in found.unreadable] == ["a device, not a regular file"]
