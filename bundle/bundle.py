"""Make the bundle: kdump with its own Python and C library, for machines that have neither.

``./dev bundle`` runs this with the Python of ``.venv``: the bundle has what is installed there, so
it is what the tests ran with. It needs no network.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Final

from archive import write_archive
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
from standard_library import (
    compilation_module,
    interpreter,
    licence,
    standard_library,
    version_folder,
)
from wheels import APACHE_PARTS, distributions, licences, package_files

ROOT: Final = Path(__file__).resolve().parents[1]
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


def make_bundle(folder: Path, launcher: Path) -> None:
    """Fill an empty folder with the bundle.

    Raises:
        BundleError: something that it needs is missing here.
    """
    libraries = folder / "lib" / "kdump"
    packages = distributions()
    _copy_python(libraries, packages)
    for name in ("bin/kdump", "lib/kdump/python"):
        _copy(launcher, folder / name)
    programs = _programs(libraries)
    # The launcher needs no library.
    programs.remove(libraries / "python")
    loader, shared = loader_and_libraries(programs, libraries)
    kernel = oldest_kernel(shared["libc.so.6"])
    # The name of the loader is that of the process.
    _copy(loader, libraries / "kdump")
    ignore_preloaded(libraries / "kdump")
    for name, path in shared.items():
        _copy(path, libraries / name)
    for path in (*programs, *(libraries / name for name in shared)):
        if not _is_rearranged(path):
            strip_symbols(path)
    _compile(libraries / "lib")
    _write_manual(folder)
    _write_completions(folder)
    contents = [
        *_system_licences(folder, {loader, *shared.values()}),
        *_package_licences(folder, packages),
    ]
    about = README.format(
        version=kdump_version(),
        machine=platform.machine(),
        python=platform.python_version(),
        kernel=kernel,
    )
    (folder / "README").write_text(about + "".join(f"  {each}\n" for each in sorted(contents)))


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    is_program = os.access(source, os.X_OK) or ".so" in source.name
    target.chmod(0o755 if is_program else 0o644)


def _copy_python(libraries: Path, packages: Iterable[Distribution]) -> None:
    _copy(interpreter(), libraries / "python.bin")
    standard = libraries / "lib" / version_folder()
    for name, path in standard_library():
        _copy(path, standard / name)
    # How this machine compiled Python is of no use on another; the module has to be there.
    (standard / f"{compilation_module()}.py").write_text("build_time_vars = {}\n")
    _copy(Path(__file__).with_name("sitecustomize.py"), standard / "sitecustomize.py")
    for package in packages:
        for name, path in package_files(package):
            _copy(path, standard / "site-packages" / name)
    shutil.copytree(
        ROOT / "kdump",
        standard / "site-packages" / "kdump",
        ignore=shutil.ignore_patterns("__pycache__", "*.c"),
    )


def _programs(folder: Path) -> list[Path]:
    """The programs and shared libraries in a folder."""
    return [path for path in sorted(folder.rglob("*")) if _is_program(path)]


def _is_program(path: Path) -> bool:
    if not path.is_file() or path.suffix == ".py":
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _is_rearranged(path: Path) -> bool:
    """Whether a tool that packs wheels with their libraries has moved parts of this one.

    Such tools leave a folder ``PACKAGE.libs``. To strip what they moved may damage it.
    """
    return any(
        each.suffix == ".libs" or each.parent.joinpath(f"{each.name}.libs").exists()
        for each in path.parents
    )


def _compile(folder: Path) -> None:
    """Compile all modules, so that they are never compared with their sources nor written."""
    output_of(
        # Variables would change where compiled modules go, and the order of sets in them.
        *("env", "-i", "PYTHONHASHSEED=0", sys.executable, "-m", "compileall", "-q", "-j1"),
        *("--invalidation-mode", "unchecked-hash", "-s", folder, folder),
    )


def _write_manual(folder: Path) -> None:
    sys.path.append(str(ROOT))
    from hatch_build import roff_of

    pages = folder / "share" / "man" / "man1"
    pages.mkdir(parents=True)
    for page in sorted((ROOT / "man").glob("*.rst")):
        (pages / f"{page.stem}.1").write_text(roff_of(page), encoding="utf-8")


def _write_completions(folder: Path) -> None:
    for shell, name in SHELLS.items():
        script = output_of(folder / "bin" / "kdump", "completion", shell)
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script, encoding="utf-8")


def _system_licences(folder: Path, files: Iterable[Path]) -> set[str]:
    """Collect the licences of Python and of this machine's libraries; return what they are of."""
    own = licence()
    _copy(own, folder / "share" / "licenses" / "python" / own.name)
    contents = {f"Python {platform.python_version()}"}
    prefix = interpreter().parents[1]
    found: dict[str, SystemPackage] = {}
    for path in sorted(files):
        # The library of Python, where it is not the distribution's.
        if not (prefix != Path("/usr") and path.resolve().is_relative_to(prefix)):
            package = system_package(path)
            found[package.name] = package
    for package in found.values():
        contents.add(f"{package.name}, from the source package {package.source}")
        for each in package.licences:
            _copy(each, folder / "share" / "licenses" / package.name / each.name)
    return contents


def _package_licences(folder: Path, packages: Iterable[Distribution]) -> set[str]:
    """Collect the licences of kdump and of Python packages; return what they are of."""
    _copy(ROOT / "LICENSE", folder / "share" / "licenses" / "kdump" / "LICENSE")
    contents = {f"kdump {kdump_version()}"}
    for package in packages:
        contents.add(f"{package.name} {package.version}, from PyPI")
        for name, path in licences(package):
            _copy(path, folder / "share" / "licenses" / package.name / name)
        if package.name in APACHE_PARTS:
            name = f"LICENSE-{APACHE_PARTS[package.name]}"
            _copy(ROOT / "LICENSE", folder / "share" / "licenses" / package.name / name)
    return contents


def kdump_version() -> str:
    """Return the version of kdump in this clone."""
    sys.path.append(str(ROOT))
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
    where = "where to write the archive (default: build/bundle)"
    parser.add_argument("folder", nargs="?", type=Path, help=where)
    target = (parser.parse_args().folder or ROOT / "build" / "bundle").absolute()
    target.mkdir(parents=True, exist_ok=True)
    name = f"kdump-{kdump_version()}-linux-{platform.machine()}"
    try:
        require_c_library()
        with tempfile.TemporaryDirectory(prefix="unfinished-", dir=target) as made:
            launcher = Path(made) / "launcher"
            source = Path(__file__).with_name("launcher.c")
            output_of("cc", *LAUNCHER_OPTIONS, "-o", launcher, source)
            folder = Path(made) / name
            folder.mkdir()
            make_bundle(folder, launcher)
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            archive = Path(made) / f"{name}.tar.gz"
            checksum = write_archive(folder, archive, commit_time_s())
            for path in (archive, checksum):
                path.replace(target / path.name)
    except PackageNotFoundError as missing:
        sys.exit(f"bundle: {missing.name} is not installed in .venv: add it to the extra 'test'")
    except (BundleError, ValueError) as problem:
        sys.exit(f"bundle: {problem}")
    packed = (target / archive.name).stat().st_size
    print(f"{target / archive.name}: {packed / 1e6:.0f} MB, unpacked {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
