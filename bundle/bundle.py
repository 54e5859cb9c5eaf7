"""Make the bundle: kdump with its own Python and C library, for machines that have neither.

``./dev bundle`` runs this with the Python of ``.venv``: the bundle has what is installed there, so
it is what the tests ran with. It needs no network. A bundle for another kind of machine has the
same versions of Python packages, and Python of this machine's distribution; both are downloaded.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Final

from archive import CompressedFiles, write_archive
from downloads import other_system
from files import compile_modules, copy, programs_in
from hatch_build import compile_library, roff_of
from shared_libraries import (
    BundleError,
    SystemPackage,
    ignore_preloaded,
    loader_and_libraries,
    oldest_kernel,
    output_of,
    require_c_library,
    strip_symbols,
    system_package,
)
from standard_library import standard_library
from system import ARCHITECTURES, System, this_system, version_folder
from wheels import APACHE_PARTS, distributions, licences, package_files

ROOT: Final = Path(__file__).resolve().parents[1]
DOWNLOADS: Final = ROOT / "build" / "downloads"
SHELLS: Final = {
    "bash": "share/bash-completion/completions/kdump",
    "fish": "share/fish/vendor_completions.d/kdump.fish",
    "zsh": "share/zsh/site-functions/_kdump",
}
LAUNCHER_OPTIONS: Final = (
    *("-Os", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-fno-builtin"),
    *("-fno-stack-protector", "-fno-asynchronous-unwind-tables"),
    *("-static", "-nostdlib", "-fno-pie", "-no-pie"),
    *("-s", "-Wl,--build-id=none", "-Wl,-z,noexecstack"),
)
README: Final = """\
kdump {version} for Linux {machine}

Unpack this archive anywhere, and run bin/kdump. Nothing else is needed: Python {python} and the C
library are in it. Runs on Linux {kernel} or later, whatever the distribution and its C library, as
any user, without a network, and from a file system that is mounted read-only, but not noexec.

  manual pages     man -M share/man kdump
  completion       eval "$(bin/kdump completion bash)"
  licences         share/licenses, one folder for each part
  SQL              'kdump query' needs Spark, which is not in it: pip install kafka-kdump

Contents. Symbols that only debuggers read were removed, and the loader of the C library ignores
/etc/ld.so.preload; nothing else was changed:

"""


@contextlib.contextmanager
def system_for(machine: str) -> Iterator[System]:
    """The machine that a bundle is made for; what was unpacked of it is deleted at the end.

    Args:
        machine: as ``uname -m`` names it.

    Raises:
        BundleError: it cannot be made here.
    """
    require_c_library()
    if machine == this_system().machine:
        yield this_system()
        return
    with tempfile.TemporaryDirectory(prefix="unpacked-") as work:
        yield other_system(machine, DOWNLOADS, Path(work).resolve())


def make_bundle(system: System, work: Path) -> Path:
    """Make the bundle for a machine as a folder in another; return it.

    Raises:
        BundleError: something that it needs is missing here.
    """
    launcher = work / f"launcher-{system.machine}"
    source = Path(__file__).with_name("launcher.c")
    output_of(system.tool("gcc"), *LAUNCHER_OPTIONS, "-o", launcher, source)
    folder = work / f"kdump-{kdump_version()}-linux-{system.machine}"
    folder.mkdir()
    _fill_bundle(folder, launcher, system)
    return folder


def write_bundle(system: System, target: Path) -> tuple[Path, int]:
    """Make the bundle for a machine as an archive in a folder, and its checksum beside it.

    Returns:
        the archive, and the size of what is in it.

    Raises:
        BundleError: something that it needs is missing here.
    """
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="unfinished-", dir=target) as made:
        folder = make_bundle(system, Path(made))
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        archive = Path(made) / f"{folder.name}.tar.gz"
        checksum = write_archive(folder, archive, commit_time_s(), CompressedFiles())
        for path in (archive, checksum):
            path.replace(target / path.name)
    return target / archive.name, size


def _fill_bundle(folder: Path, launcher: Path, system: System) -> None:
    """Fill an empty folder with the bundle."""
    libraries = folder / "lib" / "kdump"
    packages = distributions(system.site_packages, system.machine)
    _copy_python(libraries, packages, system)
    for name in ("bin/kdump", "lib/kdump/python"):
        copy(launcher, folder / name)
    programs = programs_in(libraries)
    # The launcher needs no library.
    programs.remove(libraries / "python")
    loader, shared = loader_and_libraries(programs, libraries, system)
    kernel = oldest_kernel(shared["libc.so.6"])
    # The name of the loader is that of the process.
    copy(loader, libraries / "kdump")
    ignore_preloaded(libraries / "kdump")
    for name, path in shared.items():
        copy(path, libraries / name)
    for path in (*programs, *(libraries / name for name in shared)):
        if not _is_rearranged(path):
            strip_symbols(path, system)
    compile_modules(libraries / "lib")
    _write_manual(folder)
    _write_completions(folder)
    contents = [
        *_system_licences(folder, {loader, *shared.values()}, system),
        *_package_licences(folder, packages),
    ]
    about = README.format(
        version=kdump_version(),
        machine=system.machine,
        python=system.python_version,
        kernel=kernel,
    )
    (folder / "README").write_text(about + "".join(f"  {each}\n" for each in sorted(contents)))


def _copy_python(libraries: Path, packages: Iterable[Distribution], system: System) -> None:
    copy(system.interpreter, libraries / "python.bin")
    standard = libraries / "lib" / version_folder()
    for name, path in standard_library(system.standard_library):
        copy(path, standard / name)
    # How Python was compiled is of no use on another machine; the module has to be there.
    for path in system.standard_library.glob("_sysconfigdata*.py"):
        (standard / path.name).write_text("build_time_vars = {}\n")
    copy(Path(__file__).with_name("sitecustomize.py"), standard / "sitecustomize.py")
    for package in packages:
        for name, path in package_files(package):
            copy(path, standard / "site-packages" / name)
    own = standard / "site-packages" / "kdump"
    shutil.copytree(ROOT / "kdump", own, ignore=shutil.ignore_patterns("__pycache__"))
    if not system.is_this:
        _compile_loops(own / "compiled", system)
    (own / "compiled" / "segments.c").unlink()


def _compile_loops(folder: Path, system: System) -> None:
    """Replace this machine's compiled loops by those for another."""
    if compile_library(folder, system.tool("gcc")) is None:
        raise BundleError(f"{system.tool('gcc')} is not on the PATH, or lacks its C library")


