"""The options of commands that give up old segments."""

from __future__ import annotations

import enum
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from kdump.cli.options.parameters import TIME
from kdump.cli.options.repair_options import RepairArguments, writing_options
from kdump.cli.output.events import EventFormat

Command = TypeVar("Command", bound=Callable[..., Any])


class HighWatermark(enum.Enum):
    """What the operator says of it; the value is the word behind ``--high-watermark``."""

    END = "end"


@dataclass(frozen=True, slots=True)
class DeletionArguments(RepairArguments):
    """How to give up segments, and how to say what goes; the argument that a command is given.

    With an undo, nothing is free until that is given up.

    Attributes:
        now_ms: what time it is.
        is_replicated: whether the operator says that all logs are replicated up to their ends.
    """

    now_ms: int
    is_replicated: bool


def deletion_options(command: Command) -> Command:
    """Give a command the options of all that give up segments, as its one argument ``deletion``."""

    @functools.wraps(command)
    def with_one_argument(
        *args: Any,
        dry_run: bool,
        keep_undo: bool,
        output_format: EventFormat,
        verbose: bool,
        now_ms: int | None,
        high_watermark: HighWatermark | None,
        **others: Any,
    ) -> Any:
        deletion = DeletionArguments(
            dry_run=dry_run,
            keep_undo=keep_undo,
            output_format=output_format,
            verbose=verbose,
            now_ms=round(time.time() * 1000) if now_ms is None else now_ms,
            is_replicated=high_watermark is HighWatermark.END,
        )
        return command(*args, deletion=deletion, **others)

    decorated = writing_options(
        with_one_argument,
        verbose="List every change, and partitions of which nothing goes.",
        keeps_undo=False,
        undo="Keep what it takes to undo this with kdump undo, or do not (the default). While "
        "that is kept nothing is freed.",
    )
    for option in (
        click.option(
            "--high-watermark",
            type=click.Choice(HighWatermark, case_sensitive=False),
            help="end: the operator's word that every log is replicated up to its end. Without it "
            "replication-offset-checkpoint counts, and what it does not speak of loses nothing.",
        ),
        click.option(
            "--now",
            "now_ms",
            type=TIME,
            metavar="TIME",
            help="What time it is: ISO 8601 or epoch milliseconds. The clock's by default.",
        ),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]
