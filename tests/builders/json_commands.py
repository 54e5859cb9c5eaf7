"""Commands with JSON output, or with any option."""

from __future__ import annotations

from collections.abc import Iterator

import click

from kdump.cli import main


def _leaf_commands(
    group: click.Group, ctx: click.Context, words: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _leaf_commands(command, ctx, (*words, name))
        else:
            yield " ".join((*words, name)), command


def json_commands() -> list[str]:
    """Return every command with JSON output."""
    return commands_with("--output")


def commands_with(option: str) -> list[str]:
    """Return every command that has an option."""
    return [
        name
        for name, command in _leaf_commands(main.cli, click.Context(main.cli))
        if any(option in each.opts for each in command.params)
    ]


def leaf_commands() -> list[str]:
    """Return every command."""
    return [name for name, _ in _leaf_commands(main.cli, click.Context(main.cli))]
