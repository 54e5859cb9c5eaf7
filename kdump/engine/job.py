"""Jobs, and the splits that they run on.

A job is a value: a frozen struct at the top level of an importable module. Its fields are its
parameters, and :meth:`Job.run` is a pure function of one split: it reads files and returns a
result, writes nothing, keeps no state between splits and needs nothing of the process that made
it. So it can be pickled, run in another process or on another machine, and run again after a
worker died. Whoever runs a job merges the results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

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


class Split(Struct, frozen=True):
    """A part of the work: a range of bytes of a file, or a whole directory.

    Jobs that need more derive from this, with ``kw_only=True``; their own fields must be picklable.

    Attributes:
        path: the file or directory, as the workers see it.
        start: the first byte.
        end: the byte after the last one; None for the end of the file.
        size_bytes: how much there is to read: progress and the choice of an engine count it.
        label: what progress shows, usually the name of a partition's directory.
    """

    path: Location
    start: int = 0
    end: int | None = None
    size_bytes: int = 0
    label: str = ""

    @property
    def is_first(self) -> bool:
        """Whether the split begins where the file does."""
        return self.start == 0

    @property
    def is_last(self) -> bool:
        """Whether the split ends where the file does."""
        return self.end is None

    def read_places(self) -> Iterable[Location]:
        """The files and directories that the job reads."""
        return (self.path,)

    def small_files(self) -> Iterable[Location]:
        """Files that the job reads for this split, so that they can be fetched before."""
        return ()

    def __str__(self) -> str:
        """The file and byte, as messages name them."""
        if self.is_first and self.is_last:
            return str(self.path)
        return f"{self.path} from byte {self.start}"


class Job(Protocol[SplitT_contra, ResultT_co]):
    """A pure function of a split, as a picklable value."""

    def run(self, split: SplitT_contra, /) -> ResultT_co:
        """Do the work on one split; the result must be picklable.

        Raises:
            OSError: the file cannot be read. Damage is a result, not an exception.
        """
        ...


class ShuffleJob(Protocol[SplitT_contra, ResultT_co, PieceT, ReducedT_co]):
    """A job of two steps: map each split to pieces in buckets, then reduce each bucket.

    A picklable value and pure, as a :class:`Job`.
    """

    def map(self, split: SplitT_contra, buckets: int, /) -> tuple[ResultT_co, Mapping[int, PieceT]]:
        """Map one split to a result, and to a piece for some of the buckets.

        Buckets are numbered from 0 to ``buckets``, exclusive.

        Raises:
            OSError: the file cannot be read. Damage is a result, not an exception.
        """
        ...

    def reduce(self, pieces: Sequence[PieceT], /) -> ReducedT_co:
        """Reduce the pieces of a bucket to one result; they are in the order of their splits."""
        ...


class JobFailedError(KdumpError):
    """A job failed on one of its splits; the others may not have run.

    Attributes:
        what: the message, without the file and byte.
        trace: the traceback of an unexpected failure, perhaps of another process.
    """

    def __init__(self, split: Split, what: str, trace: str = "") -> None:
        super().__init__(f"{split}: {what}")
        self.split = split
        self.what = what
        self.trace = trace

    def __reduce__(self) -> tuple[type[JobFailedError], tuple[Split, str, str]]:
        return type(self), (self.split, self.what, self.trace)


def describe_failure(failure: Exception) -> str:
    """What went wrong in a job, without the path of its split."""
    if isinstance(failure, OSError) and failure.strerror:
        return failure.strerror
    if isinstance(failure, KdumpError | FormatError):
        return str(failure)
    return f"{type(failure).__name__}: {failure}"


def trace_of(failure: Exception) -> str:
    """The traceback of a failure; empty for failures that the message explains."""
    if isinstance(failure, OSError | KdumpError | FormatError | MemoryError):
        return ""
    import traceback

    return "".join(traceback.format_exception(failure))
