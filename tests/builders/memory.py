"""Directories in memory, for what is changed and synced hundreds of times."""

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
"""How much must be free there: containers have little by default."""


@contextlib.contextmanager
def in_memory(otherwise: Path) -> Iterator[Path]:
    """Give an empty directory in memory while the context lasts; ``otherwise`` without room."""
    if not os.access(MEMORY, os.W_OK | os.X_OK) or shutil.disk_usage(MEMORY).free < ROOM_BYTES:
        yield otherwise
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as path:
        yield Path(path)
