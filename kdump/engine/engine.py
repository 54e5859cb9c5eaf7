"""What every engine can do. Who runs jobs knows this interface, and no implementation."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from kdump.engine.job import Job, PieceT, ReducedT, ResultT, ShuffleJob, SplitT


class Engine(Protocol):
    """Runs jobs, one after another."""

    @property
    def name(self) -> str:
        """The word after ``--engine``."""
        ...

    def run(
        self, job: Job[SplitT, ResultT], splits: Sequence[SplitT]
    ) -> Generator[tuple[SplitT, ResultT], None, None]:
        """Run ``job`` on each of ``splits``, and yield each with its result as it is done.

        Results come in any order; the splits are the same objects. Closing the generator ends the
        job, and so does leaving the engine's context. One job runs at a time.

        Raises:
            JobFailedError: the job failed on a split; names the file and byte.
            KdumpError: the engine itself failed.
        """
        ...

    def shuffle(
        self,
        job: ShuffleJob[SplitT, ResultT, PieceT, ReducedT],
        splits: Sequence[SplitT],
        buckets: int,
    ) -> tuple[list[ResultT], list[ReducedT]]:
        """Run both steps of ``job``: map the splits, then reduce each bucket.

        Args:
            buckets: how many, so that each fits into the memory of a worker. An engine may use
                more, or a single one where all pieces are in this process anyway.

        Returns:
            The results of the splits, in order, and those of the buckets, in any order; a bucket
            without pieces may have none.

        Raises:
            JobFailedError: the job failed on a split; names the file and byte.
            KdumpError: the engine itself failed.
        """
        ...


def run_in_order(
    engine: Engine, job: Job[SplitT, ResultT], splits: Sequence[SplitT]
) -> Generator[tuple[SplitT, ResultT], None, None]:
    """As :meth:`Engine.run`, but in the order of ``splits``; early results wait in memory."""
    waiting: dict[int, ResultT] = {}
    pending = iter(splits)
    following = next(pending, None)
    for split, result in engine.run(job, splits):
        # Engines yield the very objects, so that splits need not be compared.
        waiting[id(split)] = result
        while following is not None and id(following) in waiting:
            yield following, waiting.pop(id(following))
            following = next(pending, None)


def run_all(engine: Engine, job: Job[SplitT, ResultT], splits: Sequence[SplitT]) -> list[ResultT]:
    """As :meth:`Engine.run`; gives all results, in the order of ``splits``.

    The largest splits run first, so that no CPU is left alone with one of them at the end.
    """
    largest_first = sorted(splits, key=lambda split: -split.size_bytes)
    found = {id(split): result for split, result in engine.run(job, largest_first)}
    return [found[id(split)] for split in splits]
