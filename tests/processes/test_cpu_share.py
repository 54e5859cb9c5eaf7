"""A process that leaves CPUs to others."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kdump.processes.cpu_share import half_of_the_cpus
from kdump.processes.worker_pool import usable_cpus

ASK = "import os; print(len(os.sched_getaffinity(0)))"


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system cannot do it")
def test_half_of_the_cpus_are_used_and_then_all_again() -> None:
    before = os.sched_getaffinity(0)
    with half_of_the_cpus():
        half = usable_cpus()
        inherited = subprocess.run(
            [sys.executable, "-c", ASK], capture_output=True, text=True, check=True
        )
    assert half == max(1, -(-len(before) // 2))
    assert int(inherited.stdout) == half
    assert os.sched_getaffinity(0) == before


def test_where_the_system_cannot_do_it_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    with half_of_the_cpus():
        assert usable_cpus() == (os.cpu_count() or 1)
