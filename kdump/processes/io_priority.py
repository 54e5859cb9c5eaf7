"""The priority of this process for reading disks.

By two system calls, which no module of Python's library has: psutil has them, and would have to be
compiled or shipped for each machine for nothing else.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from typing import Final

_CALLS: Final = {
    "x86_64": (251, 252),
    "aarch64": (30, 31),
    "riscv64": (30, 31),
    "ppc64le": (273, 274),
    "s390x": (282, 283),
}
"""The numbers of ``ioprio_set`` and ``ioprio_get``, by machine."""
_OF_THIS_PROCESS: Final = (1, 0)
IDLE: Final = 3 << 13
"""The class whose reads wait for those of all others."""


@contextlib.contextmanager
def idle_io_priority() -> Iterator[None]:
    """Let the reads of others go first, where the system can; processes started here inherit it."""
    before = io_priority()
    is_set = before is not None and _set_io_priority(IDLE)
    try:
        yield
    finally:
        if is_set and before is not None:
            _set_io_priority(before)


def io_priority() -> int | None:
    """The class and level of this process; None where the system has none."""
    calls = _numbers()
    if calls is None:
        return None
    found = int(ctypes.CDLL(None).syscall(calls[1], *_OF_THIS_PROCESS))
    return None if found < 0 else found


def _set_io_priority(priority: int) -> bool:
    calls = _numbers()
    return calls is not None and not ctypes.CDLL(None).syscall(
        calls[0], *_OF_THIS_PROCESS, priority
    )


def _numbers() -> tuple[int, int] | None:
    is_64_bit = sys.maxsize > 2**32
    return _CALLS.get(os.uname().machine) if sys.platform == "linux" and is_64_bit else None
