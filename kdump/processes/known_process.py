"""A process as others know it: whether one that has left its description still runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_PROCESSES: Final = Path("/proc/self/ns/pid")
_STARTED_FIELD: Final = 19
"""Of what follows the name in ``/proc/PID/stat``: when the process was started."""


def this_process() -> dict[str, Any]:
    """What tells this process from any other; can be written as JSON."""
    pid = os.getpid()
    return {
        "host": socket.gethostname(),
        "pid": pid,
        "started": _started(pid),
        "boot_id": _boot_id(),
        "processes": _processes(),
    }


def is_gone(process: Mapping[str, Any]) -> bool:
    """Whether a process ran on this machine and runs no longer; False if that is not known.

    Args:
        process: as :func:`this_process` has described it there.
    """
    here = (_boot_id(), _processes())
    if None in here or (process.get("boot_id"), process.get("processes")) != here:
        return False
    pid = process.get("pid")
    return isinstance(pid, int) and _started(pid) != process.get("started")


def _started(pid: int) -> str | None:
    """When a process of this machine was started; None if there is none, or that is not known."""
    return _of_system(
        lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[_STARTED_FIELD]
    )


def _boot_id() -> str | None:
    return _of_system(lambda: _BOOT_ID.read_text().strip())


def _processes() -> str | None:
    """By what the processes of this machine are told from those of another container."""
    return _of_system(lambda: str(_PROCESSES.readlink()))


def _of_system(read: Callable[[], str]) -> str | None:
    try:
        return read()
    except (OSError, IndexError):
        return None
