"""The engine in this process: jobs run right here, or in workers, one a core.

Workers are processes that stay for one job. The parent hands each a few splits at a time, over a
pipe of its own, and hands out more as results come back: there is no thread and no lock, a dead
worker is noticed at once and it is known what it was doing, and stopping is closing pipes.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Generic, Self, cast

from kdump.engine.isolation import child_environment, environment
from kdump.engine.job import (
    ExchangeJob,
    GatheredT,
    Job,
    JobFailedError,
    PieceT,
    ResultT,
    Split,
    SplitT,
    describe_failure,
    trace_of,
)
from kdump.engine.progress import SILENT, TICK_SECONDS, Progress

FORKED_POOL_BYTES: Final = 32 << 20
"""From how many bytes on workers pay for themselves if they are forked: milliseconds each."""
SPAWNED_POOL_BYTES: Final = 256 << 20
"""The same where each is a new interpreter, which has everything to import first."""

SPLIT_COST_BYTES: Final = 1 << 20
"""How many bytes could be read in the time that a split takes beside its bytes: it opens files."""

_ALLOCATOR_THREAD: Final = "jemalloc_bg_thd"

_CHUNK_BYTES: Final = 4 << 20
_CHUNK_SPLITS: Final = 64
_CHUNKS_PER_WORKER: Final = 4


def available_cores() -> int:
    """How many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


class LocalEngine:
    """Runs jobs in this process and its workers; a context that ends them."""

    name = "local"

    def __init__(self, processes: int | None = None, progress: Progress = SILENT) -> None:
        """Make an engine; nothing is started before a job runs.

        Args:
            processes: how many workers at most; one a core if not given. Given, even little work
                is done by workers, unless it is 1, for which there are none.
            progress: who is told.
        """
        self._processes = processes
        self._progress = progress
        self._pool: _Pool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers, whatever they are doing."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def run(
        self, job: Job[SplitT, ResultT], splits: Sequence[SplitT]
    ) -> Generator[tuple[SplitT, ResultT], None, None]:
        """As :meth:`kdump.engine.engine.Engine.run`."""
        total_bytes = sum(split.size_bytes for split in splits)
        self._progress.begin(total_bytes)
        try:
            context = _context()
            cost_bytes = total_bytes + len(splits) * SPLIT_COST_BYTES
            processes = self._worth_starting(cost_bytes, context)
            if processes < 2:
                yield from self._run_here(job, splits)
            else:
                chunks = list(_chunks(splits, total_bytes, processes))
                self._pool = _Pool(job, min(processes, len(chunks)), context)
                for index, result in self._pool.run(splits, chunks, self._progress):
                    yield splits[index], cast("ResultT", result)
        finally:
            self.close()
            self._progress.end()

    def exchange(
        self,
        job: ExchangeJob[SplitT, ResultT, PieceT, GatheredT],
        splits: Sequence[SplitT],
        buckets: int,
    ) -> tuple[list[ResultT], list[GatheredT]]:
        """As :meth:`kdump.engine.engine.Engine.exchange`; the one bucket is in this process."""
        found: dict[int, tuple[ResultT, Mapping[int, PieceT]]] = {}
        for split, each in self.run(_Scatter(job), splits):
            found[id(split)] = each
        in_order = [found.pop(id(split)) for split in splits]
        pieces = [piece for _, own in in_order for piece in own.values()]
        results = [result for result, _ in in_order]
        del in_order
        return results, [job.gather(pieces)] if pieces else []

    def _worth_starting(self, cost_bytes: int, context: BaseContext) -> int:
        """How many workers are worth their start for work that is worth so many bytes."""
        if self._processes is not None:
            return self._processes
        is_forked = context.get_start_method() == "fork"
        worth_bytes = FORKED_POOL_BYTES if is_forked else SPAWNED_POOL_BYTES
        return 1 if cost_bytes < worth_bytes else available_cores()

    def _run_here(
        self, job: Job[SplitT, ResultT], splits: Sequence[SplitT]
    ) -> Generator[tuple[SplitT, ResultT], None, None]:
        for split in splits:
            self._progress.working_on(split.label)
            try:
                result = job.run(split)
            except Exception as failure:
                raise JobFailedError(
                    split, describe_failure(failure), trace_of(failure)
                ) from failure
            self._progress.advance(split.size_bytes)
            yield split, result
            self._progress.tick()


@dataclass(frozen=True, slots=True)
class _Scatter(Generic[SplitT, ResultT, PieceT]):
    """The first step of a job of two, into one bucket."""

    job: ExchangeJob[SplitT, ResultT, PieceT, Any]

    def run(self, split: SplitT, /) -> tuple[ResultT, Mapping[int, PieceT]]:
        return self.job.scatter(split, 1)


