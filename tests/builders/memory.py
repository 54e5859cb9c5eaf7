"""Directories in memory, for tests that change and sync files hundreds of times."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MEMORY: Final = Path("/dev/shm")
ROOM_BYTES: Final = 1 << 30
"""Minimum free space: containers have little shared memory by default."""


@contextlib.contextmanager
def in_memory(otherwise: Path) -> Iterator[Path]:
    """Make an empty directory in memory for the context; use ``otherwise`` if space is short."""
    if not os.access(MEMORY, os.W_OK | os.X_OK) or shutil.disk_usage(MEMORY).free < ROOM_BYTES:
        yield otherwise
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as path:
        yield Path(path)
