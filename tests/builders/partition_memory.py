"""How much more memory a command takes for each further partition."""

from __future__ import annotations

import gc
import shutil
import sys
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from builders.in_process import run_kdump
from builders.many_partitions import write_partitions
from kdump.jobs.compact import compact, swap
from kdump.jobs.move import move

COUNTS: Final = (100, 300)
DONE: Final = (0, 1, 4, 5)


def bytes_for_each_partition(
    command: str, words: Sequence[str], folder: Path, *, is_clean: bool
) -> float:
    """The growth of a command's peak with the number of partitions, in bytes for each.

    It is measured in a process of its own, whose table of interned strings has room: it grows by
    megabytes at once.

    Args:
        command: its words.
        words: what it is given; ``{root}`` stands for a log directory, ``{disk}`` for another.
        folder: to write into.
        is_clean: whether the broker was shut down cleanly.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(_measured, command, words, folder, is_clean=is_clean).result()


def _measured(command: str, words: Sequence[str], folder: Path, *, is_clean: bool) -> float:
    compact.WAVE_PARTITIONS = COUNTS[0] // 2  # type: ignore[misc]
    swap.SWAPPED_PARTITIONS = COUNTS[0] // 2  # type: ignore[misc]
    move.BATCH_PARTITIONS = COUNTS[0] // 2  # type: ignore[misc]
    room = [sys.intern(f"string {number}") for number in range(200_000)]
    peaks = []
    for count in (COUNTS[0] // 10, *COUNTS):  # the first run imports modules
        root = write_partitions(folder / f"of-{count}", count)
        if is_clean:
            _run(["recover", str(root)])
        if command == "rebuild-index":
            for index in root.glob("*/*index"):
                index.unlink()
        disk = folder / f"disk-{count}"
        if command.startswith("move"):
            disk.mkdir()
            _run(["identity", "--repair", str(root), str(disk)])
        given = [each.format(root=root, disk=disk) for each in words]
        peaks.append(_peak_bytes([*command.split(), *given]))
        shutil.rmtree(root)
    del room
    return (peaks[2] - peaks[1]) / (COUNTS[1] - COUNTS[0])


def _peak_bytes(args: Sequence[str]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        _run(args)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _run(args: Sequence[str]) -> None:
    outcome = run_kdump(args, Path.cwd())
    assert outcome.exit_status in DONE, outcome.stderr
