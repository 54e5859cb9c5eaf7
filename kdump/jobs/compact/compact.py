"""Compact the partitions of log directories: tasks read, and the driver writes.

A wave of partitions is compacted at a time: tasks scan all parts of their logs, the latest record
of each key is found, and tasks rewrite what stays, one group of segments after another.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from kdump.apply.files import DISK, Files
from kdump.apply.plan import require_in_place
from kdump.engine.engine import Engine
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineOptions, open_engine
from kdump.engine.engine_rates import JobKind
from kdump.jobs import recover
from kdump.jobs.compact.request import CompactRequest, PartitionCompaction
from kdump.jobs.compact.swap import Discarder, Swapper
from kdump.jobs.compact.wave import Wave, Writer
from kdump.jobs.writing.execution import PlanResult, Writing, outcome_line, plan_and_apply
from kdump.jobs.writing.large_content import LargeContent
from kdump.log.directory import LogDirectory
from kdump.log.lock_holders import in_use_by
from kdump.log.partition import Partition
from kdump.phases import during
from kdump.size_groups import size_groups
from kdump.storage.location import Location
from kdump.words import undo_command

WAVE_BYTES: Final = {"local": 512 << 20, "spark": 4 << 30}
"""The size of a wave, by engine, unless a single partition is larger.

The offsets of its live records are in memory. A wave takes Spark seconds, the local engine little.
"""
WAVE_PARTITIONS: Final = 500
"""The most partitions of a wave: each takes 20 KB in memory until the wave is done."""


class DirectoryNotCompacted(enum.Enum):
    """Why a log directory is left unchanged; the value says it."""

    IN_USE = "is in use by a running process; stop the broker first"
    UNCLEAN = "was not shut down cleanly; run kdump recover first, or give --recover"


class DirectoryCompaction(Struct, frozen=True):
    """The result of compacting a log directory.

    Attributes:
        directory: the directory as it was.
        unchanged: why it was not compacted; None if it was.
        undos: the undo IDs, oldest first.
    """

    directory: LogDirectory
    unchanged: DirectoryNotCompacted | None = None
    partitions: tuple[PartitionCompaction, ...] = ()
    undos: tuple[str, ...] = ()


def recover_first(
    request: CompactRequest,
    writing: Writing,
    options: EngineOptions = DEFAULT_OPTIONS,
) -> list[tuple[recover.DirectoryRecovery, PlanResult]]:
    """Recover the directories that cannot be compacted as they are, as a starting broker does.

    Read the directories again afterwards. Gives the result of each recovered directory.

    Raises:
        InvalidSettingError: a property of a topic has a value that Kafka does not take.
        KdumpError: the engine failed, or a change cannot be made; says what to do.
        OSError: the disk fails.
    """
    directories = [
        directory
        for directory in request.directories
        if not directory.is_clean
        or any(each.leftovers for each in directory.partitions if request.selects(directory, each))
    ]
    recovery = recover.RecoverRequest(
        directories,
        request.settings,
        now_ms=request.now_ms,
        large_content=LargeContent(writing),
    )
    results = recover.recover(recovery, options)
    done = plan_and_apply(
        [result.target for result in results], replace(writing, command="recover")
    )
    failures = [each.failure for each in done if each.failure is not None]
    if failures:
        for each in done:
            if each.is_applied:
                failures[0].add_note(str(outcome_line(each)))
        raise failures[0]
    return list(zip(results, done, strict=True))


def compact(
    request: CompactRequest,
    writing: Writing,
    options: EngineOptions = DEFAULT_OPTIONS,
    changed: Collection[Location] = (),
) -> list[DirectoryCompaction]:
    """Compact locked log directories; a dry run previews the result.

    The directories ``changed`` were recovered by the same command.

    Raises:
        InvalidSettingError: a property of a topic has a value that Kafka does not take.
        KdumpError: the engine failed, or a change cannot be made; says what to do.
        OSError: the disk fails.
    """
    total_bytes = sum(
        partition.data_bytes
        for directory in request.directories
        for partition in directory.partitions
        if request.selects(directory, partition)
        and request.why_unchanged(directory, partition) is None
    )
    with open_engine(options, kind=JobKind.COMPACT, total_bytes=total_bytes) as engine:
        return compact_on(engine, request, writing, changed=changed)


@during("compacting")
def compact_on(
    engine: Engine,
    request: CompactRequest,
    writing: Writing,
    files: Files = DISK,
    changed: Collection[Location] = (),
) -> list[DirectoryCompaction]:
    """As :func:`compact`, on an open engine, writing through ``files``."""
    for directory in request.directories:
        for partition in directory.partitions:
            if request.selects(directory, partition) and _is_written(request, directory, partition):
                require_in_place(partition.path.local_path)
    found: list[DirectoryCompaction] = []
    for directory in request.directories:
        is_first = directory.path not in changed
        writer = Discarder() if writing.dry_run else Swapper(directory, writing, files, is_first)
        try:
            found.append(_directory_result(request, directory, engine, writer))
        except BaseException as stop:
            if not writing.dry_run:
                _note(stop, request.directories, found, writer)
            raise
    return found


def _is_written(request: CompactRequest, directory: LogDirectory, partition: Partition) -> bool:
    return directory.is_clean and request.why_unchanged(directory, partition) is None


def compacted_line(result: DirectoryCompaction) -> str:
    """Say that a log directory was compacted, and how to undo it."""
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
    """Note on an exception what was changed in each log directory before it."""
    for number, directory in enumerate(directories):
        if number < len(found):
            stop.add_note(compacted_line(found[number]))
        elif number == len(found):
            if not writer.is_first:
                what = "logs already compacted stay compacted; run the command again to finish"
                how = _how_to_undo(directory.path, writer.undos)
                stop.add_note(f"{directory.path}: {what}{how}")
        else:
            stop.add_note(f"{directory.path}: nothing was changed")


def _directory_result(
    request: CompactRequest, directory: LogDirectory, engine: Engine, writer: Writer
) -> DirectoryCompaction:
    selected = [each for each in directory.partitions if request.selects(directory, each)]
    if selected and not directory.is_clean:
        is_in_use = in_use_by(directory.path) is not None
        why = DirectoryNotCompacted.IN_USE if is_in_use else DirectoryNotCompacted.UNCLEAN
        return DirectoryCompaction(directory, why)
    results = {}
    chosen = [each for each in selected if _is_written(request, directory, each)]
    with contextlib.closing(writer):
        writer.drop_unfinished(chosen)
        most_bytes = WAVE_BYTES[engine.name]
        for wave in size_groups(
            chosen, lambda each: each.data_bytes, most_bytes, most_items=WAVE_PARTITIONS
        ):
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
