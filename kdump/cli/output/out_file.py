"""The file that a command writes with ``--out``.

The file is complete or not there: it is written beside its name, synced, and renamed. Only its
owner can read it, because what kdump collects can hold secrets of the cluster, unless it is said
to be for others.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from msgspec import Struct

from kdump.errors import KdumpError, UsageProblem, reason_of
from kdump.storage.entries import EntryKind
from kdump.storage.local_disk import local
from kdump.storage.location import Location
from kdump.storage.unfinished_file import UnfinishedFile, sync_directory

Command = TypeVar("Command", bound=Callable[..., Any])

_TEMPORARY_PREFIX: Final = ".kdump-out-"


class OutFileError(KdumpError):
    """The file of ``--out`` cannot be written."""


class OutFile(Struct, frozen=True):
    """The file of ``--out``: it can be written, as far as can be known before.

    Attributes:
        name: as typed.
        path: without links.
        is_replaced: whether an existing file is replaced.
        option: that names it, for messages.
    """

    name: str
    path: Path
    is_replaced: bool
    option: str = "--out"
    mode: int = 0o600

    @classmethod
    def checked(
        cls, name: str, *, is_replaced: bool, option: str = "--out", mode: int = 0o600
    ) -> Self:
        """The file of this name, which need not exist.

        Raises:
            UsageProblem: it is not a regular file, it exists and is not to be replaced, or it is
                inside a log directory.
            OutFileError: its directory is missing or cannot be looked at.
        """
        try:
            out = cls(name, Path(name).resolve(), is_replaced, option, mode)
            out._refuse_existing()
            refuse_log_directories(name, f"{option} {name}")
            out._require_writable_directory()
        except (OSError, ValueError, RuntimeError) as failure:
            raise _problem(f"{option} {name}", failure) from failure
        return out

    def _require_writable_directory(self) -> None:
        """Fail before the work, not after it."""
        directory = self.path.parent
        if not os.access(directory, os.W_OK | os.X_OK):
            status = os.statvfs(directory)
            code = errno.EROFS if status.f_flag & os.ST_RDONLY else errno.EACCES
            raise OSError(code, os.strerror(code), str(directory))

    def refuse_to_replace(self, inputs: Iterable[Location]) -> None:
        """Refuse to replace a file that the command reads: its disk may be gone.

        Raises:
            UsageProblem: one of the inputs is the file.
        """
        here = local(str(self.path))
        for each in inputs:
            with contextlib.suppress(OSError):  # missing: reading it fails later
                if each.is_same(here):
                    raise UsageProblem(f"{self}: is read, too: name another file")

    def write(self, pieces: Iterable[bytes], before: Callable[[], object] = int) -> int:
        """Write the file, and return its size in bytes.

        Args:
            pieces: its content.
            before: called when the content is durable, before the file gets its name. If it fails,
                nothing is left of the file.

        Raises:
            UsageProblem: another program has created the file since it was checked.
            OutFileError: it cannot be written; then nothing is left of it.
        """
        try:
            return self._written(pieces, before)
        except OSError as failure:
            raise _problem(str(self), failure) from failure

    def __str__(self) -> str:
        return f"{self.option} {self.name}"

    def _written(self, pieces: Iterable[bytes], before: Callable[[], object]) -> int:
        directory = self.path.parent
        with UnfinishedFile.beside(self.path, _TEMPORARY_PREFIX, mode=0o600) as new:
            os.fchmod(new.stream.fileno(), self.mode)  # whatever the mask of the process
            new.stream.writelines(pieces)
            size_bytes = new.finish()
            self._refuse_existing()
            before()
            new.rename(self.path)
        with contextlib.suppress(OSError):
            # The file is complete; not all file systems make names durable.
            sync_directory(directory)
        return size_bytes

    def _refuse_existing(self) -> None:
        kind = local(str(self.path)).kind()
        if kind is None:
            return
        if kind is EntryKind.DIRECTORY:
            raise UsageProblem(f"{self}: is a directory: name a file in it")
        if kind is not EntryKind.FILE:
            raise UsageProblem(f"{self}: is not a regular file: name another")
        if not self.is_replaced:
            force = ", or give --force" if self.option == "--out" else ""
            raise UsageProblem(f"{self}: exists: name another file{force}")


def refuse_log_directories(path: str, named: str | None = None) -> None:
    """Refuse to write to a path inside a log directory or a partition, at any depth.

    Args:
        named: how messages name it; None for the path itself.

    Raises:
        UsageProblem: it is inside one.
        OSError: the directory around it cannot be listed.
    """
    from kdump.log.directory import DirectoryKind, directory_kind

    resolved = Path(path).resolve()
    for directory in resolved.parents:
        place = local(str(directory))
        try:
            kind = directory_kind(place)
        except OSError:
            if directory == resolved.parent and not place.is_directory():
                raise
            continue
        # Kafka 0.7 marks a log directory by nothing but its partitions, so any directory above may
        # look like one.
        is_above = directory != resolved.parent
        if is_above and kind is DirectoryKind.LOG_DIRECTORY_0_7:
            continue
        if kind.is_log_directory or kind.is_partition:
            raise UsageProblem(
                f"{named or path}: is inside the {kind.value} {directory}: name a place elsewhere"
            )


def _problem(named: str, failure: Exception) -> OutFileError:
    return OutFileError(f"{named}: {reason_of(failure)}")
