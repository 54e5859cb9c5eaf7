"""``./dev`` reports missing requirements."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def dev(root: Path, *arguments: str, python: str = "python3") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [root / "dev", *arguments],
        env={**os.environ, "PYTHON": python},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_python_that_is_too_old_is_refused_with_its_path(
    repository_root: Path, tmp_path: Path
) -> None:
    too_old = tmp_path / "python3.9"
    too_old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2\n')
    too_old.chmod(0o755)
    refused = dev(repository_root, "setup", python=str(too_old))
    assert refused.returncode == 1
    assert "Python 3.11 or later is needed" in refused.stderr
    assert "Python 3.9.2" in refused.stderr


def test_a_missing_python_is_refused_with_its_name(repository_root: Path) -> None:
    refused = dev(repository_root, "setup", python="no-such-python")
    assert refused.returncode == 1
    assert "no-such-python is not on the PATH" in refused.stderr


def test_an_unknown_command_prints_the_usage(repository_root: Path) -> None:
    refused = dev(repository_root, "biuld")
    assert refused.returncode == 16
    assert refused.stdout == ""
    assert "usage: ./dev COMMAND" in refused.stderr
