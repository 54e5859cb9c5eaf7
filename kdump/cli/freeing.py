"""The options of commands that give up old segments."""

from __future__ import annotations

import enum
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kdump.cli.parameters import TIME
from kdump.cli.said import SaidForm

if TYPE_CHECKING:
    from kdump.pipeline.repairing import Writing

Command = TypeVar("Command", bound=Callable[..., Any])


class HighWatermark(enum.Enum):
    """What the operator says of it; the value is the word behind ``--high-watermark``."""

    END = "end"


@dataclass(frozen=True, slots=True)
class FreeingArguments:
    """How to give up segments, and how to say what goes; the argument that a command is given.

    Attributes:
        dry_run: whether only to say it.
        keep_undo: whether it can be undone, and frees nothing until that is given up.
        form: of the output.
        verbose: whether people are told of what stays, too.
        now_ms: what time it is.
        is_replicated: whether the operator says that all logs are replicated up to their ends.
    """

    dry_run: bool
    keep_undo: bool
    form: SaidForm
    verbose: bool
    now_ms: int
    is_replicated: bool

    def writing(self, command: str) -> Writing:
        """The same for the frame that all commands work in."""
        from kdump.pipeline.repairing import Writing

        return Writing(command, dry_run=self.dry_run, keep_undo=self.keep_undo)


def freeing_options(command: Command) -> Command:
    """Give a command the options of all that give up segments, as its one argument ``freeing``."""

    @functools.wraps(command)
    def with_one_argument(
        *args: Any,
        dry_run: bool,
        keep_undo: bool,
        form: SaidForm,
        verbose: bool,
        now_ms: int | None,
        high_watermark: HighWatermark | None,
        **others: Any,
    ) -> Any:
        freeing = FreeingArguments(
            dry_run=dry_run,
            keep_undo=keep_undo,
            form=form,
            verbose=verbose,
            now_ms=round(time.time() * 1000) if now_ms is None else now_ms,
            is_replicated=high_watermark is HighWatermark.END,
        )
        return command(*args, freeing=freeing, **others)

    decorated: Any = with_one_argument
    for option in (
        click.option(
            "--output",
            "form",
            type=click.Choice(SaidForm, case_sensitive=False),
            default=SaidForm.TEXT,
            help="Form of the answer: text (the default) for people; json and jsonl for programs.",
        ),
        click.option(
            "--verbose", "-v", is_flag=True, help="Tell of partitions of which nothing goes, too."
        ),
        click.option(
            "--undo/--no-undo",
            "keep_undo",
            default=False,
            help="Keep what it takes to undo this with kdump undo, or do not (the default). While "
            "that is kept nothing is freed.",
        ),
        click.option(
            "--dry-run",
            is_flag=True,
            help="Only say what would be done. Nothing is written, not even a lock.",
        ),
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
