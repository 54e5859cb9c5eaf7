"""The kind of a file by its name, and the dump of each kind.

The module of a kind is imported when a file of that kind is dumped: a command that prints one
segment does not import the schemas of the internal topics.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from kdump.dump import segment
from kdump.dump.dumped_file import DumpedFile
from kdump.dump.index_options import IndexDumpOptions
from kdump.dump.report import DumpReport
from kdump.dump.segment import SegmentOptions, SegmentReading
from kdump.formats import names
from kdump.phases import phase

if TYPE_CHECKING:
    from kdump.dump.workers import Worker

Row = dict[str, Any]

_LEFTOVER: Final = re.compile(r"\.(swap|cleaned|deleted|tmp)$")
_METADATA_SNAPSHOT_PART: Final = re.compile(r"\.checkpoint[0-9]*\.part$")


SMALL_FILES: Final = (names.PARTITION_FILES | names.LOG_DIRECTORY_FILES) - {
    names.BOOTSTRAP_CHECKPOINT,
    names.LOCK_FILE,
}
"""Files that are recognized by their full name (``small_files.READERS`` has each)."""


class DumpKind(enum.Enum):
    """The content of a file, by its name."""

    SEGMENT = ".log"
    METADATA_SNAPSHOT = ".checkpoint"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TRANSACTION_INDEX = ".txnindex"
    PRODUCER_SNAPSHOT = ".snapshot"
    SEGMENT_0_7 = ".kafka"
    SMALL_FILE = "a checkpoint or another small file"

    @classmethod
    def of(cls, name: str) -> DumpKind | None:
        """Give the kind of the file called ``name`` (without directory); None if it has none.

        Suffixes of leftover files (``.swap``, ``.deleted`` …) do not count. Quarantined bytes have
        the kind of the file that they were in.
        """
        plain = _plain_name(name)
        if plain in SMALL_FILES:
            return cls.SMALL_FILE
        _, dot, suffix = plain.rpartition(".")
        return _BY_SUFFIX.get(dot + suffix)


_BY_SUFFIX: Final = {kind.value: kind for kind in DumpKind if kind.value.startswith(".")}


def _plain_name(name: str) -> str:
    original = names.quarantined_from(name) or name
    return _METADATA_SNAPSHOT_PART.sub(".checkpoint", _LEFTOVER.sub("", original))


class DumpOptions(Struct, frozen=True):
    """What to dump of files of each kind."""

    segment: SegmentOptions = field(default_factory=SegmentOptions)
    index: IndexDumpOptions = field(default_factory=IndexDumpOptions)


def dump_text(
    file: DumpedFile,
    kind: DumpKind,
    options: DumpOptions,
    report: DumpReport,
    workers: Sequence[Worker] = (),
) -> Iterator[bytes | memoryview]:
    """Give the official tool's text without its first line, or text like it.

    ``workers`` may produce part of the text of a segment.

    Raises:
        OSError: when the file cannot be read.
    """
    match kind:
        case DumpKind.SEGMENT | DumpKind.METADATA_SNAPSHOT:
            yield from segment.dump(file, options.segment, report, workers)
        case DumpKind.SEGMENT_0_7:
            from kdump.dump import kafka07

            yield from kafka07.dump(file, options.segment, report)
        case _:
            for text in _index_text(file, kind, options, report):
                yield text.encode("utf-8", "surrogateescape")


def _index_text(
    file: DumpedFile, kind: DumpKind, options: DumpOptions, report: DumpReport
) -> Iterator[str]:
    match kind:
        case DumpKind.OFFSET_INDEX:
            from kdump.dump import offset_index

            yield from offset_index.dump(file, options.index, report)
        case DumpKind.TIME_INDEX:
            from kdump.dump import time_index

            yield from time_index.dump(file, options.index, report)
        case DumpKind.TRANSACTION_INDEX:
            from kdump.dump import transaction_index

            yield from transaction_index.dump(file, report)
        case DumpKind.PRODUCER_SNAPSHOT:
            from kdump.dump import producer_snapshot

            yield from producer_snapshot.dump(file, report)
        case _:
            from kdump.dump import small_files

            yield from small_files.dump(file, _plain_name(file.path.name), report)


def dump_rows(
    file: DumpedFile, kind: DumpKind, options: DumpOptions, report: DumpReport
) -> Iterator[Row]:
    """Every field of everything in the file, as rows with a ``type``.

    Raises:
        OSError: when the file cannot be read.
    """
    match kind:
        case DumpKind.SEGMENT | DumpKind.METADATA_SNAPSHOT:
            from kdump.dump import segment_rows

            with phase(f"opening {file.name}"):
                source = file.path.open_file()
            with source:
                reading = SegmentReading(file, source, options.segment, report)
                yield from segment_rows.rows(reading, options.segment.text.contents)
        case DumpKind.SEGMENT_0_7:
            from kdump.dump import kafka07

            yield from kafka07.rows(file, options.segment, report)
        case DumpKind.OFFSET_INDEX:
            from kdump.dump import offset_index

            yield from offset_index.rows(file, options.index, report)
        case DumpKind.TIME_INDEX:
            from kdump.dump import time_index

            yield from time_index.rows(file, options.index, report)
        case DumpKind.TRANSACTION_INDEX:
            from kdump.dump import transaction_index

            yield from transaction_index.rows(file, report)
        case DumpKind.PRODUCER_SNAPSHOT:
            from kdump.dump import producer_snapshot

            yield from producer_snapshot.rows(file, report)
        case DumpKind.SMALL_FILE:
            from kdump.dump import small_files

            yield from small_files.rows(file, _plain_name(file.path.name), report)
