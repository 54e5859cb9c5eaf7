"""Starting the Java process that Spark runs in, as fast as it can be started.

``spark-submit`` starts one JVM to find out how to start another, reads configuration that a
program of one machine does not need, and loads some ten thousand classes from jars. For a master
of this machine kdump starts Spark's gateway for Python itself, on an archive of those classes
where there is one (:mod:`kdump.pipeline.spark_archive` makes it).

What is used of Spark for that is what ``pyspark.java_gateway`` and ``spark-submit`` use between
them: the class ``PythonGatewayServer``, which writes port and secret to the file that
``_PYSPARK_DRIVER_CONN_INFO_PATH`` names and exits when its standard input ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from kdump.errors import KdumpError

USE_LOCAL: Final = "use --engine local, which needs neither Java nor Spark"

_GATEWAY_CLASS: Final = "org.apache.spark.api.python.PythonGatewayServer"
_CONNECTION_FILE: Final = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_START_SECONDS: Final = 60
_POLL_SECONDS: Final = 0.01
_ABORT_SECONDS: Final = 5

_OPENED: Final = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
"""Packages of java.base that Spark reaches into (``JavaModuleOptions`` of Spark's launcher)."""

_JVM_OPTIONS: Final = (
    # The JVM only passes on what Python workers do: there is little to collect or to compile.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    # What the JVM has to say of its archive is nothing to trouble people with.
    "-Xshare:auto",
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
    "-Xlog:cds=off",
    "-Xlog:cds+dynamic=off",
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation.

    Attributes:
        path: of the program ``java``, links resolved.
        identity: what changes when another version takes its place.
    """

    path: Path
    identity: str


def find_java(environment: Mapping[str, str]) -> Java:
    """The Java of ``JAVA_HOME``, or else of the ``PATH``, as Spark's own scripts choose it.

    Raises:
        KdumpError: there is none.
    """
    home = environment.get("JAVA_HOME")
    if home:
        found = shutil.which(str(Path(home) / "bin" / "java"))
        where = f"in JAVA_HOME ({home})"
    else:
        found = shutil.which("java", path=environment.get("PATH"))
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
    """The Spark that comes with pyspark.

    Attributes:
        home: the directory that its ``jars`` are in.
        version: of it.
    """

    home: Path
    version: str

    @property
    def class_path(self) -> str:
        return str(self.home / "jars" / "*")


@dataclass(frozen=True, slots=True)
class Gateway:
    """How to reach a running JVM."""

    port: int
    secret: str


class JavaProcess:
    """A JVM with Spark's gateway for Python in it; it ends when this process does."""

    def __init__(self, spark: Spark, *, heap: str, archive_to: Path | None = None) -> None:
        """Start the JVM, and do not wait for it.

        Args:
            spark: whose classes it runs.
            heap: how much memory the JVM may use, as ``-Xmx`` has it.
            archive_to: where to write the archive of all classes that were loaded, when the JVM
                ends; it is twice as slow until then.

        Raises:
            KdumpError: there is no Java, or it cannot be started.
        """
        environment = dict(os.environ)
        self._java = find_java(environment)
        archive = archive_path(self._java, spark)
        if archive_to is not None:
            archiving = [f"-XX:ArchiveClassesAtExit={archive_to}"]
        else:
            is_there = archive is not None and archive.exists()
            archiving = [f"-XX:SharedArchiveFile={archive}"] if is_there else []
        self._folder = Path(tempfile.mkdtemp(prefix="kdump-spark-"))
        self._connection_file = self._folder / "gateway"
        environment |= {
            _CONNECTION_FILE: str(self._connection_file),
            "SPARK_HOME": str(spark.home),
            "SPARK_CONNECT_MODE": "0",
        }
        command = [
            str(self._java.path),
            f"-Xmx{heap}",
            *archiving,
            *_JVM_OPTIONS,
            "-cp",
            spark.class_path,
            _GATEWAY_CLASS,
        ]
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the JVM
        try:
            self._process = subprocess.Popen(  # noqa: S603 - no shell
                command,
                stdin=subprocess.PIPE,
                stdout=self.log,
                stderr=self.log,
                env=environment,
                # ^C on the terminal is for kdump, which then ends the JVM.
                start_new_session=True,
            )
        except OSError as failure:
            self._discard_folder()
            raise KdumpError(f"{self._java.path}: {failure.strerror}: {USE_LOCAL}") from failure

    def wait_for_gateway(self) -> Gateway:
        """Wait until the JVM can be reached.

        Raises:
            KdumpError: it ended before, or takes far too long.
        """
        deadline = time.monotonic() + _START_SECONDS
        while not self._connection_file.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise KdumpError(f"Spark did not start: {self._reason()}: {USE_LOCAL}")
            time.sleep(_POLL_SECONDS)
        content = self._connection_file.read_bytes()
        self._discard_folder()
        size = int.from_bytes(content[4:8], "big")
        return Gateway(int.from_bytes(content[:4], "big"), content[8 : 8 + size].decode())

    def release(self) -> None:
        """Let the JVM stop Spark and end by itself; it removes its temporary files as it goes."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._forget()

    def wait(self) -> None:
        """Let the JVM end as after :meth:`release`, and wait until it has."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._forget()

    def abort(self) -> None:
        """End the JVM, whatever it is doing, and wait until it is gone."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_ABORT_SECONDS)
                break
        self._forget()

    def _forget(self) -> None:
        self._discard_folder()
        self.log.close()
        # Popen warns of processes that nobody waited for: this one may outlive kdump.
        if self._process.returncode is None:
            self._process.returncode = 0

    def _discard_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _reason(self) -> str:
        """The most telling line of what the JVM said."""
        self.log.seek(0)
        said = self.log.read().decode(errors="replace").splitlines()
        lines = [line.strip() for line in said if line.strip()]
        if any("UnsupportedClassVersionError" in line for line in lines):
            return f"it needs Java 17 or 21, and {self._java.path} is older"
        telling = [line for line in lines if "rror" in line or "xception" in line]
        status = self._process.poll()
        ended = "no answer" if status is None else f"{self._java.path} ended with status {status}"
        return (telling or lines or [ended])[0]


def cache_folder(environment: Mapping[str, str]) -> Path | None:
    """Where kdump keeps what it can make again: a directory of the user's cache.

    None where the user has no home. A place that others can write to will not do: what is kept
    there is run.
    """
    configured = environment.get("XDG_CACHE_HOME", "")
    # A relative path there is to be ignored, says the XDG Base Directory Specification.
    if configured.startswith("/"):
        return Path(configured) / "kdump"
    home = environment.get("HOME", "")
    return Path(home) / ".cache" / "kdump" if home.startswith("/") else None


def archive_path(java: Java, spark: Spark) -> Path | None:
    """Where the archive of Spark's classes for one JVM is, or would be, if there can be one.

    The JVM itself refuses one of other jars or of another JVM: the name only keeps it from being
    offered such a one for ever.
    """
    folder = cache_folder(os.environ)
    if folder is None:
        return None
    described = "\n".join([java.identity, str(java.path), spark.class_path, *_JVM_OPTIONS])
    key = hashlib.sha256(described.encode(errors="surrogateescape")).hexdigest()[:16]
    return folder / f"spark-{spark.version}-{key}.jsa"
