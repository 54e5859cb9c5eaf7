"""The options of commands that write a file: ``--out`` and ``--force``."""

from __future__ import annotations

from collections.abc import Callable

import click

from kdump.cli.options.conflicts import require_with
from kdump.cli.options.option_group import Command, option_group
from kdump.cli.output.out_file import OutFile
from kdump.phases import phase


def out_option(what: str, *, required: bool = True) -> Callable[[Command], Command]:
    """Add ``--out FILE`` and ``--force`` to a command, as its argument ``out``.

    That is an :class:`OutFile`, checked before the command begins; None if it was not given.

    Args:
        what: what the command writes there, as in "Write the document".
    """
    return option_group(
        "out",
        _out_file,
        click.option(
            "--out",
            "out_name",
            type=click.Path(),
            metavar="FILE",
            required=required,
            help=f"{what} to FILE, outside the log directories; only you can read it.",
        ),
        click.option("--force", is_flag=True, help="Replace FILE of --out if it exists."),
    )


def _out_file(out_name: str | None, force: bool) -> OutFile | None:
    if out_name is None:
        require_with("--out", {"--force": force})
        return None
    with phase(f"looking at {out_name}"):
        return OutFile.checked(out_name, is_replaced=force)
