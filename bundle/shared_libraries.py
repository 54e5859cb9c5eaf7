"""The shared libraries that the bundle's programs need of a machine, the C library included."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import InterpSegment

from system import System

OLDEST_C_LIBRARY: Final = (2, 35)
"""The loader of older ones cannot pass on the name of the program."""

_ORIGIN: Final = re.compile(r"\$(ORIGIN|\{ORIGIN\})")
_COMMON_LICENCE: Final = re.compile(r"/usr/share/common-licenses/([A-Za-z0-9.+-]*[A-Za-z0-9])")
_KERNEL: Final = re.compile(r"OS: Linux, ABI: ([\d.]+)")


class BundleError(Exception):
    """The bundle cannot be made here; with a sentence."""


@dataclass(frozen=True, slots=True)
class SystemPackage:
    """A package of the distribution on a machine.

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


def loader_and_libraries(
    programs: Iterable[Path], own: Path, system: System, loaded: Sequence[Path] = ()
) -> tuple[Path, dict[str, Path]]:
    """The dynamic loader, and all shared libraries that programs need of a machine.

    Nothing is executed, so the machine may be of another kind.

    Args:
        programs: programs and libraries; one of the programs names the loader.
        own: libraries in this folder come with those that need them.
        loaded: folders of libraries that a program has loaded before it loads others.

    Raises:
        BundleError: a library is missing.
    """
    folders = [
        system.root / each
        for each in (
            *(f"lib/{system.triplet}", f"usr/lib/{system.triplet}"),
            *("lib64", "usr/lib64", "lib", "usr/lib"),
        )
    ]
    loader: Path | None = None
    found: dict[str, Path] = {}
    waiting = [(program, list(loaded)) for program in programs]
    while waiting:
        program, inherited = waiting.pop()
        linked = _linked(program)
        if linked.loader is not None:
            loader = system.root / linked.loader.lstrip("/")
        searched = [*linked.folders, *inherited]
        for name in linked.needed:
            path = _library(name, linked.machine, [*searched, *folders])
            if path is None:
                raise BundleError(f"{program} needs {name}, which is not installed")
            if name not in found and not path.is_relative_to(own):
                found[name] = path
                waiting.append((path, searched))
    if loader is None:
        raise BundleError("Python is not linked dynamically with glibc")
    found.pop(loader.name, None)
    return loader, found


@dataclass(frozen=True, slots=True)
class _Linked:
    """What a program or library says about how to load it.

    Attributes:
        machine: the kind of machine, as ELF names it.
        loader: the path of the dynamic loader; only programs have one.
        needed: names of libraries.
        folders: where to look for them first.
    """

    machine: str
    loader: str | None
    needed: list[str]
    folders: list[Path]


def _linked(path: Path) -> _Linked:
    loader: str | None = None
    needed: list[str] = []
    folders: list[Path] = []
    with path.open("rb") as file:
        elf = ELFFile(file)
        for segment in elf.iter_segments():
            if isinstance(segment, InterpSegment):
                loader = segment.get_interp_name()
            elif isinstance(segment, DynamicSegment):
                needed += _texts(segment, "needed")
                for text in (*_texts(segment, "rpath"), *_texts(segment, "runpath")):
                    folders += [
                        Path(_ORIGIN.sub(str(path.parent), each))
                        for each in text.split(":")
                        if each
                    ]
        return _Linked(elf["e_machine"], loader, needed, folders)


def _texts(segment: DynamicSegment, name: str) -> list[str]:
    return [getattr(tag, name) for tag in segment.iter_tags(f"DT_{name.upper()}")]


def _library(name: str, machine: str, folders: Iterable[Path]) -> Path | None:
    """The first library of a name that is for a kind of machine."""
    for folder in folders:
        path = folder / name
        if path.is_file():
            with path.open("rb") as file:
                if ELFFile(file)["e_machine"] == machine:
                    return path
    return None


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


def strip_symbols(path: Path, system: System) -> None:
    """Remove what only linkers and debuggers read from a program or library."""
    if ".symtab" in output_of("readelf", "-SW", path):
        options = ("--strip-unneeded", "--remove-section=.comment")
        output_of(system.tool("strip"), *options, path)


@cache
def system_package(path: Path, system: System) -> SystemPackage:
    """Find the package that a file of a machine belongs to.

    Raises:
        BundleError: the file belongs to none, or its licence is not installed.
    """
    if shutil.which("dpkg-query"):
        return _debian_package(path, system)
    if shutil.which("rpm"):
        return _rpm_package(path)
    raise BundleError("neither dpkg nor rpm is here: the licences of libraries are not known")


def _debian_package(path: Path, system: System) -> SystemPackage:
    # With /usr merged, packages still list their files in /lib.
    name = f"/{path.resolve().relative_to(system.root)}"
    owners = [_owner(each, system) for each in sorted({name, name.removeprefix("/usr")})]
    owner = next((each for each in owners if each), None)
    if owner is None:
        raise BundleError(f"{path} belongs to no package: its licence is not known")
    form = "${source:Package} ${source:Version}"
    source = output_of("dpkg-query", _admin(system), "-W", f"-f={form}", owner)
    shared = system.root / "usr" / "share"
    copyright_file = shared / "doc" / owner.partition(":")[0] / "copyright"
    if not copyright_file.exists():
        raise BundleError(f"{copyright_file} is missing: reinstall {owner} with documentation")
    text = copyright_file.read_text(encoding="utf-8", errors="replace")
    common = [shared / "common-licenses" / name for name in _COMMON_LICENCE.findall(text)]
    present = [each for each in dict.fromkeys(common) if each.exists()]
    return SystemPackage(owner.partition(":")[0], source, (copyright_file, *present))


def _owner(name: str, system: System) -> str | None:
    asked = ["dpkg-query", _admin(system), "-S", name]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.partition(": ")[0].partition(",")[0] if done.returncode == 0 else None


def _admin(system: System) -> str:
    return f"--admindir={system.root / 'var/lib/dpkg'}"


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
