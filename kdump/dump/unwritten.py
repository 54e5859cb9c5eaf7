"""Space at the end of a file that was allocated and never written.

``kafka-dump-log`` fails on it, but it is no damage: brokers allocate indexes ahead, and logs with
``log.preallocate``, and leave the rest where they are killed.
"""

from __future__ import annotations

from kdump.dump.problems import DumpProblem
from kdump.formats import offset_index
from kdump.formats.names import FileKind, parse_offset_file_name
from kdump.formats.record_batch import PREFIX_BYTES
from kdump.scan.source import is_zero
from kdump.storage.byte_source import ByteSource
from kdump.storage.location import Location
from kdump.words import counted


def unwritten_log(path: Location, log: ByteSource, position: int) -> DumpProblem | None:
    """Describe a log from a byte on, if nothing was written there; None if that is damage.

    As for ``kdump verify``, only the last segment of a partition may end like that. Fewer zeroes
    may be the start of an offset.
    """
    size_bytes = log.size_bytes - position
    is_unwritten = size_bytes > PREFIX_BYTES and is_zero(log, position, log.size_bytes)
    return _described(path, position, size_bytes) if is_unwritten and _is_last(path) else None


def unwritten_index(path: Location, data: bytes, entry_bytes: int) -> DumpProblem | None:
    """Describe an index that has space for several entries and none; None if it has any."""
    padding = offset_index.count_padding(data, entry_bytes)
    return _described(path, 0, len(data)) if 0 < padding == len(data) // entry_bytes else None


def _described(path: Location, position: int, size_bytes: int) -> DumpProblem:
    zeroes = counted(size_bytes, "zero byte")
    return DumpProblem(path, position, f"{zeroes} to the end of the file: never written")


def _is_last(log: Location) -> bool:
    """Whether no segment with a larger offset is beside a log."""
    own = parse_offset_file_name(log.name)
    names = (parse_offset_file_name(each.name) for each in log.parent.entries())
    return own is not None and not any(
        other is not None and other.kind is FileKind.LOG and other.offset > own.offset
        for other in names
    )
