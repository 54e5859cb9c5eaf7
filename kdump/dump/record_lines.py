"""Lines of records of magic 2, formatted for many records at once.

Each part of a line is an Arrow column: numbers become text, keys and values are gathered from the
bytes of the segment, the common parts of all lines are scalars. Joining the parts gives the text. A
null part adds nothing to its line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdump.dump.contents import Contents, Utf8Contents
from kdump.dump.text_options import RECORD_INDENT, TIMESTAMP_TYPES, Damage, TextOptions
from kdump.formats import record_batch
from kdump.formats.errors import FormatError
from kdump.formats.internal_topics import control_record_text
from kdump.scan.arrow import gather_bytes, integers_as_text
from kdump.scan.batches import Flags
from kdump.scan.control_batches import is_control
from kdump.scan.records import RecordColumns

Part: TypeAlias = Any
"""An Arrow scalar or array of large_binary: one text for all lines, or one for each."""

_BINARY: Final = pa.large_binary()
_NOTHING: Final = pa.scalar(None, _BINARY)


def join_lines(
    columns: RecordColumns, heads: Sequence[str], options: TextOptions, damage: Damage
) -> bytes | memoryview:
    """Format the lines of the records of ``columns`` (one or more), each with its line end.

    Args:
        heads: for each batch the text before its first record, also if it has none.
        damage: called for each record that cannot be shown completely.

    Returns:
        Text in which keys and values are the bytes as they are, UTF-8 or not.
    """
    is_marker = is_control(columns.batches)[columns.batch]
    opening = options.line_start
    if not options.skip_record_metadata:
        opening += f"{RECORD_INDENT} offset: ".encode()
    prefixes, ending = _prefixes(columns, heads, opening)
    parts: list[Part] = [prefixes]
    if not options.skip_record_metadata:
        parts += _metadata(columns)
        if is_marker.any():
            parts.append(pa.array(_control_texts(columns, is_marker, damage), _BINARY))
    if options.contents is not None:
        keys, values = _contents(columns, options.contents, ~is_marker, damage)
        parts += _labelled(keys, values, is_first_in_line=options.skip_record_metadata)
    parts.append(_text("\n"))
    joined = pc.binary_join_element_wise(
        *parts, _text(""), null_handling="replace", null_replacement=b""
    )
    _, edges, data = joined.buffers()
    size = int(np.frombuffer(edges, np.int64)[columns.count])
    lines = memoryview(data)[:size]
    return b"".join((lines, ending.encode())) if ending else lines


def _text(text: str) -> pa.Scalar:
    return pa.scalar(text.encode(), _BINARY)


def _prefixes(columns: RecordColumns, heads: Sequence[str], opening: bytes) -> tuple[pa.Array, str]:
    """Give the beginning of each line, and the rest after the last one.

    The heads of all batches since the record before, and then ``opening``.
    """
    batch = columns.batch
    texts = [opening]
    index = np.zeros(len(batch), np.int32)
    following = 0
    for number, record in enumerate(np.flatnonzero(np.diff(batch, prepend=-1)).tolist(), 1):
        row = int(batch[record])
        texts.append("".join(heads[following : row + 1]).encode() + opening)
        index[record] = number
        following = row + 1
    prefixes = pa.array(texts, _BINARY).take(pa.array(index))
    return prefixes, "".join(heads[following:])


def _metadata(columns: RecordColumns) -> list[Part]:
    parts: list[Part] = [
        integers_as_text(columns.offset),
        _timestamp_type(columns),
        integers_as_text(columns.timestamp),
        _text(" keySize: "),
        integers_as_text(columns.key_size),
        _text(" valueSize: "),
        integers_as_text(columns.value_size),
        _text(" sequence: "),
    ]
    has_sequence = bool((columns.sequence != record_batch.NO_SEQUENCE).any())
    has_headers = bool(columns.headers_count.any())
    if not has_sequence and not has_headers:
        return [*parts, _text(f"{record_batch.NO_SEQUENCE} headerKeys: []")]
    header_keys = _header_keys(columns) if has_headers else _text("[]")
    return [*parts, integers_as_text(columns.sequence), _text(" headerKeys: "), header_keys]


def _timestamp_type(columns: RecordColumns) -> Part:
    is_append_time = (columns.batches.attributes & record_batch.LOG_APPEND_TIME_FLAG) != 0
    names = [f" {name}: " for name in TIMESTAMP_TYPES]
    if is_append_time.all() or not is_append_time.any():
        return _text(names[bool(is_append_time.any())])
    index = is_append_time[columns.batch].astype(np.int8)
    return pa.array([name.encode() for name in names], _BINARY).take(pa.array(index))


def _header_keys(columns: RecordColumns) -> pa.Array:
    texts = [b"[]"] * columns.count
    for row in np.flatnonzero(columns.headers_count).tolist():
        texts[row] = b"[" + b",".join(header.key for header in columns.headers(row)) + b"]"
    return pa.array(texts, _BINARY)


def _control_texts(columns: RecordColumns, is_marker: Flags, damage: Damage) -> list[bytes | None]:
    texts: list[bytes | None] = [None] * columns.count
    for row in np.flatnonzero(is_marker).tolist():
        try:
            texts[row] = control_record_text(columns.key(row), columns.value(row)).encode()
        except FormatError as problem:
            damage(int(columns.batches.position[columns.batch[row]]), problem)
    return texts


def _contents(
    columns: RecordColumns, contents: Contents, is_shown: Flags, damage: Damage
) -> tuple[pa.Array, pa.Array]:
    """Keys and values as text, null where there is nothing to show."""
    if isinstance(contents, Utf8Contents):
        has_key = is_shown & (columns.key_size >= 0)
        has_value = is_shown & (columns.value_size >= 0)
        return (
            gather_bytes(columns.data, columns.key_start, columns.key_size, has_key),
            gather_bytes(columns.data, columns.value_start, columns.value_size, has_value),
        )
    keys: list[bytes | None] = [None] * columns.count
    values: list[bytes | None] = [None] * columns.count
    for row in np.flatnonzero(is_shown).tolist():
        offset = int(columns.offset[row])
        try:
            key, value = contents.text(
                columns.key(row), columns.value(row), offset, columns.headers(row)
            )
        except FormatError as problem:
            damage(int(columns.batches.position[columns.batch[row]]), problem)
            continue
        keys[row] = None if key is None else key.encode()
        values[row] = None if value is None else value.encode()
    return pa.array(keys, _BINARY), pa.array(values, _BINARY)


def _labelled(keys: pa.Array, values: pa.Array, *, is_first_in_line: bool) -> list[Part]:
    """Give keys and values, each after its label.

    In a line without metadata the indent comes first, not a space.
    """
    indent = f"{RECORD_INDENT} " if is_first_in_line else " "
    parts: list[Part] = []
    if keys.null_count < len(keys):
        parts += [_label(f"{indent}key: ", keys), keys]
    if values.null_count < len(values):
        label = _label(" payload: ", values)
        if is_first_in_line and keys.null_count:
            label = pc.if_else(keys.is_null(), _label(f"{indent}payload: ", values), label)
        parts += [label, values]
    return parts


def _label(text: str, content: pa.Array) -> Part:
    """``text`` where there is a content."""
    if content.null_count == 0:
        return _text(text)
    return pc.if_else(content.is_valid(), _text(text), _NOTHING)
