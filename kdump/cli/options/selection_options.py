"""The options that select partitions: ``--topic`` and ``--partition``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import click

from kdump.cli.options.option_group import option_group
from kdump.cli.output.selection_words import selection_words
from kdump.errors import KdumpError, UsageProblem
from kdump.log.selection import PartitionSelection
from kdump.storage.location import Location

if TYPE_CHECKING:
    from kdump.log.directory import LogDirectory


selection_options: Final = option_group(
    "selection",
    PartitionSelection,
    click.option(
        "--topic",
        "topics",
        metavar="GLOB",
        multiple=True,
        help="Only partitions whose topic matches GLOB (*, ?, [...]); may be repeated.",
    ),
    click.option(
        "--partition",
        "partitions",
        metavar="GLOB",
        multiple=True,
        help="Only partitions whose name, TOPIC-PARTITION, matches GLOB, or whose number it "
        "is; may be repeated.",
    ),
)
"""Adds ``--topic`` and ``--partition``, as the argument ``selection``.

That is a :class:`~kdump.log.selection.PartitionSelection`. Every command that works on partitions
has both options, and they match alike everywhere.
"""


def require_selected(selection: PartitionSelection, directories: Iterable[LogDirectory]) -> None:
    """Refuse a selection that matches no partition of any of ``directories``.

    Raises:
        KdumpError: no partition matches.
    """
    found = list(directories)
    if selection.is_futile(partition for each in found for partition in each.partitions):
        raise nothing_selected_in(selection, found)


def nothing_selected_in(
    selection: PartitionSelection, directories: Iterable[LogDirectory]
) -> KdumpError:
    """As :func:`nothing_selected`; names a partition that would match, but cannot be listed."""
    found = list(directories)
    for each in found:
        for problem in each.unlisted(selection.matches):
            failure = problem.error
            what = failure.strerror if isinstance(failure, OSError) else failure
            return KdumpError(f"{problem.path}: cannot be listed: {what}")
    return nothing_selected(selection, [each.path for each in found])


def nothing_selected(selection: PartitionSelection, paths: Iterable[Location]) -> UsageProblem:
    """Return the error for a selection that matches no partition."""
    import shlex

    named = shlex.join(map(str, paths))
    problem = (
        f"no partition in {named} matches {shlex.join(selection_words(selection))}: list them with"
        f" 'kdump ls {named}'"
    )
    odd = [
        glob
        for glob in selection.partitions
        if "-" not in glob and not glob.endswith("*") and not glob.isdecimal()
    ]
    if odd:
        problem += f" (--partition {odd[0]}: a partition's name is TOPIC-PARTITION, as in orders-0)"
    return UsageProblem(problem)
