from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kdump.cli.main import cli
from kdump.cli.options.engine_options import decision_line
from kdump.engine import engine_choice
from kdump.engine.engine_choice import EngineOptions, decide
from kdump.engine.engine_rates import LOCAL_RATES, SPARK_RATES, JobKind

DOCS = Path(__file__).resolve().parents[2] / "docs" / "engine.md"


def test_the_documented_rates_are_those_that_decide() -> None:
    rows = re.findall(
        r"^\| (\w+) \| .+ \| (.+) \| (.+) \| (.+) \| (.+) \|$", DOCS.read_text(), re.MULTILINE
    )
    documented = {name: tuple(map(float, numbers)) for name, *numbers in rows}
    assert documented == {
        kind.value: tuple(
            number
            for rate in (LOCAL_RATES[kind], SPARK_RATES[kind])
            for number in (rate.start_seconds, rate.core_seconds_per_gib)
        )
        for kind in JobKind
    }


def test_the_table_has_every_command_with_an_engine() -> None:
    cells = re.findall(r"^\| \w+ \| (`.+?) \| [\d.]+ ", DOCS.read_text(), re.MULTILINE)
    named = {re.sub(" --.*", "", each) for cell in cells for each in re.findall("`([^`]+)`", cell)}
    assert {"snapshot rebuild" if each == "snapshot" else each for each in named} == {
        name
        for name, command in _commands(cli)
        if any("--engine" in each.opts for each in command.params)
    }


def _commands(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{before}{name}", command
        if isinstance(command, click.Group):
            yield from _commands(command, f"{before}{name} ")


def test_the_page_quotes_what_says_which_engine_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_choice, "usable_cpus", lambda: 2)
    quoted = re.findall("^    kdump: (.*)$", DOCS.read_text(), re.MULTILINE)
    assert quoted == [
        decision_line(decide(EngineOptions(master=master), JobKind.SCAN, 2 << 30))
        for master in (None, "spark://cluster:7077")
    ]
