"""A log segment as the official tool's text, byte for byte.

``org.apache.kafka.tools.DumpLogSegments`` prints a line for each batch and, on request, a line for
each record. :mod:`kdump.dump.record_lines` formats records of magic 2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import numpy as np

from kdump.dump.text_options import RECORD_INDENT, TIMESTAMP_TYPES, Damage, TextOptions
from kdump.formats import record_batch
from kdump.formats.compression import Codec
from kdump.formats.errors import FormatError
from kdump.formats.java.java_text import java_utf8_bytes
from kdump.formats.message_set import Message
from kdump.scan.batches import BatchColumns, Window
from kdump.scan.header_columns import last_sequences
from kdump.scan.records import RecordColumns
from kdump.scan.walk import MessageSet

_NO_TIMESTAMP_TYPE: Final = "NoTimestampType"


def batch_lines(batches: BatchColumns) -> list[str]:
    """Format one line for each batch, without line ends."""
    columns = [
        batches.position,
        batches.size_bytes,
        batches.base_offset,
        batches.last_offset,
        batches.magic,
        batches.crc,
        batches.attributes,
        batches.max_timestamp,
        batches.base_timestamp,
        batches.producer_id,
        batches.producer_epoch,
        batches.partition_leader_epoch,
        batches.base_sequence,
        last_sequences(batches.base_sequence, batches.last_offset_delta),
        batches.records_count,
        batches.is_valid,
    ]
    lines = []
    for (
        position,
        size,
        base_offset,
        last_offset,
        magic,
        crc,
        attributes,
        max_timestamp,
        base_timestamp,
        producer_id,
        producer_epoch,
        leader_epoch,
        base_sequence,
        last_sequence,
        count,
        is_valid,
    ) in zip(*(column.tolist() for column in columns), strict=True):
        codec = attributes & record_batch.CODEC_MASK
        if magic >= 2:
            transactional = "true" if attributes & record_batch.TRANSACTIONAL_FLAG else "false"
            control = "true" if attributes & record_batch.CONTROL_FLAG else "false"
            horizon = (
                f"OptionalLong[{base_timestamp}]"
                if attributes & record_batch.DELETE_HORIZON_FLAG
                else "OptionalLong.empty"
            )
            start = (
                f"baseOffset: {base_offset} lastOffset: {last_offset} count: {count}"
                f" baseSequence: {base_sequence} lastSequence: {last_sequence}"
                f" producerId: {producer_id} producerEpoch: {producer_epoch}"
                f" partitionLeaderEpoch: {leader_epoch} isTransactional: {transactional}"
                f" isControl: {control} deleteHorizonMs: {horizon}"
            )
        else:
            start = f"offset: {last_offset}"
        lines.append(
            f"{start} position: {position} {timestamp_type(magic, attributes)}: {max_timestamp}"
            f" size: {size} magic: {magic} compresscodec: {_CODEC_LABELS[codec]}"
            f" crc: {crc} isvalid: {'true' if is_valid else 'false'}"
        )
    return lines


_CODEC_LABELS: Final = (*(codec.label for codec in Codec), "unknown", "unknown", "unknown")


def timestamp_type(magic: int, attributes: int) -> str:
    """Give the official tool's name for the timestamps of a batch."""
    if magic == 0:
        return _NO_TIMESTAMP_TYPE
    return TIMESTAMP_TYPES[bool(attributes & record_batch.LOG_APPEND_TIME_FLAG)]


def batches_text(window: Window, damage: Damage) -> bytes:
    """Format the lines of the batches of ``window``."""
    _note_unknown(window.batches, damage)
    return "".join(line + "\n" for line in batch_lines(window.batches)).encode()


def _note_unknown(
    batches: BatchColumns, damage: Damage, reported: Collection[int] = frozenset()
) -> None:
    """Note the batches whose codec or magic Kafka does not know, except those in ``reported``."""
    codecs = batches.attributes & record_batch.CODEC_MASK
    for row in np.flatnonzero((codecs > Codec.ZSTD) | (batches.magic < 0)).tolist():
        if row in reported:
            continue
        if batches.magic[row] < 0:
            problem = FormatError("unknown magic", expected="0 to 2", found=batches.magic[row])
        else:
            problem = FormatError("unknown compression codec", expected="0 to 4", found=codecs[row])
        damage(int(batches.position[row]), problem)


def message_set_text(step: MessageSet, options: TextOptions, damage: Damage) -> bytes:
    """Format the lines of a batch of magic 0 or 1 and of its messages."""
    batches = step.window.batches
    lines = [*batch_lines(batches), *message_lines(step, options, damage)]
    if step.problem is not None:
        damage(int(batches.position[0]), step.problem)
    return "".join(line + "\n" for line in lines).encode()


def message_lines(step: MessageSet, options: TextOptions, damage: Damage) -> Iterator[str]:
    """Format one line for each message of a batch of magic 0 or 1, without line ends."""
    batches = step.window.batches
    kind = timestamp_type(int(batches.magic[0]), int(batches.attributes[0]))
    position = int(batches.position[0])
    for message in step.messages:
        metadata = ""
        content: str | None = None
        try:
            if not options.skip_record_metadata:
                metadata = _message_metadata(message, kind)
            if options.contents is not None:
                key, payload = options.contents.text(message.key, message.value, message.offset)
                content = contents_text(key, payload)
        except FormatError as problem:
            damage(position, problem)
            if not metadata and not options.skip_record_metadata:
                continue
        yield _record_line(metadata, content, options)


def _message_metadata(message: Message, kind: str) -> str:
    return (
        f"{RECORD_INDENT} offset: {message.offset} {kind}: {message.timestamp}"
        f" keySize: {message.key_size_bytes} valueSize: {message.value_size_bytes}"
        f" isValid: {'true' if message.is_valid else 'false'} crc: {message.crc}"
    )


def contents_text(key: str | None, payload: str | None) -> str:
    """Format the part of a record's line after its metadata."""
    return " ".join(
        part
        for part in (
            None if key is None else f"key: {key}",
            None if payload is None else f"payload: {payload}",
        )
        if part is not None
    )


def _record_line(metadata: str, content: str | None, options: TextOptions) -> str:
    if options.skip_record_metadata:
        return f"{RECORD_INDENT} {content}" if content else ""
    return f"{metadata} {content}" if content else metadata


def records_text(
    columns: RecordColumns, options: TextOptions, damage: Damage
) -> bytes | memoryview:
    """Format the lines of the batches of ``columns``, each followed by those of its records."""
    heads = [line + "\n" for line in batch_lines(columns.batches)]
    if columns.is_continued:
        heads[0] = ""
    text: bytes | memoryview = "".join(heads).encode()
    if columns.count:
        # Arrow is imported when there are records to print, not for batches alone.
        from kdump.dump.record_lines import join_lines

        text = join_lines(columns, heads, options, damage)
    for row, problem in columns.problems.items():
        damage(int(columns.batches.position[row]), problem)
    _note_unknown(columns.batches, damage, columns.problems)
    return java_utf8_bytes(text)
