"""Lock a directory that is no log directory: one kdump at a time writes an export, or a backup."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from kdump.processes.worker_pool import close_kept, keep_from_workers


def lock_directory(path: Path, *, is_shared: bool = False) -> int:
    """Lock a directory; returns the descriptor that holds the lock until ``close_kept``.

    Args:
        is_shared: whether others may share the lock.

    Raises:
        BlockingIOError: another process has locked it.
        OSError: it cannot be opened or locked.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    keep_from_workers(descriptor)
    try:
        how = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BaseException:
        close_kept(descriptor)
        raise
    return descriptor
