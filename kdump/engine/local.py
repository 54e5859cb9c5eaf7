"""The local engine: jobs run in this process, or in one worker process per CPU.

Workers stay for one job. Each is given a few splits at a time, and more as its results come back,
so that it is known what a dead worker was doing.
"""

from __future__ import annotations

import contextlib
import functools
import selectors
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Self, cast

from msgspec import Struct

from kdump.engine.engine_rates import JobKind
from kdump.engine.job import (
    Job,
    JobFailedError,
    PieceT,
    ReducedT,
    ResultT,
    ShuffleJob,
    Split,
    SplitT,
    describe_failure,
    trace_of,
)
from kdump.engine.progress import SILENT, TICK_SECONDS, Progress
from kdump.engine.task_groups import TaskLimits, task_groups
from kdump.processes.worker_pool import StartMethod, WorkerPool, start_method, usable_cpus
from kdump.storage.parallel_reads import with_files_at_hand
from kdump.storage.places import add_request_counts, concurrent_reads, take_request_counts

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from kdump.engine.stored_pieces import StoredPiece
    from kdump.storage.request_counts import RequestCounts

FORKED_POOL_BYTES: Final = 32 << 20
"""With this many bytes forked workers pay off: each takes milliseconds to start."""
SPAWNED_POOL_BYTES: Final = 256 << 20
"""The same for spawned workers: each is a new interpreter, which imports everything first."""
STORED_SCAN_BYTES: Final = 4 << 30
"""With this many bytes of an object store, workers that only check batches pay off: one process
checks them faster than its threads get them, and whoever talks to a store cannot be forked."""

PLACE_COST_BYTES: Final = 1 << 20
"""What a file or directory of a split costs besides its bytes, as the bytes read in that time: it
is opened or listed."""

TASK_LIMITS: Final = TaskLimits(most_bytes=4 << 20, most_splits=64, tasks_per_worker=4)


class LocalEngine:
    """Runs jobs in this process or its workers; a context that ends them."""

    name = "local"

    def __init__(
        self,
        processes: int | None = None,
        progress: Progress = SILENT,
        kind: JobKind = JobKind.DECODE,
    ) -> None:
        """Make an engine; nothing is started before a job runs.

        Args:
            processes: how many workers at most (default: one per CPU). If given, even little work
                is done by workers; 1 starts none.
            kind: what its jobs do.
        """
        self._processes = processes
        self._progress = progress
        self._kind = kind
        self._pool: WorkerPool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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
            method = start_method()
            places = sum(1 for split in splits for _ in split.read_places())
            processes = self._worth_starting(total_bytes, places, method)
            if processes < 2:
                yield from self._run_here(job, splits)
            else:
                tasks = list(task_groups(splits, processes, TASK_LIMITS))
                # A fork has the splits already; to pickle and read 10,000 took a second.
                inherited = splits if method == "fork" else None
                serve = functools.partial(_serve_splits, job, inherited, concurrent_reads())
                self._pool = WorkerPool(serve, min(processes, len(tasks)), method)
                sent = splits if inherited is None else None
                for index, result in _run_in(self._pool, splits, sent, tasks, self._progress):
                    yield splits[index], cast("ResultT", result)
        finally:
            self.close()
            self._progress.end()

    def shuffle(
        self,
        job: ShuffleJob[SplitT, ResultT, PieceT, ReducedT],
        splits: Sequence[SplitT],
        buckets: int,
    ) -> tuple[list[ResultT], list[ReducedT]]:
        """As :meth:`kdump.engine.engine.Engine.shuffle`.

        A single bucket is reduced in this process, several by workers: their pieces are files in
        ``TMPDIR`` until then, so that only those of a bucket need to fit into memory.
        """
        if buckets > 1:
            return self._shuffle_in_files(job, splits, buckets)
        found: dict[int, tuple[ResultT, Mapping[int, PieceT]]] = {}
        for split, each in self.run(_MapToOneBucket(job), splits):
            found[id(split)] = each
        in_order = [found.pop(id(split)) for split in splits]
        pieces = [piece for _, own in in_order for piece in own.values()]
        results = [result for result, _ in in_order]
        del in_order
        return results, [job.reduce(pieces)] if pieces else []

    def _shuffle_in_files(
        self,
        job: ShuffleJob[SplitT, ResultT, PieceT, ReducedT],
        splits: Sequence[SplitT],
        buckets: int,
    ) -> tuple[list[ResultT], list[ReducedT]]:
        from kdump.engine.stored_pieces import (
            MapToFiles,
            ReduceFiles,
            bucket_splits,
            stored_pieces,
        )

        found: dict[int, tuple[ResultT, Mapping[int, StoredPiece]]] = {}
        with stored_pieces() as folder:
            for split, each in self.run(MapToFiles(job, buckets, folder), splits):
                found[id(split)] = each
            in_order = [found.pop(id(split)) for split in splits]
            by_bucket = bucket_splits(folder, (own for _, own in in_order))
            reduced = [each for _, each in self.run(ReduceFiles(job), by_bucket)]
        return [result for result, _ in in_order], reduced

    def _worth_starting(self, total_bytes: int, places: int, method: StartMethod) -> int:
        """How many workers are worth starting for this work."""
        if self._processes is not None:
            return self._processes
        cost_bytes = total_bytes + places * PLACE_COST_BYTES
        worth_bytes = FORKED_POOL_BYTES if method == "fork" else SPAWNED_POOL_BYTES
        if method == "spawn" and self._kind is JobKind.SCAN and concurrent_reads() > 1:
            # Opening files of a store is waiting, which no further processor makes shorter.
            cost_bytes, worth_bytes = total_bytes, STORED_SCAN_BYTES
        return 1 if cost_bytes < worth_bytes else usable_cpus()

    def _run_here(
        self, job: Job[SplitT, ResultT], splits: Sequence[SplitT]
    ) -> Generator[tuple[SplitT, ResultT], None, None]:
        at_hand = with_files_at_hand(splits, lambda each: each.small_files(), concurrent_reads())
        for split in at_hand:
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


