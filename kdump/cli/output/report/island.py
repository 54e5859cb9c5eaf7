"""The data of the page: one JSON document in a script element that no browser runs.

Text is in one list, and cells are numbers in it: a directory of ten thousand partitions says most
sentences thousands of times.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from kdump.rows.row_type import Field, Kind

LARGEST_EXACT: Final = 2**53 - 1
"""The largest number that every browser reads exactly; larger ones are written as text."""
LONGEST_CELL: Final = 400
"""Longer text of a cell is cut off."""
_ESCAPES: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


class Strings:
    """All text, each once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        if len(text) > LONGEST_CELL:
            text = f"{text[:LONGEST_CELL]}…"
        return self._numbers.setdefault(text, len(self._numbers))

    def all(self) -> list[str]:
        return list(self._numbers)


class PageTable(Struct, frozen=True):
    """A table that sorts and filters.

    Attributes:
        rows: by the names of the columns.
    """

    columns: Sequence[Field]
    rows: Sequence[Mapping[str, Any]]
    left_out: int = 0

    def encoded(self, strings: Strings) -> dict[str, Any]:
        """The table for the page's script: a list of cells for each column."""
        return {
            "columns": [
                {"key": each.name, "label": each.title, "kind": each.kind.value}
                for each in self.columns
            ],
            "cells": [
                [_cell(row.get(each.name), each.kind, strings) for row in self.rows]
                for each in self.columns
            ],
            "rows": len(self.rows),
            "leftOut": self.left_out,
        }


def _cell(value: Any, kind: Kind, strings: Strings) -> Any:
    if value is None:
        return None
    if kind is Kind.TEXT:
        return strings.number(str(value))
    return exact(value)


def exact(number: int) -> int | str:
    """A number that loses nothing in a browser."""
    return number if abs(number) <= LARGEST_EXACT else str(number)


def encode_island(
    tables: Mapping[str, PageTable], pictures: Mapping[str, Any], strings: Strings
) -> str:
    """The document, as text that cannot end its element and has no character above ASCII."""
    encoded = {name: table.encoded(strings) for name, table in tables.items()}
    document = {"tables": encoded, "pictures": pictures, "strings": strings.all()}
    text = json.dumps(document, ensure_ascii=True, separators=(",", ":"))
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text
