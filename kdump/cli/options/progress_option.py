"""``--progress``, of commands that read or write much."""

from __future__ import annotations

from typing import Final

import click

progress_option: Final = click.option(
    "--progress/--no-progress",
    "progress",
    default=None,
    help="Show progress on standard error, as a line every few seconds if that is not a "
    "terminal (default: only on a terminal).",
)
