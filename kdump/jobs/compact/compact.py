"""Compaction of the partitions of log directories, by tasks that read and a driver that writes.

A few partitions are gone over at a time: all parts of all of their logs are scanned, the last
records of each key are found, and what is to stay is rewritten, group after group of segments.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kdump.apply.files import DISK, Files
from kdump.apply.plan import require_in_place
from kdump.engine.engine import Engine
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, open_engine
from kdump.engine.progress import SILENT, Progress
from kdump.jobs import execution, recover
from kdump.jobs.compact.request import CompactRequest, PartitionCompaction
from kdump.jobs.compact.swap import Discarder, Swapper
from kdump.jobs.compact.wave import Wave, Writer
from kdump.jobs.execution import PlanResult, Writing, plan_and_apply
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition
from kdump.phases import during
from kdump.size_groups import size_groups
from kdump.storage.location import Location
from kdump.words import undo_command

WAVE_BYTES: Final = {"local": 512 << 20, "spark": 4 << 30}
"""How much is gone over at a time, by engine, unless one partition is more.

In process all keys of that are in memory; on Spark only where the live records are.
"""


class DirectoryNotCompacted(enum.Enum):
    """Why a log directory is left as it is; the value says it."""

    UNCLEAN = "was not left cleanly; run kdump recover first, or give --recover"


@dataclass(frozen=True, slots=True)
class DirectoryCompaction:
    """What becomes of a log directory.

    Attributes:
        directory: as it was.
        left: why nothing of it was looked at; None where it was.
        partitions: those that were asked for.
        undos: by which it can be taken back, the first one first.
    """

    directory: LogDirectory
    unchanged: DirectoryNotCompacted | None = None
    partitions: tuple[PartitionCompaction, ...] = ()
    undos: tuple[str, ...] = ()


def recover_first(
    request: CompactRequest,
    writing: Writing,
    options: EngineOptions = DEFAULT_OPTIONS,
    progress: Progress = SILENT,
) -> list[tuple[recover.DirectoryRecovery, PlanResult]]:
    """Recover what has to be before it is compacted: whole directories, as a starting broker does.

    Look them over again afterwards. Gives what became of each that was recovered.

    Raises:
        InvalidSettingError: a property of a topic has a value that Kafka does not take.
        KdumpError: the engine broke, or a change cannot be made; says what to do.
        OSError: the disk does not let us.
    """
    directories = [
        directory
        for directory in request.directories
        if not directory.is_clean
        or any(each.leftovers for each in directory.partitions if request.selects(directory, each))
    ]
    wanted = recover.RecoverRequest(directories, request.settings, now_ms=request.now_ms)
    results = recover.recover(wanted, options, progress)
    done = plan_and_apply(
        [result.target for result in results], replace(writing, command="recover")
    )
    failures = [each.failure for each in done if each.failure is not None]
    if failures:
        for each in done:
            if each.is_applied:
                failures[0].add_note(str(execution.outcome_line(each)))
        raise failures[0]
    return list(zip(results, done, strict=True))


def compact(
    request: CompactRequest,
    writing: Writing,
    options: EngineOptions = DEFAULT_OPTIONS,
    progress: Progress = SILENT,
) -> list[DirectoryCompaction]:
    """Compact log directories whose locks are held; a dry run only says what would become of them.

    Raises:
        InvalidSettingError: a property of a topic has a value that Kafka does not take.
        KdumpError: the engine broke, or a change cannot be made; says what to do.
        OSError: the disk does not let us.
    """
    total_bytes = sum(
        partition.data_bytes
        for directory in request.directories
        for partition in directory.partitions
        if request.selects(directory, partition)
        and request.why_unchanged(directory, partition) is None
    )
    with open_engine(options, total_bytes=total_bytes, progress=progress) as engine:
        return compact_on(engine, request, writing)


@during("compacting")
def compact_on(
    engine: Engine, request: CompactRequest, writing: Writing, files: Files = DISK
) -> list[DirectoryCompaction]:
    """As :func:`compact`, on an engine that is there, writing through ``files``."""
    for directory in request.directories:
        for partition in directory.partitions:
            if request.selects(directory, partition) and _is_written(request, directory, partition):
                require_in_place(partition.path.local_path)
    found: list[DirectoryCompaction] = []
    for directory in request.directories:
        writer = Discarder() if writing.dry_run else Swapper(directory, writing, files)
        try:
            found.append(_directory_result(request, directory, engine, writer))
        except BaseException as stop:
            if not writing.dry_run:
                _note(stop, request.directories, found, writer)
            raise
    return found


def _is_written(request: CompactRequest, directory: LogDirectory, partition: Partition) -> bool:
    return directory.is_clean and request.why_unchanged(directory, partition) is None


def outcome_line(result: DirectoryCompaction) -> str:
    """What became of a log directory, for people."""
    path = result.directory.path
    return f"{path}: compacted{_how_to_undo(path, result.undos)}"


def _how_to_undo(log_dir: Location, undos: Sequence[str]) -> str:
    return f"; to undo: {undo_command(log_dir, undos[-1])}" if undos else ""


def _note(
    stop: BaseException,
    directories: Iterable[LogDirectory],
    found: Sequence[DirectoryCompaction],
    writer: Writer,
) -> None:
    """Add to an exception what became of each log directory before it."""
    for number, directory in enumerate(directories):
        if number < len(found):
            stop.add_note(outcome_line(found[number]))
        elif number == len(found):
            what = "logs that were compacted before this stay so; run the command again to finish"
            stop.add_note(f"{directory.path}: {what}{_how_to_undo(directory.path, writer.undos)}")
        else:
            stop.add_note(f"{directory.path}: nothing was changed")


def _directory_result(
    request: CompactRequest, directory: LogDirectory, engine: Engine, writer: Writer
) -> DirectoryCompaction:
    selected = [each for each in directory.partitions if request.selects(directory, each)]
    if selected and not directory.is_clean:
        return DirectoryCompaction(directory, DirectoryNotCompacted.UNCLEAN)
    results = {}
    chosen = [each for each in selected if _is_written(request, directory, each)]
    with contextlib.closing(writer):
        writer.drop_unfinished(chosen)
        most_bytes = WAVE_BYTES[engine.name]
        for wave in size_groups(chosen, lambda each: each.data_bytes, most_bytes):
            for result in Wave(request, directory, engine, writer).results(wave):
                results[result.partition.path] = result
        writer.swap()
    return DirectoryCompaction(
        directory,
        partitions=tuple(
            results.get(each.path)
            or PartitionCompaction(each, unchanged=request.why_unchanged(directory, each))
            for each in selected
        ),
        undos=writer.undos,
    )
