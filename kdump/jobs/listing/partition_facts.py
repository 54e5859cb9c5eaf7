"""Partitions as listings show them: which files they have, and where their logs begin and end.

Nothing heavy is imported here: ``kdump ls`` starts fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from kdump.formats.errors import FormatError
from kdump.formats.names import (
    PARTITION_METADATA,
    FileStage,
    TopicPartition,
)
from kdump.jobs.problems.found_problems import ProblemReporter
from kdump.log import directory
from kdump.log.bounds import LogBounds, read_bounds
from kdump.log.directory import DirectoryKind, LogDirectory
from kdump.log.living import as_in_use, while_it_changes
from kdump.log.lock_holders import is_in_use_around
from kdump.log.partition import Partition
from kdump.log.selection import only_metadata
from kdump.phases import phase
from kdump.storage.location import Location

Value = TypeVar("Value")


class LonePartition(Struct, frozen=True):
    """A partition whose directory was named itself.

    Attributes:
        partition: its contents; ``path`` is as given.
        log_directory: the log directory around it, with its checkpoints and the cluster's metadata
            but no other partition; None if it cannot be read.
    """

    partition: Partition
    log_directory: LogDirectory | None


def read_with_surroundings(
    path: Location, known: dict[Location, LogDirectory | None] | None = None
) -> LonePartition:
    """Read a partition, and the log directory around it.

    Args:
        known: the log directories around partitions that were read before; that of this one is
            added, so that partitions of one directory read it once.

    Raises:
        OSError: the partition's directory cannot be listed.
    """
    named = path.as_absolute()
    if named.name in ("", ".."):
        named = named.resolved()
    partition = directory.read_lone_partition(path, named.name)
    known = {} if known is None else known
    around = path.around
    if around not in known:
        known[around] = _surroundings(around)
    return LonePartition(partition, known[around])


def _surroundings(path: Location) -> LogDirectory | None:
    try:
        return directory.read_log_directory(path, select=only_metadata)
    except OSError:
        return None


def readable(
    path: Location, read: Callable[[], Value | None], problems: ProblemReporter
) -> Value | None:
    """Return what ``read`` returns for the file ``path``; report a failure and return None."""
    try:
        return read()
    except (FormatError, OSError) as problem:
        problems.report(path, problem)
        return None


def topic_id(partition: Partition, problems: ProblemReporter) -> str | None:
    """Return the topic id of a partition as Kafka writes it; None if it has none."""
    return readable(partition.path / PARTITION_METADATA, partition.read_topic_id, problems)


def loaded_or_reported(partition: Partition, problems: ProblemReporter) -> Partition | None:
    """Return a partition as a starting broker sees it; report it if none can load it."""
    # Importing the loader takes time, and few directories need it.
    if not any(name.endswith(FileStage.SWAP.value) for name in partition.unused_names()):
        return partition
    if is_in_use_around(partition.path):
        return as_in_use(partition)
    from kdump.broker.loader import swapped_partition

    try:
        return swapped_partition.as_loaded(partition)
    except swapped_partition.UnfinishedSwapError as failure:
        problems.report_failure(failure)
    except OSError as failure:
        problems.report(partition.path, failure)
    return None


def listed_as_loaded(
    path: Location,
    kind: DirectoryKind,
    problems: ProblemReporter,
    select: Callable[[str, TopicPartition], bool],
) -> LogDirectory | None:
    """List a log directory, with its partitions as :func:`with_partitions_as_loaded` says.

    Args:
        problems: takes what cannot be read or loaded.
        select: as for :func:`~kdump.log.directory.read_log_directory`.

    Returns:
        The directory; None if it cannot be listed.
    """
    try:
        found = directory.read_log_directory(path, kind, select=select)
    except OSError as failure:
        problems.report(path, failure)
        return None
    for problem in found.problems:
        problems.report(problem.path, problem.error)
    return with_partitions_as_loaded(found, problems)


def with_partitions_as_loaded(listed: LogDirectory, problems: ProblemReporter) -> LogDirectory:
    """Return a log directory with its partitions as a starting broker sees them.

    Partitions that no broker loads are reported, and among the unreadable ones.
    """
    loaded: list[Partition] = []
    unreadable = [*listed.unreadable]
    with phase(f"looking for unfinished swaps in {listed.path}"):
        for each in listed.partitions:
            partition = loaded_or_reported(each, problems)
            if partition is None:
                unreadable.append(each.path.name)
            else:
                loaded.append(partition)
    return msgspec.structs.replace(
        listed, partitions=tuple(loaded), unreadable=tuple(sorted(unreadable))
    )


_BOUNDS: Final = LogBounds.__struct_fields__


def bounds_fields(
    partition: Partition | None, log_directory: LogDirectory | None, problems: ProblemReporter
) -> dict[str, int | bool | None]:
    """Return the bounds of a partition's log by name; report a failure, with all of them None."""
    if partition is None:
        return dict.fromkeys(_BOUNDS)

    def read(listed: Partition) -> LogBounds:
        if log_directory is None:
            return read_bounds(listed)
        return read_bounds(listed, log_directory.checkpoints, is_clean=log_directory.is_clean)

    try:
        bounds = while_it_changes(partition, read, gone=None)
    except OSError as failure:
        problems.report(partition.path, failure)
        return dict.fromkeys(_BOUNDS)
    if bounds is None:
        return dict.fromkeys(_BOUNDS)
    return {name: getattr(bounds, name) for name in _BOUNDS}
