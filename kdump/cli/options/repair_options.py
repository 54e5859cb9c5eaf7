"""The options of commands that repair, and of all commands that write."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kdump.cli.output.events import EventFormat
from kdump.cli.output.rendering import format_option

if TYPE_CHECKING:
    from kdump.jobs.execution import Writing

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class RepairArguments:
    """How to repair, and how to say what is done; the argument that a command is given.

    Attributes:
        dry_run: whether only to say it.
        keep_undo: whether it can be undone.
        output_format: of the output.
        verbose: whether people are told everything, rather than counts of what is harmless.
    """

    dry_run: bool
    keep_undo: bool
    output_format: EventFormat
    verbose: bool

    def writing(self, command: str) -> Writing:
        """The same for the frame that all commands work in."""
        from kdump.jobs.execution import Writing

        return Writing(command, dry_run=self.dry_run, keep_undo=self.keep_undo)


def repair_options(command: Command) -> Command:
    """Give a command the options of all that repair, as its one argument ``repair``."""

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
        undo="Keep what it takes to undo this with kdump undo (the default), or do not.",
    )
    return decorated


def writing_options(command: Any, *, verbose: str, keeps_undo: bool, undo: str) -> Any:
    """Give a command the options of all that write: ``form``, ``verbose`` and the like.

    Args:
        command: which.
        verbose: what ``--verbose`` does, for the help.
        keeps_undo: whether it can be undone where nothing is said.
        undo: what ``--undo`` and ``--no-undo`` do, for the help.
    """
    for option in (
        format_option(
            EventFormat,
            "output_format",
            "Form of the answer: text (the default) for people; json and jsonl for programs.",
        ),
        click.option("--verbose", "-v", is_flag=True, help=verbose),
        click.option("--undo/--no-undo", "keep_undo", default=keeps_undo, help=undo),
        click.option(
            "--dry-run",
            is_flag=True,
            help="Only say what would be done. Nothing is written, not even a lock.",
        ),
    ):
        command = option(command)
    return command
