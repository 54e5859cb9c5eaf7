"""Colour marks what must not be overlooked, on a terminal, and never in a pipe."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import IO, Final

import pytest
from msgspec.structs import replace

from builders.in_process import run_kdump, sent_to_terminal, text_on_terminal
from builders.verified import LogModel
from cli.test_exit_statuses import NOTHING, copy_after, damage_the_first_batch
from kdump.check.findings import Finding, Place, Severity
from kdump.cli.output import progress_bar
from kdump.cli.output.brief import finding_line
from kdump.cli.output.colour import failure_line, verdict_line
from kdump.cli.output.events import write_line
from kdump.cli.output.rendering import OutputFormat, open_output
from kdump.rows.row_type import FLAG, INTEGER, TEXT, Field

FOUND = Finding("batch-checksum", Severity.SEVERE, Place("d1/orders-0"), "wrong")


@pytest.fixture(autouse=True)
def a_plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "CLICOLOR_FORCE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


def on_terminal(line: str, columns: int = 80) -> str:
    """What a terminal gets of a line."""

    def write(device: IO[bytes]) -> None:
        stream = io.TextIOWrapper(device)
        write_line(line, stream)
        stream.detach()

    return sent_to_terminal(write, columns).decode()


def in_pipe(line: str) -> str:
    stream = io.StringIO()
    write_line(line, stream)
    return stream.getvalue()


def test_the_severity_of_a_finding_is_in_colour() -> None:
    assert on_terminal(finding_line(FOUND)).startswith("\x1b[31m\x1b[1msevere:\x1b[0m d1/orders-0:")


def test_information_is_not() -> None:
    assert on_terminal(finding_line(replace(FOUND, severity=Severity.INFO))).startswith("info: d1")


@pytest.mark.parametrize("kind", ["loss", "refused"])
def test_a_verdict_of_loss_is_in_colour_to_its_end(kind: str) -> None:
    assert (
        on_terminal(verdict_line(kind, "loses 3 records")) == "\x1b[31mloses 3 records\x1b[0m\r\n"
    )


def test_the_name_of_the_program_is_in_colour_before_a_failure() -> None:
    assert on_terminal(failure_line("kdump: no such file")).startswith("\x1b[31mkdump:\x1b[0m no")


@pytest.mark.parametrize("columns", [20, 33, 80])
def test_colour_changes_no_character_and_no_line(columns: int) -> None:
    line = finding_line(FOUND)
    plain = re.sub("\x1b\\[[0-9]*m", "", on_terminal(line, columns))
    assert plain == on_terminal("".join(line), columns)


def test_control_characters_of_a_toned_line_are_escaped() -> None:
    assert "\\x1b[5m" in on_terminal(verdict_line("loss", "a\x1b[5m"))


class TestWhere:
    def test_a_pipe_has_no_colour(self) -> None:
        assert "\x1b" not in in_pipe(finding_line(FOUND))

    def test_clicolor_force_gives_a_pipe_colour(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CLICOLOR_FORCE", "1")
        assert in_pipe(finding_line(FOUND)).startswith("\x1b[31m")

    def test_no_color_wins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CLICOLOR_FORCE", "1")
        monkeypatch.setenv("NO_COLOR", "1")
        assert "\x1b" not in in_pipe(finding_line(FOUND))
        assert "\x1b" not in on_terminal(finding_line(FOUND))

    def test_a_terminal_without_abilities_has_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "dumb")
        assert "\x1b" not in on_terminal(finding_line(FOUND))


COLUMNS = (
    Field("name", TEXT, "", "Name"),
    Field("problems", INTEGER, "", "Problems", alert=True),
    Field("is_clean", FLAG, "", "Clean", alert=True),
)


def table(output_format: OutputFormat, *, vertical: bool = False) -> str:
    """Two rows as a terminal gets them: one with nothing to see, one with two alerts."""

    def write(device: IO[bytes]) -> None:
        with open_output(output_format, COLUMNS, vertical=vertical, stream=device) as out:
            out.row({"name": "a", "problems": 0, "is_clean": True})
            out.row({"name": "b", "problems": 7, "is_clean": False})

    return sent_to_terminal(write).decode()


@pytest.mark.parametrize("output_format", [OutputFormat.TEXT, OutputFormat.TABLE])
@pytest.mark.parametrize("vertical", [False, True])
def test_fields_that_deserve_a_look_are_in_colour(
    output_format: OutputFormat, vertical: bool
) -> None:
    shown = table(output_format, vertical=vertical)
    assert re.findall("\x1b\\[35m *([a-z0-9]+) *\x1b", shown) == ["7", "no"]


# Whole commands

COMMANDS: Final = {
    "ls": ("ls", "."),
    "ls table": ("ls", "--output", "table", "."),
    "info": ("info", "."),
    "verify": ("verify", "."),
    "diff": ("diff", ".", "../copy"),
    "recover": ("recover", "--dry-run", "."),
}


@pytest.fixture
def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that stopped uncleanly, with damage and leftovers; the copy has neither."""
    # A slow machine would see a bar, which has no colour.
    monkeypatch.setattr(progress_bar, "BAR_AFTER_SECONDS", 3600.0)
    root = LogModel(is_clean=False).write(tmp_path / "logs").parent
    copy_after(NOTHING)(root)
    damage_the_first_batch(root)
    *_, active = sorted((root / "orders-0").glob("*.log"))
    (root / "orders-0" / f"{active.stem}.log.cleaned").write_bytes(b"")
    content = bytearray(active.read_bytes())
    content[70] ^= 1
    active.write_bytes(content)
    return root


def without_colours(text: str) -> str:
    """A text without the sequences of colours, and without times and rates."""
    return re.sub(r"\x1b\[[0-9;]*m|[0-9.]+ s(, [0-9.]+ \w+/s)?", "", text)


@pytest.mark.parametrize("name", COMMANDS)
class TestCommands:
    """Of commands on a damaged directory, whatever the background of the terminal."""

    def test_without_colours_every_word_is_there(
        self, name: str, damaged: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        coloured = text_on_terminal(COMMANDS[name], damaged)
        assert "\x1b[3" in coloured
        monkeypatch.setenv("NO_COLOR", "1")
        plain = text_on_terminal(COMMANDS[name], damaged)
        assert "\x1b[3" not in plain
        assert without_colours(coloured) == without_colours(plain)

    def test_no_colour_is_hard_to_read_on_any_background(self, name: str, damaged: Path) -> None:
        """Black and yellow are left out, white and the bright ones, and all backgrounds."""
        found = re.findall("\x1b\\[([0-9;]*)m", text_on_terminal(COMMANDS[name], damaged))
        assert {part for each in found for part in each.split(";")} <= {"0", "1", "31", "32", "35"}

    def test_a_pipe_has_colour_only_if_it_is_forced(
        self, name: str, damaged: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plain = run_kdump(COMMANDS[name], damaged)
        assert b"\x1b" not in plain.stdout + plain.stderr
        monkeypatch.setenv("CLICOLOR_FORCE", "1")
        forced = run_kdump(COMMANDS[name], damaged)
        assert b"\x1b[3" in forced.stdout + forced.stderr
        assert without_colours(forced.stdout.decode()) == without_colours(plain.stdout.decode())
