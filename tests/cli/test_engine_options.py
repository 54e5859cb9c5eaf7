from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from kdump.cli.options.engine_options import EngineArguments, engine_options
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineChoice, EngineOptions


def parsed(*args: str) -> EngineArguments:
    """What a command is given for ``args``."""
    given: list[EngineArguments] = []

    @click.command
    @click.argument("path")
    @engine_options
    def command(path: str, engine: EngineArguments) -> None:
        assert path == "PATH"
        given.append(engine)

    result = CliRunner().invoke(command, ["PATH", *args], standalone_mode=False)
    if result.exception:
        raise result.exception
    return given[0]


def test_without_options_kdump_chooses() -> None:
    assert parsed().options == DEFAULT_OPTIONS


def test_every_option_arrives() -> None:
    given = parsed(
        *("--engine", "spark", "--engine-threshold", "512MiB", "--master", "local[2]"),
        *("--spark-conf", "spark.a=1", "--spark-conf", "spark.b=x=y", "--progress"),
    )
    conf = (("spark.a", "1"), ("spark.b", "x=y"))
    options = EngineOptions(EngineChoice.SPARK, 512 << 20, "local[2]", conf)
    assert given.options == options


@pytest.mark.parametrize(
    ("args", "is_shown"), [((), False), (("--progress",), True), (("--no-progress",), False)]
)
def test_progress_can_be_asked_for(args: tuple[str, ...], is_shown: bool) -> None:
    assert parsed(*args).progress.is_shown is is_shown


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("0", 0), ("1073741824", 1 << 30), ("1g", 1 << 30), ("2 KiB", 2048), ("3TB", 3 << 40)],
)
def test_sizes_have_units(text: str, size_bytes: int) -> None:
    assert parsed("--engine-threshold", text).options.threshold_bytes == size_bytes


@pytest.mark.parametrize(
    "args",
    [
        ("--engine-threshold", "much"),
        ("--engine-threshold", "-1"),
        ("--engine-threshold", "1.5g"),
        ("--spark-conf", "spark.a"),
        ("--spark-conf", "=1"),
        ("--engine", "flink"),
    ],
)
def test_invalid_values_are_usage_errors(args: tuple[str, str]) -> None:
    with pytest.raises(click.UsageError):
        parsed(*args)
