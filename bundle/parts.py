"""The list of parts of an artefact, in the format of CycloneDX, from the files that are in it."""

from __future__ import annotations

import datetime as dt
import email.parser
import hashlib
import platform
import re
import tarfile
import tempfile
import uuid
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from shared_libraries import BundleError, loader_and_libraries, system_package
from wheels import distributions, package_files

_ELF: Final = b"\x7fELF"
_LOADER: Final = "kdump"
"""The name of the loader in the bundle."""
_LAUNCHERS: Final = frozenset({"bin/kdump", "lib/kdump/python"})
_SITE_PACKAGES: Final = re.compile(r"lib/kdump/lib/[^/]+/site-packages/")
_METADATA: Final = re.compile(_SITE_PACKAGES.pattern + r"[^/]+\.dist-info/METADATA")
_PYTHON: Final = re.compile(r"^  Python (\S+)$", re.MULTILINE)
_SOURCE_RPM: Final = re.compile(r"(?P<name>.+)-(?P<version>[^-]+-[^-]+)\.src\.rpm")


@dataclass(frozen=True, slots=True)
class _File:
    """A file of an artefact.

    Attributes:
        name: its path in the artefact, without the folder around all.
    """

    name: str
    content: bytes

    @property
    def is_program(self) -> bool:
        """Whether it is a program or a shared library."""
        return self.content.startswith(_ELF)


def parts_of_bundle(archive: Path, version: str, time_s: int) -> str:
    """The parts of the bundle: Python, packages, libraries of this machine, and their programs.

    Args:
        archive: the bundle; the container image has the same files.
        version: of kdump.
        time_s: the time of the list.

    Raises:
        BundleError: a shared library of the bundle is not on this machine, or belongs to nothing.
    """
    with tarfile.open(archive) as opened:
        files = list(_files_of_tar(opened))
        with tempfile.TemporaryDirectory() as folder:
            opened.extractall(folder, filter="data")
            (root,) = Path(folder).iterdir()
            libraries = _libraries(root)
    python = _PYTHON.search(next(each.content for each in files if each.name == "README").decode())
    if python is None:
        raise BundleError("the README of the bundle does not say which Python it has")
    own = _application(archive, version)
    parts = {"python": _component(PackageURL("generic", name="python", version=python[1]))}
    for each in files:
        if _METADATA.fullmatch(each.name):
            package = email.parser.BytesHeaderParser().parsebytes(each.content)
            name = package["Name"].lower()
            parts[name] = _component(PackageURL("pypi", name=name, version=package["Version"]))
    owners = _owners()
    for each in filter(lambda each: each.is_program, files):
        in_site_packages = _SITE_PACKAGES.sub("", each.name)
        if each.name in _LAUNCHERS or in_site_packages.startswith("kdump/"):
            own.components.add(_program(each))
        elif in_site_packages != each.name:
            parts[owners[in_site_packages]].components.add(_program(each))
        elif PurePosixPath(each.name).name in libraries and each.name.count("/") == 2:
            part = libraries[PurePosixPath(each.name).name]
            parts.setdefault(str(part.purl), part).components.add(_program(each))
        else:
            parts["python"].components.add(_program(each))
    return _written(own, parts.values(), archive, time_s)


def parts_of_wheel(wheel: Path, version: str, time_s: int) -> str:
    """The parts of a wheel of kdump: its compiled loops, if it has any.

    Args:
        version: of kdump.
        time_s: the time of the list.
    """
    own = _application(wheel, version)
    with zipfile.ZipFile(wheel) as opened:
        for name in sorted(opened.namelist()):
            file = _File(name, opened.read(name))
            if file.is_program:
                own.components.add(_program(file))
    return _written(own, (), wheel, time_s)


def _files_of_tar(archive: tarfile.TarFile) -> Iterator[_File]:
    for member in archive:
        content = archive.extractfile(member) if member.isreg() else None
        if content is not None:
            yield _File(member.name.partition("/")[2], content.read())


def _libraries(root: Path) -> dict[str, Component]:
    """The source packages of this machine's libraries in an unpacked bundle, by the library's name.

    Libraries of a Python that is not the distribution's are left out: they are Python's.
    """
    folder = root / "lib" / "kdump"
    programs = [folder / "python.bin", *sorted((folder / "lib").rglob("*.so*"))]
    loader, shared = loader_and_libraries(programs, folder)
    found = {}
    for name, path in {**shared, _LOADER: loader}.items():
        try:
            package = system_package(path)
        except BundleError:
            continue
        found[name] = _component(_source_url(package.source))
    return found


def _source_url(source: str) -> PackageURL:
    """The URL of a source package of this machine's distribution."""
    distribution = platform.freedesktop_os_release()["ID"]
    if match := _SOURCE_RPM.fullmatch(source):
        return PackageURL("rpm", distribution, match["name"], match["version"], {"arch": "src"})
    name, _, version = source.partition(" ")
    return PackageURL("deb", distribution, name, version, {"arch": "source"})


def _owners() -> dict[str, str]:
    """The packages of files in site-packages."""
    return {
        name: package.name.lower()
        for package in distributions()
        for name, _ in package_files(package)
    }


def _application(artefact: Path, version: str) -> Component:
    own = _component(
        PackageURL("pypi", name="kafka-kdump", version=version), ComponentType.APPLICATION
    )
    own.hashes.add(_sha256(artefact.read_bytes()))
    return own


def _component(url: PackageURL, kind: ComponentType = ComponentType.LIBRARY) -> Component:
    return Component(name=url.name, version=url.version, type=kind, purl=url, bom_ref=str(url))


def _program(file: _File) -> Component:
    return Component(
        name=file.name,
        type=ComponentType.FILE,
        bom_ref=f"file:{file.name}",
        hashes=[_sha256(file.content)],
    )


def _sha256(content: bytes) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(content).hexdigest())


def _written(own: Component, parts: Iterable[Component], artefact: Path, time_s: int) -> str:
    # The same artefact has the same number.
    digest = hashlib.sha256(artefact.read_bytes()).hexdigest()
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"sha256:{digest}"), components=list(parts)
    )
    bom.metadata.component = own
    bom.metadata.timestamp = dt.datetime.fromtimestamp(time_s, dt.UTC)
    bom.register_dependency(own, bom.components)
    return str(JsonV1Dot6(bom).output_as_string(indent=2)) + "\n"
