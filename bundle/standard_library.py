"""What the bundle has of Python itself: the interpreter and its standard library."""

from __future__ import annotations

import sys
import sysconfig
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


def version_folder() -> str:
    """The name of the folder of the standard library, such as ``python3.11``."""
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def interpreter() -> Path:
    """The program of the Python that runs this one, outside of any virtual environment."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def compilation_module() -> str:
    """The name of the module that has how Python was compiled, with paths of this machine."""
    return sysconfig._get_sysconfigdata_name()  # type: ignore[attr-defined,no-any-return]


def licence() -> Path:
    """The licence of Python, with those of what is compiled into it."""
    return Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"


def standard_library() -> Iterator[tuple[str, Path]]:
    """The files of the standard library, by their paths below its folder."""
    root = Path(sysconfig.get_path("stdlib"))
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
