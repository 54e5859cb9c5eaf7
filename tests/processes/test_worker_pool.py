"""Workers start safely, answer through their pipes, and leave no processes or files."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from builders.programs import InterruptedProgram, in_a_fresh_process
from kdump.processes.worker_pool import (
    StartMethod,
    WorkerPool,
    close_kept,
    keep_from_workers,
    start_method,
    usable_cpus,
)


def _echo(pipe: Connection[Any, Any]) -> None:
    while True:
        pipe.send((os.getpid(), pipe.recv()))


def _die(pipe: Connection[Any, Any]) -> None:
    os._exit(pipe.recv())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_each_worker_answers_through_its_own_pipe(method: StartMethod) -> None:
    with WorkerPool(_echo, 2, method) as pool:
        for number, pipe in enumerate(pool.pipes):
            pipe.send(number)
        answers = [pipe.recv() for pipe in pool.pipes]
    assert [answer for _, answer in answers] == [0, 1]
    workers = {process for process, _ in answers}
    assert len(workers) == 2
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)


def test_a_signal_while_workers_start_ends_those_that_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = WorkerPool._start

    def interrupted(pool: WorkerPool, serve: Any) -> None:
        start(pool, serve)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(WorkerPool, "_start", interrupted)
    # Whoever started the tests in the background may have it ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            WorkerPool(_echo, 2, "fork")
    finally:
        signal.signal(signal.SIGINT, before)
    assert multiprocessing.active_children() == []


def test_the_exit_of_a_worker_is_reported() -> None:
    with WorkerPool(_die, 1, "fork") as pool:
        (pipe,) = pool.pipes
        pipe.send(3)
        with pytest.raises(EOFError):
            pipe.recv()
        assert pool.how_it_ended(pipe) == "the worker process ended with exit status 3"


def test_only_cpus_that_this_process_may_use_are_counted() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cpus() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_a_process_with_threads_is_never_forked() -> None:
    release = threading.Event()
    other = threading.Thread(target=release.wait)
    other.start()
    try:
        assert start_method() == "spawn"
    finally:
        release.set()
        other.join()


def test_workers_do_not_have_the_files_that_are_kept_from_them(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    keep_from_workers(descriptor)
    with WorkerPool(_echo, 1, "fork") as pool:
        (pipe,) = pool.pipes
        pipe.send("begun")
        pipe.recv()
        close_kept(descriptor)
        other = os.open(tmp_path, os.O_RDONLY)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(other)


WAITS = """
import sys
from builders.jobs import WaitForEver
from kdump.engine import local as local_engine
from kdump.engine.job import Split
from kdump.engine.local import LocalEngine
from kdump.storage.local_disk import local

if __name__ == "__main__":
    pipe, method = sys.argv[1:]
    local_engine.start_method = lambda: method
    with LocalEngine(processes=2) as engine:
        list(engine.run(WaitForEver(pipe), [Split(local(name)) for name in "xy"]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_end_in_the_middle_of_a_split_when_their_parent_is_killed(
    method: StartMethod, tmp_path: Path
) -> None:
    program = InterruptedProgram(WAITS, tmp_path, method)
    program.wait_for_workers(2)
    program.kill()
    assert not program.workers_left()


AFTER_OUTPUT = """
import contextlib, sys
from builders.jobs import FailOn
from kdump.engine.job import Split
from kdump.engine.local import LocalEngine
from kdump.storage.local_disk import local

sys.stdout.write("once\\n")
with contextlib.suppress(Exception), LocalEngine(processes=2) as engine:
    list(engine.run(FailOn(local("x")), [Split(local(name), size_bytes=1) for name in "xy"]))
"""


def test_buffered_output_is_not_written_by_workers_too() -> None:
    assert in_a_fresh_process(AFTER_OUTPUT).stdout == "once\n"


BESIDE_A_THREAD = """
import os, threading
from builders.jobs import TellProcess
from kdump.engine.job import Split
from kdump.engine.local import LocalEngine

threading.Thread(target=threading.Event().wait, daemon=True).start()
with LocalEngine(2) as engine:
    splits = [Split(str(number), 0, None, 1 << 30) for number in range(4)]
    print(os.getpid() in {process for _, process in engine.run(TellProcess(), splits)})
"""


def test_workers_start_with_a_long_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a socket has at most 107 bytes."""
    folder = tmp_path / ("long-" * 24)
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    assert in_a_fresh_process(BESIDE_A_THREAD).stdout == "False\n"
    assert not list(folder.iterdir())
