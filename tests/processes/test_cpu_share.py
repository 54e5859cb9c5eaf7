"""A process that leaves CPUs to others."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kdump.processes.cpu_share import half_of_the_cpus, idle_cpu_priority
from kdump.processes.worker_pool import usable_cpus

ASK = "import os; print(len(os.sched_getaffinity(0)))"
ASK_POLICY = "import os; print(os.sched_getscheduler(0))"
GIVE_WAY = f"""
import subprocess, sys
from kdump.processes.cpu_share import idle_cpu_priority
with idle_cpu_priority():
    subprocess.run([sys.executable, "-c", {ASK_POLICY!r}], check=True)
"""


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


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="this system cannot do it")
def test_processes_run_only_when_nothing_else_wants_to() -> None:
    done = subprocess.run(
        [sys.executable, "-c", GIVE_WAY], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == os.SCHED_IDLE


def test_where_the_system_has_no_such_policy_nothing_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "SCHED_IDLE", raising=False)
    before = os.sched_getscheduler(0)
    with idle_cpu_priority():
        assert os.sched_getscheduler(0) == before
