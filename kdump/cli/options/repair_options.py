"""The options of commands that repair, and of all commands that write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import click

from kdump.cli.options.conflicts import require_with
from kdump.cli.options.option_group import Command, option_group, options
from kdump.cli.output.events import events_option
from kdump.cli.output.write_arguments import RepairArguments


def writing_options(*, verbose: str, undo: str, keeps_undo: bool) -> Callable[[Command], Command]:
    """Add ``--dry-run``, ``--undo``, ``--verbose`` and ``--output``, as the argument ``repair``.

    Args:
        verbose: help of ``--verbose``.
        undo: help of ``--undo/--no-undo``.
        keeps_undo: the default of ``--undo/--no-undo``.
    """
    return option_group(
        "repair",
        RepairArguments,
        click.option(
            "--dry-run",
            is_flag=True,
            help="Preview the changes and write nothing, not even the lock.",
        ),
        click.option("--undo/--no-undo", "keep_undo", default=keeps_undo, help=undo),
        click.option("--verbose", "-v", is_flag=True, help=verbose),
        events_option,
    )


repair_options: Final = writing_options(
    verbose="List every change and every finding, and partitions without any.",
    undo="Keep undo data for kdump undo (default: on).",
    keeps_undo=True,
)
"""Adds the options of commands that repair, as the argument ``repair``."""


def freeing_options(*, verbose: str) -> Callable[[Command], Command]:
    """Add the options of commands that free space, as the argument ``repair``."""
    return writing_options(
        verbose=verbose,
        undo="Keep undo data for kdump undo (default: off). No space is freed until it is "
        "discarded.",
        keeps_undo=False,
    )


optional_repair_options: Final = options(
    click.option(
        "--dry-run", is_flag=True, help="With --repair, preview the changes and write nothing."
    ),
    click.option(
        "--undo/--no-undo",
        "keep_undo",
        default=None,
        help="With --repair, keep undo data for kdump undo (default: on).",
    ),
)
"""Adds ``--dry-run`` and ``--undo`` to a command that writes only with ``--repair``.

They are its arguments ``dry_run`` and ``keep_undo``, which is None if it was not given.
"""


def require_repair(given: Mapping[str, object], *, dry_run: bool, keep_undo: bool | None) -> None:
    """Refuse options that have no effect without ``--repair``, which was not given.

    Args:
        given: the command's own, as typed, each with whether it was given.
        dry_run: of :func:`optional_repair_options`.
        keep_undo: likewise.

    Raises:
        UsageProblem: one of them was given.
    """
    shared = {
        "--dry-run": dry_run,
        "--undo": keep_undo is True,
        "--no-undo": keep_undo is False,
    }
    require_with("--repair", {**given, **shared})
