"""The memory of an export does not grow with the log."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from builders.batches import batch, record
from builders.log_directories import write_partition
from builders.programs import in_a_fresh_process

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path("/proc/self/status").exists(), reason="the peak is read from /proc"
    ),
]

MIB = 1 << 20
PEAK_BYTES = 300 * MIB

PROGRAM = """
import sys
from kdump.cli.main import run
from kdump.engine import local

local.FORKED_POOL_BYTES = 1 << 40  # in this process, not in workers
assert run(["export", "--engine", "local", "--out", sys.argv[1], *sys.argv[3:]]) == 0
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
open(sys.argv[2], "w").write(peak.split()[1])
"""


def peak_of(folder: Path, size_mib: int) -> int:
    """Export a log of this size, in one file; returns the peak of the memory in bytes."""
    one = batch([record(at, b"key", b"v" * 5000) for at in range(200)])
    count = size_mib * MIB // len(one)
    content = b"".join(struct.pack(">q", number * 200) + one[8:] for number in range(count))
    partition = write_partition(folder / f"{size_mib}" / "orders-0", {0: content})
    out, peak = folder / f"out-{size_mib}", folder / "peak"
    columns = ("--columns", "key,value,offset,timestamp")
    in_a_fresh_process(PROGRAM, str(out), str(peak), *columns, str(partition))
    return int(peak.read_text()) * 1024


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    small, large = (peak_of(tmp_path, size_mib) for size_mib in (40, 88))
    assert large < PEAK_BYTES
    assert large - small < 16 * MIB
