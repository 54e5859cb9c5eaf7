"""The choice of an engine: the one that is expected to finish first.

A cluster, or who asks for an engine, gets it. Otherwise measured rates decide, and where Spark or
Java is missing, all work runs without. Nothing of Spark is imported before it is chosen.
"""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from kdump.engine.engine import Engine, run_all
from kdump.engine.engine_rates import LOCAL_RATES, SPARK_RATES, JobKind
from kdump.engine.job import Job, ResultT, SplitT
from kdump.engine.progress import SILENT, Progress
from kdump.processes.worker_pool import usable_cpus


class EngineChoice(enum.Enum):
    """Which engine runs; the value is the word after ``--engine``."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


class Because(enum.Enum):
    """Why an engine was chosen; the value says it."""

    ASKED = "--engine"
    CLUSTER = "--master"
    FIRST = "expected to finish first"
    ONLY = "Spark cannot be used"


class Decision(Struct, frozen=True):
    """The choice of an engine for a job.

    Attributes:
        engine: ``LOCAL`` or ``SPARK``.
        total_bytes: how much there is to read.
        cores: of this machine.
        local_seconds: the expected time of the local engine.
        spark_seconds: the expected time of Spark on this machine.
    """

    engine: EngineChoice
    because: Because
    total_bytes: int
    cores: int
    local_seconds: float
    spark_seconds: float


def _tell_nobody(decision: Decision) -> None:
    pass


class EngineOptions(Struct, frozen=True):
    """How to run jobs.

    Attributes:
        choice: which engine; ``AUTO`` is the one that is expected to finish first.
        master: URL of Spark's master; None for all CPUs of this machine. If given, ``AUTO`` is
            Spark.
        spark_conf: Spark's own properties, which override kdump's.
        processes: how many workers the local engine has; None for one per CPU.
        tell: receives each choice of an engine.
        progress: receives how far the work is.
    """

    choice: EngineChoice = EngineChoice.AUTO
    master: str | None = None
    spark_conf: tuple[tuple[str, str], ...] = ()
    processes: int | None = None
    tell: Callable[[Decision], None] = _tell_nobody
    progress: Progress = SILENT

    @property
    def may_be_local(self) -> bool:
        """Whether nobody asked for Spark."""
        return self.choice is not EngineChoice.SPARK and self.master is None


DEFAULT_OPTIONS: Final = EngineOptions()


def decide(options: EngineOptions, kind: JobKind, total_bytes: int) -> Decision:
    """Choose the engine for a job of this kind over ``total_bytes``."""
    cores = usable_cpus()
    local_seconds = LOCAL_RATES[kind].seconds(total_bytes, cores)
    spark_seconds = SPARK_RATES[kind].seconds(total_bytes, cores)
    engine, because = EngineChoice.LOCAL, Because.FIRST
    if options.choice is not EngineChoice.AUTO:
        engine, because = options.choice, Because.ASKED
    elif options.master is not None:
        engine, because = EngineChoice.SPARK, Because.CLUSTER
    elif spark_seconds < local_seconds:
        from kdump.engine.spark_installation import is_spark_usable

        if is_spark_usable(os.environ):
            engine = EngineChoice.SPARK
        else:
            because = Because.ONLY
    return Decision(engine, because, total_bytes, cores, local_seconds, spark_seconds)


@contextlib.contextmanager
def open_engine(
    options: EngineOptions = DEFAULT_OPTIONS,
    *,
    kind: JobKind = JobKind.SCAN,
    total_bytes: int,
) -> Iterator[Engine]:
    """Open the engine for jobs over ``total_bytes``; leaving the context ends all it started.

    Show results inside the context: Spark takes time to stop.

    Raises:
        KdumpError: Spark was asked for, and cannot be started.
    """
    decision = decide(options, kind, total_bytes)
    options.tell(decision)
    if decision.engine is EngineChoice.SPARK:
        from kdump.engine.spark import SparkEngine

        with SparkEngine(options.master, dict(options.spark_conf), options.progress) as spark:
            yield spark
    else:
        from kdump.engine.local import LocalEngine

        with LocalEngine(options.processes, options.progress, kind) as local:
            yield local


def run_job(
    job: Job[SplitT, ResultT],
    splits: Sequence[SplitT],
    options: EngineOptions = DEFAULT_OPTIONS,
    *,
    kind: JobKind = JobKind.SCAN,
) -> list[ResultT]:
    """Run a job on the engine for such work; gives the results in order of ``splits``.

    Raises:
        JobFailedError: the job failed on a split; names the file and byte.
        KdumpError: the engine itself failed.
    """
    total_bytes = sum(split.size_bytes for split in splits)
    with open_engine(options, kind=kind, total_bytes=total_bytes) as engine:
        return run_all(engine, job, splits)


@contextlib.contextmanager
def results_here(
    job: Job[SplitT, ResultT], splits: Sequence[SplitT], progress: Progress
) -> Iterator[Iterator[tuple[SplitT, ResultT]]]:
    """Run a job over the disks of this machine, whatever the size of the work.

    Gives each split with its result as it is done; leaving the context ends the job.

    Raises:
        JobFailedError: the job failed on a split; names the file and byte.
    """
    options = EngineOptions(EngineChoice.LOCAL, progress=progress)
    total_bytes = sum(split.size_bytes for split in splits)
    with (
        open_engine(options, total_bytes=total_bytes) as engine,
        contextlib.closing(engine.run(job, splits)) as results,
    ):
        yield results
