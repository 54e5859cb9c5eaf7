"""Fixtures shared by the tests of apply."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from builders.killed_process import KillableKdump


@pytest.fixture(scope="session")
def killable() -> Iterator[KillableKdump]:
    """Return kdump in processes that are killed."""
    with KillableKdump() as running:
        yield running
