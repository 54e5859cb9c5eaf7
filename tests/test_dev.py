"""``./dev`` reports missing requirements."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


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


@pytest.mark.slow
def test_the_demo_keeps_what_a_broker_would_delete_and_undoes_that(
    repository_root: Path, tmp_path: Path
) -> None:
    """Only up to where it leaves the damaged directory: Spark is not everywhere."""
    clone = tmp_path / "clone"
    clone.mkdir()
    for name in ("dev", "fixtures", "tests"):
        (clone / name).symlink_to(repository_root / name)
    script = (repository_root / "dev").read_text(encoding="utf-8")
    demo = script[script.index("show() {") : script.index("command=${1:-}")]
    demo = demo[: demo.index("    say 'What is in a log directory?'")] + "}\n"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    shown = subprocess.run(
        ["sh", "-euc", f"root=$PWD\n{demo}demo"],
        cwd=clone,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert "losing 48 batches" in shown.stdout
    assert "at most 22 records)" in shown.stdout
    assert shown.stdout.endswith("$ diff -r d1.orig d1\n")


def test_an_unknown_command_prints_the_usage(repository_root: Path) -> None:
    refused = dev(repository_root, "biuld")
    assert refused.returncode == 16
    assert refused.stdout == ""
    assert "usage: ./dev COMMAND" in refused.stderr
