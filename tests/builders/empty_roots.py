"""Run programs where a folder is all there is, as a user of a namespace of its own."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def require_namespaces() -> None:
    """Skip the test where a user may not make namespaces."""
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not on the PATH")
    probe = subprocess.run(
        ["unshare", "--user", "--map-user=1000", "--net", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode:
        pytest.skip(f"users may not make namespaces here: {probe.stderr.strip()}")


def in_empty_root(
    user: str, root: Path, *words: str, cwd: str = "/"
) -> subprocess.CompletedProcess[str]:
    """Run a program as a user of a new namespace, where ``root`` is all there is."""
    command = ["unshare", "--user", f"--map-user={user}", f"--map-group={user}", "--net"]
    return subprocess.run(
        [*command, f"--root={root}", f"--wd={cwd}", *words],
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
