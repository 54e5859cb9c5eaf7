"""Check that there is space for the data of cases."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from case import Data


def check_space(needed: Sequence[Data], copies_gb: float, folder: Path) -> str:
    """Say how much space the cases need.

    Raises:
        SystemExit: there is less.
    """
    sizes: dict[str, float] = {}
    for each in needed:
        if not (folder / each.folder).exists():
            sizes[each.folder] = max(each.gb, sizes.get(each.folder, 0))
    missing_gb = sum(sizes.values())
    folder.mkdir(parents=True, exist_ok=True)
    free_gb = shutil.disk_usage(folder).free / 1e9
    said = f"{missing_gb + copies_gb:.0f} GB of disk needed in {folder}"
    if missing_gb + copies_gb > free_gb:
        raise SystemExit(f"{said}, but {free_gb:.0f} GB are free; choose fewer cases with --only")
    return said
