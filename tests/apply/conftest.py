"""Where directories lie that are changed hundreds of times."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.killed_process import KillableKdump

MEMORY = Path("/dev/shm")


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """Give a directory in memory where there is such a thing: a disk takes long to delete."""
    if not os.access(MEMORY, os.W_OK | os.X_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as path:
        yield Path(path)


@pytest.fixture(scope="session")
def killable() -> Iterator[KillableKdump]:
    """Give kdump in processes that are killed."""
    with KillableKdump() as running:
        yield running
