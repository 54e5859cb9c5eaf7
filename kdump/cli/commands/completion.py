"""Generate shell completion scripts."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

from kdump.errors import ExitStatus

SHELLS: Final = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> ExitStatus:
    """Print a completion script for SHELL.

    For bash, add this line to ~/.bashrc:  eval "$(kdump completion bash)"
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None, shell
    completion = completion_class(ctx.find_root().command, {}, "kdump", "_KDUMP_COMPLETE")
    click.echo(completion.source())
    return ExitStatus.SOUND
