"""The times of a loaded segment, by which it grows old for retention and for the cleaner."""

from __future__ import annotations

import struct
from typing import Final

from kdump.formats import time_index
from kdump.scan.source import read_at
from kdump.target.target_file import CopiedFrom
from kdump.target.virtual_directory import VirtualDirectory, segment_file_names

_TIMESTAMP: Final = struct.Struct(">q")


def last_timestamp_ms(directory: VirtualDirectory, base_offset: int) -> int | None:
    """Timestamp of the last entry of a time index, which is the largest of its segment.

    None if there is no entry, or none with a timestamp. Follows ``LogSegment.largestTimestamp``,
    which uses the modification time then.

    Raises:
        OSError: the index cannot be read.
    """
    _, _, name, _ = segment_file_names(base_offset)
    if name not in directory:
        return None
    last = directory.size_bytes(name) // time_index.ENTRY_BYTES - 1
    if last < 0:
        return None
    small = directory.read_small(name)
    if small is None:
        with directory.open(name) as source:
            data = read_at(source, last * time_index.ENTRY_BYTES, _TIMESTAMP.size)
        timestamp_ms = int(_TIMESTAMP.unpack(data)[0])
    else:
        timestamp_ms = int(_TIMESTAMP.unpack_from(small, last * time_index.ENTRY_BYTES)[0])
    return None if timestamp_ms < 0 else timestamp_ms


def modified_ms(directory: VirtualDirectory, base_offset: int, now_ms: int) -> int:
    """Modification time of a segment's log; a log that loading creates is modified now.

    Raises:
        OSError: the log has disappeared.
    """
    log, *_ = segment_file_names(base_offset)
    content = directory.content(log)
    if not isinstance(content, CopiedFrom):
        return now_ms
    return (directory.path / content.name).status().modified_ms
