"""Finding the directories named on the command line, and reporting what is wrong with them."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from kdump.cli.output.events import write_line
from kdump.errors import ExitStatus, KdumpError, UsageProblem
from kdump.formats.errors import FormatError
from kdump.formats.names import (
    CLUSTER_METADATA_TOPIC,
    PARTITION_METADATA,
    FileStage,
    TopicPartition,
    is_accepted_name,
)
from kdump.log import directory
from kdump.log.bounds import LogBounds, read_bounds
from kdump.log.directory import DirectoryKind, LogDirectory
from kdump.log.partition import Partition
from kdump.phases import phase
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.log.valid_windows import Damage

Value = TypeVar("Value")


class Diagnostics:
    """Report problems as lines on standard error, and collect the exit status."""

    def __init__(self) -> None:
        self.status = ExitStatus.SOUND

    def report(self, path: Location, problem: FormatError | OSError | str) -> None:
        """Report that ``path`` cannot be read (an OSError) or is damaged (anything else)."""
        if isinstance(problem, OSError):
            self._report(
                problem.filename or path,
                problem.strerror or str(problem),
                ExitStatus.OPERATIONAL_ERROR,
            )
        else:
            self._report(path, str(problem), ExitStatus.DAMAGE_LEFT)

    def report_damage(self, damage: Damage) -> None:
        """Report a damaged range of a log."""
        self.status |= ExitStatus.DAMAGE_LEFT
        write_line(f"kdump: {damage}", sys.stderr)

    def report_problem(self, path: str, what: str, *, is_damage: bool) -> None:
        """Report what a job could not read, or found to be damaged."""
        status = ExitStatus.DAMAGE_LEFT if is_damage else ExitStatus.OPERATIONAL_ERROR
        self._report(path, what, status)

    def report_failure(self, failure: KdumpError) -> None:
        """Report why something cannot be read."""
        self.status |= failure.exit_status
        write_line(f"kdump: {failure}", sys.stderr)

    def report_problems(self, found: LogDirectory) -> None:
        """Report the unreadable and malformed files of a log directory."""
        for problem in found.problems:
            self.report(problem.path, problem.error)

    def report_unreadable(self, found: LogDirectory) -> None:
        """Report the unreadable files of a log directory."""
        for problem in found.problems:
            if not problem.is_damage:
                self.report(problem.path, problem.error)

    def report_directory(self, found: LogDirectory) -> None:
        """Report the unreadable and malformed files, and the names that a broker refuses."""
        self.report_problems(found)
        for name in found.refused:
            what = (
                "not a partition name: a broker does not start with it;"
                " move the directory elsewhere"
            )
            if is_accepted_name(name):
                what = "no partition can have this name; move the directory elsewhere"
            self.report(found.path / name, what)

    def refuse(self, path: Location) -> None:
        """Report that ``path`` is not a log directory or a partition."""
        what = "not a Kafka log directory or partition"
        if inside := directory.log_directories_below(path):
            what += f"; it contains log directories: {' '.join(map(str, inside))}"
        self._report(path, what, ExitStatus.OPERATIONAL_ERROR)

    def _report(self, path: Location | str, what: str, status: ExitStatus) -> None:
        self.status |= status
        write_line(f"kdump: {path}: {what}", sys.stderr)


def find_log_directories(
    paths: Iterable[Location], diagnostics: Diagnostics
) -> dict[Location, DirectoryKind]:
    """Find the log directories among ``paths``, each once, with their kinds.

    Other paths are reported.

    Raises:
        UsageProblem: a path is the directory of a partition.
    """
    found: dict[Location, DirectoryKind] = {}
    for path in paths:
        try:
            with phase(f"listing {path}"):
                kind = directory.directory_kind(path)
        except OSError as failure:
            diagnostics.report(path, failure)
            continue
        if kind.is_partition:
            raise UsageProblem(
                f"{path} is a partition: name its log directory, {path.as_absolute().parent}"
            )
        if not kind.is_log_directory:
            diagnostics.refuse(path)
        elif not any(path.is_same(other) for other in found):
            found[path] = kind
    return found


def read_log_directories(paths: Iterable[Location], diagnostics: Diagnostics) -> list[LogDirectory]:
    """Find the log directories among ``paths`` and list them; what cannot be listed is reported.

    Raises:
        UsageProblem: a path is the directory of a partition.
    """
    found = []
    for path, kind in find_log_directories(paths, diagnostics).items():
        try:
            found.append(directory.read_log_directory(path, kind))
        except OSError as failure:
            diagnostics.report(path, failure)
    return found


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Suspend garbage collection: listings have no cycles and are kept to the end.

    A directory of ten thousand partitions becomes hundreds of thousands of objects. Scanning them
    again and again took a sixth of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@dataclass(frozen=True, slots=True)
class LonePartition:
    """A partition whose directory was named on the command line.

    Attributes:
        partition: its contents; ``path`` is as typed.
        log_directory: the log directory around it, with its checkpoints and the cluster's metadata
            but no other partition; None if it cannot be read.
    """

    partition: Partition
    log_directory: LogDirectory | None


def read_lone_partition(path: Location) -> LonePartition:
    """Read a partition, and the log directory around it.

    Raises:
        OSError: the partition's directory cannot be listed.
    """
    named = path.as_absolute()
    if named.name in ("", ".."):
        named = named.resolved()
    partition = directory.read_lone_partition(path, named.name)
    try:
        around = directory.read_log_directory(
            named.parent,
            select=lambda _name, key: key.topic == CLUSTER_METADATA_TOPIC,
        )
    except OSError:
        return LonePartition(partition, None)
    return LonePartition(partition, around)


def readable(
    path: Location, read: Callable[[], Value | None], diagnostics: Diagnostics
) -> Value | None:
    """Return what ``read`` returns for the file ``path``; report a failure and return None."""
    try:
        return read()
    except (FormatError, OSError) as problem:
        diagnostics.report(path, problem)
        return None


def topic_id(partition: Partition, diagnostics: Diagnostics) -> str | None:
    """Return the topic id of a partition as Kafka writes it; None if it has none."""
    return readable(partition.path / PARTITION_METADATA, partition.read_topic_id, diagnostics)


def as_loaded(partition: Partition, diagnostics: Diagnostics) -> Partition | None:
    """Return a partition as a starting broker sees it; report it if none can load it."""
    # Importing the loader takes time, and few directories need it.
    if not any(name.endswith(FileStage.SWAP.value) for name in partition.unused_names()):
        return partition
    from kdump.broker.loader import swapped_partition

    try:
        return swapped_partition.as_loaded(partition)
    except swapped_partition.UnfinishedSwapError as failure:
        diagnostics.report_failure(failure)
    except OSError as failure:
        diagnostics.report(failure.filename or partition.path, failure)
    return None


def listed_as_loaded(
    path: Location,
    kind: DirectoryKind,
    diagnostics: Diagnostics,
    select: Callable[[str, TopicPartition], bool],
) -> LogDirectory | None:
    """List a log directory, with its partitions as a starting broker sees them.

    Partitions that no broker loads are among the unreadable ones.

    Args:
        path: the directory.
        kind: of it.
        diagnostics: takes what cannot be read or loaded.
        select: as for :func:`~kdump.log.directory.read_log_directory`.

    Returns:
        The directory; None if it cannot be listed.
    """
    try:
        found = directory.read_log_directory(path, kind, select=select)
    except OSError as failure:
        diagnostics.report(path, failure)
        return None
    diagnostics.report_problems(found)
    loaded: list[Partition] = []
    unreadable = [*found.unreadable]
    with phase(f"looking for unfinished swaps in {path}"):
        for each in found.partitions:
            partition = as_loaded(each, diagnostics)
            if partition is None:
                unreadable.append(each.path.name)
            else:
                loaded.append(partition)
    return dataclasses.replace(
        found, partitions=tuple(loaded), unreadable=tuple(sorted(unreadable))
    )


_BOUNDS: Final = tuple(field.name for field in dataclasses.fields(LogBounds))


def bounds_fields(
    partition: Partition | None, log_directory: LogDirectory | None, diagnostics: Diagnostics
) -> dict[str, int | None]:
    """Return the bounds of a partition's log by name; report a failure, with all of them None."""
    if partition is None:
        return dict.fromkeys(_BOUNDS)
    try:
        if log_directory is None:
            bounds = read_bounds(partition)
        else:
            bounds = read_bounds(
                partition, log_directory.checkpoints, is_clean=log_directory.is_clean
            )
    except OSError as failure:
        diagnostics.report(failure.filename or partition.path, failure)
        return dict.fromkeys(_BOUNDS)
    return {name: getattr(bounds, name) for name in _BOUNDS}
