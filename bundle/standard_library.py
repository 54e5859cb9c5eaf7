"""What the bundle has of Python's standard library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

LEFT_OUT: Final = frozenset(
    {
        "__pycache__",
        "curses",
        "dbm",
        "dist-packages",
        "distutils",
        "ensurepip",
        "idlelib",
        "lib2to3",
        "pydoc_data",
        "site-packages",
        "test",
        "tests",
        "tkinter",
        "turtle.py",
        "turtledemo",
        "venv",
    }
)
"""Folders and modules that neither kdump nor its libraries import."""

EXTENSIONS_LEFT_OUT: Final = (
    # The licence of readline is the GPL.
    "readline",
    "_crypt",
    "_curses",
    "_dbm",
    "_gdbm",
    "_test",
    "_tkinter",
    "_uuid",
    "_xx",
    "nis",
    "ossaudiodev",
    "xx",
)
"""How the names of extension modules begin that need libraries which nothing here uses."""


def standard_library(root: Path) -> Iterator[tuple[str, Path]]:
    """The files of the standard library that are needed, by their paths below its folder."""
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if path.is_file() and _is_needed(relative):
            yield str(relative), path


def _is_needed(relative: Path) -> bool:
    first = relative.parts[0]
    if LEFT_OUT.intersection(relative.parts) or first.startswith(("config-", "_sysconfigdata")):
        return False
    if first == "lib-dynload":
        return not relative.name.startswith(EXTENSIONS_LEFT_OUT)
    return relative.suffix == ".py"
