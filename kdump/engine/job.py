"""What a pipeline runs: a job, and the splits that it is a function of.

A job is a value: a frozen dataclass at the top level of an importable module, whose fields say
what to do and whose :meth:`Job.run` does it to one split. It reads, and gives a result; it keeps
nothing from split to split, writes nothing and needs nothing of the process that made it. So it
can be pickled, carried to another process or machine, and run there again after a worker died.
What the results of neighbouring splits mean together is the business of whoever asked for them.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kdump.errors import KdumpError
from kdump.formats.errors import FormatError
from kdump.storage.location import Location

SplitT = TypeVar("SplitT", bound="Split")
SplitT_contra = TypeVar("SplitT_contra", bound="Split", contravariant=True)
ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)
PieceT = TypeVar("PieceT")
ReducedT = TypeVar("ReducedT")
ReducedT_co = TypeVar("ReducedT_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Split:
    """A part of the work: bytes of one file, or all of something that is not worth cutting.

    Jobs that need to be told more about a part derive from this, with fields of their own (which
    then need defaults, and to be picklable).

    Attributes:
        path: the file, or a directory whose small files belong together, as the workers see it.
        start: first byte.
        end: byte behind the last one; None in the last part of a file, which goes on to its end.
        size_bytes: how much there is to read; what progress and the choice of an engine count.
        label: what people are told is being worked on, mostly a partition's directory name.
    """

    path: Location
    start: int = 0
    end: int | None = None
    size_bytes: int = 0
    label: str = ""

    @property
    def is_first(self) -> bool:
        """Whether the file begins here."""
        return self.start == 0

    @property
    def is_last(self) -> bool:
        """Whether the file ends here."""
        return self.end is None

    def __str__(self) -> str:
        """The place, as messages name it."""
        if self.is_first and self.is_last:
            return str(self.path)
        return f"{self.path} from byte {self.start}"


class Job(Protocol[SplitT_contra, ResultT_co]):
    """A pure function of a split, as a value that can be pickled."""

    def run(self, split: SplitT_contra, /) -> ResultT_co:
        """Do the work on one split; the result has to be picklable.

        Raises:
            OSError: the file cannot be read. Damage is part of the result, not an exception.
        """
        ...


class ShuffleJob(Protocol[SplitT_contra, ResultT_co, PieceT, ReducedT_co]):
    """A job of two steps: pieces of what is found in splits are brought together in buckets.

    A value that can be pickled, like a :class:`Job`, and as pure.
    """

    def map(self, split: SplitT_contra, buckets: int, /) -> tuple[ResultT_co, Mapping[int, PieceT]]:
        """What is found in one split, and the piece of it that belongs to each bucket.

        Buckets are numbered from 0 to ``buckets``, exclusive.

        Raises:
            OSError: the file cannot be read. Damage is part of the result, not an exception.
        """
        ...

    def reduce(self, pieces: Sequence[PieceT], /) -> ReducedT_co:
        """What the pieces of a bucket are together; they are in the order of their splits."""
        ...


class JobFailedError(KdumpError):
    """A job could not be done on one of its splits; nothing is known of the others.

    Attributes:
        split: which.
        what: the sentence without the place.
        trace: where in the code, if nobody foresaw it; may have been another process.
    """

    def __init__(self, split: Split, what: str, trace: str = "") -> None:
        super().__init__(f"{split}: {what}")
        self.split = split
        self.what = what
        self.trace = trace

    def __reduce__(self) -> tuple[type[JobFailedError], tuple[Split, str, str]]:
        return type(self), (self.split, self.what, self.trace)


def describe_failure(failure: Exception) -> str:
    """What went wrong in a job, in words that do not repeat the path of its split."""
    if isinstance(failure, OSError) and failure.strerror:
        return failure.strerror
    if isinstance(failure, KdumpError | FormatError):
        return str(failure)
    return f"{type(failure).__name__}: {failure}"


def trace_of(failure: Exception) -> str:
    """Where in the code a job failed; empty for failures that need no look into the code."""
    if isinstance(failure, OSError | KdumpError | FormatError | MemoryError):
        return ""
    return "".join(traceback.format_exception(failure))
