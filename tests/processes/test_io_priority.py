"""Reads have the idle priority for a while, and so do those of processes that start then."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kdump.processes import io_priority
from kdump.processes.io_priority import IDLE, idle_io_priority

ASK = "from kdump.processes import io_priority; print(io_priority.io_priority())"

pytestmark = pytest.mark.skipif(
    io_priority.io_priority() is None, reason="this system has no such priority"
)


def test_reads_are_idle_for_a_while() -> None:
    before = io_priority.io_priority()
    with idle_io_priority():
        assert io_priority.io_priority() == IDLE
        child = subprocess.run([sys.executable, "-c", ASK], capture_output=True, check=True)
    assert int(child.stdout) == IDLE
    assert io_priority.io_priority() == before


def test_a_machine_that_is_not_known_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_priority, "_CALLS", {})
    with idle_io_priority():
        assert io_priority.io_priority() is None
