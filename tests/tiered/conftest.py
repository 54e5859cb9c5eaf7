"""Disks with remote segments."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builders.tiered_fixture import TieredFixture


@pytest.fixture(scope="session")
def tiered(fixtures: Path) -> TieredFixture:
    """Return the disks of a real cluster with tiered storage; do not change them."""
    return TieredFixture(fixtures / "tiered")


@pytest.fixture
def tiered_copy(tiered: TieredFixture, quick_path: Path) -> TieredFixture:
    """Return a copy of these disks."""
    return TieredFixture(Path(shutil.copytree(tiered.folder, quick_path / "tiered")))
