"""Copy a partition's directory to another log directory, which may be on another disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path

from msgspec import Struct

from kdump.apply.directory_changes import (
    ByteStream,
    CreatedDirectory,
    FileStream,
    NewFile,
    StreamedFrom,
)
from kdump.apply.files import Metadata, attributes_of
from kdump.apply.pinned_directory import status_at
from kdump.errors import KdumpError

OnRead = Callable[[int], None]
"""Takes how many more bytes were read."""


class WatchedStream(Struct, frozen=True):
    """A stream that says how far it was read.

    Attributes:
        on_read: takes the bytes of each piece.
    """

    stream: ByteStream
    on_read: OnRead

    @property
    def size_bytes(self) -> int:
        return self.stream.size_bytes

    def pieces(self) -> Iterator[bytes]:
        for piece in self.stream.pieces():
            yield piece
            self.on_read(len(piece))


def copy_of(directory: Path, on_read: OnRead) -> CreatedDirectory:
    """The target state of a directory that is a copy: content, modes, owners and times.

    Directory and files have the extended attributes, too.

    Args:
        directory: of the partition.
        on_read: takes how far the copy is, once it is made.

    Raises:
        KdumpError: it has something in it that is not a regular file.
        OSError: it cannot be read.
    """
    files = {}
    for name, status in _files_of(directory).items():
        stream = WatchedStream(FileStream.of(directory / name), on_read)
        files[name] = NewFile(StreamedFrom(stream), Metadata.of(status), directory / name)
    metadata = Metadata.of(status_at(directory))
    return CreatedDirectory(files, metadata, attributes_of(directory))


def difference(directory: Path, other: Path) -> str | None:
    """Compare the files of two directories of one partition, byte for byte.

    Returns:
        The first file that differs, or that only one has, with why; None if all are equal.

    Raises:
        KdumpError: one has something in it that is not a regular file.
        OSError: one cannot be read.
    """
    files, others = _files_of(directory), _files_of(other)
    for name in sorted(files.keys() ^ others.keys()):
        return f"only {directory if name in files else other} has {name}"
    for name, status in files.items():
        if status.st_size != others[name].st_size or not _is_same(directory / name, other / name):
            return f"{name} differs"
    return None


def file_system_of(path: Path) -> int:
    """A number for the file system that a directory is on.

    Raises:
        OSError: its status cannot be read.
    """
    return path.stat().st_dev


def _files_of(directory: Path) -> dict[str, os.stat_result]:
    found = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                raise KdumpError(
                    f"{directory / entry.name}: is not a regular file, which Kafka does not"
                    " create there; nothing has been changed; move it out of the partition first"
                )
            found[entry.name] = status
    return dict(sorted(found.items()))


def _is_same(path: Path, other: Path) -> bool:
    pieces = zip_longest(FileStream.of(path).pieces(), FileStream.of(other).pieces())
    return all(piece == each for piece, each in pieces)
