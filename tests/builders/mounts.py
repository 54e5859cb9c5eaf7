"""File systems that tests mount, if they have the permission."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(*args: str, at: Path) -> Iterator[None]:
    """Mount at a directory with ``mount ARGS``; skip the test without the permission."""
    try:
        mount = subprocess.run(["mount", *args, str(at)], capture_output=True, check=False)
        is_mounted = mount.returncode == 0
    except FileNotFoundError:
        is_mounted = False
    if not is_mounted:
        pytest.skip("only root can mount")
    try:
        yield
    finally:
        subprocess.run(["umount", str(at)], check=True)