def _is_rearranged(path: Path) -> bool:
    """Whether a tool that packs wheels with their libraries has moved parts of this one.

    Such tools leave a folder ``PACKAGE.libs``. To strip what they moved may damage it.
    """
    return any(
        each.suffix == ".libs" or each.parent.joinpath(f"{each.name}.libs").exists()
        for each in path.parents
    )


def _write_manual(folder: Path) -> None:
    pages = folder / "share" / "man" / "man1"
    pages.mkdir(parents=True)
    for page in sorted((ROOT / "man").glob("*.rst")):
        (pages / f"{page.stem}.1").write_text(_roff(page), encoding="utf-8")


@cache
def _roff(page: Path) -> str:
    """A manual page; it is the same for all machines."""
    return roff_of(page)


@cache
def _completion(shell: str) -> str:
    """The completion of a shell, by this machine's kdump: another's does not run here."""
    return output_of(sys.executable, "-m", "kdump", "completion", shell)


def _write_completions(folder: Path) -> None:
    for shell, name in SHELLS.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_completion(shell), encoding="utf-8")


def _system_licences(folder: Path, files: Iterable[Path], system: System) -> set[str]:
    """Collect the licences of Python and of a machine's libraries; return what they are of."""
    own = system.standard_library / "LICENSE.txt"
    copy(own, folder / "share" / "licenses" / "python" / own.name)
    contents = {f"Python {system.python_version}"}
    found: dict[str, SystemPackage] = {}
    for path in sorted([system.interpreter, *files]):
        # The program and library of Python, where it is not the distribution's.
        if not is_of_own_python(path, system):
            package = system_package(path, system)
            found[package.name] = package
    for package in found.values():
        contents.add(f"{package.name}, from the source package {package.source}")
        for each in package.licences:
            copy(each, folder / "share" / "licenses" / package.name / each.name)
    return contents


def is_of_own_python(path: Path, system: System) -> bool:
    """Whether a file came with a Python that the distribution does not have."""
    prefix = system.interpreter.parents[1]
    return prefix != system.root / "usr" and path.resolve().is_relative_to(prefix)


def _package_licences(folder: Path, packages: Iterable[Distribution]) -> set[str]:
    """Collect the licences of kdump and of Python packages; return what they are of."""
    copy(ROOT / "LICENSE", folder / "share" / "licenses" / "kdump" / "LICENSE")
    contents = {f"kdump {kdump_version()}"}
    for package in packages:
        contents.add(f"{package.name} {package.version}, from PyPI")
        for name, path in licences(package):
            copy(path, folder / "share" / "licenses" / package.name / name)
        if package.name in APACHE_PARTS:
            name = f"LICENSE-{APACHE_PARTS[package.name]}"
            copy(ROOT / "LICENSE", folder / "share" / "licenses" / package.name / name)
    return contents


def kdump_version() -> str:
    """Return the version of kdump in this clone."""
    import kdump

    return kdump.__version__


def commit_time_s() -> int:
    """The time of all files: that of the commit, so that it always makes the same archive."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    asked = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 else 0


def main() -> None:
    """Write the archive and its checksum into the folder that is given."""
    purpose = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="./dev bundle", description=purpose)
    parser.add_argument(
        "--machine",
        choices=sorted(ARCHITECTURES),
        default=this_system().machine,
        help="the kind of machine to make it for (default: this one's)",
    )
    where = "where to write the archive (default: build/bundle)"
    parser.add_argument("folder", nargs="?", type=Path, help=where)
    given = parser.parse_args()
    target = (given.folder or ROOT / "build" / "bundle").absolute()
    try:
        with system_for(given.machine) as system:
            archive, size = write_bundle(system, target)
    except PackageNotFoundError as missing:
        sys.exit(f"bundle: {missing.name} is not installed in .venv: add it to the extra 'test'")
    except (BundleError, ValueError) as problem:
        sys.exit(f"bundle: {problem}")
    packed = archive.stat().st_size
    print(f"{archive}: {packed / 1e6:.0f} MB, unpacked {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
