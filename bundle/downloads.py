"""Download what a bundle for another kind of machine is made of: packages of Debian, and wheels.

``apt-get`` takes the packages from where this machine has its own, and checks their signatures;
``pip`` takes the wheels, in the versions that are installed here. Both are kept with their
SHA-256, which is compared whenever they are used: from then on no network is needed, and the same
downloads always make the same bundle. To have newer ones, delete the folder.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from archive import checksum_line
from shared_libraries import OLDEST_C_LIBRARY, BundleError, output_of
from spark import JAVA
from system import ARCHITECTURES, System, this_system, version_folder
from wheels import distributions

CHECKSUMS: Final = "SHA256SUMS"
_REQUEST: Final = "REQUEST"
"""The file that says what was asked for."""
_NEEDED: Final = (
    *("{python}-minimal", "lib{python}-minimal", "lib{python}-stdlib"),
    # The licences that others refer to.
    "base-files",
    # Of the image with Spark.
    "coreutils",
    JAVA,
)
_KEYRING: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
_OLDEST_TAG: Final = 17
"""The oldest glibc 2 that wheels are made for: manylinux2014."""


def other_system(machine: str, downloads: Path, work: Path) -> System:
    """Unpack what a bundle for another kind of machine is made of; download what is missing.

    Args:
        machine: as ``uname -m`` names it.
        downloads: the folder that keeps what was downloaded.
        work: an empty folder, which the result refers to.

    Raises:
        BundleError: something cannot be downloaded, or is not what was downloaded before.
    """
    packages, wheels = _downloaded(machine, downloads)
    root, site_packages = work / "root", work / "site-packages"
    _unpack_packages(packages.glob("*.deb"), root)
    _pip(
        *("install", "--no-index", "--no-deps", "--no-compile", "--target", str(site_packages)),
        *_tags(machine),
        *sorted(map(str, wheels.glob("*.whl"))),
    )
    program = f"{version_folder()}-minimal"
    admin = f"--admindir={root / 'var/lib/dpkg'}"
    version = output_of("dpkg-query", admin, "-W", "-f=${Version}", program)
    return System(
        machine=machine,
        root=root,
        interpreter=root / "usr" / "bin" / version_folder(),
        standard_library=root / "usr" / "lib" / version_folder(),
        site_packages=(str(site_packages),),
        python_version=version.partition("-")[0],
    )


def checksums(machine: str, downloads: Path) -> str:
    """The lines of all downloaded files for a machine, as ``sha256sum`` writes them."""
    folders = (downloads / machine / name for name in ("packages", "wheels"))
    return "".join((folder / CHECKSUMS).read_text(encoding="utf-8") for folder in folders)


def _downloaded(machine: str, downloads: Path) -> tuple[Path, Path]:
    """The folders of packages and of wheels."""
    packages = [name.format(python=version_folder()) for name in _NEEDED]
    wheels = sorted(
        f"{each.name}=={each.version}"
        for each in distributions(this_system().site_packages, machine)
    )
    return (
        _kept(downloads / machine / "packages", packages, lambda to: _get(machine, packages, to)),
        _kept(
            downloads / machine / "wheels",
            wheels,
            lambda to: _pip(
                *("download", "--no-deps", "--dest", str(to), *_tags(machine), *wheels),
            ),
        ),
    )


def _kept(folder: Path, request: list[str], download: Callable[[Path], None]) -> Path:
    """Return a folder with what is asked for, downloaded if it was not before.

    Raises:
        BundleError: a file in it has changed.
    """
    asked = "".join(f"{each}\n" for each in request)
    listed = folder / CHECKSUMS
    if not listed.exists() or (folder / _REQUEST).read_text(encoding="utf-8") != asked:
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        download(unfinished)
        (unfinished / _REQUEST).write_text(asked, encoding="utf-8")
        (unfinished / CHECKSUMS).write_text(_listed(unfinished), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
    if _listed(folder) != listed.read_text(encoding="utf-8"):
        raise BundleError(
            f"{folder}: a file is not what was downloaded; delete the folder to download again"
        )
    return folder


def _listed(folder: Path) -> str:
    files = (each for each in folder.iterdir() if each.name not in {CHECKSUMS, _REQUEST})
    return "".join(map(checksum_line, sorted(files)))


def _tags(machine: str) -> list[str]:
    """Options of pip that choose wheels for another machine."""
    versions = range(_OLDEST_TAG, OLDEST_C_LIBRARY[1] + 1)
    platforms = [f"manylinux2014_{machine}", *(f"manylinux_2_{at}_{machine}" for at in versions)]
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return [
        *("--only-binary=:all:", "--python-version", python),
        *(word for each in platforms for word in ("--platform", each)),
    ]


def _pip(command: str, *words: str) -> None:
    pip = (sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check")
    output_of(*pip, "--retries", "1", "--timeout", "15", *words)


def _get(machine: str, packages: list[str], target: Path) -> None:
    """Download packages of Debian, and those that they depend on."""
    if platform.freedesktop_os_release().get("ID") != "debian":
        raise BundleError(f"a bundle for {machine} is made of Debian's packages, on Debian")
    state = target / "apt"
    for name in ("state/lists/partial", "cache/archives/partial"):
        (state / name).mkdir(parents=True)
    sources = state / "sources.list"
    sources.write_text(_sources(), encoding="utf-8")
    (state / "status").touch()
    architecture = ARCHITECTURES[machine]
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "",
        "Acquire::http::Timeout": "15",
        "Acquire::https::Timeout": "15",
        "Acquire::Retries": "1",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
        "Acquire::Languages": "none",
        "Dir::Cache": state / "cache",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State": state / "state",
        "Dir::State::status": state / "status",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    output_of("apt-get", *options, "--quiet", "update", "--error-on=any")
    # Later versions of Debian do not have it; only the image with Spark needs it.
    found = [each for each in packages if each != JAVA or _is_known(each, options)]
    output_of("apt-get", *options, "--quiet", "--yes", "--download-only", "install", *found)
    for package in sorted((state / "cache" / "archives").glob("*.deb")):
        package.rename(target / package.name)
    shutil.rmtree(state)


def _is_known(package: str, options: list[str]) -> bool:
    """Whether the distribution has a package; the lists of packages were downloaded before."""
    # It succeeds, and prints nothing, for packages that others only refer to.
    return output_of("apt-cache", *options, "madison", package).strip() != ""


def _sources() -> str:
    """From where this machine has the packages of its distribution, with security updates."""
    codename = platform.freedesktop_os_release()["VERSION_CODENAME"]
    form = "$(SITE) $(RELEASE) $(COMPONENT)"
    known = output_of("apt-get", "indextargets", "--format", form, "Created-By: Packages")
    wanted = {(codename, "main"), (f"{codename}-security", "main")}
    lines = [
        f"deb [signed-by={_KEYRING}] {line}\n"
        for line in sorted(set(known.splitlines()))
        if tuple(line.split()[1:]) in wanted
    ]
    if len(lines) < len(wanted):
        raise BundleError(f"the sources of apt have no main part of {codename} and its security")
    return "".join(lines)


def _unpack_packages(packages: Iterable[Path], root: Path) -> None:
    """Unpack packages of Debian into a folder, with the lists in which dpkg finds owners."""
    admin = root / "var" / "lib" / "dpkg"
    (admin / "info").mkdir(parents=True)
    (admin / "updates").mkdir()
    (admin / "info" / "format").write_text("1\n")
    status = []
    for package in sorted(packages):
        fields = output_of("dpkg-deb", "--field", package)
        name = output_of("dpkg-deb", "--show", "--showformat=${Package}", package)
        if "\nMulti-Arch: same\n" in fields:
            name += output_of("dpkg-deb", "--show", "--showformat=:${Architecture}", package)
        listed = subprocess.run(
            ["dpkg-deb", "--vextract", package, root], capture_output=True, text=True, check=False
        )
        if listed.returncode:
            raise BundleError(f"{package}: {listed.stderr.strip()}")
        names = [line.removeprefix(".").rstrip("/") or "/." for line in listed.stdout.splitlines()]
        (admin / "info" / f"{name}.list").write_text("".join(f"{each}\n" for each in names))
        status.append(f"Status: install ok installed\n{fields}\n")
    (admin / "status").write_text("".join(status))
