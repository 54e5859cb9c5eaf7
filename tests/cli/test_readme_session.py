"""The sessions in the README show what these commands print, when they are typed one by one."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from builders.in_process import run_kdump

_LEFT_OUT: Final = "…"
"""What stands for columns, words or lines that the README leaves out."""
_VARYING: Final = re.compile(
    r"^\d+ bytes: \d+ valid|[\d.]+ s, [\d.]+ [KMG]iB/s|[\d.]+ [KM]iB of free space"
)
"""Times, sizes that include the undo data, and the space that files with holes need."""


def session(text: str, heading: str) -> Iterator[tuple[str, str]]:
    """Give the commands of a section of the README, each with what is shown below it."""
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    shown = "".join(re.findall(r"^    (.*\n)", section, re.MULTILINE))
    for part in re.split(r"^\$ ", shown, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def printed(command: str, folder: Path) -> str:
    """What a command of the session prints in a directory."""
    if command.startswith("kdump "):
        return run_kdump(shlex.split(command)[1:], folder).stdout.decode()
    done = subprocess.run(
        command, shell=True, cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


def lines_of(output: str) -> list[str]:
    """The lines of an output that have words, without what varies."""
    lines = (_VARYING.sub("N", line.rstrip()) for line in output.splitlines())
    return [line for line in lines if line]


def pattern_of(shown: str) -> str:
    """The regular expression of the lines of an output."""
    parts = [".*".join(map(re.escape, line.split(_LEFT_OUT))) for line in lines_of(shown)]
    # On a line of its own it stands for any number of lines.
    return "\n".join("(?s:.*)" if part == ".*" else part for part in parts)


@pytest.mark.skipif(shutil.which("xz") is None, reason="no xz, which tar runs")
@pytest.mark.parametrize("heading", ["A session", "Questions that used to need a running broker"])
def test_the_readme_shows_what_is_printed(
    heading: str, repository_root: Path, tmp_path: Path
) -> None:
    text = (repository_root / "README.md").read_text(encoding="utf-8")
    (tmp_path / "fixtures").symlink_to(repository_root / "fixtures")
    commands = [*session(text, heading)]
    assert len(commands) > 2
    for command, shown in commands:
        found = "\n".join(lines_of(printed(command, tmp_path)))
        assert re.fullmatch(pattern_of(shown), found), f"$ {command}\n{found}"
