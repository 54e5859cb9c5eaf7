"""Declared rows: which output has which field, and as what."""

from __future__ import annotations

import pyarrow as pa
import pytest
from msgspec.structs import replace

from builders.generated_pages import row_schema, schema_of
from kdump.cli.output.rendering import OutputFormat, open_output
from kdump.rows.row_type import (
    INT,
    SIZE,
    TEXT,
    TIME,
    Field,
    RowType,
    ValueType,
    list_of,
    map_of,
    object_of,
    one_of,
)
from kdump.tables.table import TIMESTAMP, table_columns

ROW = RowType(
    "file",
    "A file.",
    (
        Field("name", TEXT, "Its name.", "Name"),
        Field("size_bytes", SIZE.or_null, "Its size."),
        Field("size_text", TEXT, "", "Size", for_programs=False),
        Field("mode", TEXT, "Its mode.", json_only=True),
        Field("rank", INT, "Its rank among all.", sql_only=True),
    ),
)
"""A row with a field for each kind of output."""


def shown(output_format: OutputFormat, capfd: pytest.CaptureFixture[str]) -> list[list[str]]:
    with open_output(output_format, ROW.columns) as output:
        output.row({"name": "a", "size_bytes": 5, "size_text": "5 B", "mode": "rw"})
    return [line.replace(",", " ").split() for line in capfd.readouterr().out.splitlines()]


def test_people_see_fields_with_a_heading(capfd: pytest.CaptureFixture[str]) -> None:
    assert shown(OutputFormat.TEXT, capfd) == [["NAME", "SIZE"], ["a", "5", "B"]]


def test_csv_has_no_texts_for_people(capfd: pytest.CaptureFixture[str]) -> None:
    assert shown(OutputFormat.CSV, capfd) == [["name", "size_bytes"], ["a", "5"]]


def test_the_schema_has_what_json_has() -> None:
    schema = row_schema(ROW)
    assert list(schema["properties"]) == ["type", "name", "size_bytes", "mode"]
    assert schema["required"] == list(schema["properties"])


def test_a_field_that_only_a_success_has_is_required_without_a_failure() -> None:
    fields = (Field("failure", TEXT.or_null), Field("freed_bytes", SIZE, unless_failed=True))
    schema = row_schema(RowType("directory", "A directory.", fields))
    assert schema["required"] == ["type", "failure"]
    assert schema["then"] == {"required": ["freed_bytes"]}


def test_a_detail_is_for_people_only_in_a_block() -> None:
    detail = Field("codec", TEXT, "How it is compressed.", "Codec", is_detail=True)
    assert not detail.for_people
    assert replace(detail, is_detail=False).for_people


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (TEXT, {"type": "string"}),
        (SIZE.or_null, {"type": ["integer", "null"], "minimum": 0}),
        (one_of("a", "b").or_null, {"enum": ["a", "b", None]}),
        (list_of(TEXT), {"type": "array", "items": {"type": "string"}}),
        (map_of(TEXT), {"type": "object", "additionalProperties": {"type": "string"}}),
        (replace(TEXT, shared="name"), {"$ref": "common.json#/$defs/name"}),
    ],
)
def test_a_type_is_a_json_schema(value: ValueType, schema: dict[str, object]) -> None:
    assert schema_of(value) == schema


def test_a_table_has_the_fields_of_programs_and_times_without_their_unit() -> None:
    moment = Field("seen_ms", TIME, "When it was seen.")
    columns = table_columns(*ROW.fields[:3], moment, Field("at", list_of(object_of(moment))))
    assert [(each.name, each.arrow_type) for each in columns] == [
        ("name", pa.string()),
        ("size_bytes", pa.int64()),
        ("seen", TIMESTAMP),
        ("at", pa.list_(pa.field("element", pa.struct([("seen", TIMESTAMP)])))),
    ]
