"""The options of commands whose work an engine does: which one, how, and whether it is watched."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from kdump.cli.options.parameters import PropertyParameter, SizeParameter
from kdump.cli.output.rendering import format_bytes
from kdump.engine.engine import DEFAULT_THRESHOLD_BYTES, EngineChoice, EngineOptions
from kdump.engine.progress import Progress

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class EngineArguments:
    """What the command line says of the engine; the argument that a command is given."""

    options: EngineOptions
    progress: Progress
    """Is told how far the engine is."""


def engine_options(command: Command) -> Command:
    """Give a command the options of an engine, as its one argument ``engine``.

    That is an :class:`EngineArguments`.
    """
    return _gathered(
        command,
        click.option(
            "--engine",
            type=click.Choice(EngineChoice, case_sensitive=False),
            default=EngineChoice.AUTO,
            help="What does the work: local (this process and one worker a core), spark, or auto "
            "(the default), which is spark for much of it.",
        ),
        click.option(
            "--engine-threshold",
            "engine_threshold",
            type=SizeParameter(),
            default=DEFAULT_THRESHOLD_BYTES,
            metavar="SIZE",
            help="From how many bytes on --engine auto is spark "
            f"({format_bytes(DEFAULT_THRESHOLD_BYTES)} unless given).",
        ),
        click.option(
            "--master",
            metavar="URL",
            help="Spark's master: local[*] (the default), or a cluster's whose nodes see the same "
            "paths. With --engine auto this asks for Spark.",
        ),
        click.option(
            "--spark-conf",
            "spark_conf",
            type=PropertyParameter(),
            multiple=True,
            metavar="KEY=VALUE",
            help="A property of Spark's. Can be given many times.",
        ),
        click.option(
            "--progress/--no-progress",
            "progress",
            default=None,
            help="Show how far the work is, on standard error: on a terminal it is shown unless "
            "told otherwise; elsewhere --progress gives a line every few seconds.",
        ),
    )


def _gathered(command: Command, *options: Callable[[Any], Any]) -> Command:
    @functools.wraps(command)
    def with_one_argument(
        *args: Any,
        engine: EngineChoice,
        engine_threshold: int,
        master: str | None,
        spark_conf: Sequence[tuple[str, str]],
        progress: bool | None,
        **others: Any,
    ) -> Any:
        from kdump.cli.output.progress_bar import shown

        options = EngineOptions(engine, engine_threshold, master, tuple(spark_conf))
        with shown(progress) as display:
            return command(*args, engine=EngineArguments(options, display), **others)

    decorated: Any = with_one_argument
    for option in reversed(options):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]
