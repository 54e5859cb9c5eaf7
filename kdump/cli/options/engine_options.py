"""The options of commands that run on an engine, and of progress."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import click
from msgspec import Struct
from msgspec.structs import replace

from kdump.cli.options.option_group import Command, options
from kdump.cli.options.parameters import PropertyParameter
from kdump.cli.options.progress_option import progress_option
from kdump.cli.options.verbose_option import is_verbose
from kdump.engine.engine_choice import Because, Decision, EngineChoice, EngineOptions
from kdump.words import counted


class SparkArguments(Struct, frozen=True):
    """The options of a command that always runs on Spark."""

    master: str | None
    spark_conf: tuple[tuple[str, str], ...]


_SPARK_CONF: Final = click.option(
    "--spark-conf",
    type=PropertyParameter(),
    multiple=True,
    help="Set a Spark property; may be repeated.",
)


def engine_options(command: Command) -> Command:
    """Add the engine options to a command, as its argument ``engine``.

    That is :class:`~kdump.engine.engine_choice.EngineOptions`.
    """
    return _gathered(
        command,
        click.option(
            "--engine",
            type=click.Choice(EngineChoice, case_sensitive=False),
            default=EngineChoice.AUTO,
            help="Run on local (this process and one worker for each core), spark, or auto "
            "(default): what is expected to finish first.",
        ),
        click.option(
            "--master",
            metavar="URL",
            help="Use this Spark master (default: local[*]); the nodes of a cluster must see "
            "the same "
            "paths. Implies Spark with --engine auto.",
        ),
        _SPARK_CONF,
        progress_option,
    )


def _gathered(command: Command, *each: Callable[[Any], Any]) -> Command:
    @functools.wraps(command)
    def with_one_argument(
        *args: Any,
        engine: EngineChoice,
        master: str | None,
        spark_conf: Sequence[tuple[str, str]],
        progress: bool | None,
        **others: Any,
    ) -> Any:
        from kdump.cli.output.progress_bar import shown

        with shown(progress) as display:
            chosen = EngineOptions(engine, master, tuple(spark_conf), progress=display)
            if is_verbose():
                chosen = replace(chosen, tell=_say_which)
            return command(*args, engine=chosen, **others)

    return options(*each)(with_one_argument)  # type: ignore[return-value]


def _say_which(decision: Decision) -> None:
    """Say on standard error which engine was chosen, and why."""
    from kdump.cli.output.events import write_notice

    write_notice(decision_line(decision))


def decision_line(decision: Decision) -> str:
    """Which engine was chosen, and why, in one line."""
    from kdump.cli.output.value_text import format_bytes

    work = f"{format_bytes(decision.total_bytes)} on {counted(decision.cores, 'core')}"
    local, spark = map(_about, (decision.local_seconds, decision.spark_seconds))
    times = f"expected for {work}: local {local}, spark {spark}"
    if decision.because is Because.FIRST:
        return f"runs on {decision.engine.value} ({times})"
    if decision.because is Because.ONLY:
        return f"runs on local, because {decision.because.value} ({times})"
    return f"runs on {decision.engine.value}, because of {decision.because.value}"


def _about(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:,.0f} s"


def spark_options(command: Command) -> Command:
    """Add the options of Spark to a command that always runs on it, as its argument ``spark``.

    That is a :class:`SparkArguments`.
    """

    @functools.wraps(command)
    def with_one_argument(
        *args: Any,
        master: str | None,
        spark_conf: Sequence[tuple[str, str]],
        progress: bool | None,
        **others: Any,
    ) -> Any:
        from kdump.cli.output.progress_bar import shown

        with shown(progress):
            return command(*args, spark=SparkArguments(master, tuple(spark_conf)), **others)

    master_option = click.option(
        "--master",
        metavar="URL",
        help="Use this Spark master (default: local[*]); the nodes of a cluster must see the same "
        "paths.",
    )
    return options(master_option, _SPARK_CONF, progress_option)(with_one_argument)  # type: ignore[return-value]
