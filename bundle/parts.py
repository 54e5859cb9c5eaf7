"""The list of parts of an artefact, in the format of CycloneDX, from the files that are in it."""

from __future__ import annotations

import datetime as dt
import email.parser
import hashlib
import io
import platform
import re
import uuid
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from bundle import is_of_own_python
from files import is_program, programs_in
from shared_libraries import loader_and_libraries, system_package
from spark import USERS, java_home, spark_packages
from system import System
from wheels import distributions, package_files

_ELF: Final = b"\x7fELF"
_LOADER: Final = "kdump"
"""The name of the loader in the bundle."""
_LAUNCHERS: Final = frozenset({"bin/kdump", "lib/kdump/python"})
_SITE_PACKAGES: Final = re.compile(r"lib/kdump/lib/[^/]+/site-packages/")
_POM: Final = re.compile(r"META-INF/maven/[^/]+/[^/]+/pom\.properties")
_PROPERTY: Final = re.compile(r"^(\w+)=(\S+)", re.MULTILINE)
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


def parts_of_bundle(archive: Path, folder: Path, system: System, version: str, time_s: int) -> str:
    """The parts of the bundle: Python, packages, libraries of its machine, and their programs.

    Args:
        archive: the bundle; the container image has the same files.
        folder: what is in it.
        system: the machine that it was made for.
        version: of kdump.
        time_s: the time of the list.

    Raises:
        BundleError: a shared library of the bundle is not on that machine, or belongs to nothing.
    """
    own = _application(archive, version)
    return _written(own, _parts_of_bundle(folder, system, own).values(), archive, time_s)


def parts_of_spark(
    bundle: Path, image: Path, roots: Iterable[Path], system: System, version: str, time_s: int
) -> str:
    """The parts of the image with Spark for one kind of machine.

    Args:
        bundle: the folder of the bundle in it.
        image: the archive of the image.
        roots: the folders with what else is in it.
        system: the machine that it is for.
        version: of kdump.
        time_s: the time of the list.

    Raises:
        BundleError: as :func:`parts_of_bundle`.
    """
    own = _application(image, version)
    parts = _parts_of_bundle(bundle, system, own)
    for each in spark_packages():
        name = each.name.lower()
        parts[name] = _component(PackageURL("pypi", name=name, version=each.version))
    home = java_home(system).lstrip("/")
    for root in roots:
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(root))
            if path.suffix == ".jar" and "/pyspark/jars/" in name:
                jar = _jar(_File(name, path.read_bytes()))
                parts.setdefault(str(jar.purl), jar) if jar.purl else parts[
                    "pyspark"
                ].components.add(jar)
            elif path.name == USERS:
                own.components.add(_program(_File(name, path.read_bytes())))
            elif path.is_file() and is_program(path):
                of = f"{java_home(system)}/bin/java" if name.startswith(f"{home}/") else f"/{name}"
                part = _component(_source_url(system_package(system.root / of[1:], system).source))
                program = _program(_File(name, path.read_bytes()))
                parts.setdefault(str(part.purl), part).components.add(program)
    return _written(own, parts.values(), image, time_s, f"#{system.architecture}")


def _parts_of_bundle(folder: Path, system: System, own: Component) -> dict[str, Component]:
    """The parts of a bundle by their names or URLs; programs of kdump are added to its own."""
    libraries = _libraries(folder, system)
    parts = {"python": _component(_python_url(system))}
    for path in sorted(folder.glob("lib/kdump/lib/*/site-packages/*.dist-info/METADATA")):
        package = email.parser.BytesHeaderParser().parsebytes(path.read_bytes())
        name = package["Name"].lower()
        parts[name] = _component(PackageURL("pypi", name=name, version=package["Version"]))
    owners = _owners(system)
    for path in programs_in(folder):
        each = _File(str(path.relative_to(folder)), path.read_bytes())
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
    return parts


def _python_url(system: System) -> PackageURL:
    """The URL of Python: of its source package, or else of the version."""
    if is_of_own_python(system.interpreter, system):
        return PackageURL("generic", name="python", version=system.python_version)
    return _source_url(system_package(system.interpreter, system).source)


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


def _libraries(root: Path, system: System) -> dict[str, Component]:
    """The source packages of a machine's libraries in a bundle's folder, by the library's name.

    Libraries of a Python that is not the distribution's are left out: they are Python's.
    """
    folder = root / "lib" / "kdump"
    programs = [folder / "python.bin", *sorted((folder / "lib").rglob("*.so*"))]
    loader, shared = loader_and_libraries(programs, folder, system)
    return {
        name: _component(_source_url(system_package(path, system).source))
        for name, path in {**shared, _LOADER: loader}.items()
        if not is_of_own_python(path, system)
    }


def _source_url(source: str) -> PackageURL:
    """The URL of a source package of the distribution."""
    distribution = platform.freedesktop_os_release()["ID"]
    if match := _SOURCE_RPM.fullmatch(source):
        return PackageURL("rpm", distribution, match["name"], match["version"], {"arch": "src"})
    name, _, version = source.partition(" ")
    return PackageURL("deb", distribution, name, version, {"arch": "source"})


def _owners(system: System) -> dict[str, str]:
    """The packages of files in site-packages."""
    return {
        name: package.name.lower()
        for package in distributions(system.site_packages, system.machine)
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


def _jar(file: _File) -> Component:
    """An archive of Java classes, with its URL if it has one."""
    stem = PurePosixPath(file.name).stem
    with zipfile.ZipFile(io.BytesIO(file.content)) as opened:
        for name in filter(_POM.fullmatch, opened.namelist()):
            pom = dict(_PROPERTY.findall(opened.read(name).decode()))
            if stem == f"{pom['artifactId']}-{pom['version']}":
                url = PackageURL("maven", pom["groupId"], pom["artifactId"], pom["version"])
                component = _component(url)
                component.hashes.add(_sha256(file.content))
                return component
    return _program(file)


def _sha256(content: bytes) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(content).hexdigest())


def _written(
    own: Component, parts: Iterable[Component], artefact: Path, time_s: int, of: str = ""
) -> str:
    # The same artefact has the same number; an image has a list for each architecture.
    digest = hashlib.sha256(artefact.read_bytes()).hexdigest()
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"sha256:{digest}{of}"), components=list(parts)
    )
    bom.metadata.component = own
    bom.metadata.timestamp = dt.datetime.fromtimestamp(time_s, dt.UTC)
    bom.register_dependency(own, bom.components)
    return str(JsonV1Dot6(bom).output_as_string(indent=2)) + "\n"
