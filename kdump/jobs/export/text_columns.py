"""Records as columns of text and numbers, for formats without bytes: CSV and JSON lines.

The columns have the names that JSON output has (``timestamp_ms``), and keys and values are text if
they are UTF-8 and base64 otherwise, as in ``kdump dump-segment --output jsonl``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdump.dump.segment_rows import text_field
from kdump.formats.message_set import TimestampType
from kdump.formats.safe_json import UNSAFE, format_json

_TEXT: Final = pa.large_string()
_UTF8: Final = "utf8"
_UPPER: Final = re.compile("([A-Z])")

_ESCAPED: Final = f"[\x00-\x1f{UNSAFE}]"
"""What JSON output escapes, apart from quotes and backslashes."""

_TIMESTAMP_TYPES: Final = {
    -1: TimestampType.NO_TIMESTAMP_TYPE.value,
    0: TimestampType.CREATE_TIME.value,
    1: TimestampType.LOG_APPEND_TIME.value,
}

Named = tuple[str, pa.Array]


def text_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert records of the data source's columns, whose order stays."""
    names, arrays = [], []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        for name, array in _CONVERSIONS.get(field.name, _plain)(field.name, column):
            names.append(name)
            arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, names)


def text_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of :func:`text_columns` for batches of this schema."""
    return text_columns(pa.RecordBatch.from_pylist([], schema)).schema


def _plain(name: str, column: pa.Array) -> Iterator[Named]:
    yield _UPPER.sub(r"_\1", name).lower(), column


def _encoded(name: str, column: pa.Array) -> Iterator[Named]:
    """The bytes as text, and how they are encoded."""
    try:
        text = column.cast(_TEXT)
        encoding = pc.if_else(column.is_null(), pa.scalar(None, _TEXT), pa.scalar(_UTF8, _TEXT))
    except pa.ArrowInvalid:
        fields = [text_field(name, value) for value in column.to_pylist()]
        text = pa.array([each[name] for each in fields], _TEXT)
        encoding = pa.array([each[f"{name}_encoding"] for each in fields], _TEXT)
    yield name, text
    yield f"{name}_encoding", encoding


def _timestamp_type(_name: str, column: pa.Array) -> Iterator[Named]:
    words = pa.array([_TIMESTAMP_TYPES[number] for number in sorted(_TIMESTAMP_TYPES)], _TEXT)
    yield "timestamp_type", words.take(pc.subtract(column, min(_TIMESTAMP_TYPES)))


def _headers(name: str, column: pa.Array) -> Iterator[Named]:
    """The headers as text in JSON; a list without any for none."""
    yield name, pa.array([format_json(_header_rows(each)) for each in column.to_pylist()], _TEXT)


def _header_rows(headers: Sequence[dict[str, Any]] | None) -> list[dict[str, Any]]:
    return [
        {"key": header["key"], "key_encoding": _UTF8, **text_field("value", header["value"])}
        for header in headers or ()
    ]


_CONVERSIONS: Final[dict[str, Callable[[str, pa.Array], Iterator[Named]]]] = {
    "key": _encoded,
    "value": _encoded,
    "timestampType": _timestamp_type,
    "headers": _headers,
}


def json_lines(columns: pa.RecordBatch) -> memoryview:
    """Format the rows of :func:`text_columns` as JSON, one object on each line.

    Most columns have one value in all records of a batch: they are formatted once.
    """
    if not len(columns):
        return memoryview(b"")
    pieces: list[Any] = []
    text, opening = "", "{"
    for name, column in zip(columns.schema.names, columns.columns, strict=True):
        text += f'{opening}"{name}":'
        opening = ","
        if _has_one_value(column):
            text += _json_values(name, column[:1])[0].as_py()
        elif column.null_count or not _is_quoted(name, column):
            pieces += [pa.scalar(text, _TEXT), _json_values(name, column)]
            text = ""
        else:  # the quotes are the same everywhere
            pieces += [pa.scalar(f'{text}"', _TEXT), _escaped(column.cast(_TEXT))]
            text = '"'
    text += "}\n"
    if not pieces:
        return memoryview((text * len(columns)).encode())
    lines = pc.binary_join_element_wise(*pieces, pa.scalar(text, _TEXT), pa.scalar("", _TEXT))
    # The texts of an array lie one after the other.
    _, offsets, data = lines.buffers()
    return memoryview(data)[: int(np.frombuffer(offsets, np.int64)[len(lines)])]


def _has_one_value(column: pa.Array) -> bool:
    if column.null_count:
        return bool(column.null_count == len(column))
    first = column[0]
    return bool(first == column[-1] and pc.all(pc.equal(column, first)).as_py())


def _is_quoted(name: str, column: pa.Array) -> bool:
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return is_text and name != "headers"


def _json_values(name: str, column: pa.Array) -> pa.Array:
    if _is_quoted(name, column):
        quote = pa.scalar('"', _TEXT)
        escaped = _escaped(column.cast(_TEXT))
        values = pc.binary_join_element_wise(quote, escaped, quote, pa.scalar("", _TEXT))
    else:
        values = column.cast(pa.string()).cast(_TEXT)
    return values.fill_null(pa.scalar("null", _TEXT))


def _escaped(texts: pa.Array) -> pa.Array:
    """The texts as in JSON, without the quotes around them."""
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset :][: len(texts) + 1]
    used = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    if not len(used):
        return texts
    escaped = texts
    for character in ("\\", '"'):
        # One look at all bytes costs less than a look into each text.
        if (used == ord(character)).any():
            escaped = pc.replace_substring(escaped, character, f"\\{character}")
    if used.min() >= ord(" ") and used.max() <= ord("~"):
        return escaped
    is_unsafe = pc.match_substring_regex(texts, _ESCAPED).fill_null(False)
    if is_unsafe.true_count:
        each = [format_json(text)[1:-1] for text in texts.filter(is_unsafe).to_pylist()]
        escaped = pc.replace_with_mask(escaped, is_unsafe, pa.array(each, _TEXT))
    return escaped
