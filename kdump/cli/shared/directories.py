"""What commands over whole directories share: finding what was named, and saying what is wrong."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from kdump.cli.output.events import write_line
from kdump.errors import ExitStatus, KdumpError, UsageProblem
from kdump.formats.errors import FormatError
from kdump.formats.names import (
    CLUSTER_METADATA_TOPIC,
    PARTITION_METADATA,
    FileStage,
    is_accepted_name,
)
from kdump.formats.uuids import format_uuid
from kdump.log import directory
from kdump.log.bounds import LogBounds, read_bounds
from kdump.log.directory import DirectoryKind, LogDirectory
from kdump.log.partition import Partition
from kdump.phases import phase

Value = TypeVar("Value")


class Diagnostics:
    """Says what is wrong, a line each on standard error, and keeps the exit status for the end."""

    def __init__(self) -> None:
        self.status = ExitStatus.SOUND

    def report(self, path: Path, problem: FormatError | OSError | str) -> None:
        """Say that ``path`` cannot be read (an OSError), or is damaged (anything else)."""
        if isinstance(problem, OSError):
            self._say(
                Path(problem.filename or path),
                problem.strerror or str(problem),
                ExitStatus.OPERATIONAL_ERROR,
            )
        else:
            self._say(path, str(problem), ExitStatus.DAMAGE_LEFT)

    def report_failure(self, failure: KdumpError) -> None:
        """Say why something cannot be looked at."""
        self.status |= failure.exit_status
        write_line(f"kdump: {failure}", sys.stderr)

    def report_problems(self, found: LogDirectory) -> None:
        """Say what could not be read in a log directory, or is malformed."""
        for problem in found.problems:
            self.report(problem.path, problem.error)

    def report_unreadable(self, found: LogDirectory) -> None:
        """Say what the machine does not give of a log directory."""
        for problem in found.problems:
            if not problem.is_damage:
                self.report(problem.path, problem.error)

    def report_directory(self, found: LogDirectory) -> None:
        """Say what is wrong with a log directory as a whole."""
        self.report_problems(found)
        for name in found.refused:
            what = "not the name of a partition: a broker does not start on this log directory"
            if is_accepted_name(name):
                what = "no partition can have this name; move the directory elsewhere"
            self.report(found.path / name, what)

    def refuse(self, path: Path) -> None:
        """Say that ``path`` is no directory that the command is about."""
        what = "neither a log directory nor a partition of Kafka's"
        if inside := directory.log_directories_below(path):
            what += f", but there are log directories in it: {' '.join(map(str, inside))}"
        self._say(path, what, ExitStatus.OPERATIONAL_ERROR)

    def _say(self, path: Path, what: str, status: ExitStatus) -> None:
        self.status |= status
        write_line(f"kdump: {path}: {what}", sys.stderr)


def find_log_directories(
    paths: Iterable[Path], diagnostics: Diagnostics
) -> dict[Path, DirectoryKind]:
    """The log directories among ``paths``, each once, and of what kind they are.

    What is none is reported.

    Raises:
        UsageProblem: one is the directory of a partition.
    """
    found: dict[Path, DirectoryKind] = {}
    for path in paths:
        try:
            with phase(f"listing {path}"):
                kind = directory.directory_kind(path)
        except OSError as failure:
            diagnostics.report(path, failure)
            continue
        if kind.is_partition:
            raise UsageProblem(
                f"{path} is a partition: name its log directory, {path.absolute().parent}"
            )
        if not kind.is_log_directory:
            diagnostics.refuse(path)
        elif not any(path.samefile(other) for other in found):
            found[path] = kind
    return found


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Let no search for cycles interrupt: what is listed has none, and is kept to the end.

    A directory of ten thousand partitions becomes hundreds of thousands of objects, and Python
    would go over them again and again, which took a sixth of the time.
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
    """A partition whose directory was named itself.

    Attributes:
        partition: what is in it; ``path`` is as it was named.
        log_directory: where it lies, if that can be read; of its partitions it has none but the
            cluster's metadata, and it has the files that speak of all of them.
    """

    partition: Partition
    log_directory: LogDirectory | None


def read_lone_partition(path: Path) -> LonePartition:
    """Look a partition over, and what its log directory says of it.

    Raises:
        OSError: the partition's directory cannot be listed.
    """
    named = path.absolute()
    if named.name in ("", ".."):
        named = path.resolve()
    partition = directory.read_lone_partition(path, named.name)
    try:
        around = directory.read_log_directory(
            named.parent, select=lambda _name, key: key.topic == CLUSTER_METADATA_TOPIC
        )
    except OSError:
        return LonePartition(partition, None)
    return LonePartition(partition, around)


def readable(
    path: Path, read: Callable[[], Value | None], diagnostics: Diagnostics
) -> Value | None:
    """What ``read`` gives of the file ``path``; None, and a report, where that fails."""
    try:
        return read()
    except (FormatError, OSError) as problem:
        diagnostics.report(path, problem)
        return None


def topic_id(partition: Partition, diagnostics: Diagnostics) -> str | None:
    """The topic id of a partition in Kafka's form; None where there is none to be had."""
    path = partition.path / PARTITION_METADATA
    metadata = readable(path, partition.read_metadata, diagnostics)
    return None if metadata is None else format_uuid(metadata.topic_id)


def as_loaded(partition: Partition, diagnostics: Diagnostics) -> Partition | None:
    """A partition as a starting broker sees it; None, and a report, where none can load it."""
    # What knows the loader's rules is large, and few directories have anything for it to do.
    if not any(name.endswith(FileStage.SWAP.value) for name in partition.unused_names()):
        return partition
    from kdump.broker.loader import swapped_partition

    try:
        return swapped_partition.as_loaded(partition)
    except swapped_partition.UnfinishedSwapError as failure:
        diagnostics.report_failure(failure)
    except OSError as failure:
        diagnostics.report(Path(failure.filename or partition.path), failure)
    return None


_BOUNDS: Final = tuple(field.name for field in dataclasses.fields(LogBounds))


def bounds_fields(
    partition: Partition | None, log_directory: LogDirectory | None, diagnostics: Diagnostics
) -> dict[str, int | None]:
    """The bounds of a partition's log by name; all None, and a report, where reading fails."""
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
        diagnostics.report(Path(failure.filename or partition.path), failure)
        return dict.fromkeys(_BOUNDS)
    return {name: getattr(bounds, name) for name in _BOUNDS}
