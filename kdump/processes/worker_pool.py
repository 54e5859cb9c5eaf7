"""Worker processes: how many, how they start, and how they end.

Each worker is at the other end of a pipe of its own, and serves what comes through it until it
ends. There is no shared queue and no lock: a dead worker is noticed at once, and stopping is
closing pipes. What goes through the pipes is up to whoever starts the pool.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from kdump.processes.heap import keep_freed_memory
from kdump.processes.isolation import child_environment, environment

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import BaseContext
    from multiprocessing.process import BaseProcess

StartMethod = Literal["fork", "spawn"]

_ALLOCATOR_THREAD: Final = "jemalloc_bg_thd"

_kept_from_workers: set[int] = set()


def keep_from_workers(descriptor: int) -> None:
    """Let no worker have an open file: a lock would last as long as any process has it."""
    _kept_from_workers.add(descriptor)


def close_kept(descriptor: int) -> None:
    """Close a file that was kept from workers.

    Raises:
        OSError: the disk fails.
    """
    _kept_from_workers.discard(descriptor)
    os.close(descriptor)


def usable_cpus() -> int:
    """How many CPUs this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def start_method() -> StartMethod:
    """How workers start: as forks if no other thread could hold a lock, else as new interpreters.

    Never from a fork server: it listens on a socket in ``TMPDIR``, whose path is limited to about a
    hundred bytes, and its workers import everything at the same time.
    """
    return "fork" if _is_safe_to_fork() else "spawn"


def _is_safe_to_fork() -> bool:
    """Whether this is the only thread, native ones included, that could hold a lock.

    pyarrow's allocator has a thread that handles forks itself (``pthread_atfork``).
    """
    try:
        names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    except OSError:
        return False
    return len([name for name in names if name != _ALLOCATOR_THREAD]) == 1


class WorkerPool:
    """Worker processes; a context that ends them.

    Attributes:
        pipes: this process's end of the pipe to each worker.
    """

    def __init__(
        self, serve: Callable[[Connection[Any, Any]], None], processes: int, method: StartMethod
    ) -> None:
        """Start workers.

        Args:
            serve: what a worker does with its end of the pipe; picklable. When this process closes
                the pipe, or is killed, the worker ends, whatever it is doing.
            processes: how many workers.
            method: how they start, from :func:`start_method`.
        """
        # Imported here, because it takes time and little work needs no worker.
        import multiprocessing

        self._context: BaseContext = multiprocessing.get_context(method)
        self._is_forked = method == "fork"
        self._workers: dict[Connection[Any, Any], BaseProcess] = {}
        # A fork inherits buffered output, and would write it a second time when it ends.
        sys.stdout.flush()
        # A signal that was delayed stops this process when they are complete, and still in here.
        try:
            with _signals_blocked(), _worker_environment():
                for _ in range(processes):
                    self._start(serve)
        except BaseException:
            self.close()
            raise

    def _start(self, serve: Callable[[Connection[Any, Any]], None]) -> None:
        ours, theirs = self._context.Pipe()
        # A fork also has this process's ends of all pipes. It closes them: otherwise no worker
        # would see the end of its pipe when this process is killed.
        inherited = [*self._workers, ours] if self._is_forked else []
        worker = self._context.Process(  # type: ignore[attr-defined]
            target=_run_worker, args=(serve, theirs, inherited), daemon=True, name="kdump worker"
        )
        try:
            worker.start()
        finally:
            theirs.close()
        self._workers[ours] = worker

    @property
    def pipes(self) -> Sequence[Connection[Any, Any]]:
        return list(self._workers)

    def how_it_ended(self, pipe: Connection[Any, Any]) -> str:
        """Describe how a worker ended whose pipe has ended."""
        process = self._workers[pipe]
        process.join()
        code = process.exitcode
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            hint = " (out of memory?)" if name == "SIGKILL" else ""
            return f"the worker process was ended by {name}{hint}"
        return f"the worker process ended with exit status {code}"

    def close(self) -> None:
        """End all workers, whatever they are doing."""
        with _signals_blocked():
            for pipe, worker in self._workers.items():
                pipe.close()
                worker.terminate()
            for worker in self._workers.values():
                worker.join()
                worker.close()
            self._workers.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _run_worker(
    serve: Callable[[Connection[Any, Any]], None],
    pipe: Connection[Any, Any],
    inherited: Sequence[Connection[Any, Any]],
) -> None:
    """What a worker does until its pipe ends."""
    # A terminal sends signals to all its processes: the parent alone decides when workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # It was blocked while the workers were started.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    for other in inherited:
        other.close()
    # A spawned worker has neither these files nor their numbers.
    for descriptor in _kept_from_workers:
        os.close(descriptor)
    threading.Thread(target=_end_with, args=(pipe.fileno(),), daemon=True).start()
    keep_freed_memory()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        serve(pipe)


def _end_with(pipe: int) -> None:
    """End this process when the other end of its pipe is closed.

    A split may take minutes, and nobody would have its result.
    """
    hangs_up = select.poll()
    hangs_up.register(pipe, 0)
    hangs_up.poll()
    os._exit(1)


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Delay signals until a group of processes is complete, or gone; none is lost."""
    stopping = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, stopping)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _worker_environment() -> AbstractContextManager[None]:
    """The environment in which workers start.

    NumPy would start one thread per CPU in each worker, for linear algebra that nobody needs. A
    spawned worker is a new interpreter, which must not import from the current directory.
    """
    native_threads = os.environ.get("OPENBLAS_NUM_THREADS", "1")
    return environment({"OPENBLAS_NUM_THREADS": native_threads} | child_environment())
