"""Releases of this clone, as ``./dev release`` makes them."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

THIS: Final = platform.machine()
"""The kind of machine that this is."""
TOOLS: Final = ("cc", "readelf", "strip")
SKIPPED: Final = "release: n"
"""How lines begin that say what cannot be made here."""


def make_release(repository_root: Path, target: Path, *options: str) -> Path:
    """Make the release; return its folder. Skip the test if it cannot be made here."""
    missing = [each for each in TOOLS if shutil.which(each) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not on the PATH")
    done = subprocess.run(
        [sys.executable, repository_root / "bundle" / "release.py", *options, target],
        capture_output=True,
        text=True,
        check=False,
    )
    if "make the bundle on a machine with glibc" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    left_out = done.stderr.splitlines()
    assert all(line.startswith(SKIPPED) for line in left_out if line.startswith("release:"))
    return target


def only(release: Path, pattern: str) -> Path:
    """The file of a pattern; skip the test if it cannot be made here."""
    found = list(release.glob(pattern))
    if not found and ("aarch64" in pattern or "spark" in pattern):
        pytest.skip(f"{pattern} cannot be made here")
    (path,) = found
    return path
