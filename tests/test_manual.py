"""Every command has a page in ``man/``, every option a paragraph, and no page names others."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest
from docutils import nodes

from builders.manual import MANUAL, document_of
from hatch_build import roff_of
from kdump.cli.command_group import SECTIONS, command_names
from kdump.cli.main import cli
from kdump.jobs.listing.directory_rows import FIELDS
from kdump.jobs.listing.listed_rows import LISTED_PARTITION
from kdump.jobs.lookup_rows import LOOKUP
from kdump.rows.row_type import Field

PAGES: Final = ("kdump", *(f"kdump-{name}" for name in command_names()))


def command_of(page: str) -> click.Command:
    if page == "kdump":
        return cli
    command = cli.get_command(click.Context(cli), page.removeprefix("kdump-"))
    assert command is not None
    return command


def options_of(command: click.Command) -> set[str]:
    """Return all names, long and short, of all visible options."""
    group = None if command is cli else click.Context(cli, **cli.context_settings)
    context = click.Context(command, parent=group, **command.context_settings)
    own = {
        name
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option) and not parameter.hidden
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    return own.union(*map(options_of, commands_below(command)))


def commands_below(command: click.Command) -> list[click.Command]:
    """Return the subcommands of a command, which share its page."""
    if isinstance(command, click.Group) and command is not cli:
        return list(command.commands.values())
    return []


def words_of(choice: click.Choice[Any]) -> list[str]:
    """Return the words as they are typed."""
    return [
        item.value for item in choice.shell_complete(click.Context(cli), click.Option(["-x"]), "")
    ]


def described_options(page: str) -> Iterator[tuple[set[str], str]]:
    """Give, for each paragraph about options, their names and the text."""
    for item in document_of(page).findall(nodes.option_list_item):
        names = {name.astext() for name in item.findall(nodes.option_string)}
        text = next(iter(item.findall(nodes.description))).astext()
        yield names, text


def test_every_command_has_a_page_and_every_page_a_command() -> None:
    assert {path.stem for path in MANUAL.glob("*.rst")} == set(PAGES)


def test_the_first_page_lists_the_commands_as_the_help_does() -> None:
    sections = document_of("kdump").findall(nodes.section)
    commands = next(each for each in sections if "commands" in each["names"])
    listed = {
        section[0].astext(): tuple(
            name
            for term in section.findall(nodes.term)
            for name in re.findall(r"kdump-([a-z-]+)\(1\)", term.astext())
        )
        for section in commands.findall(nodes.section)
        if section is not commands
    }
    assert listed == SECTIONS


@pytest.mark.parametrize("page", PAGES)
def test_every_option_has_its_paragraph(page: str) -> None:
    described = {name for names, text in described_options(page) for name in names if text}
    assert options_of(command_of(page)) - described == set()


@pytest.mark.parametrize("page", PAGES)
def test_the_paragraph_names_every_value_of_the_option(page: str) -> None:
    paragraphs = {name: text for names, text in described_options(page) for name in names}
    unnamed = [
        (option.opts[0], word)
        for command in (command_of(page), *commands_below(command_of(page)))
        for option in command.params
        if isinstance(option, click.Option) and isinstance(option.type, click.Choice)
        for word in words_of(option.type)
        if not re.search(rf"\b{re.escape(word)}\b", paragraphs[option.opts[0]])
    ]
    assert not unnamed


@pytest.mark.parametrize(
    ("page", "columns"),
    [
        ("kdump-ls", LISTED_PARTITION.columns),
        ("kdump-info", FIELDS),
        ("kdump-lookup", LOOKUP.columns),
    ],
)
def test_the_page_names_every_field_of_the_output(page: str, columns: Iterable[Field]) -> None:
    # What both commands answer stands in the page of ls.
    text = document_of(page).astext() + document_of("kdump-ls").astext()
    fields = {column.name for column in columns} - {"path"}
    assert not [name for name in fields if not re.search(rf"\b{name}\b", text)]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_only_existing_options(page: str) -> None:
    # Kafka's own programs have options of their own.
    text = re.sub(r"^kafka-.*$", "", document_of(page).astext(), flags=re.MULTILINE)
    spoken_of = set(re.findall(r"(?<![\w-])(?:--[a-z-]+|-[a-z])\b", text))
    # The examples and the advice on the first page name options of all commands.
    is_of_all = page in {"kdump", "kdump-explain", "kdump-verify"}
    commands = [command_of(each) for each in (PAGES if is_of_all else [page])]
    assert spoken_of - set().union(*map(options_of, commands)) == set()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_a_description_and_exit_statuses(page: str) -> None:
    titles = [title.astext() for title in document_of(page).findall(nodes.title)]
    assert titles[0] == page
    wanted = ["SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "FILES", "EXAMPLES", "SEE ALSO"]
    assert [title for title in titles if title in wanted] == wanted


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_titled_with_the_name_of_its_command(page: str) -> None:
    roff = roff_of(MANUAL / f"{page}.rst")
    assert f".SH NAME\n{page} \\- " in roff


def test_the_table_of_exit_statuses_has_every_command() -> None:
    tables = [block.astext() for block in document_of("kdump").findall(nodes.literal_block)]
    (table,) = [each for each in tables if each.startswith("Command")]
    named = {line.split()[0] for line in table.splitlines()[1:] if not line.startswith(" ")}
    assert named == set(command_names())


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")
@pytest.mark.parametrize("page", PAGES)
def test_man_formats_the_page_without_a_warning(page: str, tmp_path: Path) -> None:
    built = tmp_path / f"{page}.1"
    built.write_text(roff_of(MANUAL / f"{page}.rst"), encoding="utf-8")
    shown = subprocess.run(
        ["man", "--warnings", "--local-file", built],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "80"},
    )
    assert shown.stderr == ""
    assert page in shown.stdout
