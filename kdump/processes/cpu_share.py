"""The CPUs that this process leaves to others."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def half_of_the_cpus() -> Iterator[None]:
    """Run on half of the CPUs, so that others find one idle; processes started here inherit it.

    A lower priority alone is not enough: who waits for a CPU that another process is about to leave
    still waits, which the slowest hundredth of a broker's answers shows. Nothing changes where
    there is only one CPU, or the system cannot do it.
    """
    if not hasattr(os, "sched_getaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, sorted(before)[len(before) // 2 :])
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, before)


@contextlib.contextmanager
def idle_cpu_priority() -> Iterator[None]:
    """Run only when nothing else wants to, where the system can; processes started here inherit it.

    For programs of kdump's own: without a privilege, the system refuses the way back.
    """
    if not hasattr(os, "SCHED_IDLE"):
        yield
        return
    before, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, before, parameters)
