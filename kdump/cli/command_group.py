"""Find the commands of ``kdump``: each module of :mod:`kdump.cli.commands` is one.

A module's name is the command as typed, with ``_`` for ``-``. The first line of its docstring is
what ``kdump --help`` says about it. Both are read without importing the module, because importing
every command takes longer than most of them need to answer.
"""

from __future__ import annotations

import importlib
import pkgutil
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from typing import Any

import click

from kdump.cli import commands


class ReaderGoneError(Exception):
    """Whoever read standard output (``head``, ``less``) has closed it."""


def command_names() -> list[str]:
    """List the commands, in order of the alphabet."""
    return sorted(found.name.replace("_", "-") for found in pkgutil.iter_modules(commands.__path__))


def summary_of(name: str) -> str:
    """Read the line about a command in ``kdump --help``: the first of its module's source.

    Raises:
        ValueError: the module does not begin with a docstring.
    """
    spec = find_spec(_module_name(name))
    source = b""
    if spec is not None and isinstance(spec.loader, SourceFileLoader):
        source = spec.loader.get_data(spec.loader.path)
    first_line = source.partition(b"\n")[0].decode()
    if not first_line.startswith('"""'):
        raise ValueError(f"the module of {name} does not begin with a docstring")
    return first_line.strip('"')


def _module_name(name: str) -> str:
    return f"{commands.__name__}.{name.replace('-', '_')}"


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return command_names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in command_names():
            return None
        command: click.Command = importlib.import_module(_module_name(cmd_name)).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as problem:
            # click looks for similar names among the commands that are imported.
            raise click.NoSuchCommand(
                problem.command_name, possibilities=command_names(), ctx=ctx
            ) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as failure:
            # click would make it exit status 1, which says "repaired" here.
            raise ReaderGoneError from failure

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary_of(name)) for name in command_names()])
