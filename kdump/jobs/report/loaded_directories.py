"""Log directories with their partitions as a starting broker loads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kdump.jobs.listed_partitions import ProblemReporter, as_loaded
from kdump.log.directory import LogDirectory


def directories_as_loaded(
    directories: Sequence[LogDirectory], problems: ProblemReporter
) -> list[LogDirectory]:
    """The directories as a starting broker sees them.

    A partition that it does not load is reported, and among the unreadable ones.
    """
    found = []
    for directory in directories:
        as_is = [as_loaded(each, problems) for each in directory.partitions]
        partitions = [each for each in as_is if each is not None]
        names = {each.path.name for each in partitions}
        lost = [each.path.name for each in directory.partitions if each.path.name not in names]
        unreadable = tuple(sorted([*directory.unreadable, *lost]))
        found.append(replace(directory, partitions=tuple(partitions), unreadable=unreadable))
    return found
