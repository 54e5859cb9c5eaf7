"""The choice of an engine: this process and its workers for little work, Spark for much.

Starting a JVM takes longer than most work on one machine. Above a threshold, or when asked, the
same jobs run on Spark; nothing of Spark is imported before that. Where Spark or Java is missing,
all work runs without, unless Spark was asked for.
"""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kdump.engine.engine import Engine, run_all
from kdump.engine.job import Job, ResultT, SplitT
from kdump.engine.progress import SILENT, Progress

DEFAULT_THRESHOLD_BYTES: Final = 1 << 30


class EngineChoice(enum.Enum):
    """Which engine runs; the value is the word after ``--engine``."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How to run jobs.

    Attributes:
        choice: which engine; ``AUTO`` decides by the size of the work.
        threshold_bytes: ``AUTO`` is Spark for this much work or more, if Spark can be used.
        master: URL of Spark's master; None for all CPUs of this machine. If given, ``AUTO`` is
            Spark.
        spark_conf: Spark's own properties, which override kdump's.
        processes: how many workers the local engine has; None for one per CPU.
    """

    choice: EngineChoice = EngineChoice.AUTO
    threshold_bytes: int = DEFAULT_THRESHOLD_BYTES
    master: str | None = None
    spark_conf: tuple[tuple[str, str], ...] = ()
    processes: int | None = None


DEFAULT_OPTIONS: Final = EngineOptions()


def chosen(options: EngineOptions, total_bytes: int) -> EngineChoice:
    """``LOCAL`` or ``SPARK``, for work over ``total_bytes``."""
    if options.choice is not EngineChoice.AUTO:
        return options.choice
    if options.master is not None:
        return EngineChoice.SPARK
    if total_bytes < options.threshold_bytes:
        return EngineChoice.LOCAL
    from kdump.engine.spark_installation import is_spark_usable

    return EngineChoice.SPARK if is_spark_usable(os.environ) else EngineChoice.LOCAL


@contextlib.contextmanager
def open_engine(
    options: EngineOptions = DEFAULT_OPTIONS,
    *,
    total_bytes: int,
    progress: Progress = SILENT,
) -> Iterator[Engine]:
    """Open the engine for work over ``total_bytes``; leaving the context ends all it started.

    Show results inside the context: Spark takes time to stop.

    Raises:
        KdumpError: Spark was asked for, and cannot be started.
    """
    if chosen(options, total_bytes) is EngineChoice.SPARK:
        from kdump.engine.spark import SparkEngine

        with SparkEngine(options.master, dict(options.spark_conf), progress) as spark:
            yield spark
    else:
        from kdump.engine.local import LocalEngine

        with LocalEngine(options.processes, progress) as local:
            yield local


def run_job(
    job: Job[SplitT, ResultT],
    splits: Sequence[SplitT],
    options: EngineOptions = DEFAULT_OPTIONS,
    progress: Progress = SILENT,
) -> list[ResultT]:
    """Run a job on the engine for work of this size; gives the results in order of ``splits``.

    Raises:
        JobFailedError: the job failed on a split; names the file and byte.
        KdumpError: the engine itself failed.
    """
    total_bytes = sum(split.size_bytes for split in splits)
    with open_engine(options, total_bytes=total_bytes, progress=progress) as engine:
        return run_all(engine, job, splits)
