"""The session in the README shows what these commands print."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from builders.in_process import run_kdump

PAGE = slice(20 * 4096, 21 * 4096)
"""The page that the session overwrites with zeroes."""
AS_LONG_AS_QUOTED = 60


@pytest.fixture(scope="module")
def session(repository_root: Path) -> str:
    text = (repository_root / "README.md").read_text(encoding="utf-8")
    return text[text.index("## A session") : text.index("## For people who look at data")]


@pytest.fixture(scope="module")
def working_directory(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory in which the session's commands run."""
    root = tmp_path_factory.mktemp("session")
    shutil.copytree(fixtures / "out" / "crashed" / "d1", root / "d1")
    log = root / "d1" / "crash-none-0" / "00000000000000000100.log"
    content = bytearray(log.read_bytes())
    content[PAGE] = bytes(PAGE.stop - PAGE.start)
    log.write_bytes(content)
    return root


@pytest.mark.parametrize(
    "command",
    [
        "diff b1-d1 b3-d1 --topic div-a",
        "txns --hanging b1-d1 b2-d1 b2-d2 b3-d1 --topic txn-hang --partition 0",
    ],
)
def test_the_readme_shows_the_answers_from_the_disks_of_a_cluster(
    fixtures: Path, session: str, command: str
) -> None:
    assert f"$ kdump {command}\n" in session
    lines = run_kdump(command.split(), fixtures / "states" / "clean").stdout.decode().splitlines()

    assert [line for line in lines if line[:AS_LONG_AS_QUOTED] not in session] == []


@pytest.mark.parametrize("command", ["ls d1 --topic crash-*", "verify d1", "recover --dry-run d1"])
def test_the_readme_shows_what_is_printed(
    working_directory: Path, session: str, command: str
) -> None:
    lines = run_kdump(command.split(), working_directory).stdout.decode().splitlines()

    quoted = [line[:AS_LONG_AS_QUOTED] for line in lines if not re.search(r"/s$", line)]
    assert [line for line in quoted if line not in session] == []
