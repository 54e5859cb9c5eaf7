"""What the image with Spark has besides the bundle: PySpark, and a Java runtime with its libraries.

Both are in layers of their own: Spark is the same for all machines. Java and its C library are
where Debian has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path
from typing import Final

from files import compile_modules, copy, programs_in
from image import HOME, OWNER
from shared_libraries import (
    BundleError,
    SystemPackage,
    loader_and_libraries,
    output_of,
    system_package,
)
from system import System, this_system, version_folder
from wheels import LEFT_OUT, ONLY_FOR_SPARK, distributions, licences, package_files

JAVA: Final = "openjdk-17-jre-headless"
SITE_PACKAGES: Final = f"{HOME.lstrip('/')}/lib/kdump/lib/{version_folder()}/site-packages"
"""Where Python packages are in an image."""

USERS: Final = "libnss_any.so.2"
"""kdump's source of users for the C library."""

_LICENCES: Final = f"{HOME.lstrip('/')}/share/licenses"
_CHMOD: Final = ("bin/chmod", "usr/bin/chmod")
_USERS_OPTIONS: Final = (
    *("-Os", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-nostdlib"),
    *("-fno-stack-protector", "-fno-builtin", "-s", "-Wl,--build-id=none"),
    f"-Wl,-soname,{USERS}",
)
_JARS_LEFT_OUT: Final = re.compile(
    # Machine learning, which kdump never loads, and what only that needs.
    r"(spark-mllib|breeze|spire|cats-kernel|algebra|lapack|blas|arpack|JLargeArrays|pmml-model)"
    # The state of streams; clusters of Kubernetes.
    r"|rocksdbjni|kubernetes-|spark-kubernetes"
)
_JAVA_LEFT_OUT: Final = re.compile(
    # Graphics, sound and smart cards, which need more libraries; links to files of the machine.
    r"lib/(lib(awt|fontmanager|freetype|javajpeg|jsound|lcms|mlib_image|j2pcsc|sctp)|security/cacerts)"
    r"|(bin/(?!java$)|man/|docs|legal/)|lib/(ct\.sym|jexec|jar\.binfmt|libsaproc|server/classes_nocoops)"
)


def spark_packages() -> list[Distribution]:
    """Spark, and what only Spark and ``kdump query`` need; all of it is for any machine."""
    system = this_system()
    all_packages = distributions(system.site_packages, system.machine, LEFT_OUT - ONLY_FOR_SPARK)
    usual = {each.name for each in distributions(system.site_packages, system.machine)}
    return [each for each in all_packages if each.name not in usual]


def copy_spark(root: Path) -> None:
    """Copy Spark and its Python packages into the root of an image, and compile their modules."""
    packages = root / SITE_PACKAGES
    for package in spark_packages():
        for name, path in package_files(package):
            # What is compiled is for one machine, and has a substitute in Python.
            if path.suffix != ".so":
                copy(path, packages / name)
        for name, path in licences(package):
            copy(path, root / _LICENCES / package.name / name)
    import pyspark

    home = Path(pyspark.__path__[0])
    for path in sorted((home / "jars").glob("*.jar")):
        if not _JARS_LEFT_OUT.match(path.name):
            copy(path, packages / "pyspark" / "jars" / path.name)
    for path in sorted((home / "licenses").iterdir()):
        copy(path, root / _LICENCES / "pyspark" / path.name)
    compile_modules(packages)


def copy_java(root: Path, system: System) -> list[SystemPackage]:
    """Copy Java and the libraries that it needs into the root of an image.

    Returns:
        the packages that the files are of.

    Raises:
        BundleError: Java is not installed as Debian's package.
    """
    files = list(_java_files(system))
    if not any(name == "bin/java" for name, _ in files):
        raise BundleError(f"{JAVA} of Debian is needed: it is not installed")
    home = root / java_home(system).lstrip("/")
    for name, path in files:
        copy(path, home / name)
    # Hadoop runs it when it creates a folder.
    chmod = next(path for path in _CHMOD if (system.root / path).is_file())
    copy(system.root / chmod, root / "bin" / "chmod")
    loader, shared = loader_and_libraries(
        [root / "bin" / "chmod", *programs_in(home)],
        home,
        system,
        [home / "lib", home / "lib" / "server"],
    )
    for path in (loader, *shared.values()):
        copy(path, root / path.relative_to(system.root))
    _write_etc(root / "etc")
    # Every number is a user: Java wants a name for the one that it runs as.
    users = root / shared["libc.so.6"].parent.relative_to(system.root) / USERS
    source = Path(__file__).with_name("nss_any.c")
    output_of(system.tool("gcc"), *_USERS_OPTIONS, "-o", users, source)
    owned = [
        system_package(path, system)
        for path in (files[0][1], system.root / chmod, loader, *shared.values())
    ]
    packages = {each.name: each for each in owned}
    for package in packages.values():
        for each in package.licences:
            copy(each, root / _LICENCES / package.name / each.name)
    return [packages[name] for name in sorted(packages)]


def _write_etc(folder: Path) -> None:
    """Write how to find users and this host, as far as a container runtime does not."""
    folder.mkdir()
    (folder / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    (folder / "nsswitch.conf").write_text("passwd: files any\nhosts: files dns\n")
    (folder / "passwd").write_text(f"kdump:x:{OWNER}:{OWNER}::/tmp:/\n")


def java_home(system: System) -> str:
    """The folder of Java, in an image as on Debian."""
    return f"/usr/lib/jvm/java-17-openjdk-{system.architecture}"


def _java_files(system: System) -> Iterator[tuple[str, Path]]:
    """The files of Java that are needed, by their paths below its folder."""
    try:
        listed = output_of(
            "dpkg-query",
            f"--admindir={system.root / 'var/lib/dpkg'}",
            "-L",
            f"{JAVA}:{system.architecture}",
        )
    except BundleError as problem:
        raise BundleError(f"{JAVA} of Debian is needed: {problem}") from None
    prefix = f"{java_home(system)}/"
    for line in sorted(listed.splitlines()):
        name = line.removeprefix(prefix)
        path = _followed(system.root / line.lstrip("/"), system.root)
        if name != line and path.is_file() and not _JAVA_LEFT_OUT.match(name):
            yield name, path


def _followed(path: Path, root: Path) -> Path:
    """Where a link leads to in a folder that is the root."""
    while path.is_symlink():
        target = path.readlink()
        path = root / str(target).lstrip("/") if target.is_absolute() else path.parent / target
    return path
