"""Copy files into a bundle or an image, and compile modules in it."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from shared_libraries import output_of


def copy(source: Path, target: Path) -> None:
    """Copy a file; what can be executed or is a library stays so for all users."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    is_executed = os.access(source, os.X_OK) or ".so" in source.name
    target.chmod(0o755 if is_executed else 0o644)


def programs_in(folder: Path) -> list[Path]:
    """The programs and shared libraries in a folder."""
    return [path for path in sorted(folder.rglob("*")) if is_program(path)]


def is_program(path: Path) -> bool:
    """Whether a file is a program or a shared library."""
    if not path.is_file() or path.suffix == ".py":
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def compile_modules(folder: Path) -> None:
    """Compile all modules, so that they are never compared with their sources nor written."""
    output_of(
        # Variables would change where compiled modules go, and the order of sets in them.
        *("env", "-i", "PYTHONHASHSEED=0", sys.executable, "-m", "compileall", "-q", "-j1"),
        *("--invalidation-mode", "unchecked-hash", "-s", folder, folder),
    )
