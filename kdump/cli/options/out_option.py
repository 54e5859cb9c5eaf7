"""The options of commands that write a file: ``--out`` and ``--force``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from kdump.cli.options.conflicts import require_with
from kdump.cli.output.out_file import OutFile
from kdump.phases import phase

Command = TypeVar("Command", bound=Callable[..., Any])


def out_option(what: str, *, required: bool = True) -> Callable[[Command], Command]:
    """Add ``--out FILE`` and ``--force`` to a command, as its argument ``out``.

    That is an :class:`OutFile`, checked before the command begins; None if it was not given.

    Args:
        what: what the command writes there, as in "Write the document".
        required: whether it must be given.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_one_argument(*args: Any, out_name: str | None, force: bool, **others: Any) -> Any:
            if out_name is None:
                require_with("--out", {"--force": force})
                return command(*args, out=None, **others)
            with phase(f"looking at {out_name}"):
                out = OutFile.checked(out_name, is_replaced=force)
            return command(*args, out=out, **others)

        decorated: Any = with_one_argument
        decorated = click.option(
            "--force", is_flag=True, help="Replace FILE of --out if it exists."
        )(decorated)
        return click.option(  # type: ignore[no-any-return]
            "--out",
            "out_name",
            type=click.Path(),
            metavar="FILE",
            required=required,
            help=f"{what} to FILE, outside the log directories; only you can read it.",
        )(decorated)

    return decorate
