"""``--verbose``, which every command takes.

Where it changes what a command prints, the command has the option itself. All others take it too,
and so does ``kdump`` before the name of a command: with it, kdump reports which engine ran the work
and why, and what it asked of object stores.
"""

from __future__ import annotations

from typing import Final

import click

_given: Final = list[bool]()


def forget_verbose() -> None:
    """Begin a new run."""
    _given.clear()


def is_verbose() -> bool:
    """Whether this run was asked for more than a command prints by itself."""
    return any(_given)


def note_verbose(_context: click.Context, _parameter: click.Parameter, value: bool) -> bool:
    """Remember that the option was given; a callback of click."""
    _given.append(value)
    return value


def with_verbose(command: click.Command) -> click.Command:
    """Make a command, and the commands below it, take ``--verbose``."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            with_verbose(each)
        return command
    own = next((each for each in command.params if "--verbose" in each.opts), None)
    if own is None:
        taken = {name for each in command.params for name in each.opts}
        names = ["--verbose", *({"-v"} - taken)]
        own = click.Option(names, is_flag=True, expose_value=False, hidden=True)
        command.params.append(own)
    own.callback = note_verbose
    return command
