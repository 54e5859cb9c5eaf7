"""A cluster that is dead, and served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.batches import batches
from builders.log_directories import write_log_directory, write_partition
from builders.serving import CLUSTER, RunningServer, opened


@pytest.fixture(scope="session")
def dead_cluster(fixtures: Path) -> Iterator[RunningServer]:
    """Return a server of the disks of a real cluster."""
    with opened(*(fixtures / "states" / "clean" / name for name in CLUSTER)) as running:
        yield running


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Return a log directory with a partition of ten batches, offsets 0 to 29."""
    root = write_log_directory(tmp_path / "logs", high_watermarks={("orders", 0): 30})
    write_partition(root / "orders-0", {0: b"".join(batches(10))})
    return root


@pytest.fixture
def server(log_dir: Path) -> Iterator[RunningServer]:
    """Return a server of that directory."""
    with opened(log_dir) as running:
        yield running
