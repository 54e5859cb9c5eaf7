"""Compute only the checksum of each batch of segments, on all cores.

    python bench/checksums.py LOG...

``kdump verify`` is compared with this program. It reads files as kdump does, a few megabytes at a
time, and parses only the lengths of batches.
"""

from __future__ import annotations

import multiprocessing
import os
import struct
import sys
from collections.abc import Sequence

import crc32c

WINDOW_BYTES = 4 << 20
LENGTH = struct.Struct(">i")
LENGTH_START, COUNTED_START, CHECKED_START = 8, 12, 21


def compute(path: str) -> int:
    """Compute the checksums of the batches of a segment; return their number."""
    window = memoryview(bytearray(WINDOW_BYTES))
    descriptor = os.open(path, os.O_RDONLY)
    count = position = 0
    while filled := os.preadv(descriptor, [window], position):
        at = 0
        while at + COUNTED_START <= filled:
            following = at + COUNTED_START + LENGTH.unpack_from(window, at + LENGTH_START)[0]
            if following > filled:
                break
            crc32c.crc32c(window[at + CHECKED_START : following])
            count += 1
            at = following
        position += at
    os.close(descriptor)
    return count


def _run(paths: Sequence[str]) -> None:
    for path in paths:
        compute(path)


def main() -> None:
    """Distribute the files among one process per core."""
    paths = sys.argv[1:]
    cores = len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_run, args=(paths[core::cores],)) for core in range(cores)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
