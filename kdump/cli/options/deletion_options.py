"""The options of commands that free space: compact, retain and delete-records."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from kdump.cli.options.parameters import now_option
from kdump.cli.options.repair_options import writing_options
from kdump.cli.output.events import EventFormat
from kdump.cli.output.write_arguments import DeletionArguments

Command = TypeVar("Command", bound=Callable[..., Any])


class HighWatermark(enum.Enum):
    """Which high watermark to assume; the value is the word for ``--high-watermark``."""

    END = "end"


def deletion_options(command: Command) -> Command:
    """Add the options of commands that free space, as the argument ``deletion``."""

    @functools.wraps(command)
    def with_one_argument(
        *args: Any,
        dry_run: bool,
        keep_undo: bool,
        output_format: EventFormat,
        verbose: bool,
        now_ms: int,
        high_watermark: HighWatermark | None,
        **others: Any,
    ) -> Any:
        deletion = DeletionArguments(
            dry_run=dry_run,
            keep_undo=keep_undo,
            output_format=output_format,
            verbose=verbose,
            now_ms=now_ms,
            is_replicated=high_watermark is HighWatermark.END,
        )
        return command(*args, deletion=deletion, **others)

    decorated = writing_options(
        with_one_argument,
        verbose="List every change, and partitions without any.",
        keeps_undo=False,
        undo="Keep undo data for kdump undo (default: off). No space is freed until it is "
        "discarded.",
    )
    for option in (
        click.option(
            "--high-watermark",
            type=click.Choice(HighWatermark, case_sensitive=False),
            help="Assume with end that every log is fully replicated (default: use "
            "replication-offset-checkpoint; a partition without a line in it loses nothing).",
        ),
        now_option("Evaluate retention and compaction as of TIME"),
    ):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]
