"""The machine that a bundle is made for, and where its Python and libraries are on this one."""

from __future__ import annotations

import platform
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
"""Machines that a bundle can be made for, and what Debian and container images call them."""


@dataclass(frozen=True, slots=True)
class System:
    """A machine, and where its files are on this one.

    Attributes:
        machine: as ``uname -m`` names it.
        root: what is ``/`` on it.
        interpreter: its Python, outside of any virtual environment.
        standard_library: the folder of that.
        site_packages: the folders in which Python packages are installed for it.
        python_version: such as ``3.11.2``.
    """

    machine: str
    root: Path
    interpreter: Path
    standard_library: Path
    site_packages: tuple[str, ...]
    python_version: str

    @property
    def architecture(self) -> str:
        """What Debian and container images call the machine."""
        return ARCHITECTURES[self.machine]

    @property
    def is_this(self) -> bool:
        """Whether programs for it run here."""
        return self.root == Path("/")

    @property
    def triplet(self) -> str:
        """What Debian and compilers call it, such as ``aarch64-linux-gnu``."""
        return f"{self.machine}-linux-gnu"

    def tool(self, name: str) -> str:
        """The name of the compiler (``gcc``) or of a program of binutils for it."""
        if self.is_this:
            return "cc" if name == "gcc" else name
        return f"{self.triplet}-{name}"


def this_system() -> System:
    """Describe this machine, with the Python packages that this program can import."""
    return System(
        machine=platform.machine(),
        root=Path("/"),
        interpreter=Path(getattr(sys, "_base_executable", sys.executable)).resolve(),
        standard_library=Path(sysconfig.get_path("stdlib")),
        site_packages=tuple(sys.path),
        python_version=platform.python_version(),
    )


def version_folder() -> str:
    """The name of Python and of the folder of its standard library, such as ``python3.11``.

    That of this machine is that of all: its Python compiles the modules.
    """
    return f"python{sys.version_info.major}.{sys.version_info.minor}"
