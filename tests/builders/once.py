"""Directories that are created once and kept in ``build/``, for any number of processes."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path


def made_once(target: Path, fingerprint: str, make: Callable[[Path], None]) -> Path:
    """Return the directory ``target``, and create it with ``make`` if it does not exist.

    ``make`` is called with an empty directory that becomes ``target`` when it returns, so that
    ``target`` is complete or absent. It is created again if ``fingerprint`` (any text that changes
    with the input) has changed. Other processes wait meanwhile.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    stamp = target.with_name(target.name + ".made")
    with target.with_name(target.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.is_dir() and stamp.exists() and stamp.read_text() == fingerprint:
            return target
        stamp.unlink(missing_ok=True)
        unfinished = target.with_name(target.name + ".unfinished")
        for leftover in (unfinished, target):
            if leftover.exists():
                shutil.rmtree(leftover)
        unfinished.mkdir()
        make(unfinished)
        unfinished.rename(target)
        stamp.write_text(fingerprint)
    return target
