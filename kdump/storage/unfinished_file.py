"""A local file that is complete or not there: written beside its name, synced, and renamed."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import IO, Final, Self

_BUFFER_BYTES: Final = 1 << 20
_SUFFIX: Final = ".tmp"


class UnfinishedFile:
    """A file with a temporary name, in the directory where it will be.

    A context, after which it is deleted unless it was kept or renamed.

    Attributes:
        stream: to write to.
    """

    def __init__(self, stream: IO[bytes], path: Path | None) -> None:
        self.stream = stream
        self._path = path

    @classmethod
    def unnamed(cls) -> Self:
        """Create a temporary file that never gets a name, and is gone with the process.

        Raises:
            OSError: it cannot be created.
        """
        import tempfile

        return cls(tempfile.TemporaryFile(), None)

    @classmethod
    def beside(
        cls, path: Path, prefix: str, *, mode: int, buffer_bytes: int = _BUFFER_BYTES
    ) -> Self:
        """Create the temporary file for ``path``, whose directory exists.

        Args:
            path: where the file will be.
            prefix: its temporary name begins with it.
            mode: of the file, from which the mask of the process is taken away.
            buffer_bytes: how many bytes are written together.

        Raises:
            OSError: it cannot be created.
        """
        temporary = path.with_name(f"{prefix}{secrets.token_hex(8)}{_SUFFIX}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, mode)
        return cls(os.fdopen(descriptor, "wb", buffering=buffer_bytes), temporary)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    @property
    def path(self) -> Path:
        """Where the file is as long as it is unfinished."""
        assert self._path is not None
        return self._path

    def set_modified(self, modified_ns: int) -> None:
        """Set the modification time; nothing is written after that.

        Raises:
            OSError: it cannot be written.
        """
        self.stream.flush()
        os.utime(self.stream.fileno(), ns=(modified_ns, modified_ns))

    def close(self) -> None:
        """Close the file; somebody else syncs it.

        Raises:
            OSError: it cannot be written.
        """
        self.stream.close()

    def finish(self) -> int:
        """Sync and close the file; returns its size in bytes.

        Raises:
            OSError: it cannot be written.
        """
        self.stream.flush()
        os.fsync(self.stream.fileno())
        size_bytes = os.fstat(self.stream.fileno()).st_size
        self.stream.close()
        return size_bytes

    def keep(self) -> str:
        """Keep the file under its temporary name; returns its path."""
        kept, self._path = self._path, None
        assert kept is not None
        return str(kept)

    def rename(self, path: Path) -> None:
        """Give the file its name, in place of a file that has it.

        Raises:
            OSError: it cannot be renamed; then it is still temporary.
        """
        assert self._path is not None
        self._path.rename(path)
        self._path = None

    def drop(self) -> None:
        """Delete the file unless it was kept or renamed."""
        with contextlib.suppress(OSError, ValueError):
            self.stream.close()
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()


def is_unfinished(name: str, prefix: str) -> bool:
    """Whether a file of this name was not finished."""
    return name.startswith(prefix) and name.endswith(_SUFFIX)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable.

    Raises:
        OSError: its file system cannot.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
