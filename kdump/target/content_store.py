"""Keep new content out of memory while rules work on a virtual directory."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final, Protocol

from kdump.storage.byte_source import ByteSource
from kdump.target.target_file import StagedBytes

LEAST_BYTES: Final = 4096
"""Smaller content stays in memory, where it takes hardly more than its name would."""


class ContentStore(Protocol):
    """Keeps new content of files on a disk."""

    def put(self, data: bytes) -> int | None:
        """Keep ``data``; returns its number, or None if there is no space.

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
