"""``docs/tables.md`` describes every table as it is defined."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kdump.jobs.table_rows.all_tables import TABLES

EVERYWHERE = {"table", "path", "paths"}
"""Options that the introduction describes."""


def sections(repository_root: Path) -> dict[str, str]:
    text = (repository_root / "docs" / "tables.md").read_text(encoding="utf-8")
    found = re.split(r"^## (\w+)\n", text, flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def test_every_table_has_its_section_in_order(repository_root: Path) -> None:
    assert list(sections(repository_root)) == list(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_a_section_has_the_columns_with_their_types_and_meanings(
    name: str, repository_root: Path
) -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| `(.+?)` \| (.+) \|$", sections(repository_root)[name], re.MULTILINE
    )
    columns = TABLES[name].columns
    assert rows == [(each.name, each.sql_type, each.what) for each in columns]


@pytest.mark.parametrize("name", TABLES)
def test_a_section_has_what_a_row_is_and_the_options(name: str, repository_root: Path) -> None:
    section = sections(repository_root)[name]
    assert f"A row is {TABLES[name].what}." in section
    listed = re.findall(r"`([\w.]+)`", section.rpartition("\nOptions: ")[2])
    assert listed == [each for each in TABLES[name].options if each not in EVERYWHERE]