class _MapToOneBucket(Struct, Generic[SplitT, ResultT, PieceT], frozen=True):
    """The map step of a shuffle, into one bucket."""

    job: ShuffleJob[SplitT, ResultT, PieceT, Any]

    def run(self, split: SplitT, /) -> tuple[ResultT, Mapping[int, PieceT]]:
        return self.job.map(split, 1)


class _Done(Struct, frozen=True):
    """A result from a worker.

    Attributes:
        requests: what was asked of object stores for it, by their names.
    """

    index: int
    result: Any
    requests: Mapping[str, RequestCounts]


_Failed = tuple[int, str, str]


def _run_in(
    pool: WorkerPool,
    splits: Sequence[Split],
    sent: Sequence[Split] | None,
    tasks: Sequence[list[int]],
    progress: Progress,
) -> Iterator[tuple[int, Any]]:
    """Give the index of each split with its result, as they come.

    Args:
        sent: the same if workers have to be sent theirs; None if they have them.
        tasks: the indexes of the splits of each task.
    """
    waiting = deque(tasks)
    busy: dict[Connection[Any, Any], deque[int]] = {}

    def hand_out(worker: Connection[Any, Any]) -> None:
        if not waiting:
            return
        task = waiting.popleft()
        busy[worker] = deque(task)
        progress.working_on(splits[task[0]].label)
        # If the worker is gone, reading from its pipe says so.
        with contextlib.suppress(BrokenPipeError):
            worker.send([(index, None if sent is None else sent[index]) for index in task])

    timeout = TICK_SECONDS if progress.is_shown else None
    # One selector for all results: ``connection.wait`` makes one at each call.
    with selectors.DefaultSelector() as results:
        for worker in pool.pipes:
            hand_out(worker)
            if worker in busy:
                results.register(worker, selectors.EVENT_READ)
        while busy:
            for key, _ in results.select(timeout):
                ready = cast("Connection[Any, Any]", key.fileobj)
                at_work = busy[ready]
                done = _received(pool, ready, splits, at_work[0])
                add_request_counts(done.requests)
                at_work.popleft()
                if not at_work:
                    del busy[ready]
                    hand_out(ready)
                    if ready not in busy:
                        results.unregister(ready)
                progress.advance(splits[done.index].size_bytes)
                yield done.index, done.result
            progress.tick()


def _received(
    pool: WorkerPool, worker: Connection[Any, Any], splits: Sequence[Split], expected: int
) -> _Done:
    try:
        answer: _Done | _Failed = worker.recv()
    except (EOFError, ConnectionResetError):
        raise JobFailedError(splits[expected], pool.how_it_ended(worker)) from None
    if isinstance(answer, _Done):
        return answer
    index, what, trace = answer
    raise JobFailedError(splits[index], what, trace)


def _serve_splits(
    job: Job[Any, Any],
    inherited: Sequence[Split] | None,
    reads: int,
    pipe: Connection[Any, Any],
) -> None:
    """What a worker does: take splits, send results; it ends with the first failure."""
    while True:
        taken: list[tuple[int, Split]] = [
            (index, sent if inherited is None else inherited[index]) for index, sent in pipe.recv()
        ]
        for index, split in with_files_at_hand(taken, lambda each: each[1].small_files(), reads):
            try:
                result = job.run(split)
                pipe.send(_Done(index, result, take_request_counts()))
            except (BrokenPipeError, ConnectionResetError):
                return
            except Exception as failure:  # noqa: BLE001 - raised again by the parent
                pipe.send((index, describe_failure(failure), trace_of(failure)))
                return
