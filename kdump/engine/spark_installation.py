"""Find the installed Java and Spark."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kdump.errors import KdumpError
from kdump.processes.isolation import absolute_entries

USE_LOCAL: Final = "use --engine local, which needs neither Java nor Spark"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation.

    Attributes:
        path: the program ``java``, with links resolved.
        identity: text that differs between versions.
    """

    path: Path
    identity: str


def find_java(environment: Mapping[str, str]) -> Java:
    """Find Java in ``JAVA_HOME``, or else on the ``PATH``, as Spark's own scripts do.

    Relative paths in either are ignored: the current directory may contain anything.

    Raises:
        KdumpError: there is no Java.
    """
    home = environment.get("JAVA_HOME")
    if home:
        found = shutil.which(str(Path(home) / "bin" / "java")) if home.startswith("/") else None
        where = f"in JAVA_HOME ({home})"
    else:
        found = shutil.which("java", path=absolute_entries(environment.get("PATH", os.defpath)))
        where = "on the PATH"
    if found is None:
        raise KdumpError(f"Spark needs Java 17 or 21, and there is none {where}: {USE_LOCAL}")
    path = Path(found).resolve()
    release = path.parent.parent / "release"
    try:
        identity = release.read_text(encoding="utf-8", errors="replace")
    except OSError:
        stat = path.stat()
        identity = f"{stat.st_size} {stat.st_mtime_ns}"
    return Java(path, identity)


@dataclass(frozen=True, slots=True)
class Spark:
    """A Spark installation.

    Attributes:
        home: the directory with its ``jars``.
        version: its version.
    """

    home: Path
    version: str

    @property
    def class_path(self) -> str:
        return str(self.home / "jars" / "*")


def find_spark() -> Spark:
    """Find the Spark that comes with pyspark.

    Raises:
        KdumpError: pyspark cannot be imported.
    """
    try:
        import pyspark
    except Exception as failure:
        raise KdumpError(
            f"pyspark cannot be imported ({first_line(failure)}): {USE_LOCAL}"
        ) from failure
    assert pyspark.__file__ is not None
    return Spark(Path(pyspark.__file__).parent, pyspark.__version__)


def first_line(failure: BaseException) -> str:
    """The message of an exception, or of the Java exception behind it, in one line."""
    java = getattr(failure, "java_exception", None)
    text = str(java.toString() if java is not None else failure) or type(failure).__name__
    return text.strip().splitlines()[0]
