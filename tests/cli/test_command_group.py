"""The commands of kdump are the modules of one package: each file adds a command."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from builders.in_process import run_kdump
from kdump.cli import commands
from kdump.cli.command_group import SECTIONS, command_names, summaries
from kdump.cli.main import cli

GREETING = '''"""Greet somebody.

At length.
"""

import click


@click.command("say-hello")
def command():
    click.echo("hello")
'''


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Add the module of a command, and give the path of its file."""
    path = tmp_path / "say_hello.py"
    path.write_text(GREETING)
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    yield path
    sys.modules.pop(f"{commands.__name__}.say_hello", None)


@pytest.mark.usefixtures("added")
def test_a_file_adds_a_command(tmp_path: Path) -> None:
    assert run_kdump(["say-hello"], tmp_path).stdout == b"hello\n"


@pytest.mark.usefixtures("added")
def test_the_help_has_the_first_line_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SECTIONS, "Greet", ("say-hello",))
    text = run_kdump(["--help"], tmp_path).stdout.decode()
    assert "Greet:\n  say-hello       Greet somebody.\n" in text


def test_every_command_is_in_one_section_of_the_help() -> None:
    assert sorted(name for names in SECTIONS.values() for name in names) == command_names()


@pytest.mark.usefixtures("added")
def test_a_similar_name_is_suggested(tmp_path: Path) -> None:
    outcome = run_kdump(["say-helo"], tmp_path)
    assert outcome.stderr.startswith(b"kdump: no command 'say-helo'; did you mean 'say-hello'?")


def test_a_name_with_an_underscore_is_not_a_command(tmp_path: Path) -> None:
    assert run_kdump(["dump_segment"], tmp_path).exit_status == 16


@pytest.mark.parametrize("name", command_names())
def test_a_command_has_the_name_of_its_file(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name


@pytest.mark.parametrize("name", command_names())
def test_the_summary_of_a_command_is_a_sentence_that_fits_in_a_line(name: str) -> None:
    summary = summaries()[name]
    assert summary[0].isupper()
    assert summary.endswith(".")
    assert len(summary) <= 78 - len("  delete-records  ")
