"""Run commands, and measure their time and memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

ROOT: Final = Path(__file__).resolve().parents[1]

_DATA_MODULES: Final = (
    "data",
    "keyed_data",
    "group_data",
    "many",
    "hard_inputs",
    "damaged_inputs",
    "backup_data",
)
_LOOK_SECONDS: Final = 0.05
_SET_CHILD_SUBREAPER: Final = 36
"""Option of ``prctl``: processes whose parent ends become children of this one."""
_ANSWERS: Final = (0, 1, 4, 5)
"""Exit statuses of a command that finished, whatever it found."""


_Stream = int | IO[bytes] | IO[str]


class CommandFailedError(Exception):
    """A measured command ended without an answer."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians over the runs of one command.

    Attributes:
        seconds: wall time.
        cpu_seconds: processor time, user and system, of the command and of all that it started.
        peak_mb: largest resident memory, in MB, of one of these processes.
    """

    seconds: float
    cpu_seconds: float
    peak_mb: float


@dataclass(frozen=True, slots=True)
class Command:
    """A command to measure.

    Attributes:
        words: program and arguments; ``{data}`` stands for the folder with the data.
        stdin: its standard input; ``{data}`` likewise.
        before: call in a module of data that runs before each run, and is not measured.
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


def adopt_orphans() -> None:
    """Become the parent of processes whose parent ends, so that they can be waited for."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def measure_in_turn(commands: Sequence[Command], rounds: int) -> list[list[Measured]]:
    """Run the commands alternately, once to warm up and then ``rounds`` times.

    Returns:
        The runs of each command.

    Raises:
        CommandFailedError: one ended without an answer.
    """
    runs: list[list[Measured]] = [[] for _ in commands]
    for number in range(rounds + 1):
        for command, results in zip(commands, runs, strict=True):
            result = _run(command)
            if number > 0:
                results.append(result)
    return runs


def median_of(runs: Sequence[Measured]) -> Measured:
    """Return the median of each figure."""
    return Measured(
        statistics.median(run.seconds for run in runs),
        statistics.median(run.cpu_seconds for run in runs),
        statistics.median(run.peak_mb for run in runs),
    )


def _run(command: Command) -> Measured:
    if command.before:
        make(command.before, command.data)
    # The peak that the system reports for a child includes the memory of this process before
    # exec: this process must stay small, and imports nothing large.
    with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as stderr:
        stdin.write(command.stdin.encode())
        stdin.seek(0)
        begin = time.perf_counter()
        # Use a file: a process of Spark may continue for a second, and keep a pipe open.
        with started(command.words, stdin, subprocess.DEVNULL, stderr) as process:
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - begin
            left_seconds = _wait_for_orphans()
        process.returncode = os.waitstatus_to_exitcode(status)
        _check_answer(command, process.returncode, stderr)
    cpu_seconds = usage.ru_utime + usage.ru_stime + left_seconds
    return Measured(seconds, cpu_seconds, usage.ru_maxrss * 1.024e-3)


def _check_answer(command: Command, exit_status: int, stderr: IO[bytes]) -> None:
    if exit_status not in _ANSWERS:
        stderr.seek(0)
        said = stderr.read().decode(errors="replace")
        words = " ".join(command.words)
        raise CommandFailedError(f"{words}: exit status {exit_status}: {said.strip()}")


@contextlib.contextmanager
def started(
    words: Sequence[str], stdin: _Stream, stdout: _Stream, stderr: _Stream
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program in a process group of its own; ^C stops all of the group, once.

    The context ends when all has ended, so that nothing writes to a copy that is then removed.
    """
    process = subprocess.Popen(words, stdin=stdin, stdout=stdout, stderr=stderr, process_group=0)
    try:
        yield process
    except KeyboardInterrupt:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        process.wait()
        _wait_for_orphans()
        raise


def _wait_for_orphans() -> float:
    """Wait for what a command left running; return its processor time.

    The JVM of Spark ends after kdump has, and would slow down the next command.
    """
    cpu_seconds = 0.0
    with contextlib.suppress(ChildProcessError):
        while True:
            _, _, usage = os.wait4(-1, 0)
            cpu_seconds += usage.ru_utime + usage.ru_stime
    return cpu_seconds


@dataclass(slots=True)
class Peaks:
    """The largest resident memory, in MB, of the processes of one command.

    Attributes:
        driver: of the process that was started.
        worker: of any other Python process below it.
        jvm: of any Java process below it; 0 if there was none.
        seconds: wall time of the run.
    """

    driver: float = 0
    worker: float = 0
    jvm: float = 0
    seconds: float = 0


def run_quietly(words: Sequence[str]) -> None:
    """Run a command that is not measured.

    Raises:
        CommandFailedError: it ended without an answer.
    """
    with tempfile.TemporaryFile() as stderr:
        done = subprocess.run(words, stdout=subprocess.DEVNULL, stderr=stderr, check=False)
        _check_answer(Command(words), done.returncode, stderr)


def peaks_of(command: Command) -> Peaks:
    """Run a command, and look at the memory of its processes all the time.

    Looking takes time, so the time of such a run is not compared with others.

    Raises:
        CommandFailedError: it ended without an answer.
    """
    if command.before:
        make(command.before, command.data)
    peaks = Peaks()
    begin = time.perf_counter()
    nothing = subprocess.DEVNULL
    with (
        tempfile.TemporaryFile() as stderr,
        started(command.words, nothing, nothing, stderr) as process,
    ):
        while process.poll() is None:
            peaks.driver = max(peaks.driver, _peak_mb(process.pid)[1])
            for pid in _descendants(process.pid):
                name, peak = _peak_mb(pid)
                if name.startswith(("python", "kdump")):
                    peaks.worker = max(peaks.worker, peak)
                elif name == "java":
                    peaks.jvm = max(peaks.jvm, peak)
            time.sleep(_LOOK_SECONDS)
        peaks.seconds = time.perf_counter() - begin
        _wait_for_orphans()
        _check_answer(command, process.returncode, stderr)
    return peaks


def _peak_mb(pid: int) -> tuple[str, float]:
    """Return the name of a process and its peak; 0 for a process that has ended."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text()
        name = re.match(r"Name:\t(.*)", status)
        peak = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
        return (name[1] if name else ""), (int(peak[1]) * 1.024e-3 if peak else 0.0)
    return "", 0.0


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


def make(call: str, folder: Path) -> None:
    """Make data in a separate process, so that this one stays small."""
    imports = "; ".join(f"from {module} import *" for module in _DATA_MODULES)
    program = f"import sys; from pathlib import Path; {imports}; folder = Path(sys.argv[1]); "
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'bench'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", program + call, str(folder)]
    subprocess.run(command, check=True, env=environment)


def kdump() -> list[str]:
    """Return the words that start kdump."""
    script = Path(sys.executable).with_name("kdump")
    return [str(script)] if script.exists() else [sys.executable, "-m", "kdump"]
