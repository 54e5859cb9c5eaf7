"""The choice between the two engines, and what they have in common.

Work under a threshold runs in this process and workers of its own: starting a JVM would take
longer than the work. Above it, or when asked, the very same jobs run on Spark. Nothing of Spark
is imported before that.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from kdump.engine.job import ExchangeJob, GatheredT, Job, PieceT, ResultT, SplitT
from kdump.engine.progress import SILENT, Progress

DEFAULT_THRESHOLD_BYTES: Final = 1 << 30


class EngineChoice(enum.Enum):
    """Who decides which engine runs; the value is the word behind ``--engine``."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How jobs are to be run.

    Attributes:
        choice: which engine; ``AUTO`` decides by the size of the work.
        threshold_bytes: from how many bytes on ``AUTO`` is Spark.
        master: of Spark; None is all cores of this machine. Naming one makes ``AUTO`` Spark.
        spark_conf: Spark's own properties, which win over kdump's.
        processes: how many workers the engine in this process has; None is one a core.
    """

    choice: EngineChoice = EngineChoice.AUTO
    threshold_bytes: int = DEFAULT_THRESHOLD_BYTES
    master: str | None = None
    spark_conf: tuple[tuple[str, str], ...] = ()
    processes: int | None = None


DEFAULT_OPTIONS: Final = EngineOptions()


class Engine(Protocol):
    """Runs jobs, one after another."""

    @property
    def name(self) -> str:
        """``local``, or ``spark``."""
        ...

    def run(
        self, job: Job[SplitT, ResultT], splits: Sequence[SplitT]
    ) -> Generator[tuple[SplitT, ResultT], None, None]:
        """Run ``job`` on each of ``splits``; gives each with its result as soon as that is there.

        It is the very object in ``splits`` that is given.

        Results come in any order. Closing the generator ends the job, and so does leaving the
        engine's context. One job runs at a time.

        Raises:
            JobFailedError: it could not be done on one of them; names the file and byte.
            KdumpError: the engine broke.
        """
        ...

    def exchange(
        self,
        job: ExchangeJob[SplitT, ResultT, PieceT, GatheredT],
        splits: Sequence[SplitT],
        buckets: int,
    ) -> tuple[list[ResultT], list[GatheredT]]:
        """Run ``job``, and bring together what it finds.

        Args:
            job: what to do.
            splits: on what.
            buckets: so many that each is small enough to be gathered in the memory of a worker.
                An engine may take more, or one, if that is here anyway.

        Returns:
            What was found in each split, in their order, and what was gathered in each bucket; of
            one in which there is nothing nothing may be told.

        Raises:
            JobFailedError: it could not be done on a split; names the file and byte.
            KdumpError: the engine broke.
        """
        ...


def chosen(options: EngineOptions, total_bytes: int) -> EngineChoice:
    """``LOCAL`` or ``SPARK``, for work over so many bytes."""
    if options.choice is not EngineChoice.AUTO:
        return options.choice
    if options.master is not None or total_bytes >= options.threshold_bytes:
        return EngineChoice.SPARK
    return EngineChoice.LOCAL


@contextlib.contextmanager
def open_engine(
    options: EngineOptions = DEFAULT_OPTIONS,
    *,
    total_bytes: int,
    progress: Progress = SILENT,
) -> Iterator[Engine]:
    """Open the engine for work over ``total_bytes``; leaving the context ends all it started.

    Show results inside the context: Spark takes its time to stop.

    Raises:
        KdumpError: Spark was chosen, and it does not start.
    """
    if chosen(options, total_bytes) is EngineChoice.SPARK:
        from kdump.engine.spark import SparkEngine

        with SparkEngine(options, progress) as spark:
            yield spark
    else:
        from kdump.engine.local import LocalEngine

        with LocalEngine(options.processes, progress) as local:
            yield local


def run_in_order(
    engine: Engine, job: Job[SplitT, ResultT], splits: Sequence[SplitT]
) -> Generator[tuple[SplitT, ResultT], None, None]:
    """As :meth:`Engine.run`, but in the order of ``splits``.

    What is done before its turn is kept until then.
    """
    waiting: dict[int, ResultT] = {}
    pending = iter(splits)
    wanted = next(pending, None)
    for split, result in engine.run(job, splits):
        # Engines give the very objects: what is in them need not be looked at.
        waiting[id(split)] = result
        while wanted is not None and id(wanted) in waiting:
            yield wanted, waiting.pop(id(wanted))
            wanted = next(pending, None)
