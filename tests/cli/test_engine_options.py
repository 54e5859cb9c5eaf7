from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from builders.in_process import run_kdump
from builders.verified import LogModel
from kdump.cli.options.engine_options import engine_options
from kdump.engine.engine_choice import DEFAULT_OPTIONS, EngineChoice, EngineOptions


def parsed(*args: str) -> EngineOptions:
    """What a command is given for ``args``."""
    given: list[EngineOptions] = []

    @click.command
    @click.argument("path")
    @engine_options
    def command(path: str, engine: EngineOptions) -> None:
        assert path == "PATH"
        given.append(engine)

    result = CliRunner().invoke(command, ["PATH", *args], standalone_mode=False)
    if result.exception:
        raise result.exception
    return given[0]


def test_without_options_kdump_chooses() -> None:
    given = parsed()
    assert given == replace(DEFAULT_OPTIONS, progress=given.progress)


def test_every_option_arrives() -> None:
    given = parsed(
        *("--engine", "spark", "--master", "local[2]"),
        *("--spark-conf", "spark.a=1", "--spark-conf", "spark.b=x=y", "--progress"),
    )
    conf = (("spark.a", "1"), ("spark.b", "x=y"))
    options = EngineOptions(EngineChoice.SPARK, "local[2]", conf, progress=given.progress)
    assert given == options


@pytest.mark.parametrize(
    ("args", "is_shown"), [((), False), (("--progress",), True), (("--no-progress",), False)]
)
def test_progress_can_be_asked_for(args: tuple[str, ...], is_shown: bool) -> None:
    assert parsed(*args).progress.is_shown is is_shown


@pytest.mark.parametrize(
    "args",
    [
        ("--spark-conf", "spark.a"),
        ("--spark-conf", "=1"),
        ("--engine", "flink"),
    ],
)
def test_invalid_values_are_usage_errors(args: tuple[str, str]) -> None:
    with pytest.raises(click.UsageError):
        parsed(*args)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((), "kdump: runs on local (expected for "),
        (("--engine", "local"), "kdump: runs on local, because of --engine\n"),
    ],
)
@pytest.mark.parametrize("command", ["verify", "txns"])
def test_verbose_says_once_which_engine_runs_and_why(
    command: str, options: tuple[str, ...], line: str, tmp_path: Path
) -> None:
    log_dir = LogModel().write(tmp_path / "logs").parent
    done = run_kdump([command, "-v", *options, log_dir.name], tmp_path)
    assert done.stderr.decode().count("runs on") == 1
    assert line in done.stderr.decode()
    assert b"runs on" not in run_kdump([command, *options, log_dir.name], tmp_path).stderr
