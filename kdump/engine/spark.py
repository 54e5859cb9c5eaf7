"""The Spark engine: the same jobs, as tasks of one Spark job.

Results reach the driver through an accumulator as tasks end: Spark merges those of each task
exactly once, however often it ran. If a job fails on a split, its task does not fail (Spark would
run it again three times): the failure is a value that ends the whole job at once. Only tasks whose
worker died run again.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self, cast

from msgspec import Struct

from kdump.engine import spark_archive
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
from kdump.engine.sights import DriverSights, Sight, require_same
from kdump.engine.spark_installation import first_line
from kdump.engine.spark_session import Passing, SparkSession, job_properties
from kdump.engine.task_groups import TaskLimits, task_groups
from kdump.errors import KdumpError
from kdump.phases import phase
from kdump.processes.heap import keep_freed_memory
from kdump.storage.parallel_reads import with_files_at_hand
from kdump.storage.places import concurrent_reads

_TASK_LIMITS: Final = TaskLimits(most_bytes=256 << 20, most_splits=512, tasks_per_worker=8)

_FAILED_TASK: Final = re.compile(r"Task (\d+) in stage")
_LOST_TASK: Final = re.compile(
    r"Lost task \S+ in stage \S+ \(TID \d+\) \((\S+) executor \S+\): (.+)"
)
_JAVA_CLASS: Final = re.compile(r"^(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ")
_OTHER_PYTHON: Final = re.compile(r"\bNo module named|PYTHON_VERSION_MISMATCH|pyspark\.daemon")
_SAME_PYTHON: Final = (
    "executors need the Python of the driver, with kdump; spark.pyspark.python names theirs"
)
_PYTHON_ERROR: Final = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception)\b.*)$", re.MULTILINE)


class SparkEngine:
    """Runs jobs on Spark; a context that ends it.

    Spark starts in the background; the first job waits for it.
    """

    name = "spark"

    def __init__(
        self,
        master: str | None = None,
        spark_conf: Mapping[str, str] | None = None,
        progress: Progress = SILENT,
    ) -> None:
        """Begin to start Spark.

        Args:
            master: URL of Spark's master (default: all CPUs of this machine).

        Raises:
            KdumpError: Spark cannot be started.
        """
        self._progress = progress
        self._session = SparkSession(master, job_properties(master) | dict(spark_conf or {}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or kind is GeneratorExit:
            was_quick = self._session.is_quick
            self._session.close()
            if was_quick:
                spark_archive.make_in_background()
        else:
            self._session.abort()

    def run(
        self, job: Job[SplitT, ResultT], splits: Sequence[SplitT]
    ) -> Generator[tuple[SplitT, ResultT], None, None]:
        """As :meth:`kdump.engine.engine.Engine.run`."""

        def action(tasks: Any, answers: Any) -> None:
            run_task = functools.partial(_run_task, job, answers, _origin(), concurrent_reads())
            tasks.foreachPartition(run_task)

        with contextlib.closing(self._results(type(job).__name__, splits, action)) as results:
            for answer in results:
                yield splits[answer.index], cast("ResultT", answer.result)

    def shuffle(
        self,
        job: ShuffleJob[SplitT, ResultT, PieceT, ReducedT],
        splits: Sequence[SplitT],
        buckets: int,
    ) -> tuple[list[ResultT], list[ReducedT]]:
        """As :meth:`kdump.engine.engine.Engine.shuffle`; Spark spills to disk what is too large."""

        def action(tasks: Any, answers: Any) -> None:
            count = max(tasks.ctx.defaultParallelism, buckets)
            reads = concurrent_reads()
            map_task = functools.partial(_map_task, job, count, answers, _origin(), reads)
            pieces = tasks.mapPartitions(map_task)
            by_bucket = pieces.partitionBy(count, _as_it_is)
            by_bucket.foreachPartition(functools.partial(_reduce_task, job, answers))

        found: dict[int, ResultT] = {}
        reduced: dict[int, ReducedT] = {}
        for answer in self._results(type(job).__name__, splits, action):
            (reduced if answer.is_reduced else found)[answer.index] = answer.result
        return [found[index] for index in range(len(splits))], list(reduced.values())

    def _results(
        self, name: str, splits: Sequence[Split], action: Callable[[Any, Any], None]
    ) -> Generator[_Answer, None, None]:
        """Run a job, and yield its answers as they come.

        Args:
            action: runs an RDD of tasks, with an accumulator for their answers.
        """
        if not splits:
            return
        with phase(f"waiting for Spark on {self._session.master}"):
            context = self._session.context
        self._progress.begin(sum(split.size_bytes for split in splits))
        arrived: queue.SimpleQueue[list[_Answer | _Failed] | _Ended] = queue.SimpleQueue()
        try:
            sights = None if self._session.is_local else DriverSights()
            tasks = [
                [
                    (index, splits[index], sights.of(splits[index].read_places()) if sights else ())
                    for index in group
                ]
                for group in task_groups(splits, context.defaultParallelism, _TASK_LIMITS)
            ]
            answers = context.accumulator([], Passing(arrived.put))
        except Exception as failure:
            raise self._as_error(failure, [], splits, set()) from failure
        group = f"kdump-{uuid.uuid4()}"

        def submit() -> None:
            failure: BaseException | None = None
            try:
                context.setJobGroup(group, name, interruptOnCancel=True)
                action(context.parallelize(tasks, len(tasks)), answers)
            except BaseException as caught:  # noqa: BLE001 - raised again by the waiting thread
                failure = caught
            arrived.put(_Ended(failure))

        missing = set(range(len(splits)))
        threading.Thread(target=submit, name="kdump Spark job", daemon=True).start()
        try:
            while not isinstance(came := self._next(arrived), _Ended):
                for answer in came:
                    if isinstance(answer, _Failed):
                        raise JobFailedError(splits[answer.index], answer.what, answer.trace)
                    if not answer.is_reduced:
                        self._note(splits[answer.index], is_new=answer.index in missing)
                        missing.discard(answer.index)
                    yield answer
            if came.failure is not None:
                raise self._as_error(came.failure, tasks, splits, missing) from came.failure
        except BaseException:
            # If the JVM is gone there is nothing to cancel.
            with contextlib.suppress(Exception):
                context.cancelJobGroup(group)
            raise
        finally:
            self._progress.end()
        assert not missing, "a Spark job that succeeds has done every split"

    def _as_error(
        self,
        failure: BaseException,
        tasks: Sequence[_Task],
        splits: Sequence[Split],
        missing: set[int],
    ) -> KdumpError:
        """Describe a failure of Spark itself, with file and byte if they are known."""
        message = str(failure)
        task = _FAILED_TASK.search(message)
        if task is not None and "worker exited unexpectedly" in message:
            undone = [index for index, *_ in tasks[int(task[1])] if index in missing]
            if undone:
                others = f", or on one of the {len(undone) - 1} after it," if undone[1:] else ""
                what = f"the worker on this{others} ended each time it was tried (out of memory?)"
                return JobFailedError(splits[undone[0]], what)
        return KdumpError(f"the Spark job failed: {self._session.cause() or _reason(failure)}")

    def _note(self, split: Split, *, is_new: bool) -> None:
        """Report a split as done; for a shuffle Spark may run it again."""
        self._progress.working_on(split.label)
        if is_new:
            self._progress.advance(split.size_bytes)

    def _next(self, arrived: queue.SimpleQueue[Any]) -> Any:
        """The next arrival; ticks until then."""
        waits = self._progress.is_shown or not self._session.is_local
        begin = time.monotonic()
        while True:
            try:
                return arrived.get(timeout=TICK_SECONDS if waits else None)
            except queue.Empty:
                self._progress.tick()
                self._session.check(time.monotonic() - begin)


class _Answer(Struct, frozen=True):
    """The result of a split or of a bucket."""

    index: int
    result: Any
    is_reduced: bool = False


class _Failed(Struct, frozen=True):
    """The job failed on a split."""

    index: int
    what: str
    trace: str


_Task = list[tuple[int, Split, tuple[Sight, ...]]]


class _Ended(Struct, frozen=True):
    """Spark's job has ended, perhaps with a failure of Spark."""

    failure: BaseException | None


