"""Compare the speed and memory of kdump with Kafka's own programs, and print a table.

    ./dev bench [--pairs N] [--only GLOB] [--data FOLDER] [--classpath JARS]

Each figure is the median over whole processes, including their start and end, with the files in the
page cache and the output to the null device. The two programs run alternately, so that other load
affects both. Maven fetches Kafka's jars, as for the tests; without them Kafka's columns are empty.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import os
import platform
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cases import CASES, Case, Program

from builders import kafka_jars

ROOT: Final = Path(__file__).resolve().parents[1]

_LOOK_SECONDS: Final = 0.05
_ANSWERS: Final = (0, 1, 4, 5)
"""Exit statuses of a command that finished, whatever it found."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians over the runs of one command: wall time, and peak resident memory."""

    seconds: float
    peak_mib: float


def main() -> int:
    """Run the cases; return 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=7, help="runs of each command (default 7)")
    parser.add_argument("--only", default="*", help="a glob over the names of the cases")
    parser.add_argument("--data", type=Path, default=ROOT / "build" / "bench")
    parser.add_argument("--classpath", help="Kafka's jars, if not those that Maven fetches")
    options = parser.parse_args()
    cases = [case for case in CASES if fnmatch.fnmatchcase(case.name, options.only)]
    for call in dict.fromkeys(case.data for case in cases if case.data):
        _make(call, options.data)
    programs = _programs(cases, options.classpath)
    print(_machine())
    print()
    print("| case | kdump | other program | its time | ratio | at most | kdump's peak | its peak |")
    print("|---|---:|---|---:|---:|---:|---:|---:|")
    failed = 0
    for case in cases:
        commands = [Command((*_kdump(), *case.kdump), before=case.before)]
        if case.other is not None and case.other.program in programs:
            other = case.other
            words = (*programs[other.program], *other.arguments)
            commands.append(Command(words, other.stdin, other.before))
        commands = [command.over(options.data) for command in commands]
        measured = measure_in_turn(commands, options.pairs)
        worker_peak_mib = None
        if case.worker_peak_mib is not None:
            worker_peak_mib = peak_of_workers(commands[0])
        failed += not _print_line(case, measured, worker_peak_mib)
    return min(failed, 1)


@dataclass(frozen=True, slots=True)
class Command:
    """A command to measure.

    Attributes:
        words: program and arguments.
        stdin: its standard input.
        before: call in :mod:`data` that runs before each run, and is not measured.
        data: folder with the data.
    """

    words: Sequence[str]
    stdin: str = ""
    before: str = ""
    data: Path = ROOT

    def over(self, data: Path) -> Command:
        """Return the same command over the data in a folder."""
        words = [word.format(data=data) for word in self.words]
        return Command(words, self.stdin.format(data=data), self.before, data)


def measure_in_turn(commands: Sequence[Command], rounds: int) -> list[Measured]:
    """Run the commands alternately, once to warm up and then ``rounds`` times."""
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


def _run(command: Command) -> Measured:
    if command.before:
        _make(command.before, command.data)
    # The peak that the system reports for a child includes the memory of this process before
    # exec: this process must stay small, and imports nothing large.
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stderr:
        stdin.write(command.stdin.encode())
        stdin.seek(0)
        begin = time.perf_counter()
        # Use a file: a process of Spark may continue for a second, and keep a pipe open.
        process = subprocess.Popen(
            command.words, stdin=stdin, stdout=subprocess.DEVNULL, stderr=stderr
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in _ANSWERS:
            stderr.seek(0)
            said = stderr.read().decode(errors="replace")
            words = " ".join(command.words)
            raise SystemExit(f"{words}: exit status {process.returncode}\n{said}")
    return Measured(seconds, usage.ru_maxrss / 1024)


def peak_of_workers(command: Command) -> float:
    """Return the largest resident memory, in MiB, of all Python processes that a command starts.

    Finding them takes time, so nothing else is measured in this run.
    """
    if command.before:
        _make(command.before, command.data)
    process = subprocess.Popen(command.words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peaks: dict[int, int] = {}
    while process.poll() is None:
        for pid in _descendants(process.pid):
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{pid}/status").read_text()
                if re.search(r"^Name:\t(python|kdump)", status, re.MULTILINE):
                    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
                    peaks[pid] = max(peaks.get(pid, 0), int(found[1]) if found else 0)
        time.sleep(_LOOK_SECONDS)
    return max(peaks.values(), default=0) / 1024


def _descendants(ancestor: int) -> Iterator[int]:
    """Yield all processes below a process."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            number, _, fields = stat.read_text().partition(" (")
            parent = int(fields.rpartition(") ")[2].split()[1])
            children.setdefault(parent, []).append(int(number))
    pending = children.get(ancestor, [])
    while pending:
        pid = pending.pop()
        yield pid
        pending.extend(children.get(pid, []))


def _print_line(case: Case, measured: Sequence[Measured], worker_peak_mib: float | None) -> bool:
    """Print a line of the table; return whether the case keeps its limits."""
    ours = measured[0]
    kept = case.peak_mib is None or ours.peak_mib <= case.peak_mib
    ratio, limit, other, other_seconds, other_peak = "", "", "", "", ""
    if case.other is not None and len(measured) > 1:
        theirs = measured[1]
        found = ours.seconds / theirs.seconds
        ratio, other_seconds = f"{found:.2f}", f"{theirs.seconds:.2f} s"
        other, other_peak = case.other.program.value, f"{theirs.peak_mib:.0f} MiB"
        if case.ratio is not None:
            kept &= ours.seconds <= theirs.seconds * case.ratio + case.more_seconds
    if case.ratio is not None:
        limit = f"{case.ratio:.2f}" + (f" + {case.more_seconds:.0f} s" if case.more_seconds else "")
    if case.seconds is not None:
        limit = f"{case.seconds:.2f} s"
        kept &= ours.seconds <= case.seconds
    peak = f"{ours.peak_mib:.0f} MiB"
    if worker_peak_mib is not None:
        peak += f", a worker's {worker_peak_mib:.0f} MiB"
        kept &= case.worker_peak_mib is None or worker_peak_mib <= case.worker_peak_mib
    mark = "" if kept else " **over**"
    print(
        f"| {case.name} | {ours.seconds:.3f} s | {other} | {other_seconds} | {ratio} "
        f"| {limit}{mark} | {peak} | {other_peak} |",
        flush=True,
    )
    return kept


def _make(call: str, folder: Path) -> None:
    """Make data in a separate process, so that this one stays small."""
    program = (
        "import sys; from pathlib import Path; from data import *; from many import *; "
        "folder = Path(sys.argv[1]); "
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "bench")}
    command = [sys.executable, "-c", program + call, str(folder)]
    subprocess.run(command, check=True, env=environment)


