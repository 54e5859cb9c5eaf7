"""The commands in the blocks of the manual, the README and the pages are accepted as printed.

They are parsed, not run: tests of single pages run some. Runbooks have tests of their own.
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest
from docutils import nodes

from builders.manual import MANUAL, document_of
from kdump.cli.main import cli

ROOT: Final = MANUAL.parent
PAGES: Final = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(MANUAL.glob("*.rst"))]
FILES: Final = ("ids.txt", "secret", "offsets.txt")
"""What commands read, and click looks for."""


def blocks(page: Path) -> Iterator[str]:
    """Give the blocks of code of a page."""
    if page.suffix == ".rst":
        yield from (each.astext() for each in document_of(page.stem).findall(nodes.literal_block))
        return
    text = page.read_text(encoding="utf-8")
    yield from re.findall(r"(?:^ {4,}.*\n)+", text, re.MULTILINE)
    yield from re.findall(r"```(?:sh)?\n(.*?)```", text, re.DOTALL)


@functools.cache
def commands(page: Path) -> list[list[str]]:
    """Return the words after ``kdump`` of each command in the blocks of a page."""
    found = []
    for block in blocks(page):
        # A quoted statement of SQL goes on in the next lines.
        joined = re.sub(r"\\\n", " ", block)
        for text in re.findall(
            r"^\s*(?:\$ )?kdump ((?:[^\n'\"]|'[^']*'|\"[^\"]*\")+)", joined, re.MULTILINE
        ):
            words = shlex.split(re.sub(r"\s+# .*", "", text))
            end = next((n for n, word in enumerate(words) if word in ("|", ">", "&&")), None)
            if "..." not in words:
                found.append(words[:end])
    return found


def parse(words: list[str]) -> None:
    """Parse a command line as the program does, and run nothing."""
    context = cli.make_context("kdump", words)
    while isinstance(context.command, click.Group):
        name, command, rest = context.command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        assert command is not None
        context = command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_are_accepted(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        Path(name).write_bytes(b"")
    for words in commands(page):
        try:
            parse(words)
        except click.ClickException as problem:
            raise AssertionError(f"kdump {shlex.join(words)}: {problem.message}") from problem


def test_pages_have_commands() -> None:
    assert sum(len(commands(page)) for page in PAGES) > 150
