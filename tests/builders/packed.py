"""Log directories in archives."""

from __future__ import annotations

import subprocess
from pathlib import Path


def pack(directory: Path, archive: Path, archive_format: str = "pax") -> str:
    """Pack a directory with ``tar``; returns how kdump's commands name its root."""
    options = [f"--format={archive_format}", "--numeric-owner", "-C", str(directory)]
    subprocess.run(["tar", *options, "-cf", str(archive), "."], check=True)
    return f"{archive}!"
