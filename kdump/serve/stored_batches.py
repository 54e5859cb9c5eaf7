"""Batches on their way to a client: bytes, or ranges of files that the system sends itself."""

from __future__ import annotations

import contextlib
import threading
from typing import Final, NamedTuple, Self

from msgspec import Struct

from kdump.scan.source import read_at
from kdump.storage.local_disk import LocalFile
from kdump.storage.location import StoredFile

LEAST_RANGE_BYTES: Final = 64 << 10
"""Less is read: an open file is not worth it. So a response has no more than 64 of them."""


class SentRange(NamedTuple):
    """Bytes of an open file; the end is exclusive.

    Attributes:
        modified_ns: when the file was written last, before its bytes were verified.
    """

    file: LocalFile
    start: int
    end: int
    modified_ns: int

    def require_unchanged(self) -> None:
        """Check that the file has the bytes that were verified.

        Raises:
            OSError: it was written meanwhile, or its state cannot be read.
        """
        if self.file.modified_ns() != self.modified_ns:
            raise OSError(None, "the file was written while it was sent", str(self.file.location))

    @property
    def size_bytes(self) -> int:
        """How many bytes."""
        return self.end - self.start


class StoredBatches(Struct, frozen=True):
    """Batches as they are stored."""

    parts: tuple[bytes | SentRange, ...] = ()

    def __len__(self) -> int:
        return sum(_size_bytes(each) for each in self.parts)

    @property
    def held_bytes(self) -> int:
        """How many of them are in memory."""
        return sum(len(each) for each in self.parts if isinstance(each, bytes))


def read_stored(log: StoredFile, start: int, end: int) -> bytes:
    """All bytes of a range.

    Raises:
        OSError: they cannot be read, or the file ends before.
    """
    data = read_at(log, start, end - start)
    if len(data) < end - start:
        raise OSError(None, "the file became shorter", str(log.location))
    return data


def changed_log(log: StoredFile, how: str) -> OSError:
    """The failure of a log of a stopped broker that is not as it was when it was listed.

    What it had would be left out, or waited for, without a word.
    """
    what = f"the file {how} after it was opened: start the server again"
    return OSError(None, what, str(log.location))


class FilesToSend:
    """The files of a response, open until it is sent; a context that closes them.

    A client may be gone before the thread that chooses its batches has opened them all.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files = contextlib.ExitStack()
        self._is_over = False

    def keep(self, files: contextlib.ExitStack) -> None:
        """Take open files; they are closed at once if nobody waits for them any more."""
        with self._lock, files:
            if not self._is_over:
                self._files.push(files.pop_all())

    def released(self) -> contextlib.ExitStack:
        """The open files, which somebody else takes."""
        with self._lock:
            return self._files.pop_all()

    def close(self) -> None:
        """Close them, and those that are still to come."""
        with self._lock:
            self._is_over = True
            self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _size_bytes(part: bytes | SentRange) -> int:
    return part.size_bytes if isinstance(part, SentRange) else len(part)
