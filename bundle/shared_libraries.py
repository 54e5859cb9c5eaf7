"""The shared libraries of this machine that the bundle's programs need, the C library included."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

OLDEST_C_LIBRARY: Final = (2, 35)
"""The loader of older ones cannot pass on the name of the program."""

_FOUND: Final = re.compile(r"^\s*(\S+) => (/\S.*) \(0x[0-9a-f]+\)$", re.MULTILINE)
_MISSING: Final = re.compile(r"^\s*(\S+) => not found$", re.MULTILINE)
_LOADER: Final = re.compile(r"^\s*(/\S*/ld-linux\S*) \(0x[0-9a-f]+\)$", re.MULTILINE)
_COMMON_LICENCE: Final = re.compile(r"/usr/share/common-licenses/([A-Za-z0-9.+-]*[A-Za-z0-9])")
_KERNEL: Final = re.compile(r"OS: Linux, ABI: ([\d.]+)")


class BundleError(Exception):
    """The bundle cannot be made here; with a sentence."""


@dataclass(frozen=True, slots=True)
class SystemPackage:
    """A package of this machine's distribution.

    Attributes:
        name: of the package.
        source: name and version of its source.
        licences: files with its licences.
    """

    name: str
    source: str
    licences: tuple[Path, ...]


def output_of(*command: str | Path) -> str:
    """Run a program, and return what it prints.

    Raises:
        BundleError: it is missing, or fails.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise BundleError(f"{command[0]} is not on the PATH: install it") from None
    if done.returncode:
        reason = (done.stderr + done.stdout).strip() or f"exit status {done.returncode}"
        raise BundleError(f"{' '.join(map(str, command))}: {reason}")
    return done.stdout


def require_c_library() -> None:
    """Refuse to make a bundle with another C library than glibc, or an old one.

    Raises:
        BundleError: this machine has such a one.
    """
    said = output_of("getconf", "GNU_LIBC_VERSION").split()
    version = tuple(int(part) for part in said[1].split(".")) if said[:1] == ["glibc"] else (0,)
    if version < OLDEST_C_LIBRARY:
        wanted = ".".join(map(str, OLDEST_C_LIBRARY))
        raise BundleError(
            f"make the bundle on a machine with glibc {wanted} or later (Debian 12, Ubuntu 22.04);"
            " it runs on older ones too"
        )


def loader_and_libraries(programs: Iterable[Path], own: Path) -> tuple[Path, dict[str, Path]]:
    """The dynamic loader, and all shared libraries that programs need of this machine.

    Args:
        programs: programs and libraries.
        own: libraries in this folder come with those that need them.

    Raises:
        BundleError: a library is missing.
    """
    loader: Path | None = None
    found: dict[str, Path] = {}
    for program in programs:
        said = output_of("ldd", program)
        missing = _MISSING.search(said)
        if missing:
            raise BundleError(f"{program} needs {missing[1]}, which is not installed")
        for name, path in _FOUND.findall(said):
            if not Path(path).is_relative_to(own):
                found[name] = Path(path)
        if match := _LOADER.search(said):
            loader = Path(match[1])
    if loader is None:
        raise BundleError("Python here is not linked dynamically with glibc")
    found.pop(loader.name, None)
    return loader, found


def ignore_preloaded(loader: Path) -> None:
    """Change a copy of the loader so that it ignores ``/etc/ld.so.preload``.

    The libraries named there are for the host's C library. With another, such a library can end
    every program.
    """
    content = loader.read_bytes()
    # Nobody can create a file in /proc.
    loader.write_bytes(content.replace(b"/etc/ld.so.preload\0", b"/proc/no.preloaded\0"))


def oldest_kernel(c_library: Path) -> str:
    """The oldest version of Linux on which a C library runs, as it is noted in it."""
    match = _KERNEL.search(output_of("readelf", "-n", c_library))
    if match is None:
        raise BundleError(f"{c_library} does not say which kernel it needs")
    return match[1]


def strip_symbols(path: Path) -> None:
    """Remove what only linkers and debuggers read from a program or library."""
    if ".symtab" in output_of("readelf", "-SW", path):
        output_of("strip", "--strip-unneeded", "--remove-section=.comment", path)


def system_package(path: Path) -> SystemPackage:
    """Find the package that a file of this machine belongs to.

    Raises:
        BundleError: the file belongs to none, or its licence is not installed.
    """
    if shutil.which("dpkg-query"):
        return _debian_package(path)
    if shutil.which("rpm"):
        return _rpm_package(path)
    raise BundleError("neither dpkg nor rpm is here: the licences of libraries are not known")


def _debian_package(path: Path) -> SystemPackage:
    # With /usr merged, packages still list their files in /lib.
    names = {str(path.resolve()), str(path.resolve()).removeprefix("/usr")}
    owners = [_owner(name) for name in sorted(names)]
    owner = next((each for each in owners if each), None)
    if owner is None:
        raise BundleError(f"{path} belongs to no package: its licence is not known")
    source = output_of("dpkg-query", "-W", "-f=${source:Package} ${source:Version}", owner)
    copyright_file = Path("/usr/share/doc") / owner.partition(":")[0] / "copyright"
    if not copyright_file.exists():
        raise BundleError(f"{copyright_file} is missing: reinstall {owner} with documentation")
    text = copyright_file.read_text(encoding="utf-8", errors="replace")
    common = [Path("/usr/share/common-licenses") / name for name in _COMMON_LICENCE.findall(text)]
    present = [each for each in dict.fromkeys(common) if each.exists()]
    return SystemPackage(owner.partition(":")[0], source, (copyright_file, *present))


def _owner(name: str) -> str | None:
    done = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True, check=False)
    return done.stdout.partition(": ")[0].partition(",")[0] if done.returncode == 0 else None


def _rpm_package(path: Path) -> SystemPackage:
    form = "%{NAME} %{SOURCERPM}"
    name, source = output_of("rpm", "-qf", "--qf", form, path.resolve()).split(maxsplit=1)
    listed = output_of("rpm", "-q", "--licensefiles", name).splitlines()
    found = tuple(Path(each) for each in listed if Path(each).is_file())
    if not found:
        raise BundleError(
            f"the licence of {name} is not installed: reinstall it with documentation"
        )
    return SystemPackage(name, source, found)
