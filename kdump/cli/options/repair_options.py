"""The options of commands that repair, and of all commands that write."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from kdump.cli.output.events import EventFormat
from kdump.cli.output.rendering import format_option
from kdump.cli.output.write_arguments import RepairArguments

Command = TypeVar("Command", bound=Callable[..., Any])


def repair_options(command: Command) -> Command:
    """Add the options of commands that repair, as the argument ``repair``."""

    @functools.wraps(command)
    def with_one_argument(
        *args: Any,
        dry_run: bool,
        keep_undo: bool,
        output_format: EventFormat,
        verbose: bool,
        **others: Any,
    ) -> Any:
        repair = RepairArguments(dry_run, keep_undo, output_format, verbose)
        return command(*args, repair=repair, **others)

    decorated: Command = writing_options(
        with_one_argument,
        verbose="List every change and every finding, and partitions without any.",
        keeps_undo=True,
        undo="Keep undo data for kdump undo (default: on).",
    )
    return decorated


def writing_options(command: Any, *, verbose: str, keeps_undo: bool, undo: str) -> Any:
    """Add ``--dry-run``, ``--undo``, ``--verbose`` and ``--output`` to a command.

    Args:
        command: the command.
        verbose: help of ``--verbose``.
        keeps_undo: the default of ``--undo/--no-undo``.
        undo: help of ``--undo/--no-undo``.
    """
    for option in (
        format_option(
            EventFormat,
            "output_format",
            "Output format: text (default) for people; json or jsonl for programs.",
        ),
        click.option("--verbose", "-v", is_flag=True, help=verbose),
        click.option("--undo/--no-undo", "keep_undo", default=keeps_undo, help=undo),
        click.option(
            "--dry-run",
            is_flag=True,
            help="Preview the changes and write nothing, not even the lock.",
        ),
    ):
        command = option(command)
    return command
