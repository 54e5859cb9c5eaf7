"""Log directories with their partitions as a starting broker loads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kdump.broker.loader.swapped_partition import UnfinishedSwapError, as_loaded
from kdump.formats.names import FileStage
from kdump.log.directory import LogDirectory
from kdump.log.partition import Partition


def directories_as_loaded(
    directories: Sequence[LogDirectory],
) -> tuple[list[LogDirectory], list[str]]:
    """The directories as a starting broker sees them, and why it does not load some partitions.

    A partition that it does not load is among the unreadable ones.
    """
    problems: list[str] = []
    found = []
    for directory in directories:
        partitions = list(_loaded(directory.partitions, problems))
        names = {each.path.name for each in partitions}
        lost = [each.path.name for each in directory.partitions if each.path.name not in names]
        unreadable = tuple(sorted([*directory.unreadable, *lost]))
        found.append(replace(directory, partitions=tuple(partitions), unreadable=unreadable))
    return found, problems


def _loaded(partitions: Iterable[Partition], problems: list[str]) -> Iterable[Partition]:
    for partition in partitions:
        if not any(name.endswith(FileStage.SWAP.value) for name in partition.unused_names()):
            yield partition
            continue
        try:
            yield as_loaded(partition)
        except (UnfinishedSwapError, OSError) as failure:
            problems.append(str(failure))
