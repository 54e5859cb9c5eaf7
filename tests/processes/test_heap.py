"""Workers keep freed memory, so that the kernel need not clear the same pages again and again."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

WORK_OF_A_WORKER = """
import resource
from kdump.processes.heap import keep_freed_memory

{}
# Each piece is larger than all before it: the C library maps it, unless it was told otherwise.
for size_bytes in range(1 << 20, 2 << 20, 1 << 14):
    b"x" * size_bytes
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


def page_faults(first: str) -> int:
    """How often a process that does ``first`` waited for a page, while it decodes batches."""
    words = [sys.executable, "-c", WORK_OF_A_WORKER.format(first)]
    others = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")
    usual = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=usual)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="tells another C library nothing")
def test_memory_that_a_worker_frees_is_not_cleared_again() -> None:
    assert page_faults("keep_freed_memory()") < page_faults("") / 4
