"""Find the commands of ``kdump``: each module of :mod:`kdump.cli.commands` is one.

A module's name is the command as typed, with ``_`` for ``-``. The first line of its docstring is
what ``kdump --help`` says about it. Both are read without importing the module, because importing
every command takes longer than most of them need to answer. :data:`SECTIONS` says where it stands.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from kdump.cli import commands
from kdump.cli.options.verbose_option import with_verbose

SECTIONS: Final = {
    "Look at a disk": ("info", "ls", "groups", "txns", "diff", "report"),
    "Check and repair": (
        *("verify", "explain", "recover", "undo"),
        *("rebuild-index", "snapshot", "checkpoint", "resolve"),
    ),
    "Find and take out records": (
        *("lookup", "grep", "dump-segment", "query", "export", "serve"),
        "erase",
    ),
    "Free space": ("retain", "compact", "delete-records"),
    "Bring back brokers and clusters": (
        *("backup", "rewind", "copy", "move", "undelete", "transplant"),
        *("identity", "metadata", "quorum"),
    ),
    "Set up the shell": ("completion",),
}
"""The commands by what they are for, as ``kdump --help`` and the manual list them: what is needed
first stands first."""


class ReaderGoneError(Exception):
    """Whoever read standard output (``head``, ``less``) has closed it."""


def command_names() -> list[str]:
    """List the commands, in order of the alphabet."""
    return sorted(_files())


def summaries() -> dict[str, str]:
    """Read the line about each command in ``kdump --help``: the first of its module's source.

    Raises:
        ValueError: a module does not begin with a docstring.
    """
    return {name: _summary(name, path) for name, path in sorted(_files().items())}


def _summary(name: str, path: Path) -> str:
    with path.open(encoding="utf-8") as source:
        first_line = source.readline().rstrip("\n")
    if not first_line.startswith('"""'):
        raise ValueError(f"the module of {name} does not begin with a docstring")
    return first_line.strip('"')


def _files() -> dict[str, Path]:
    """Return the file of each command's module."""
    return {
        path.stem.replace("_", "-"): path
        for directory in commands.__path__
        for path in Path(directory).glob("[!_]*.py")
    }


@contextlib.contextmanager
def _reader_noticed() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as failure:
        # click would make it exit status 1, which says "repaired" here.
        raise ReaderGoneError from failure


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return command_names()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in command_names():
            return None
        command: click.Command = importlib.import_module(
            f"{commands.__name__}.{cmd_name.replace('-', '_')}"
        ).command
        return with_verbose(command)

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

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _reader_noticed():  # --help and --version print while options are parsed
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _reader_noticed():
            return super().invoke(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        lines = summaries()
        width = max(map(len, lines))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), lines[name]) for name in names])
