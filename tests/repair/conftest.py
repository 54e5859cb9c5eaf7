"""What the tests of recovery share."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdump.repair.workspace import Workspace


@pytest.fixture(scope="session")
def empty_workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Give the workspace of a directory without files."""
    path: Path = tmp_path_factory.mktemp("empty")
    return Workspace(path)