def _origin() -> str | None:
    """The current directory, which relative paths start from; None if it was deleted."""
    try:
        return str(Path.cwd())
    except OSError:
        return None


def _run_task(
    job: Job[Any, Any], answers: Any, origin: str | None, reads: int, tasks: Iterable[_Task]
) -> None:
    """Run a job on a worker: ``answers`` is an accumulator."""
    for _ in _done(job.run, answers, origin, reads, tasks):
        pass


def _map_task(
    job: ShuffleJob[Any, Any, Any, Any],
    buckets: int,
    answers: Any,
    origin: str | None,
    reads: int,
    tasks: Iterable[_Task],
) -> Iterator[tuple[int, tuple[int, Any]]]:
    """Map splits on a worker; yields the pieces by bucket, with the index of their split."""

    def map_split(split: Split) -> Any:
        result, pieces = job.map(split, buckets)
        mapped.update(pieces)
        return result

    mapped: dict[int, Any] = {}
    for index in _done(map_split, answers, origin, reads, tasks):
        for bucket, piece in mapped.items():
            yield bucket, (index, piece)
        mapped.clear()


def _done(
    work: Callable[[Any], Any],
    answers: Any,
    origin: str | None,
    reads: int,
    tasks: Iterable[_Task],
) -> Iterator[int]:
    """Do the work on each split until one fails; yields the indexes of those that are done.

    Args:
        work: gives the result of a split.
        origin: the current directory of the driver.
        reads: how many small files to read at the same time before.
    """
    keep_freed_memory()
    for task in tasks:
        at_hand = with_files_at_hand(task, lambda each: each[1].small_files(), reads)
        for index, split, sights in at_hand:
            try:
                with _relative_to(origin, split):
                    require_same(sights)
                    result = work(split)
            except Exception as failure:  # noqa: BLE001 - raised again by the driver
                answers.add([_Failed(index, describe_failure(failure), trace_of(failure))])
                return
            answers.add([_Answer(index, result)])
            yield index


