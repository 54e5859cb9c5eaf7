"""Measures kdump beside Kafka's own dump tool, and prints a table.

    ./dev bench [--pairs N] [--only GLOB] [--data FOLDER] [--classpath JARS]

Each figure is the median over whole processes, start and end included, with the files in the page
cache and the output going to the null device. The two tools take turns, so that whatever else the
machine does falls on both. Kafka's jars are fetched by Maven, as the tests fetch them; without
them the official tool's columns stay empty.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from builders import kafka_jars

ROOT: Final = Path(__file__).resolve().parents[1]
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured, and what it may cost.

    Attributes:
        name: of the line in the table.
        kdump: arguments of kdump; ``{data}`` stands for the folder with the data.
        official: arguments of ``kafka-dump-log``, where it is measured too.
        data: calls in :mod:`data` that make what is read.
        ratio: of kdump's time to the official tool's, at most.
        seconds: of kdump's time, at most.
        peak_mib: of kdump's resident memory, at most.
    """

    name: str
    kdump: tuple[str, ...]
    official: tuple[str, ...] = ()
    data: str = ""
    ratio: float | None = None
    seconds: float | None = None
    peak_mib: float | None = 150.0


def _dump(name: str, shape: str, ratio: float, *options: str) -> Case:
    """A case that both tools run with the same arguments over one segment."""
    (folder,) = shape.split(",", 1)[:1]
    path = "{data}/" + folder + f"/{0:020d}.log"
    arguments = (*options, "--files", path)
    return Case(name, ("dump-segment", *arguments), arguments, _segment(shape), ratio)


def _segment(shape: str) -> str:
    """``name, size in MiB, records a batch, values, codec`` as a call that makes the segment."""
    name, mib, records, values, codec = shape.split(",")
    arguments = f"{name!r}, {int(mib) * MIB}, {records}, {values!r}, {codec!r}"
    return f"make_segment(SegmentShape({arguments}), folder)"


_11_KB: Final = "11-kb-batches,80,97,text,none"
_11_KB_RANDOM: Final = "11-kb-batches-random,80,97,random,none"
_1_KB: Final = "1-kb-batches,27,9,text,none"
_ZSTD: Final = "zstd,27,97,text,zstd"
_LZ4: Final = "lz4,27,97,text,lz4"
_LARGE: Final = "one-gib,1024,97,text,none"
_LARGE_FILE: Final = f"{{data}}/one-gib/{0:020d}.log"

