"""Find the installed Java and Spark, which no other engine needs."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from kdump.errors import KdumpError
from kdump.processes.isolation import absolute_entries

USE_LOCAL: Final = "use --engine local, which needs neither Java nor Spark"
OLDEST_JAVA: Final = 17

_MLLIB: Final = "spark-mllib_"
_MOST_BYTES: Final = 100_000
"""Of a class path; Linux allows 128 KiB for each argument of a program."""
_JAVA_VERSION: Final = re.compile(r'^JAVA_VERSION="((\d+)[^"]*)"', re.MULTILINE)


class NoSparkError(KdumpError):
    """Spark cannot be started; the message names the engine that needs none.

    Attributes:
        reason: the message without that, for what only Spark can do.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}: {USE_LOCAL}")
        self.reason = reason


class Java(Struct, frozen=True):
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
        NoSparkError: there is no Java, or it is too old.
    """
    home = environment.get("JAVA_HOME")
    if home:
        found = shutil.which(str(Path(home) / "bin" / "java")) if home.startswith("/") else None
        where = f"in JAVA_HOME ({home})"
    else:
        found = shutil.which("java", path=absolute_entries(environment.get("PATH", os.defpath)))
        where = "on the PATH"
    if found is None:
        raise NoSparkError(f"Spark needs Java 17 or 21, and there is none {where}")
    path = Path(found).resolve()
    release = path.parent.parent / "release"
    try:
        identity = release.read_text(encoding="utf-8", errors="replace")
    except OSError:
        stat = path.stat()
        identity = f"{stat.st_size} {stat.st_mtime_ns}"
    version = _JAVA_VERSION.search(identity)
    # Before Java 9, versions begin with "1.".
    if version is not None and int(version[2]) < OLDEST_JAVA:
        raise NoSparkError(f"Spark needs Java 17 or 21, and {found} is Java {version[1]}")
    return Java(path, identity)


class Spark(Struct, frozen=True):
    """A Spark installation.

    Attributes:
        home: the directory with its ``jars``.
    """

    home: Path
    version: str

    @property
    def class_path(self) -> str:
        """What a JVM needs for jobs and SQL.

        Without MLlib, whose functions each SQL session registers, by Scala's reflection: that takes
        a second.
        """
        try:
            jars = sorted(path.name for path in (self.home / "jars").iterdir())
        except OSError:
            jars = []
        needed = [each for each in jars if each.endswith(".jar") and not each.startswith(_MLLIB)]
        listed = os.pathsep.join(str(self.home / "jars" / name) for name in needed)
        return listed if 0 < len(listed) < _MOST_BYTES else str(self.home / "jars" / "*")


def find_spark() -> Spark:
    """Find the Spark that comes with pyspark.

    Raises:
        NoSparkError: pyspark cannot be imported.
    """
    try:
        import pyspark
    except ModuleNotFoundError as failure:
        if failure.name != "pyspark":
            raise NoSparkError(f"pyspark cannot be imported ({first_line(failure)})") from failure
        raise NoSparkError(
            "Spark is not installed ('pip install kafka-kdump' also installs it)"
        ) from failure
    except Exception as failure:
        raise NoSparkError(f"pyspark cannot be imported ({first_line(failure)})") from failure
    assert pyspark.__file__ is not None
    return Spark(Path(pyspark.__file__).parent, pyspark.__version__)


def is_spark_usable(environment: Mapping[str, str]) -> bool:
    """Whether both Spark and a Java for it are installed."""
    try:
        find_java(environment)
        find_spark()
    except NoSparkError:
        return False
    return True


def first_line(failure: BaseException) -> str:
    """The message of an exception, or of the Java exception behind it, in one line."""
    java = getattr(failure, "java_exception", None)
    text = str(java.toString() if java is not None else failure) or type(failure).__name__
    return text.strip().splitlines()[0]
