"""``docs/backup.md``: a repository is read with the programs of any system, as the page says."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from builders.in_process import run_kdump
from builders.two_disks import write_two_disks

PAGE: Final = Path(__file__).parents[2] / "docs" / "backup.md"
LOG: Final = f"{0:020d}.log"


@pytest.fixture
def folder(quick_path: Path) -> Path:
    """Return the directory around the log directory ``d1`` and its repository."""
    write_two_disks(quick_path / "node")
    folder = quick_path / "node"
    assert run_kdump(["backup", "create", "repository", "d1"], folder).exit_status == 0
    return folder


def recipe(beginning: str) -> str:
    """Return the block of the page that begins so."""
    blocks = PAGE.read_text(encoding="utf-8").split("\n\n")
    return next(each for each in blocks if each.strip().startswith(beginning))


def run(command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    given = [f"{name}={value}" for name, value in variables.items()]
    return subprocess.run(
        ["env", *given, "bash", "-c", command], cwd=folder, capture_output=True, check=False
    )


def test_all_pieces_are_checked_without_kdump(folder: Path) -> None:
    check = recipe("cd repository/data")
    assert run(check, folder).returncode == 0
    piece = next(path for path in (folder / "repository/data").rglob("*") if path.is_file())
    piece.chmod(0o644)
    piece.write_bytes(b"other bytes")
    done = run(check, folder)
    assert done.returncode == 1
    assert piece.name.encode() in done.stdout


@pytest.mark.skipif(shutil.which("jq") is None, reason="no jq")
def test_a_file_is_read_without_kdump(folder: Path) -> None:
    (folder / "d1/users-0" / LOG).write_bytes(content := bytes(range(256)) * 64)
    run_kdump(["backup", "create", "repository", "d1"], folder)
    repository = folder / "repository"
    snapshot = json.loads(max((repository / "snapshots").iterdir()).read_bytes())
    root = snapshot["log_dirs"][0]["root"]["sha256"]
    described = json.loads((repository / "data" / root[:2] / root).read_bytes())
    tree = next(each["sha256"] for each in described["directories"] if each["name"] == "users-0")
    done = run(recipe("jq -r"), repository, tree=tree)
    assert (done.returncode, done.stdout) == (0, content)
