"""The ``kdump`` command: finds the subcommand, and turns every failure into one line."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import click

import kdump
from kdump.errors import ExitStatus, KdumpError

COMMANDS: Final = {
    "checkpoint": "Show, set and rebuild the offset checkpoints of log directories.",
    "compact": "Keep of each key the last record, as a broker's log cleaner does.",
    "completion": "What makes a shell complete these words.",
    "delete-records": "Delete the records of a partition before an offset.",
    "dump-segment": "Print any file of a log directory.",
    "info": "What a log directory is, and what it holds in all.",
    "ls": "The partitions of log directories.",
    "rebuild-index": "Make the indexes of segments anew.",
    "recover": "What a broker does to log directories when it starts, without the broker.",
    "resolve": "Finish or drop what was interrupted: .swap, .cleaned, .deleted.",
    "retain": "Delete the old segments that a broker would delete, or so much of them.",
    "snapshot": "Make the snapshots of producers' state anew.",
    "undo": "Take back what a repair did.",
    "verify": "What is sound in log directories, what is damaged, what would be lost.",
}
"""Name and summary of each command; the module is ``kdump.cli.<name with underscores>``.

The table is what ``--help`` and completion read, so that neither imports every command.
"""


class ReaderGoneError(Exception):
    """Whoever read our standard output (``head``, ``less``) has seen enough."""


class LazyGroup(click.Group):
    """Imports a command's module when that command is called for, not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module("kdump.cli." + cmd_name.replace("-", "_"))
        command: click.Command = module.command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as failure:
            # click would make exit status 1 of it, which says "repaired" here.
            raise ReaderGoneError from failure

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(kdump.__version__, prog_name="kdump", message="%(prog)s %(version)s")
def cli() -> None:
    """Look into, check and repair the log directories of a stopped Kafka broker.

    Exit status, or-ed: 0 sound; 1 damage found and repaired; 4 damage left; 8 cannot read,
    locked or disk full; 16 usage.
    """


def run(args: Sequence[str] | None = None, **extra: Any) -> int:
    """Run the command line ``args`` (without the program's name); gives the exit status.

    A command's callback returns an :class:`ExitStatus`, or nothing for sound.
    """
    try:
        result = cli.main(
            args=None if args is None else list(args),
            prog_name="kdump",
            standalone_mode=False,
            **extra,
        )
        sys.stdout.flush()
        return int(result or 0)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.Abort:
        return 128 + 2
    except KeyboardInterrupt:
        return 128 + 2
    except click.UsageError as problem:
        path = problem.ctx.command_path if problem.ctx else "kdump"
        click.echo(f"{path}: {problem.format_message()} See '{path} --help'.", err=True)
        return int(ExitStatus.USAGE)
    except click.ClickException as problem:
        click.echo(f"kdump: {problem.format_message()}", err=True)
        return int(ExitStatus.OPERATIONAL_ERROR)
    except (ReaderGoneError, BrokenPipeError):
        # Standard output goes to the null device, so that the interpreter's own flush at exit
        # has nothing to complain about.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KdumpError as failure:
        click.echo(f"kdump: {failure}", err=True)
        return int(failure.exit_status)
    except OSError as failure:
        where = f"{failure.filename}: " if failure.filename else ""
        click.echo(f"kdump: {where}{failure.strerror or failure}", err=True)
        return int(ExitStatus.OPERATIONAL_ERROR)


def main() -> NoReturn:
    """The entry point of the ``kdump`` script."""
    # NumPy would start a thread a core for linear algebra, of which there is none here; without
    # them start-up is quicker, and processes can be forked.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(run())
