"""Directories in memory: disks are slow to sync and to delete."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")
ROOM_BYTES: Final = 2 << 30
"""Minimum free space: containers have little shared memory by default."""


def has_room() -> bool:
    """Tell whether tests can write, and run programs, in memory."""
    return (
        os.access(MEMORY, os.W_OK | os.X_OK)
        and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
        and shutil.disk_usage(MEMORY).free >= ROOM_BYTES
    )


@contextlib.contextmanager
def in_memory(otherwise: Path) -> Iterator[Path]:
    """Make an empty directory in memory for the context; use ``otherwise`` if space is short."""
    if not has_room():
        yield otherwise
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as path:
        yield Path(path)


@contextlib.contextmanager
def temporary_files_in_memory() -> Iterator[None]:
    """Let this process and those that it starts keep their temporary files in memory.

    They are deleted at the end. Nothing changes if space is short.
    """
    if not has_room():
        yield
        return
    before = os.environ.get("TMPDIR")
    with tempfile.TemporaryDirectory(prefix="kdump-tests-", dir=MEMORY) as path:
        os.environ["TMPDIR"], tempfile.tempdir = path, None
        yield
        os.environ.pop("TMPDIR")
        if before is not None:
            os.environ["TMPDIR"] = before
        tempfile.tempdir = None
