"""Style and types, checked by the tools configured in ``pyproject.toml``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.lint
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(
            ["ruff", "check", "--no-cache", "--quiet", "--output-format=concise", "."], id="style"
        ),
        pytest.param(["ruff", "format", "--no-cache", "--quiet", "--diff", "."], id="format"),
        pytest.param(["mypy", "--no-error-summary"], id="types"),
    ],
)
def test_the_tool_reports_nothing(arguments: list[str], repository_root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=repository_root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