CASES: Final = (
    Case("kdump --version", ("--version",), seconds=0.15),
    _dump("80 MB of 11 KB batches", _11_KB, 0.8),
    _dump("80 MB of 11 KB batches, --print-data-log", _11_KB, 0.35, "--print-data-log"),
    _dump("80 MB of random values, --print-data-log", _11_KB_RANDOM, 0.35, "--print-data-log"),
    _dump("27 MB of 1 KB batches", _1_KB, 0.8),
    _dump("27 MB of 1 KB batches, --print-data-log", _1_KB, 0.5, "--print-data-log"),
    _dump("27 MB of zstd, --print-data-log", _ZSTD, 0.5, "--print-data-log"),
    _dump("27 MB of lz4, --print-data-log", _LZ4, 0.5, "--print-data-log"),
    Case("1 GiB", ("dump-segment", _LARGE_FILE), data=_segment(_LARGE)),
    Case(
        "1 GiB, --print-data-log",
        ("dump-segment", "--print-data-log", _LARGE_FILE),
        data=_segment(_LARGE),
    ),
    Case(
        "kdump ls, 10 000 partitions, 60 000 files",
        ("ls", "{data}/directory-10000"),
        data="make_log_directory(folder, 10_000)",
        seconds=1.0,
    ),
    Case(
        "kdump info, 10 000 partitions, 60 000 files",
        ("info", "{data}/directory-10000"),
        data="make_log_directory(folder, 10_000)",
        seconds=1.0,
    ),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians over the runs of one command: wall time, and peak resident memory."""

    seconds: float
    peak_mib: float


def main() -> int:
    """Run the cases; gives 1 where a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=7, help="runs of each command (default 7)")
    parser.add_argument("--only", default="*", help="a glob over the names of the cases")
    parser.add_argument("--data", type=Path, default=ROOT / "build" / "bench")
    parser.add_argument("--classpath", help="Kafka's jars, if not those that Maven fetches")
    options = parser.parse_args()
    cases = [case for case in CASES if fnmatch.fnmatchcase(case.name, options.only)]
    for call in dict.fromkeys(case.data for case in cases if case.data):
        _make(call, options.data)
    kdump = _kdump()
    official = _official(options.classpath)
    print(_machine())
    print()
    print("| case | kdump | kafka-dump-log | ratio | at most | kdump's peak | the other's |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    failed = 0
    for case in cases:
        ours = [*kdump, *(word.format(data=options.data) for word in case.kdump)]
        theirs = [*official, *(word.format(data=options.data) for word in case.official)]
        measured = measure_in_turn(
            [ours, theirs] if case.official and official else [ours], options.pairs
        )
        failed += not _print_line(case, *measured)
    return min(failed, 1)


def measure_in_turn(commands: Sequence[Sequence[str]], rounds: int) -> list[Measured]:
    """Run the commands one after the other, once to warm up and then ``rounds`` times."""
    runs: list[list[Measured]] = [[] for _ in commands]
    for number in range(rounds + 1):
        for command, results in zip(commands, runs, strict=True):
            result = _run(command)
            if number > 0:
                results.append(result)
    return [
        Measured(
            statistics.median(result.seconds for result in results),
            statistics.median(result.peak_mib for result in results),
        )
        for results in runs
    ]


def _run(command: Sequence[str]) -> Measured:
    # The peak that the system reports for a child counts the memory of this process up to the
    # moment of exec, too: this process must stay small, and imports nothing large.
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    stderr = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode != 0:
        said = stderr.decode(errors="replace")
        raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}\n{said}")
    return Measured(seconds, usage.ru_maxrss / 1024)


def _print_line(case: Case, ours: Measured, theirs: Measured | None = None) -> bool:
    """Print a line of the table; gives whether the case keeps its limits."""
    kept = case.peak_mib is None or ours.peak_mib <= case.peak_mib
    ratio, limit, official, official_peak = "", "", "", ""
    if theirs is not None:
        found = ours.seconds / theirs.seconds
        ratio, official = f"{found:.2f}", f"{theirs.seconds:.2f} s"
        official_peak = f"{theirs.peak_mib:.0f} MiB"
        kept &= case.ratio is None or found <= case.ratio
    if case.ratio is not None:
        limit = f"{case.ratio:.2f}"
    if case.seconds is not None:
        limit = f"{case.seconds:.2f} s"
        kept &= ours.seconds <= case.seconds
    mark = "" if kept else " **over**"
    print(
        f"| {case.name} | {ours.seconds:.3f} s | {official} | {ratio} | {limit}{mark} "
        f"| {ours.peak_mib:.0f} MiB | {official_peak} |",
        flush=True,
    )
    return kept


def _make(call: str, folder: Path) -> None:
    """Make data in a process of its own, so that this one stays small."""
    program = (
        "import sys; from pathlib import Path; from data import *; folder = Path(sys.argv[1]); "
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "bench")}
    command = [sys.executable, "-c", program + call, str(folder)]
    subprocess.run(command, check=True, env=environment)


def _kdump() -> list[str]:
    script = Path(sys.executable).with_name("kdump")
    return [str(script)] if script.exists() else [sys.executable, "-m", "kdump"]


def _official(classpath: str | None) -> list[str]:
    """The command of the official tool, empty where it cannot be had."""
    try:
        jars = classpath or kafka_jars.jars_classpath()
    except kafka_jars.ReferenceUnavailable as failure:
        print(f"without kafka-dump-log: {failure}", file=sys.stderr)
        return []
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    encoding = "-Dfile.encoding=UTF-8"
    return ["java", quiet, encoding, "-cp", jars, "org.apache.kafka.tools.DumpLogSegments"]


def _machine() -> str:
    """One line on what the figures come from."""
    model = "unknown processor"
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    java = "no Java"
    if shutil.which("java"):
        said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
        java = said.stderr.partition("\n")[0]
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, {java}"


if __name__ == "__main__":
    sys.exit(main())
