"""Take fingerprints of files, which tell later whether a file is still the same."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Final

from kdump.apply.directory_places import place_of
from kdump.apply.journal import DirectoryMove, Fingerprint
from kdump.apply.journal_record import ROOT
from kdump.apply.operations import states_of
from kdump.apply.pinned_directory import directory_of, opened, status_at
from kdump.formats.checksum import crc32c
from kdump.formats.names import KDUMP_PREFIX, LOCK_FILE, LOG_DIRECTORY_FILES
from kdump.phases import during
from kdump.storage.local_disk import local

CHECKSUMMED_BYTES: Final = 64 << 10
"""Files up to this size are compared by content as well: kdump itself replaces such files, and
keeps their times."""
_WHOLE_BYTES: Final = 64 << 10
_ENDS_BYTES: Final = 16 << 10
_CHUNK_BYTES: Final = 1 << 20


@during("examining files")
def fingerprints_of(
    log_dir: Path,
    directories: Iterable[str],
    moves: Iterable[DirectoryMove] = (),
    *,
    touched: Container[str],
    with_checksums: bool,
) -> dict[str, Fingerprint]:
    """Take fingerprints of the files in directories of ``log_dir`` (``.`` is itself), by path.

    Notes of people beside the partitions, which no broker reads, are not among them: an undo
    neither reads nor changes them.

    Files in directories that a run moves are found wherever those are, and get the path by which
    the journal calls them.

    Args:
        touched: the files that the run or its undo changes.

    Raises:
        OSError: something cannot be read.
    """
    places = {name: name for name in directories}
    places |= {each.key: place for each in moves if (place := place_of(log_dir, each)) is not None}
    fingerprints = {}
    for directory, place in places.items():
        is_root = directory == ROOT
        for name, state in states_of(log_dir / place).items():
            if is_root and (name == LOCK_FILE or name.startswith(KDUMP_PREFIX)):
                continue
            path = sys.intern(name if is_root else f"{directory}/{name}")
            if is_note(path, touched):
                continue
            is_small = with_checksums and state.size_bytes <= CHECKSUMMED_BYTES
            now = log_dir / place / name
            checksum = crc32c(local(now).read()) if is_small else None
            fingerprints[path] = Fingerprint(state.size_bytes, state.metadata.modified_ns, checksum)
    return fingerprints


def is_note(path: str, touched: Container[str]) -> bool:
    """Whether a path is that of a file of people beside the partitions, which a run leaves."""
    return "/" not in path and path not in LOG_DIRECTORY_FILES and path not in touched


def kept_file_fingerprint(path: Path, *, is_whole: bool = False) -> Fingerprint:
    """Take the fingerprint of one of the run's own files, or of a symbolic link.

    Args:
        is_whole: whether the checksum covers the whole file. Otherwise, above 64 KiB, it covers
            the first and last 16 KiB: a file that only gets a hard link is not read as a whole.

    Raises:
        OSError: it does not exist, or cannot be read.
    """
    status = status_at(path)
    if stat.S_ISLNK(status.st_mode):
        with directory_of(path) as directory:
            target = os.readlink(os.fsencode(path.name), dir_fd=directory)
        return Fingerprint(status.st_size, status.st_mtime_ns, crc32c(target))
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
            checksum = crc32c(data, checksum)
            position += len(data)
    return checksum
