"""The engine on Spark: the same jobs, as tasks of one Spark job.

Results reach the driver as tasks end, through an accumulator: Spark merges each task's exactly
once, however often it ran. A job that fails on a split is no failed task, which Spark would try
again three times, but a value that ends the whole job at once; only a worker that died is tried
again.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import re
import threading
import traceback
import uuid
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, cast

from kdump.errors import KdumpError
from kdump.pipeline import spark_archive
from kdump.pipeline.engine import EngineOptions
from kdump.pipeline.job import Job, JobFailedError, ResultT, Split, SplitT, describe_failure
from kdump.pipeline.progress import SILENT, TICK_SECONDS, Progress
from kdump.pipeline.spark_session import SparkSession, first_line

_TASK_BYTES: Final = 256 << 20
_TASK_SPLITS: Final = 512
_TASKS_PER_CORE: Final = 8

_FAILED_TASK: Final = re.compile(r"Task (\d+) in stage")
_PYTHON_ERROR: Final = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception)\b.*)$", re.MULTILINE)


class SparkEngine:
    """Runs jobs on Spark; a context that ends it.

    Spark begins to start when this is made, and is waited for by the first job.
    """

    name = "spark"

    def __init__(self, options: EngineOptions, progress: Progress = SILENT) -> None:
        """Begin to start Spark.

        Raises:
            KdumpError: it cannot be started.
        """
        self._progress = progress
        self._session = SparkSession(options.master, dict(options.spark_conf))

    @property
    def context(self) -> Any:
        """The ``pyspark.SparkContext``, for work that is no job over splits; waits for it.

        Raises:
            KdumpError: Spark does not start.
        """
        return self._session.context

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        """As :meth:`kdump.pipeline.engine.Engine.run`."""
        if not splits:
            return
        self._progress.say(f"waiting for Spark on {self._session.master}")
        context = self._session.context
        self._progress.say("")
        self._progress.begin(sum(split.size_bytes for split in splits))
        try:
            for index, result in self._results(context, job, splits):
                self._progress.advance(splits[index].size_bytes)
                yield splits[index], cast("ResultT", result)
        finally:
            self._progress.end()

    def _results(
        self, context: Any, job: Job[Any, Any], splits: Sequence[Split]
    ) -> Iterator[tuple[int, Any]]:
        tasks = list(_tasks(splits, context.defaultParallelism))
        arrived: queue.SimpleQueue[list[_Answer] | _Ended] = queue.SimpleQueue()
        run_task = functools.partial(_run_task, job, context.accumulator([], _Answers(arrived)))
        group = f"kdump-{uuid.uuid4()}"

        def submit() -> None:
            failure: BaseException | None = None
            try:
                context.setJobGroup(group, type(job).__name__, interruptOnCancel=True)
                context.parallelize(tasks, len(tasks)).foreachPartition(run_task)
            except BaseException as caught:  # noqa: BLE001 - raised again, by whoever waits
                failure = caught
            arrived.put(_Ended(failure))

        missing = set(range(len(splits)))
        threading.Thread(target=submit, name="kdump Spark job", daemon=True).start()
        try:
            while True:
                answers = self._next(arrived)
                if isinstance(answers, _Ended):
                    break
                for answer in answers:
                    if isinstance(answer, _Failed):
                        raise JobFailedError(splits[answer.index], answer.what, answer.trace)
                    missing.discard(answer[0])
                    self._progress.working_on(splits[answer[0]].label)
                    yield answer
        except BaseException:
            # Where the JVM is gone there is nothing to cancel, and nobody to say so.
            with contextlib.suppress(Exception):
                context.cancelJobGroup(group)
            raise
        if answers.failure is not None:
            raise _as_error(answers.failure, tasks, splits, missing) from answers.failure
        assert not missing, "a Spark job that succeeds has done every split"

    def _next(self, arrived: queue.SimpleQueue[Any]) -> Any:
        """What arrives next; time is told to pass until then."""
        while True:
            try:
                return arrived.get(timeout=TICK_SECONDS if self._progress.is_shown else None)
            except queue.Empty:
                self._progress.tick()


@dataclass(frozen=True, slots=True)
class _Failed:
    """The job could not be done on a split."""

    index: int
    what: str
    trace: str


_Answer = tuple[int, Any] | _Failed
_Task = list[tuple[int, Split]]


@dataclass(frozen=True, slots=True)
class _Ended:
    """Spark's job is over: well, or with a failure of Spark's."""

    failure: BaseException | None


class _Answers:
    """How answers are added up, as an accumulator is told: on the driver, by passing them on.

    Has the methods of ``pyspark.AccumulatorParam``, which cannot be imported before it is needed.
    """

    def __init__(self, arrived: queue.SimpleQueue[Any] | None = None) -> None:
        self._arrived = arrived

    def __reduce__(self) -> tuple[type[_Answers], tuple[()]]:
        # A worker gets one that collects.
        return type(self), ()

    def zero(self, value: list[_Answer]) -> list[_Answer]:
        return []

    def addInPlace(  # noqa: N802 - so it is called
        self, value1: list[_Answer], value2: list[_Answer]
    ) -> list[_Answer]:
        if self._arrived is None:
            value1.extend(value2)
        else:
            self._arrived.put(value2)
        return value1


def _tasks(splits: Sequence[Split], cores: int) -> Iterator[_Task]:
    """Splits that make up a task together: enough to be worth one, few enough for all cores."""
    total_bytes = sum(split.size_bytes for split in splits)
    enough_bytes = min(_TASK_BYTES, max(1, total_bytes // (cores * _TASKS_PER_CORE)))
    enough_splits = min(_TASK_SPLITS, -(-len(splits) // cores))
    task: _Task = []
    size_bytes = 0
    for index, split in enumerate(splits):
        task.append((index, split))
        size_bytes += split.size_bytes
        if size_bytes >= enough_bytes or len(task) >= enough_splits:
            yield task
            task, size_bytes = [], 0
    if task:
        yield task


def _run_task(job: Job[Any, Any], answers: Any, tasks: Iterable[_Task]) -> None:
    """Run a job on a worker: ``answers`` is an accumulator."""
    for task in tasks:
        for index, split in task:
            try:
                answer: _Answer = index, job.run(split)
            except Exception as failure:  # noqa: BLE001 - raised again, by the driver
                answer = _Failed(index, describe_failure(failure), traceback.format_exc())
            answers.add([answer])
            if isinstance(answer, _Failed):
                return


def _as_error(
    failure: BaseException, tasks: Sequence[_Task], splits: Sequence[Split], missing: set[int]
) -> KdumpError:
    """A failure of Spark itself in words; with the place, where it can be told."""
    said = str(failure)
    task = _FAILED_TASK.search(said)
    if task is not None and "worker exited unexpectedly" in said:
        undone = [index for index, _ in tasks[int(task[1])] if index in missing]
        if undone:
            others = f", or on one of the {len(undone) - 1} after it," if len(undone) > 1 else ""
            what = f"the worker on this{others} ended each time it was tried (out of memory?)"
            return JobFailedError(splits[undone[0]], what)
    raised = _PYTHON_ERROR.findall(said)
    reason = raised[-1] if raised else first_line(failure)
    return KdumpError(f"the Spark job failed: {reason}")
