"""Small Python programs in separate processes, which can import kdump and these builders."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

PYTHON_PATH = os.pathsep.join(str(Path(__file__).resolve().parents[up]) for up in (1, 2))
_PATIENCE_SECONDS = 60
_LISTEN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""Tests that run in the background may ignore ``^C``, and so do their processes."""


def in_a_fresh_process(program: str, *args: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program, which must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", program, *args],
        env=os.environ | {"PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    return done


class InterruptedProgram:
    """A program that gets ``^C`` while its workers wait.

    It gets the path of a named pipe, which :class:`builders.jobs.WaitForEver` writes to: the pipe
    ends when no worker is running.
    """

    def __init__(self, program: str, folder: Path, *args: str) -> None:
        path = folder / "program.py"
        path.write_text(_LISTEN + program)
        pipe = folder / "pipe"
        os.mkfifo(pipe)
        self.workers: list[int] = []
        self._pipe = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self._process = subprocess.Popen(
            [sys.executable, str(path), str(pipe), *args],
            env=os.environ | {"PYTHONPATH": PYTHON_PATH},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Start a process group, as a shell does for each command.
            start_new_session=True,
        )

    def wait_for_workers(self, count: int) -> None:
        """Wait until ``count`` workers are running."""
        while len(self.workers) < count:
            said = self._read()
            assert said, self._process.communicate()[1]
            self.workers += map(int, said.split())

    def interrupt(self) -> None:
        """Interrupt every process of the group, as a terminal does, and wait for the program."""
        os.killpg(self._process.pid, signal.SIGINT)
        said = self._process.communicate(timeout=_PATIENCE_SECONDS)[1]
        assert self._process.returncode == -signal.SIGINT
        assert said.count("Traceback") == 1, said

    def kill(self) -> None:
        """Kill only the process that the workers work for."""
        self._process.kill()
        self._process.communicate(timeout=_PATIENCE_SECONDS)

    def workers_left(self) -> bool:
        """Tell whether a worker is still running after a while."""
        said = self._read()
        os.close(self._pipe)
        return said != b""

    def _read(self) -> bytes | None:
        """Read the pipe; return nothing if it has ended, None after a timeout."""
        ready = select.select([self._pipe], [], [], _PATIENCE_SECONDS)[0]
        return os.read(self._pipe, 1024) if ready else None
