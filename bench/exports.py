"""Export logs with kdump, and print the rate.

    python bench/exports.py PATH [--format FORMAT] [--runs N] [OPTION...]

Each run is a process of its own, with all that it starts. Records per second of processor time are
records per second and core: other load on the machine matters less than for the time that passes,
which is printed, too. The fastest of several runs counts. Other options go to kdump.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

MILLION = 1_000_000


def export(path: str, file_format: str, options: list[str], folder: Path) -> dict[str, float]:
    """Export once; return records, bytes, processor seconds and seconds."""
    words = ["export", "--engine", "local", "--format", file_format, "--out", str(folder / "out")]
    begin = time.perf_counter()
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "kdump", *words, *options, path],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, usage = os.wait4(pid, 0)
    seconds = time.perf_counter() - begin
    if status:
        raise SystemExit(f"kdump export failed: {status}")
    totals = json.loads((folder / "out" / "_manifest.json").read_text())["totals"]
    return {
        "records": totals["records"],
        "bytes": totals["size_bytes"],
        "processor": usage.ru_utime + usage.ru_stime,
        "seconds": seconds,
        "peak": usage.ru_maxrss / 1024,
    }


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("path", metavar="PATH", help="log directory or partition")
    parser.add_argument("--format", default="parquet", help="parquet, csv or jsonl")
    parser.add_argument("--runs", type=int, default=3, help="number of runs (3)")
    asked, options = parser.parse_known_args()
    found = []
    for _ in range(asked.runs):
        with tempfile.TemporaryDirectory() as folder:
            found.append(export(asked.path, asked.format, options, Path(folder)))
    best = min(found, key=lambda run: run["processor"])
    fastest = min(run["seconds"] for run in found)
    rate = best["records"] / best["processor"] / MILLION
    print(
        f"{rate:.2f} M/s and core, {asked.format}: {best['records']} records"
        f" ({best['records'] / fastest / MILLION:.2f} M/s in all),"
        f" {best['bytes'] / best['records']:.1f} bytes a record,"
        f" peak {max(run['peak'] for run in found):.0f} MiB"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
