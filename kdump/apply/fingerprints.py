"""The files that an undo keeps: what they are like, and whether they still are."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

import crc32c

from kdump.apply.journal import Fingerprint
from kdump.apply.pinned_directory import directory_of, opened, status_at

_WHOLE_BYTES: Final = 64 << 10
_ENDS_BYTES: Final = 16 << 10
_CHUNK_BYTES: Final = 1 << 20


def kept_file_fingerprint(path: Path, *, is_whole: bool = False) -> Fingerprint:
    """Describe a file, or a symbolic link, that is kept.

    Args:
        path: which.
        is_whole: whether the checksum is of all of it. Otherwise, above 64 KiB, it is of the first
            and the last 16 KiB: a file that is only given another name is not read for that.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    status = status_at(path)
    if stat.S_ISLNK(status.st_mode):
        with directory_of(path) as directory:
            target = os.readlink(os.fsencode(path.name), dir_fd=directory)
        return Fingerprint(status.st_size, status.st_mtime_ns, crc32c.crc32c(target))
    with opened(path) as descriptor:
        status = os.fstat(descriptor)
        checksum = _checksum(descriptor, status.st_size, is_whole=is_whole)
    return Fingerprint(status.st_size, status.st_mtime_ns, checksum)


def _checksum(descriptor: int, size_bytes: int, *, is_whole: bool) -> int:
    if is_whole or size_bytes <= _WHOLE_BYTES:
        ranges = [(0, size_bytes)]
    else:
        ranges = [(0, _ENDS_BYTES), (size_bytes - _ENDS_BYTES, size_bytes)]
    checksum = 0
    for start, end in ranges:
        position = start
        while data := os.pread(descriptor, min(_CHUNK_BYTES, end - position), position):
            checksum = crc32c.crc32c(data, checksum)
            position += len(data)
    return checksum
