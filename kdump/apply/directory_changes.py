"""What a plan does to the directory of a partition as a whole: create, rename or remove it.

A broker takes every directory in a log directory for a partition, and does not start if its name is
none (``LocalLog.parseTopicPartitionName``). So a directory that is not complete yet, or about to
go, has a name that a broker handles without losing anything:

``orders-0.kdump-7-new-0-delete``
    A directory that run 7 creates, while it is filled. A broker deletes a ``-delete`` directory
    some time after its start (``LogManager.deleteLogs``), so it never reads a part of it as a
    partition. Once it is complete and durable, it is renamed.
``orders-0.kdump-7-old-0-delete``
    A directory that run 7 removes, while its files are deleted.
``orders-0.kdump-7-old-0-stray``
    A directory that run 7 has removed and keeps for an undo. A broker loads a ``-stray`` directory
    when it starts, and neither uses nor deletes it (``LogManager.addStrayLog``).

A copy of the cluster's metadata is moved aside as ``__cluster_metadata-0.<32 digits>-stray``
(:func:`aside_name`). A broker skips every directory that its name assigns to this topic, whatever
follows (``LogManager.loadLogs``); the Raft layer opens ``__cluster_metadata-0`` and nothing else
(``KafkaRaftManager.createDataDir``); and only that name is looked for on other disks
(``KafkaRaftServer.initializeLogDirs``).

**Two log directories.** A partition moves from disk A to disk B with two plans, each with its own
journal, while both directories are locked:

1. in B: create ``orders-0``; its log start offset is in B's checkpoint before the directory has its
   name, through ``interim``;
2. in A: remove ``orders-0``; afterwards its checkpoint lines.

If the machine stops before the end of 1, B has at most a ``-delete`` directory, and A is unchanged.
Between 1 and 2 both have the partition: a broker refuses to start ("Duplicate log directories", in
``LogManager.loadLog``) and loses nothing. In the other order there would be none: a broker would
create an empty log, and the replicas that follow it would truncate theirs. So a command that finds
the same partition in A and B compares the two, and then continues with 2.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from kdump.apply.files import Attributes, Metadata
from kdump.apply.pinned_directory import identity_of, opened
from kdump.formats.names import (
    KDUMP_PREFIX,
    PartitionDirectoryName,
    PartitionState,
    parse_partition_directory_name,
)
from kdump.target.target_file import NewBytes

_LONGEST_NAME: Final = 254
"""One less than possible: ``-stray`` may become ``-delete``."""
_CHUNK_BYTES: Final = 1 << 20
_RUN_MARK: Final = KDUMP_PREFIX.strip(".")
_RUN_DIRECTORY: Final = re.compile(rf"{_RUN_MARK}([0-9]{{1,18}})-(new|old)-[0-9]+")


class ByteStream(Protocol):
    """Content that is produced piece by piece, such as a changed copy of a file."""

    @property
    def size_bytes(self) -> int:
        """How many bytes the pieces have together."""
        ...

    def pieces(self) -> Iterator[bytes]:
        """Produce the content; OSError if that fails."""
        ...


class StreamedFrom(Struct, frozen=True):
    """Holds what a stream produces. It is checked against the stream once it is on the disk."""

    stream: ByteStream

    @property
    def size_bytes(self) -> int:
        return self.stream.size_bytes


class FileStream(Struct, frozen=True):
    """The content of a file anywhere, also on another file system, maybe changed on the way.

    Attributes:
        path: of the file. A symbolic link is not followed.
        size_bytes: of its content. What a change produces must have the same size.
        identity: device, inode and time of the last modification, as they were when it was planned.
        changed: makes new pieces of the pieces of the file; None copies it.
    """

    path: Path
    size_bytes: int
    identity: tuple[int, int, int]
    changed: Callable[[Iterator[bytes]], Iterator[bytes]] | None = None

    @classmethod
    def of(
        cls, path: Path, changed: Callable[[Iterator[bytes]], Iterator[bytes]] | None = None
    ) -> FileStream:
        """Describe a file as it is now.

        Raises:
            OSError: there is none.
        """
        status = path.lstat()
        return cls(path, status.st_size, _identity(status), changed)

    def pieces(self) -> Iterator[bytes]:
        pieces = self._read()
        return pieces if self.changed is None else self.changed(pieces)

    def _read(self) -> Iterator[bytes]:
        with opened(self.path) as descriptor:
            self._require_same(descriptor)
            while data := os.read(descriptor, _CHUNK_BYTES):
                yield data
            self._require_same(descriptor)

    def _require_same(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        if (_identity(status), status.st_size) != (self.identity, self.size_bytes):
            raise OSError(errno.ESTALE, "was changed while it was read", str(self.path))


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return (*identity_of(status), status.st_mtime_ns)


class NewFile(Struct, frozen=True):
    """A file of a new directory.

    Attributes:
        metadata: mode, owner and times; None for those of the directory, and the current time.
        like: the file whose extended attributes it gets, which may be on another disk.
    """

    content: NewBytes | StreamedFrom
    metadata: Metadata | None = None
    like: Path | None = None


class CreatedDirectory(Struct, frozen=True):
    """Does not exist yet, and is complete afterwards.

    Attributes:
        files: by name.
        metadata: mode and owner; None for those of the log directory.
        attributes: its extended attributes.
    """

    files: Mapping[str, NewFile]
    metadata: Metadata | None = None
    attributes: Attributes = ()


class RenamedDirectory(Struct, frozen=True):
    """Is the directory ``source`` under a new name; nothing in it changes."""

    source: str


class RemovedDirectory(Struct, frozen=True):
    """Is gone with everything in it. An undo keeps it under another name."""


DirectoryChange = CreatedDirectory | RenamedDirectory | RemovedDirectory
"""The target state of a directory in a log directory; the others stay unchanged."""


def name_in_run(name: str, number: int, what: str, state: PartitionState) -> str:
    """The name that a directory has during run ``number``, or as its undo data.

    Args:
        name: of the directory of a partition.
        what: tells the directories of the run from each other, such as ``new-0``.
        state: DELETE or STRAY.

    Raises:
        FormatError: it is no name of a partition.
    """
    parsed = parse_partition_directory_name(name)
    # A broker, too, cuts a long topic short (``LocalLog.logDeleteDirName``).
    rest = f"-{parsed.partition}.{_RUN_MARK}{number}-{what}{state.value}"
    return parsed.topic[: _LONGEST_NAME - len(rest)] + rest


class RunDirectory(NamedTuple):
    """What the name of a directory says about the run that it is of.

    Attributes:
        is_complete: whether it has all of its files: it is undo data. Otherwise it was being filled
            or emptied.
    """

    number: int
    is_complete: bool


def run_directory(parsed: PartitionDirectoryName) -> RunDirectory | None:
    """Recognize a directory that a run created or removed; None if it is none."""
    match = _RUN_DIRECTORY.fullmatch(parsed.unique_id)
    if match is None:
        return None
    is_complete = match[2] == "old" and parsed.state is PartitionState.STRAY
    return RunDirectory(int(match[1]), is_complete)


def aside_name(directory: Path) -> str:
    """A name under which Kafka leaves a directory alone: ``orders-0.<32 digits>-stray``.

    The digits follow from the directory itself, so that a preview shows the name that it will get.

    Raises:
        FormatError: it has no name of a partition.
        OSError: it does not exist.
    """
    status = directory.lstat()
    seed = f"{directory.name} {status.st_ino} {status.st_mtime_ns}".encode()
    parsed = parse_partition_directory_name(directory.name)
    # It loads OpenSSL, which a preview does not need.
    import hashlib

    unique_id = hashlib.sha256(seed).hexdigest()[:32]
    rest = f"-{parsed.partition}.{unique_id}{PartitionState.STRAY.value}"
    return parsed.topic[: _LONGEST_NAME - len(rest)] + rest