@contextlib.contextmanager
def _relative_to(origin: str | None, split: Split) -> Iterator[None]:
    """Let relative paths mean on a worker what they mean on the driver.

    Workers have another current directory, and import nothing from either.

    Raises:
        KdumpError: the path is relative, and this machine does not have the driver's directory.
    """
    before = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    try:
        if origin is not None:
            try:
                os.chdir(origin)
            except OSError as failure:
                if not split.path.path.startswith("/"):
                    raise KdumpError(
                        f"the path is relative to {origin}, which cannot be entered on"
                        f" {socket.gethostname()}: {failure.strerror}"
                    ) from failure
        yield
    finally:
        os.fchdir(before)
        os.close(before)


def _reduce_task(
    job: ShuffleJob[Any, Any, Any, Any],
    answers: Any,
    pieces: Iterable[tuple[int, tuple[int, Any]]],
) -> None:
    """Reduce one bucket on a worker."""
    found = list(pieces)
    if found:
        in_order = [piece for _, (_, piece) in sorted(found, key=lambda each: each[1][0])]
        answers.add([_Answer(found[0][0], job.reduce(in_order), is_reduced=True)])


def _as_it_is(bucket: int) -> int:
    return bucket


def _reason(failure: BaseException) -> str:
    """The cause of a failure of Spark, in one line."""
    message = str(failure)
    if raised := _PYTHON_ERROR.findall(message):
        what = str(raised[-1])
        return f"{what.rstrip('.')}: {_SAME_PYTHON}" if _OTHER_PYTHON.search(what) else what
    if lost := _LOST_TASK.search(message):
        return f"{_without_class(lost[2])} (on {lost[1]})"
    line = _without_class(first_line(failure))
    return f"{line.rstrip('.')}: {_SAME_PYTHON}" if _OTHER_PYTHON.search(line) else line


def _without_class(line: str) -> str:
    return _JAVA_CLASS.sub("", line).removeprefix("Job aborted due to stage failure: ")
