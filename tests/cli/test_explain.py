"""``kdump explain`` prints what the manual says about a finding."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
import pytest
from click.shell_completion import ShellComplete

from builders.in_process import Outcome, run_kdump
from builders.json_answers import all_objects
from builders.json_schemas import problems_of_objects
from kdump.check import explanations
from kdump.check.explanations import read_explanations
from kdump.check.invariants import INVARIANTS
from kdump.cli.main import cli

EXPLANATIONS: Final = read_explanations()


def explain(*args: str) -> Outcome:
    return run_kdump(["explain", *args], Path.cwd())


def test_a_code_is_explained_with_what_repairs_it() -> None:
    lines = explain("index-size").stdout.decode().splitlines()

    assert lines[0] == "index-size (error): an index that ends in a partial entry"
    assert "  Broker: ignores the partial entry." in lines
    assert "  First: kdump rebuild-index LOG_DIR" in lines
    assert lines[-1].startswith("  verify --repair: rebuild the indexes of the segment")


def test_several_codes_are_explained_in_the_order_given() -> None:
    text = explain("zero-fill", "torn-tail", "zero-fill").stdout.decode()
    assert re.findall("^[a-z-]+", text, re.MULTILINE) == ["zero-fill", "torn-tail"]


def test_without_a_code_all_are_listed_by_severity() -> None:
    lines = explain().stdout.decode().splitlines()

    assert [line for line in lines if line[0] != " "] == ["severe:", "error:", "warning:", "info:"]
    listed = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines if line[0] == " "}
    assert listed == {each.code: each.meaning for each in INVARIANTS.values()}


def test_an_unknown_code_is_a_usage_error_and_a_similar_one_is_suggested() -> None:
    outcome = explain("zero-fill", "torntail")

    assert outcome.exit_status == 16
    assert outcome.stdout == b""
    assert outcome.stderr == b"kdump: no finding 'torntail'; did you mean 'torn-tail'?\n"


@pytest.mark.parametrize("codes", [(), ("torn-tail", "foreign-file")], ids=["all", "two"])
def test_programs_get_the_text(codes: Sequence[str]) -> None:
    answer = all_objects(explain(*codes, "--output", "jsonl").stdout)

    assert not list(problems_of_objects("explain", answer))
    assert {each["code"]: each["text"] for each in answer[1:-1]} == {
        code: "\n\n".join(EXPLANATIONS[code]) for code in codes or EXPLANATIONS
    }


def test_codes_are_completed() -> None:
    asked = ShellComplete(cli, {}, "kdump", "_KDUMP_COMPLETE")
    offered = asked.get_completions(["explain"], "torn")
    assert [(item.value, item.help) for item in offered] == [
        ("torn-tail", "the last batch is incomplete")
    ]


def test_every_code_and_no_other_has_its_paragraphs() -> None:
    assert set(EXPLANATIONS) == set(INVARIANTS)


@pytest.mark.parametrize("code", EXPLANATIONS)
def test_an_explanation_has_the_meaning_the_brokers_behaviour_and_the_remedy(code: str) -> None:
    meaning, broker, first = EXPLANATIONS[code]

    assert not meaning.startswith(("Broker:", "First:"))
    assert broker.startswith("Broker: ")
    assert first.startswith("First: ")
    assert not re.search(r"[*`\\]", meaning + broker + first)


SOURCE: Final = Path(explanations.__file__).with_suffix(".rst").read_text(encoding="utf-8")
COMMANDS: Final = {
    tuple(text.split()) for text in re.findall(r"\*\*kdump ([^*]+)\*\*", SOURCE, re.DOTALL)
}


@pytest.mark.parametrize("words", sorted(COMMANDS), ids=" ".join)
def test_named_commands_have_the_named_options(words: Sequence[str]) -> None:
    command: click.Command | None = cli
    options = [word for word in words if word.startswith("--")]
    for word in words:
        if isinstance(command, click.Group):
            command = command.get_command(click.Context(cli), word)
    assert command is not None
    assert not isinstance(command, click.Group)
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    assert set(options) <= known
