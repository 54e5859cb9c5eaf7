"""Keep new content out of memory while rules work on a virtual directory."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final, Protocol

from kdump.storage.byte_source import ByteSource
from kdump.target.target_file import NewBytes, StagedBytes, TargetFile

LEAST_BYTES: Final = 4096
"""Smaller content stays in memory, where it takes hardly more than its name would."""


class ContentStore(Protocol):
    """Keeps new content of files on a disk."""

    def put(self, data: bytes) -> int | None:
        """Keep ``data``; returns its number, or None if it has to stay in memory.

        Raises:
            OSError: writing fails.
        """
        ...

    def source(self, number: int) -> AbstractContextManager[ByteSource]:
        """Open what was kept."""
        ...

    def target(self, number: int, size_bytes: int) -> StagedBytes:
        """The target state of a file that gets what was kept."""
        ...

    def staged(self, target: TargetFile) -> TargetFile:
        """The same target file, whose content is kept here, if it is large.

        Raises:
            OSError: writing fails.
        """
        ...


def is_large(size_bytes: int) -> bool:
    """Whether content of this size is worth keeping elsewhere."""
    return size_bytes >= LEAST_BYTES


def without_content(target: TargetFile) -> TargetFile:
    """The same target file without its content, if that is large; for a preview."""
    if isinstance(target, NewBytes) and is_large(target.size_bytes):
        return StagedBytes(target.size_bytes)
    return target
