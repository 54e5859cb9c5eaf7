"""The options of commands that repair, and of all commands that write."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from kdump.cli.options.conflicts import require_with
from kdump.cli.output.events import EventFormat, events_option
from kdump.cli.output.write_arguments import RepairArguments

Command = TypeVar("Command", bound=Callable[..., Any])


def repair_options(command: Command) -> Command:
    """Add the options of commands that repair, as the argument ``repair``."""
    return writing_options(
        verbose="List every change and every finding, and partitions without any.",
        undo="Keep undo data for kdump undo (default: on).",
        keeps_undo=True,
    )(command)


def freeing_options(*, verbose: str) -> Callable[[Command], Command]:
    """Add the options of commands that free space, as the argument ``repair``.

    Args:
        verbose: help of ``--verbose``.
    """
    return writing_options(
        verbose=verbose,
        undo="Keep undo data for kdump undo (default: off). No space is freed until it is "
        "discarded.",
        keeps_undo=False,
    )


def writing_options(*, verbose: str, undo: str, keeps_undo: bool) -> Callable[[Command], Command]:
    """Add ``--dry-run``, ``--undo``, ``--verbose`` and ``--output``, as the argument ``repair``.

    Args:
        verbose: help of ``--verbose``.
        undo: help of ``--undo/--no-undo``.
        keeps_undo: the default of ``--undo/--no-undo``.
    """

    def decorate(command: Command) -> Command:
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

        decorated: Any = with_one_argument
        for option in (
            events_option,
            click.option("--verbose", "-v", is_flag=True, help=verbose),
            click.option("--undo/--no-undo", "keep_undo", default=keeps_undo, help=undo),
            click.option(
                "--dry-run",
                is_flag=True,
                help="Preview the changes and write nothing, not even the lock.",
            ),
        ):
            decorated = option(decorated)
        return decorated  # type: ignore[no-any-return]

    return decorate


def optional_repair_options(command: Command) -> Command:
    """Add ``--dry-run`` and ``--undo`` to a command that writes only with ``--repair``.

    They are its arguments ``dry_run`` and ``keep_undo``, which is None if it was not given.
    """
    undo = click.option(
        "--undo/--no-undo",
        "keep_undo",
        default=None,
        help="With --repair, keep undo data for kdump undo (default: on).",
    )
    dry_run = click.option(
        "--dry-run", is_flag=True, help="With --repair, preview the changes and write nothing."
    )
    return dry_run(undo(command))


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
