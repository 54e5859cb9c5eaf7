"""Run kdump on a standalone cluster with one worker of one core, then with two; print the speed-up.

    python bench/speed_up.py --data FOLDER --before CALL COMMAND [ARGUMENT...]

Master and workers are JVMs on this machine, as in the tests. Times are those of the whole command,
from its start to its end; the fastest of several runs counts.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from builders.spark_standalone import StandaloneCluster
from measuring import kdump, make

_WORKER_MEMORY: Final = "2g"


def seconds(words: Sequence[str], before: str, folder: Path) -> float:
    """Run a command that has to succeed; return its wall time."""
    if before:
        make(before, folder)
    begin = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def main() -> int:
    """Measure, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the data")
    parser.add_argument("--before", default="", help="call in a module of data before each run")
    parser.add_argument("--runs", type=int, default=2, help="number of runs (2)")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="command and arguments of kdump")
    asked = parser.parse_args()
    fastest = []
    with (
        tempfile.TemporaryDirectory() as folder,
        StandaloneCluster(Path(folder), memory=_WORKER_MEMORY) as cluster,
    ):
        words = [*kdump(), *asked.words, "--master", cluster.url]
        for _ in range(2):
            cluster.add_worker()
            fastest.append(min(seconds(words, asked.before, asked.data) for _ in range(asked.runs)))
    one, two = fastest
    print(f"{one / two:.2f} times: {one:.1f} s with one worker, {two:.1f} s with two")
    return 0


if __name__ == "__main__":
    sys.exit(main())
