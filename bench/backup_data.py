"""Make repositories of backups."""

from __future__ import annotations

import subprocess
from pathlib import Path

from data import finished
from measuring import kdump


def back_up(name: str, source: str, folder: Path) -> Path:
    """Write the repository ``FOLDER/NAME`` unless it exists, with one snapshot of a source."""
    repository = folder / name
    if not repository.exists():
        with finished(repository) as unfinished:
            words = [*kdump(), "backup", "create", str(unfinished), str(folder / source)]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return repository
