"""A log segment as rows: every field of every batch, record and header.

Keys and values that are UTF-8 are text, others base64; ``key_encoding`` and ``value_encoding``
say which (``utf8`` or ``base64``), and are null where the key or value is.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from kdump.dump.contents import Contents, FieldContents, Headers, Payload, TopicContents
from kdump.dump.log_text import timestamp_type
from kdump.dump.segment import SegmentReading
from kdump.formats import record_batch
from kdump.formats.compression import Codec
from kdump.formats.errors import FormatError
from kdump.formats.internal_topics import control_record_value
from kdump.formats.message_set import Message
from kdump.formats.record_batch import RecordHeader
from kdump.scan.batches import BatchColumns, Window
from kdump.scan.header_columns import last_sequences
from kdump.scan.records import RecordColumns
from kdump.scan.walk import MessageSet, Skipped

Row = dict[str, Any]

UNKNOWN_CODEC: Final = "unknown"


def rows(reading: SegmentReading, contents: Contents | None) -> Iterator[Row]:
    """Rows of type ``batch``, ``record``, ``skipped_bytes`` and ``trailing_bytes``.

    Args:
        reading: the pass over the segment.
        contents: adds the decoded keys and values, where they are not text.
    """
    for step in reading.steps():
        if isinstance(step, Window):
            yield from map(_batch_row, *_batch_fields(step.batches))
        elif isinstance(step, RecordColumns):
            yield from _batches_with_records(step, contents, reading)
        elif isinstance(step, MessageSet):
            yield from _message_set_rows(step, contents, reading)
        elif isinstance(step, Skipped):
            yield {
                "type": "skipped_bytes",
                "position": step.start,
                "size_bytes": step.end - step.start,
                "why": str(step.problem),
            }
        elif step.problem is not None:
            yield {
                "type": "trailing_bytes",
                "position": step.position,
                "size_bytes": reading.size_bytes - step.position,
                "why": str(step.problem),
            }
    reading.finish()


def text_field(name: str, data: bytes | None) -> Row:
    """Give ``data`` as the fields ``name`` and ``name_encoding``."""
    if data is None:
        return {name: None, f"{name}_encoding": None}
    try:
        return {name: data.decode(), f"{name}_encoding": "utf8"}
    except UnicodeDecodeError:
        return {name: base64.b64encode(data).decode(), f"{name}_encoding": "base64"}


def _batch_fields(batches: BatchColumns) -> list[list[Any]]:
    last_sequence = last_sequences(batches.base_sequence, batches.last_offset_delta)
    columns = [*batches.columns().values(), batches.last_offset, last_sequence]
    return [column.tolist() for column in columns]


def _batch_row(
    position: int,
    size_bytes: int,
    base_offset: int,
    partition_leader_epoch: int,
    magic: int,
    crc: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    records_count: int,
    is_valid: bool,
    last_offset: int,
    last_sequence: int,
) -> Row:
    codec = attributes & record_batch.CODEC_MASK
    row: Row = {
        "type": "batch",
        "position": position,
        "size_bytes": size_bytes,
        "magic": magic,
        "base_offset": base_offset,
        "last_offset": last_offset,
        "codec": Codec(codec).label if codec in list(Codec) else UNKNOWN_CODEC,
        "crc": crc,
        "is_valid": is_valid,
        "attributes": attributes,
        "timestamp_type": timestamp_type(magic, attributes),
        "max_timestamp_ms": max_timestamp,
    }
    if magic < 2:
        # The message itself does not have it: a wrapper has the offset of its last message.
        row["base_offset"] = base_offset if codec == Codec.NONE else None
        return row
    is_horizon = bool(attributes & record_batch.DELETE_HORIZON_FLAG)
    return {
        **row,
        "base_timestamp_ms": base_timestamp,
        "last_offset_delta": last_offset_delta,
        "records_count": records_count,
        "partition_leader_epoch": partition_leader_epoch,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
        "base_sequence": base_sequence,
        "last_sequence": last_sequence,
        "is_transactional": bool(attributes & record_batch.TRANSACTIONAL_FLAG),
        "is_control": bool(attributes & record_batch.CONTROL_FLAG),
        "delete_horizon_ms": base_timestamp if is_horizon else None,
    }


def _batches_with_records(
    columns: RecordColumns, contents: Contents | None, reading: SegmentReading
) -> Iterator[Row]:
    batch_rows = list(map(_batch_row, *_batch_fields(columns.batches)))
    ends = np.searchsorted(columns.batch, np.arange(columns.batches.count), "right").tolist()
    begin = 0
    for number, (batch_row, end) in enumerate(zip(batch_rows, ends, strict=True)):
        if number or not columns.is_continued:
            yield batch_row
        for record in range(begin, end):
            yield _record_row(columns, record, batch_row, contents, reading)
        begin = end
        if number in columns.problems:
            problem = columns.problems[number]
            reading.damage(batch_row["position"], problem)
            yield _damaged_records(batch_row["position"], problem)


def _damaged_records(batch_position: int, problem: FormatError) -> Row:
    return {
        "type": "damaged_records",
        "batch_position": batch_position,
        "why": str(problem),
    }


def _record_row(
    columns: RecordColumns,
    record: int,
    batch_row: Row,
    contents: Contents | None,
    reading: SegmentReading,
) -> Row:
    row = record_row(columns, record, batch_row["position"], batch_row["timestamp_type"])
    try:
        if batch_row["is_control"]:
            row["control"] = _plain(
                control_record_value(columns.key(record), columns.value(record))
            )
        elif contents is not None:
            row |= decoded_fields(
                contents,
                columns.key(record),
                columns.value(record),
                row["offset"],
                columns.headers(record),
            )
    except FormatError as problem:
        reading.damage(batch_row["position"], problem)
    return row


def record_row(
    columns: RecordColumns, record: int, batch_position: int, timestamp_type: str
) -> Row:
    """The row of a record of magic 2, with its key and value as stored."""
    return {
        "type": "record",
        "batch_position": batch_position,
        "offset": int(columns.offset[record]),
        "timestamp_ms": int(columns.timestamp[record]),
        "timestamp_type": timestamp_type,
        "sequence": int(columns.sequence[record]),
        "attributes": int(columns.attributes[record]),
        "key_size_bytes": int(columns.key_size[record]),
        "value_size_bytes": int(columns.value_size[record]),
        **text_field("key", columns.key(record)),
        **text_field("value", columns.value(record)),
        "headers": [_header_row(header) for header in columns.headers(record)],
    }


def _header_row(header: RecordHeader) -> Row:
    return {**text_field("key", header.key), **text_field("value", header.value)}


def decoded_fields(
    contents: Contents, key: Payload, value: Payload, offset: int, headers: Headers = ()
) -> Row:
    """The fields of a record's row that ``contents`` adds.

    Raises:
        FormatError: as :meth:`Contents.text`.
    """
    if isinstance(contents, FieldContents):
        return dict(contents.fields(key, value, headers))
    if isinstance(contents, TopicContents):
        parsed = contents.parse(key, value, offset)
        return {
            "record_type": parsed.type_name,
            "record_version": parsed.version,
            "decoded_key": _plain(parsed.key),
            "decoded_value": _plain(parsed.value),
            "decoding_error": parsed.error,
        }
    decoded_key, decoded_value = contents.text(key, value, offset)
    return {"decoded_key": decoded_key, "decoded_value": decoded_value}


def _plain(value: Any) -> Any:
    """Replace what JSON cannot represent in ``value`` by text: bytes, and not-a-numbers."""
    match value:
        case dict():
            return {name: _plain(part) for name, part in value.items()}
        case list() | tuple():
            return [_plain(part) for part in value]
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case float() if not math.isfinite(value):
            return str(value)
    return value


def _message_set_rows(
    step: MessageSet, contents: Contents | None, reading: SegmentReading
) -> Iterator[Row]:
    (batch_row,) = map(_batch_row, *_batch_fields(step.window.batches))
    if step.messages and batch_row["base_offset"] is None:
        batch_row["base_offset"] = step.messages[0].offset
        batch_row["records_count"] = len(step.messages)
    yield batch_row
    position = batch_row["position"]
    for message in step.messages:
        try:
            yield message_row(message, position, contents)
        except FormatError as problem:
            reading.damage(position, problem)
            yield _damaged_records(position, problem)
    if step.problem is not None:
        reading.damage(position, step.problem)
        yield _damaged_records(position, step.problem)


def message_row(message: Message, position: int, contents: Contents | None = None) -> Row:
    """The row of a message of magic 0 or 1 in the batch at ``position``.

    Raises:
        FormatError: its key or value reaches past it.
    """
    key, value = message.key, message.value
    row = {
        "type": "record",
        "batch_position": position,
        "offset": message.offset,
        "timestamp_ms": message.timestamp,
        "timestamp_type": message.timestamp_type.value,
        "magic": message.magic,
        "attributes": message.attributes,
        "crc": message.crc,
        "is_valid": message.is_valid,
        "key_size_bytes": message.key_size_bytes,
        "value_size_bytes": message.value_size_bytes,
        **text_field("key", key),
        **text_field("value", value),
        "headers": [],
    }
    if contents is not None:
        row |= decoded_fields(contents, key, value, message.offset)
    return row
