"""List the partitions of a log directory and describe each, in workers where there are many.

Of each partition several small files are read, and each file is an object while it is listed. So
workers list the partitions, too, and send back only what is shown of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Struct

from kdump.engine.job import Split
from kdump.formats.names import TopicPartition
from kdump.jobs.problems.found_problems import HeldProblems, ProblemReporter
from kdump.log.directory import DirectoryKind, LogDirectory, PartitionPlace, read_root
from kdump.log.lock_holders import was_deleted_in
from kdump.log.partition import Partition
from kdump.log.problems import FileProblem
from kdump.phases import phase
from kdump.storage.location import Location
from kdump.storage.parallel_reads import each_read
from kdump.storage.places import concurrent_reads

Description = TypeVar("Description")
Description_co = TypeVar("Description_co", covariant=True)

_LEAST_FOR_WORKERS: Final = 500
"""As many partitions are described in the time in which workers start."""
_PLACES_A_SPLIT: Final = 50
_PARTITION_BYTES: Final = 64 << 10
"""What a partition takes, as bytes that are read in that time."""


def are_many(partitions: int) -> bool:
    """Whether workers describe so many partitions faster than this process."""
    return partitions >= _LEAST_FOR_WORKERS


class Describe(Protocol[Description_co]):
    """What is shown of a partition: a function that can be pickled."""

    def __call__(
        self, partition: Partition, log_directory: LogDirectory, problems: ProblemReporter, /
    ) -> Description_co:
        """Describe a partition; what cannot be read is reported."""
        ...


class Described(NamedTuple, Generic[Description]):
    """A partition that was described, or could not be listed.

    Attributes:
        description: None if the directory cannot be listed.
        failure: why it cannot.
        problems: what could not be read for the description.
    """

    description: Description | None
    failure: OSError | None
    problems: HeldProblems


def described_partitions(
    path: Location,
    kind: DirectoryKind,
    select: Callable[[str, TopicPartition], bool],
    describe: Describe[Description],
    *,
    in_workers: bool = True,
) -> tuple[LogDirectory, list[Described[Description]]]:
    """List a log directory, and describe its partitions: in workers if they are many.

    Args:
        select: as for :func:`~kdump.log.directory.read_log_directory`.
        in_workers: whether workers may do it, which pickles the descriptions.

    Returns:
        The log directory without its partitions, and these in its order.

    Raises:
        OSError: the directory itself cannot be listed.
        JobFailedError: a worker failed.
    """
    with phase(f"listing {path}"):
        root, places = read_root(path, kind, select=select)
    return describe_places(root, places, describe, in_workers=in_workers)


def describe_places(
    root: LogDirectory,
    places: Sequence[PartitionPlace],
    describe: Describe[Description],
    *,
    what: str = "listing",
    in_workers: bool = True,
    keep_entries: bool = False,
) -> tuple[LogDirectory, list[Described[Description]]]:
    """Describe partitions of a log directory that was read without them.

    Args:
        what: this does, for progress.
        in_workers: as for :func:`described_partitions`.
        keep_entries: whether ``describe`` needs the entries of each directory.

    Returns:
        As :func:`described_partitions`.

    Raises:
        JobFailedError: a worker failed.
        KdumpError: a broker was using the directory, and it is gone.
    """
    path = root.path
    with phase(f"{what} {path}", len(places)) as listing:
        # Workers need no list of all partitions.
        short_root = msgspec.structs.replace(root, identities=(), problems=())
        job = _ListingJob(short_root, describe, keep_entries)
        described = list(listing.over(_described(job, places, in_workers)))
    found = [
        (place, each)
        for place, each in zip(places, described, strict=True)
        if not (isinstance(each.failure, FileNotFoundError) and was_deleted_in(path))
    ]
    problems = [
        FileProblem(path / place.name, each.failure)
        for place, each in found
        if each.failure is not None
    ]
    unreadable = sorted(problem.path.name for problem in problems)
    found.sort(key=lambda each: each[0].order)
    return msgspec.structs.replace(
        root, unreadable=tuple(unreadable), problems=(*problems, *root.problems)
    ), [each for _, each in found]


def _described(
    job: _ListingJob, places: Sequence[PartitionPlace], in_workers: bool
) -> Iterator[Described[Any]]:
    threads = concurrent_reads()
    if not in_workers or threads > 1 or not are_many(len(places)):
        yield from each_read(job.describe_one, places, threads)
        return
    # Importing it takes time, and few directories have so many partitions.
    from kdump.engine.engine import run_in_order
    from kdump.engine.engine_choice import EngineChoice, EngineOptions, open_engine

    chunks = [places[at : at + _PLACES_A_SPLIT] for at in range(0, len(places), _PLACES_A_SPLIT)]
    splits = [
        _ListingSplit(job.root.path, size_bytes=len(each) * _PARTITION_BYTES, places=tuple(each))
        for each in chunks
    ]
    total_bytes = sum(split.size_bytes for split in splits)
    # A listing that is worth starting Spark for would take longer to send.
    with open_engine(EngineOptions(EngineChoice.LOCAL), total_bytes=total_bytes) as engine:
        for _, described in run_in_order(engine, job, splits):
            yield from described


class _ListingSplit(Split, frozen=True, kw_only=True):
    """Some partitions of a log directory."""

    places: tuple[PartitionPlace, ...]


class _ListingJob(Struct, frozen=True):
    """Describes partitions."""

    root: LogDirectory
    describe: Describe[Any]
    keep_entries: bool

    def run(self, split: _ListingSplit) -> list[Described[Any]]:
        return [self.describe_one(place) for place in split.places]

    def describe_one(self, place: PartitionPlace) -> Described[Any]:
        problems = HeldProblems()
        try:
            read = place.read_with_entries if self.keep_entries else place.read
            partition = read(self.root.path)
        except OSError as failure:
            return Described(None, failure, problems)
        return Described(self.describe(partition, self.root, problems), None, problems)
