"""The fields of the rows of each kind of file, in order, and rows shortened for a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kdump.dump.dumped_rows import ROWS_OF
from kdump.dump.files import DumpKind
from kdump.words import counted

Row = dict[str, Any]

_MOST_CHARACTERS: Final = 60
"""Length of a key or value in a table; the other forms have all of it."""

_SEGMENT_TABLE: Final = (
    "type",
    "position",
    "offsets",
    "timestamp_ms",
    "size_bytes",
    "key",
    "value",
    "remarks",
)


OF_BATCHES: Final = (DumpKind.SEGMENT, DumpKind.METADATA_SNAPSHOT)
"""Files of batches and records."""


def _fields(kind: DumpKind) -> list[str]:
    names = (field.name for row in ROWS_OF[kind] for field in row.columns)
    return list(dict.fromkeys(("path", "type", *names)))


def fields_of(kinds: Iterable[DumpKind]) -> list[str]:
    """The fields that rows of files of these kinds can have, each once, in order."""
    return list(dict.fromkeys(name for kind in kinds for name in _fields(kind)))


def table_fields(kind: DumpKind, rows: Sequence[Row]) -> list[str]:
    """Give the columns of a table of one file: a selection for a segment, else all of ``rows``."""
    if kind in OF_BATCHES:
        return list(_SEGMENT_TABLE)
    return [name for name in _fields(kind)[1:] if any(name in row for row in rows)]


def table_row(row: Row) -> Row:
    """Summarize ``row`` of a segment; any other row stays as it is."""
    if row["type"] == "batch":
        return {
            "type": row["type"],
            "position": row["position"],
            "offsets": f"{row['base_offset']} to {row['last_offset']}",
            "timestamp_ms": row["max_timestamp_ms"],
            "size_bytes": row["size_bytes"],
            "remarks": ", ".join(_batch_remarks(row)),
        }
    if row["type"] == "record" and "headers" in row:
        return {
            "type": row["type"],
            "offsets": str(row["offset"]),
            "timestamp_ms": row["timestamp_ms"],
            "size_bytes": max(row["key_size_bytes"], 0) + max(row["value_size_bytes"], 0),
            "key": shortened(_content(row, "key")),
            "value": shortened(_content(row, "value")),
            "remarks": ", ".join(_record_remarks(row)),
        }
    if "why" in row:
        return {**row, "remarks": row["why"]}
    return row


def _content(row: Row, side: str) -> object:
    """Give the key or value of a record for people; nothing for control records."""
    return None if "control" in row else row.get(f"decoded_{side}", row[side])


def shortened(content: object) -> str | None:
    """Shorten a key or value for a table; None stays."""
    if content is None:
        return None
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"


def _batch_remarks(row: Row) -> Iterable[str]:
    if not row["is_valid"]:
        yield "CHECKSUM WRONG"
    if row["magic"] < 2:
        yield f"magic {row['magic']}"
    if row["codec"] != "none":
        yield row["codec"]
    if row.get("records_count") is not None:
        yield counted(row["records_count"], "record")
    if row.get("producer_id", -1) >= 0:
        yield f"producer {row['producer_id']} epoch {row['producer_epoch']}"
    if row.get("is_transactional"):
        yield "transactional"
    if row.get("is_control"):
        yield "control"
    if row["timestamp_type"] == "LogAppendTime":
        yield "LogAppendTime"


def _record_remarks(row: Row) -> Iterable[str]:
    if "control" in row:
        yield str(row["control"]["type"])
        return
    if row.get("record_type"):
        yield str(row["record_type"])
    for side in ("key", "value"):
        if row[f"{side}_encoding"] == "base64":
            yield f"{side} in base64"
    if row["headers"]:
        yield "headers " + ", ".join(header["key"] for header in row["headers"])
