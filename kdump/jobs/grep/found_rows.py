"""What the rows of ``kdump grep`` are: records as ``dump-segment`` has them, and their files."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from kdump.dump.dumped_rows import BATCH_RECORD, KAFKA_0_7_RECORD, MESSAGE_SET_RECORD
from kdump.rows.row_type import COUNT, INT, TEXT, TIME, Field, JsonAnswer, RowType

WHERE: Final = (
    Field(
        "topic",
        TEXT.or_null,
        "From the directory's name; null if it is not the name of a partition.",
        "Topic",
    ),
    Field("partition", INT.or_null, "Likewise.", "Partition"),
    Field("path", TEXT, "The log, as it can be opened from the working directory."),
    Field("file", TEXT, "Its name in the directory of the partition.", "File", dropped=1),
)
_COLUMNS: Final[dict[str, dict[str, Any]]] = {
    "offset": {"title": "Offset"},
    "timestamp_ms": {"title": "Time", "type": replace(TIME, unknown="-"), "dropped": 3},
    "key": {"title": "Key"},
    "key_encoding": {},
    "value": {"title": "Value"},
    "value_encoding": {},
    "headers": {"title": "Headers", "dropped": 2},
}
"""The fields of a record that are columns, and how people see them."""
_TEXTS: Final[dict[str, dict[str, Any]]] = {
    "decoded_key": {"type": TEXT.or_null, "what": "With --key-format: the key as text."},
    "decoded_value": {"type": TEXT.or_null, "what": "With --value-format: the value as text."},
}
_NOT_SEARCHED: Final = {"path", "control", "record_type", "record_version", "decoding_error"}


def _found(row: RowType) -> RowType:
    """A record that was found: where it is, and what ``dump-segment`` says of it."""
    fields = (
        replace(each, **_COLUMNS.get(each.name, {"json_only": True}), **_TEXTS.get(each.name, {}))
        for each in row.fields
        if each.name not in _NOT_SEARCHED
    )
    return replace(row, fields=(*WHERE, *fields))


FOUND_RECORD: Final = _found(BATCH_RECORD)
FOUND_FILE: Final = RowType(
    "file",
    "With --count, a log that was searched; with --files-with-matches, a log with a record that"
    " was found.",
    (
        *WHERE,
        Field(
            "matches",
            COUNT.or_null,
            "How many records were found in it; null with --files-with-matches, which does not"
            " count them.",
            "Matches",
        ),
    ),
)
SUMMARY: Final = RowType(
    "summary",
    "The totals.",
    (
        Field("files", COUNT, "How many logs were searched."),
        Field("files_with_matches", COUNT, "How many of them have a record that was found."),
        Field(
            "matches", COUNT.or_null, "How many records were found; null with --files-with-matches."
        ),
        Field(
            "undecoded_records",
            COUNT,
            "How many of the searched records have a key or value that cannot be decoded with"
            " --key-format or --value-format; their bytes were searched.",
        ),
    ),
)
ANSWERS: Final = (
    JsonAnswer(
        "grep",
        (
            *(FOUND_RECORD, _found(MESSAGE_SET_RECORD), _found(KAFKA_0_7_RECORD)),
            *(FOUND_FILE, SUMMARY),
        ),
    ),
)
