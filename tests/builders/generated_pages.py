"""The files in ``docs`` that are derived from declared rows; ``./dev pages`` writes them."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

import kdump
from kdump.jobs.table_rows.all_tables import TABLES
from kdump.rows.row_type import Field, JsonAnswer, RowType, ValueType

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
TABLES_PAGE: Final = DOCS / "tables.md"
COMMON: Final = DOCS / "schemas" / "common.json"
_COMMON: Final = "common.json#/$defs/"

Schema = dict[str, Any]


def answers() -> list[JsonAnswer]:
    """What commands with declared rows write; declared as ``ANSWERS`` beside the rows."""
    package = Path(kdump.__file__).parent
    declaring = (
        path.relative_to(package.parent).with_suffix("")
        for path in sorted(package.rglob("*.py"))
        if "\nANSWERS: Final = " in path.read_text("utf-8")
    )
    modules = [importlib.import_module(".".join(path.parts)) for path in declaring]
    return [answer for module in modules for answer in module.ANSWERS]


def pages() -> dict[Path, str]:
    """The text of each file by its path."""
    found = answers()
    texts = {
        DOCS / "schemas" / f"{answer.command}.json": _json(_document(answer)) for answer in found
    }
    texts[COMMON] = _json(_with_shared(json.loads(COMMON.read_text("utf-8")), found))
    texts[TABLES_PAGE] = _with_columns(TABLES_PAGE.read_text("utf-8"))
    return texts


def schema_of(value: ValueType, what: str = "") -> Schema:
    """The JSON Schema of values; ``what`` is their description."""
    if value.shared:
        reference = {"$ref": _COMMON + value.shared}
        if not value.is_nullable:
            return reference
        return {"oneOf": [reference, {"type": "null"}]} | ({"description": what} if what else {})
    schema: Schema = {}
    if value.choices:
        null: list[Schema] = [{"type": "null"}] if value.is_nullable else []
        schema["oneOf"] = [*map(schema_of, value.choices), *null]
    elif value.words:
        schema["enum"] = [*value.words, *([None] if value.is_nullable else [])]
    elif value.json:
        schema["type"] = [value.json, "null"] if value.is_nullable else value.json
    if what:
        schema["description"] = what
    if value.json == "array" and value.items is not None:
        schema["items"] = schema_of(value.items)
    elif value.fields:
        schema |= _object(value.fields)
    elif value.items is not None:
        schema["additionalProperties"] = schema_of(value.items)
    return {**schema, **value.limits}


def _object(fields: Sequence[Field]) -> Schema:
    named = [field for field in fields if field.for_programs and not field.sql_only]
    return {
        "properties": {field.name: schema_of(field.type, field.what) for field in named},
        "required": [
            each.name for each in named if not each.is_optional and not each.unless_failed
        ],
        "additionalProperties": False,
    }


def row_schema(row: RowType) -> Schema:
    """The JSON Schema of rows, which have a ``type``."""
    schema = _object(row.fields)
    return {
        "description": row.what,
        "type": "object",
        "properties": {"type": {"const": row.type}, **schema["properties"]},
        "required": ["type", *schema["required"]],
        "additionalProperties": False,
        **_if_not_failed([field.name for field in row.fields if field.unless_failed]),
    }


def _if_not_failed(names: Sequence[str]) -> Schema:
    if not names:
        return {}
    return {"if": {"properties": {"failure": {"type": "null"}}}, "then": {"required": names}}


def _document(answer: JsonAnswer) -> Schema:
    rows: Schema = {}
    for row in answer.rows:
        if row.shared:
            rows[row.type] = {"$ref": _COMMON + row.shared}
        elif row.name:
            rows.setdefault(row.type, {"oneOf": []})["oneOf"].append(row_schema(row))
        else:
            rows[row.type] = row_schema(row)
    commands = list(answer.commands or (answer.command,))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Answer of kdump {answer.command}",
        "description": "The array that --output json writes. Every line of --output jsonl is one"
        " of its elements.",
        "type": "array",
        "minItems": 2,
        "prefixItems": [{"$ref": "#/$defs/header"}],
        "items": {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in ("end", *rows)]},
        "contains": {"$ref": "#/$defs/end"},
        "minContains": 1,
        "maxContains": 1,
        "$defs": {
            "header": {
                "$ref": _COMMON + "header",
                "properties": {"command": {"enum": commands}},
            },
            "end": {"$ref": _COMMON + "end"},
            **rows,
        },
    }


def _with_shared(common: Schema, found: Sequence[JsonAnswer]) -> Schema:
    rows = [row for answer in found for row in answer.rows]
    declared = {row.shared: row_schema(row) for row in rows if row.shared}
    for value in _types_in(field for row in rows for field in row.fields):
        if value.shared:
            declared[value.shared] = schema_of(replace(value, shared=""), value.what)
    return {**common, "$defs": {**common["$defs"], **declared}}


def _types_in(fields: Iterable[Field]) -> Iterator[ValueType]:
    """All types of fields, also of their parts."""
    for field in fields:
        value: ValueType | None = field.type
        while value is not None:
            yield value
            yield from _types_in(value.fields)
            for choice in value.choices:
                yield from _types_in((Field("", choice),))
            value = value.items


def _json(document: Schema) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _with_columns(page: str) -> str:
    """The page of the tables with the columns as they are defined."""
    parts = re.split(r"^(## \w+)\n", page, flags=re.MULTILINE)
    for number in range(1, len(parts), 2):
        table = TABLES[parts[number].removeprefix("## ")]
        rows = "".join(_column_lines(table.name))
        parts[number] += "\n"
        parts[number + 1] = re.sub(
            r"(?<=\|---\|---\|---\|\n)(\|.*\n)+", lambda _, rows=rows: rows, parts[number + 1]
        )
    return "".join(parts)


def _column_lines(name: str) -> Iterator[str]:
    for each in TABLES[name].columns:
        yield f"| `{each.name}` | `{each.sql_type}` | {each.what} |\n"


def main() -> None:
    """Write the files that have changed, and name them."""
    for path, text in pages().items():
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            sys.stdout.write(f"{path.relative_to(DOCS.parent)}\n")


if __name__ == "__main__":
    main()
