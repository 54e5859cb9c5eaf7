"""Directories of kdump's own that only this user can write to, such as its cache."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_MOST_LINKS: Final = 40


def make_private_folder(folder: Path) -> bool:
    """Create a directory if it is missing; returns whether only this user can write to it.

    Raises:
        OSError: it cannot be created.
    """
    there = folder
    while not there.exists():
        there = there.parent
    # Otherwise another user could make root create directories anywhere.
    if not is_private(there):
        return False
    for missing in reversed([folder, *folder.parents]):
        if not missing.exists():
            missing.mkdir(mode=0o700, exist_ok=True)
    return is_private(folder)


def is_private(path: Path) -> bool:
    """Whether a file or directory exists, and only root and this user can change or replace it.

    Checks every directory and link on the path. A directory that others can write to is accepted
    if it has the sticky bit, as ``/tmp`` has: they cannot replace files of others there.
    """
    remaining = list(reversed(Path(os.path.abspath(path)).parts))  # noqa: PTH100 - follows no link
    current = Path(remaining.pop())
    links = 0
    try:
        if not _belongs_here(current.lstat(), is_last=not remaining):
            return False
        while remaining:
            name = remaining.pop()
            if name == "..":
                current = current.parent
                continue
            status = (current / name).lstat()
            if not _belongs_here(status, is_last=not remaining):
                return False
            if not stat.S_ISLNK(status.st_mode):
                current /= name
                continue
            links += 1
            if links > _MOST_LINKS:
                return False
            target = (current / name).readlink()
            remaining += [part for part in reversed(target.parts) if part != target.anchor]
            if target.is_absolute():
                current = Path(target.anchor)
    except (OSError, ValueError):
        return False
    return True


def _belongs_here(status: os.stat_result, *, is_last: bool) -> bool:
    """Whether only root and this user can write to a file, or replace entries of a directory."""
    if status.st_uid not in (0, os.geteuid()):
        return False
    if stat.S_ISLNK(status.st_mode):
        return True
    is_shared = bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    is_sticky = stat.S_ISDIR(status.st_mode) and bool(status.st_mode & stat.S_ISVTX)
    if is_last:
        return not is_shared and (stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode))
    return not is_shared or is_sticky


def cache_folder(environment: Mapping[str, str]) -> Path | None:
    """The directory of kdump in the user's cache; None if the user has no home directory."""
    return xdg_folder(environment, "XDG_CACHE_HOME", ".cache")


def xdg_folder(environment: Mapping[str, str], variable: str, below_home: str) -> Path | None:
    """The directory of kdump where a variable says, else below the user's home directory."""
    configured = environment.get(variable, "")
    # The XDG Base Directory Specification says to ignore relative paths.
    if configured.startswith("/"):
        return Path(configured) / "kdump"
    home = environment.get("HOME", "")
    return Path(home) / below_home / "kdump" if home.startswith("/") else None