def _chunks(splits: Sequence[Split], total_bytes: int, processes: int) -> Iterator[range]:
    """Splits that are handed out together, so that thousands of small ones cost little."""
    enough_bytes = min(_CHUNK_BYTES, max(1, total_bytes // (processes * _CHUNKS_PER_WORKER)))
    enough_splits = min(_CHUNK_SPLITS, -(-len(splits) // processes))
    begin = size_bytes = 0
    for index, split in enumerate(splits):
        size_bytes += split.size_bytes
        if size_bytes >= enough_bytes or index + 1 - begin >= enough_splits:
            yield range(begin, index + 1)
            begin, size_bytes = index + 1, 0
    if begin < len(splits):
        yield range(begin, len(splits))


def _context() -> BaseContext:
    """How workers begin: as forks, if no thread can be caught holding a lock; else as new ones.

    Never from a fork server. It listens on a socket in ``TMPDIR``, whose path may have at most some
    hundred bytes, and workers that start side by side import everything as soon as it does.
    """
    return multiprocessing.get_context("fork" if _is_safe_to_fork() else "spawn")


def _is_safe_to_fork() -> bool:
    """Whether no thread but this one, native ones included, can be caught holding a lock.

    The allocator that pyarrow brings has one that sees to forks itself (``pthread_atfork``).
    """
    try:
        names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    except OSError:
        return False
    return len([name for name in names if name != _ALLOCATOR_THREAD]) == 1


_Done = tuple[int, Any]
_Failed = tuple[int, str, str]


class _Pool:
    """Workers for one job."""

    def __init__(self, job: Job[Any, Any], processes: int, context: BaseContext) -> None:
        self._workers: dict[Connection[Any, Any], BaseProcess] = {}
        # A fork inherits output that is not written yet, and would write it once more at its end.
        sys.stdout.flush()
        with _interrupts_held_back(), _worker_environment():
            try:
                for _ in range(processes):
                    self._start(job, context)
            except BaseException:
                self.close()
                raise

    def _start(self, job: Job[Any, Any], context: BaseContext) -> None:
        ours, theirs = context.Pipe()
        is_forked = context.get_start_method() == "fork"
        # A fork has our ends of all pipes open too. It closes them, or no worker would see the
        # end of its pipe when this process is killed.
        inherited = [*self._workers, ours] if is_forked else []
        worker = context.Process(  # type: ignore[attr-defined]
            target=_serve, args=(theirs, job, inherited), daemon=True, name="kdump worker"
        )
        try:
            worker.start()
        finally:
            theirs.close()
        self._workers[ours] = worker

    def run(
        self, splits: Sequence[Split], chunks: Sequence[range], progress: Progress
    ) -> Iterator[_Done]:
        """Give the index of each split with its result, as they come."""
        waiting = deque(chunks)
        busy: dict[Connection[Any, Any], deque[int]] = {}

        def hand_out(worker: Connection[Any, Any]) -> None:
            if not waiting:
                return
            chunk = waiting.popleft()
            busy[worker] = deque(chunk)
            progress.working_on(splits[chunk[0]].label)
            # Where the worker is gone, its pipe says so when it is read.
            with contextlib.suppress(BrokenPipeError):
                worker.send([(index, splits[index]) for index in chunk])

        for worker in self._workers:
            hand_out(worker)
        timeout = TICK_SECONDS if progress.is_shown else None
        while busy:
            for ready in cast("list[Connection[Any, Any]]", wait(list(busy), timeout)):
                at_work = busy[ready]
                index, result = self._receive(ready, splits, at_work[0])
                at_work.popleft()
                if not at_work:
                    del busy[ready]
                    hand_out(ready)
                progress.advance(splits[index].size_bytes)
                yield index, result
            progress.tick()

    def _receive(
        self, worker: Connection[Any, Any], splits: Sequence[Split], expected: int
    ) -> _Done:
        try:
            answer: _Done | _Failed = worker.recv()
        except (EOFError, ConnectionResetError):
            process = self._workers[worker]
            process.join()
            raise JobFailedError(splits[expected], _end_of(process.exitcode)) from None
        if len(answer) == 3:
            index, what, trace = answer
            raise JobFailedError(splits[index], what, trace)
        return answer

    def close(self) -> None:
        """End all workers; those that wait for work by the end of their pipe."""
        with _interrupts_held_back():
            for connection, worker in self._workers.items():
                connection.close()
                worker.terminate()
            for worker in self._workers.values():
                worker.join()
                worker.close()
            self._workers.clear()


def _end_of(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        name = signal.Signals(-exit_code).name
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return f"the worker process was ended by {name}{hint}"
    return f"the worker process ended with exit status {exit_code}"


def _serve(
    connection: Connection[Any, Any], job: Job[Any, Any], inherited: Sequence[Connection[Any, Any]]
) -> None:
    """What a worker does until its pipe ends: take splits, give results."""
    # Signals of a terminal go to all its processes: the parent alone decides what becomes of them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # It was held back while the workers were started.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    for other in inherited:
        other.close()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            for index, split in connection.recv():
                try:
                    connection.send((index, job.run(split)))
                except (BrokenPipeError, ConnectionResetError):
                    return
                except Exception as failure:  # noqa: BLE001 - raised again, by the parent
                    connection.send((index, describe_failure(failure), trace_of(failure)))
                    return


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Let signals wait until a group of processes is complete, or gone; none is lost."""
    stopping = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, stopping)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _worker_environment() -> AbstractContextManager[None]:
    """The environment in which workers begin.

    NumPy would start one thread a core in each worker, for linear algebra that nobody asks for. A
    worker that is no fork is a new interpreter, which must not import from the current directory.
    """
    native_threads = os.environ.get("OPENBLAS_NUM_THREADS", "1")
    return environment({"OPENBLAS_NUM_THREADS": native_threads} | child_environment())
