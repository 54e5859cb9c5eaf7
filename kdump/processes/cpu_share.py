"""The CPUs that this process leaves to others."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def half_of_the_cpus() -> Iterator[None]:
    """Run on half of the CPUs, so that others find one idle; processes started here inherit it.

    A lower priority is not enough: who waits for a CPU that another process is about to leave still
    waits, which the slowest hundredth of a broker's answers shows. Nothing changes where there is
    only one CPU, or the system cannot do it.
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