def _kdump() -> list[str]:
    script = Path(sys.executable).with_name("kdump")
    return [str(script)] if script.exists() else [sys.executable, "-m", "kdump"]


def _programs(cases: Iterable[Case], classpath: str | None) -> dict[Program, list[str]]:
    """Return the commands to compare kdump with, as far as they are available."""
    wanted = {case.other.program for case in cases if case.other is not None}
    found = {
        Program.CHECKSUMS: [sys.executable, str(ROOT / "bench" / "checksums.py")],
        Program.KDUMP: _kdump(),
        Program.KDUMP_ON_A_QUARTER: _kdump(),
    }
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    try:
        if wanted & {Program.DUMP_TOOL, Program.DUMP_AND_GREP}:
            jars = classpath or kafka_jars.jars_classpath()
            tool = "org.apache.kafka.tools.DumpLogSegments"
            dump = ["java", quiet, "-Dfile.encoding=UTF-8", "-cp", jars, tool]
            found[Program.DUMP_TOOL] = dump
            piped = f'log=$1; shift; {shlex.join(dump)} --print-data-log --files "$log"'
            found[Program.DUMP_AND_GREP] = ["sh", "-c", piped + ' | grep -a "$@"', "sh"]
        if wanted & {Program.LOADER, Program.CLEANER}:
            threads = f"-Drecovery.threads={os.cpu_count()}"
            java = ["java", quiet, threads, "-cp", kafka_jars.programs_classpath()]
            found[Program.LOADER] = [*java, "LoaderServer"]
            found[Program.CLEANER] = [*java, "CleanerServer"]
    except kafka_jars.ReferenceUnavailable as failure:
        print(f"not compared with Kafka: {failure}", file=sys.stderr)
    return found


def _machine() -> str:
    """Describe the machine in one line."""
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
