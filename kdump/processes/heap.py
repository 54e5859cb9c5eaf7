"""How much freed memory a process keeps for what it takes next.

Whoever decodes compressed batches takes a few MiB for them, frees these, and takes as much again.
The C library of GNU gives the end of the heap back to the kernel once 128 KiB of it are free, and
maps larger pieces each time. The kernel clears each page again: a quarter of the time in which
Spark's workers read records that are compressed with zstd.
"""

from __future__ import annotations

import functools
from typing import Final

_MAPPED_BYTES: Final = 32 << 20
"""Pieces of this size and more are not in the heap; their pages go back at once."""
_KEPT_BYTES: Final = 2 * _MAPPED_BYTES
"""So much of the end of the heap is kept when it is free.

The C library arrives at these two itself when a process has freed a piece of 32 MiB.
"""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


@functools.cache
def keep_freed_memory() -> None:
    """Let this process and its forks keep up to 64 MiB of freed memory.

    For workers, whose memory is only kdump's. Does nothing with another C library (``mallopt(3)``).
    """
    # Only workers need it.
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
