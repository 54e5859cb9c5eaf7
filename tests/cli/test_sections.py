"""Rows of several types: a table each for people, one stream for programs."""

from __future__ import annotations

import pytest

from kdump.cli.output.rendering import OutputFormat, Row
from kdump.cli.output.sections import open_sections
from kdump.rows.row_type import INTEGER, TEXT, Field, RowType

SECTIONS = (
    RowType(
        "group",
        "",
        (Field("group", TEXT, "", "Group"), Field("state", TEXT, "", "State")),
        title="Groups",
    ),
    RowType(
        "offset",
        "",
        (Field("group", TEXT, "", "Group"), Field("lag", INTEGER, "", "Lag")),
        title="Offsets",
    ),
)
ROWS = (
    {"type": "offset", "group": "g", "lag": 7},
    {"type": "group", "group": "g", "state": "empty"},
)
SUMMARY = {"type": "summary", "groups": 1}


def write(output_format: OutputFormat, *rows: Row) -> None:
    with open_sections(output_format, SECTIONS) as output:
        output.rows(rows)
        output.summary(SUMMARY, ["1 group"])


def test_people_see_a_table_for_each_type_and_the_summary_below(
    capfd: pytest.CaptureFixture[str],
) -> None:
    write(OutputFormat.TEXT, *ROWS)
    assert capfd.readouterr().out.splitlines() == [
        "Groups:",
        "GROUP  STATE",
        "g      empty",
        "",
        "Offsets:",
        "GROUP  LAG",
        "g        7",
        "",
        "1 group",
    ]


def test_people_see_no_table_for_a_type_without_rows(capfd: pytest.CaptureFixture[str]) -> None:
    write(OutputFormat.TEXT, ROWS[1])
    assert "Offsets" not in capfd.readouterr().out


def test_csv_has_the_columns_of_all_types_and_the_summary_apart(
    capfd: pytest.CaptureFixture[str],
) -> None:
    write(OutputFormat.CSV, *ROWS)
    out, err = capfd.readouterr()
    assert out.splitlines() == ["type,group,state,lag", "offset,g,,7", "group,g,empty,"]
    assert err == "1 group\n"
