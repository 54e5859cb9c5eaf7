"""What the bundle has of the packages that are installed beside kdump, all but Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

ONLY_FOR_SPARK: Final = frozenset({"pyspark", "prompt-toolkit"})
"""Spark, and the prompt of ``kdump query``, which needs it."""

LEFT_OUT: Final = ONLY_FOR_SPARK | frozenset(
    {
        # Rich colours source code and Markdown with them.
        "markdown-it-py",
        "pygments",
        # Of grpcio-tools only the compiler of schemas is used.
        "grpcio",
        "setuptools",
    }
)
"""Packages that nothing in the bundle imports."""

OTHER_EXTRAS: Final = frozenset({"hdfs", "release", "s3", "test"})
"""Extras that belong to no command, are large, or whose packages have no licence to pass on."""

SAME_LICENCE: Final = {"grpcio-tools": "grpcio"}
"""Packages whose wheels have no licence, and another from the same repository that has it."""

APACHE_PARTS: Final = {"pyroaring": "CRoaring"}
"""Packages whose wheels contain a library without its licence, which is the Apache License 2.0."""

FOLDERS_LEFT_OUT: Final = frozenset(
    {"__pycache__", "_pyinstaller", "distutils", "f2py", "include", "src", "test", "tests"}
)
SUFFIXES_KEPT: Final = frozenset({".py", ".so", ".proto", ".avsc", ".json", ".pem"})
LIBRARY: Final = re.compile(r"\.so(\.\d+)+$")
FILES_LEFT_OUT: Final = re.compile(
    # The same library under its other names.
    r"pyarrow/libarrow_python(_flight|_parquet_encryption)?\.so(\.\d+\.\d+\.\d+)?$"
    # The RPC, tests and formats of Arrow that kdump does not use.
    r"|pyarrow/(_flight|_pyarrow_cpp_tests|_orc|_dataset_orc|_substrait)\."
    r"|pyarrow/(libarrow_flight|libarrow_python_flight)\."
    r"|numpy/_core/(_\w*_tests|_simd)\."
    # zstandard uses backend_c.
    r"|zstandard/_cffi\."
    # What only Spark's own programs use; its jars are chosen one by one.
    r"|pyspark/(bin|data|examples|jars|python|sbin)/"
)
_OWN: Final = "kafka-kdump"
LICENCE: Final = re.compile(r"(licen[cs]e|notice|copying|authors)[^/]*$", re.IGNORECASE)


def distributions(
    folders: Sequence[str], machine: str, left_out: AbstractSet[str] = LEFT_OUT
) -> list[Distribution]:
    """What kdump requires, directly or not, without itself and what is left out.

    Args:
        folders: where packages are installed.
        machine: the kind of machine that they are for, as ``uname -m`` names it.
        left_out: packages that are not needed.

    Raises:
        PackageNotFoundError: a required package is not installed.
    """
    found: dict[str, Distribution] = {}
    waiting = [*_required(distribution(_OWN), _extras(), machine)]
    while waiting:
        each = waiting.pop()
        key = _normal(each.name)
        if key in found or key in left_out:
            continue
        installed = next(iter(Distribution.discover(name=key, path=list(folders))), None)
        if installed is None:
            raise PackageNotFoundError(key)
        found[key] = installed
        waiting += _required(installed, sorted(each.extras), machine)
    return [found[key] for key in sorted(found)]


def _extras() -> list[str]:
    metadata = distribution(_OWN).metadata
    return [each for each in metadata.get_all("Provides-Extra") or [] if each not in OTHER_EXTRAS]


def _required(package: Distribution, extras: list[str], machine: str) -> Iterator[Requirement]:
    for text in package.requires or []:
        requirement = Requirement(text)
        marker = requirement.marker
        environments = [{"extra": extra, "platform_machine": machine} for extra in ["", *extras]]
        if marker is None or any(marker.evaluate(each) for each in environments):
            requirement.marker = None
            yield requirement


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def package_files(package: Distribution) -> Iterator[tuple[str, Path]]:
    """The files of a package that are needed to run it, by their paths in site-packages."""
    for file in sorted(package.files or [], key=str):
        name = str(file)
        is_read = file.suffix in SUFFIXES_KEPT or LIBRARY.search(name)
        if file.name == "METADATA":  # by which packages find their own version
            yield name, Path(str(package.locate_file(file)))
        is_elsewhere = name.startswith("..") or ".dist-info" in file.parts[0]
        is_left_out = FOLDERS_LEFT_OUT.intersection(file.parts) or FILES_LEFT_OUT.match(name)
        if is_read and not is_elsewhere and not is_left_out:
            yield name, Path(str(package.locate_file(file)))


def licences(package: Distribution) -> list[tuple[str, Path]]:
    """The licences of a package, by their names.

    Raises:
        ValueError: it has none.
    """
    found = [
        ("-".join(file.parts[1:]).removeprefix("licenses-"), Path(str(package.locate_file(file))))
        for file in package.files or []
        if LICENCE.search(str(file)) and ".dist-info" in file.parts[0]
    ]
    if not found and (other := SAME_LICENCE.get(_normal(package.name))):
        found = licences(distribution(other))
    if not found:
        raise ValueError(f"no licence is installed with {package.name}")
    return sorted(found)
