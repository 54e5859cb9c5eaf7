"""A segment of Kafka 0.7, as text like the official tool's, and as rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec.structs import replace

from kdump.dump.contents import Contents
from kdump.dump.dumped_file import DumpedFile
from kdump.dump.log_text import contents_text
from kdump.dump.problems import DumpProblem
from kdump.dump.report import DumpReport
from kdump.dump.segment import SegmentOptions
from kdump.dump.segment_rows import text_field
from kdump.dump.text_options import RECORD_INDENT
from kdump.formats import kafka07
from kdump.formats.compression import Codec
from kdump.formats.errors import FormatError
from kdump.formats.kafka07 import Message07, Stop07, StopReason07
from kdump.scan.source import read_at
from kdump.storage.byte_source import ByteSource

Row = dict[str, Any]

_CHUNK_BYTES: Final = 1 << 20
_LARGEST_CHUNK_BYTES: Final = 64 << 20
_NEEDS_MORE: Final = (StopReason07.TORN_TAIL, StopReason07.SHORT_TAIL, StopReason07.ZERO_FILL)


def dump(file: DumpedFile, options: SegmentOptions, report: DumpReport) -> Iterator[bytes]:
    """Print the messages, and with ``deep`` those inside them; offsets are byte positions.

    Raises:
        OSError: when the file cannot be read.
    """
    contents = options.text.contents
    yield f"Log starting offset: {file.base_offset or 0}\n".encode()
    with file.path.open_file() as source:
        for entry in _entries(source, file.base_offset or 0, options.max_bytes):
            if isinstance(entry, Stop07):
                trailing = source.size_bytes - entry.position
                if entry.problem is not None and options.max_bytes is None:
                    report.problem(DumpProblem.from_format_error(file.path, entry.problem))
                    name = file.path.name
                    yield f"Found {trailing} invalid bytes at the end of {name}\n".encode()
                return
            if not options.selection.wants_offset(entry.offset):
                continue
            left = report.left_of(options.selection.limit)
            if left == 0:
                return
            lines = [_outer_line(entry)]
            if not entry.is_valid:
                report.note_damage()
            if not options.deep:
                report.printed(1)
            else:
                messages, problem = _messages(entry)
                messages = messages[:left]
                report.printed(len(messages))
                for message in messages:
                    try:
                        lines.append(record_line(message, contents))
                    except FormatError as unread:
                        damage = DumpProblem.from_format_error(file.path, unread, at=entry.position)
                        report.problem(damage)
                if problem is not None:
                    report.problem(
                        DumpProblem.from_format_error(file.path, problem, at=entry.position)
                    )
            yield "".join(line + "\n" for line in lines).encode()


def rows(file: DumpedFile, options: SegmentOptions, report: DumpReport) -> Iterator[Row]:
    """Rows of type ``message`` (as in the file), ``record`` and ``trailing_bytes``."""
    with file.path.open_file() as source:
        for entry in _entries(source, file.base_offset or 0, options.max_bytes):
            if isinstance(entry, Stop07):
                if entry.problem is not None:
                    report.problem(DumpProblem.from_format_error(file.path, entry.problem))
                    yield {
                        "type": "trailing_bytes",
                        "position": entry.position,
                        "size_bytes": source.size_bytes - entry.position,
                        "why": str(entry.problem),
                    }
                return
            if not options.selection.wants_offset(entry.offset):
                continue
            left = report.left_of(options.selection.limit)
            if left == 0:
                return
            if not entry.is_valid:
                report.note_damage()
            yield {"type": "message", "position": entry.position, **_fields(entry)}
            messages, problem = _messages(entry)
            messages = messages[:left]
            report.printed(len(messages))
            for message in messages:
                yield record_row(message, entry.position)
            if problem is not None:
                report.problem(DumpProblem.from_format_error(file.path, problem, at=entry.position))


def record_row(message: Message07, position: int) -> Row:
    """The row of a message, in the entry at byte ``position`` of the file."""
    return {
        "type": "record",
        "batch_position": position,
        **_fields(message),
        **text_field("value", message.payload),
    }


def _fields(message: Message07) -> Row:
    return {
        "offset": message.offset,
        "next_offset": message.next_offset,
        "size_bytes": message.size_bytes,
        "magic": message.magic,
        "attributes": message.attributes,
        "codec": _codec_label(message),
        "crc": message.crc,
        "is_valid": message.is_valid,
    }


def _codec_label(message: Message07) -> str:
    try:
        return message.codec.label
    except FormatError:
        return "unknown"


def _outer_line(message: Message07) -> str:
    return (
        f"offset: {message.offset} position: {message.position} size: {message.size_bytes}"
        f" magic: {message.magic} compresscodec: {_codec_label(message)} crc: {message.crc}"
        f" isvalid: {'true' if message.is_valid else 'false'}"
    )


def record_line(message: Message07, contents: Contents | None) -> str:
    """Format the line of a message, without line end."""
    line = (
        f"{RECORD_INDENT} offset: {message.offset} nextOffset: {message.next_offset}"
        f" payloadSize: {len(message.payload)}"
        f" isValid: {'true' if message.is_valid else 'false'} crc: {message.crc}"
    )
    if contents is None:
        return line
    _, payload = contents.text(None, message.payload, message.offset)
    return f"{line} {contents_text(None, payload)}"


def _messages(entry: Message07) -> tuple[list[Message07], FormatError | None]:
    messages: list[Message07] = []
    try:
        if entry.codec is Codec.NONE:
            return [entry], None
        messages.extend(kafka07.inner_messages(entry))
    except FormatError as problem:
        return messages, problem.as_value()
    return messages, None


def _entries(
    source: ByteSource, base_offset: int, max_bytes: int | None
) -> Iterator[Message07 | Stop07]:
    """Read the entries of a file in pieces; positions count from the start of the file."""
    end = source.size_bytes if max_bytes is None else min(max_bytes, source.size_bytes)
    start = 0
    wanted = _CHUNK_BYTES
    while True:
        chunk = read_at(source, start, min(wanted, end - start))
        is_last = start + len(chunk) >= end
        used = 0
        for found in kafka07.walk(chunk, base_offset=base_offset + start):
            if isinstance(found, Message07):
                yield replace(found, position=start + found.position)
                used = found.position + found.size_bytes
            elif (
                is_last
                or found.reason not in (StopReason07.END, *_NEEDS_MORE)
                or (not used and wanted >= _LARGEST_CHUNK_BYTES)
            ):
                problem = None if found.problem is None else found.problem.shifted(start)
                yield Stop07(start + found.position, found.reason, problem)
                return
        wanted = _CHUNK_BYTES if used else 8 * wanted
        start += used
