"""Spark's standalone cluster on the loopback interface: a master, and workers that come and go.

All are JVMs with the jars of pyspark, as ``sbin/start-master.sh`` and ``start-worker.sh`` start
them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from builders.waiting import until
from kdump.engine.spark_installation import find_java, find_spark
from kdump.engine.spark_java import JVM_OPTIONS

_LISTENS: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = re.compile(r"Successfully registered with master")


class _Daemon:
    """A JVM of the cluster; what it says is in a file."""

    def __init__(self, folder: Path, class_name: str, *args: str) -> None:
        folder.mkdir()
        self.folder = folder
        self._log = folder / "log"
        spark = find_spark()
        command = [str(find_java(os.environ).path), "-Xmx256m", *JVM_OPTIONS]
        command += ["-cp", spark.class_path, f"org.apache.spark.deploy.{class_name}", *args]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                env=os.environ
                | {
                    "SPARK_HOME": str(spark.home),
                    "SPARK_LOCAL_DIRS": str(folder),
                    # Spark's scripts find it out; any value says that this is no build tree.
                    "SPARK_SCALA_VERSION": "2.13",
                },
            )

    def said(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        return pattern.search(self._log.read_text())

    @property
    def last_words(self) -> str:
        return self._log.read_text()[-4000:]

    def wait_for(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Wait until a line of the log matches."""
        until(lambda: self.said(pattern) is not None or self.has_ended, pattern.pattern)
        found = self.said(pattern)
        assert found is not None, self._log.read_text()
        return found

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def kill(self) -> None:
        """Kill it and its executors."""
        if not self.has_ended:
            kill_machine(self.process.pid)
            self.process.wait()


class Worker(_Daemon):
    """A machine of the cluster, with one core and an address of its own."""

    def __init__(self, folder: Path, address: str, master: str, memory: str) -> None:
        options = ("--host", address, "--cores", "1", "--memory", memory)
        work = ("--work-dir", str(folder / "work"), "--webui-port", "0")
        super().__init__(folder, "worker.Worker", *options, *work, master)
        self.wait_for(_REGISTERED)

    def has_a_task(self, stage: int = 0) -> bool:
        """Whether an executor of this worker has begun a task of a stage of its application."""
        begun = re.compile(rf"Running task \S+ in stage {stage}\.")
        logs = (self.folder / "work").glob("app-*/*/stderr")
        return any(begun.search(log.read_text()) for log in logs)

    def freeze(self) -> None:
        """Stop its executors and their processes, as a machine that is too slow to answer."""
        self._signal_executors(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let its executors go on."""
        self._signal_executors(signal.SIGCONT)

    def _signal_executors(self, number: signal.Signals) -> None:
        for process in below(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def wait_until_idle(self) -> None:
        """Wait until it has no executor, and so no process of Python."""
        until(lambda: not list(below(self.process.pid)), f"{self.folder.name} is idle")


class StandaloneCluster:
    """A master and its workers; a context that ends them and their executors."""

    def __init__(self, folder: Path, *, memory: str = "1g") -> None:
        self._folder = folder
        self._memory = memory
        address = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self._master = _Daemon(folder / "master", "master.Master", *address)
        self.workers: list[Worker] = []
        self._numbers = itertools.count()
        try:
            self.url = self._master.wait_for(_LISTENS)[1]
        except BaseException:
            self._master.kill()
            raise

    def add_worker(self) -> Worker:
        """Start a worker, and wait until the master knows it."""
        number = next(self._numbers)
        # Spark runs no task twice on one host: all of 127.0.0.0/8 is this machine.
        address = f"127.0.0.{number + 2}"
        worker = Worker(self._folder / f"worker-{number}", address, self.url, self._memory)
        self.workers.append(worker)
        return worker

    def first_at_work(self, running: subprocess.Popen[str], stage: int = 0) -> Worker:
        """Wait until a worker has a task of a stage of a command, and return it.

        In the first stage its Python process starts then, for longer than it takes to stop or kill
        the worker.

        Raises:
            AssertionError: the command ended before, or no worker gets a task.
        """

        def at_work() -> Worker | None:
            return next((each for each in self.workers if each.has_a_task(stage)), None)

        try:
            until(lambda: running.poll() is not None or at_work() is not None, "a worker at work")
            worker = at_work()
            assert worker is not None, f"kdump ended with {running.communicate()}"
        except AssertionError as failure:
            for daemon in (self._master, *self.workers):
                failure.add_note(f"{daemon.folder.name} said:\n{daemon.last_words}")
            raise
        return worker

    def remove_workers(self) -> None:
        """Kill all workers, and forget them."""
        for worker in self.workers:
            worker.kill()
        self.workers.clear()

    def wait_until_idle(self) -> None:
        """Wait until no living worker has an executor."""
        for worker in self.workers:
            if not worker.has_ended:
                worker.wait_until_idle()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for daemon in (*self.workers, self._master):
            daemon.kill()


def kill_machine(first: int) -> None:
    """Kill a process and every process below it, as a machine that loses power."""
    for process in [first, *below(first)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def below(ancestor: int) -> Iterator[int]:
    """Yield all processes below a process."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            number, _, fields = stat.read_text().partition(" (")
            state, parent = fields.rpartition(") ")[2].split()[:2]
            if state != "Z":
                children.setdefault(int(parent), []).append(int(number))
    pending = children.get(ancestor, [])
    while pending:
        process = pending.pop()
        yield process
        pending.extend(children.get(process, []))


def start_kdump(*args: str | Path, cwd: Path, temporary: Path) -> subprocess.Popen[str]:
    """Start the command line in a process of its own, with a folder for all temporary files."""
    temporary.mkdir(exist_ok=True)
    folders = {"TMPDIR": str(temporary), "SPARK_LOCAL_DIRS": str(temporary)}
    return subprocess.Popen(
        [sys.executable, "-m", "kdump", *map(str, args)],
        cwd=cwd,
        env=os.environ | folders,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
