"""Start the JVM that Spark runs in, as fast as possible.

``spark-submit`` starts one JVM to find out how to start another, reads configuration that one
machine does not need, and loads some ten thousand classes from jars. For a local master kdump
starts Spark's gateway for Python itself, with an archive of those classes if there is one (made by
:mod:`kdump.engine.spark_archive`).

It uses the same part of Spark as ``pyspark.java_gateway`` and ``spark-submit``: the class
``PythonGatewayServer``, which writes its port and secret to the file named by
``_PYSPARK_DRIVER_CONN_INFO_PATH``, and exits when its standard input ends.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from msgspec import Struct

from kdump.engine.class_archive import ClassArchive
from kdump.engine.spark_installation import Java, NoSparkError, Spark
from kdump.processes.isolation import child_environment

_GATEWAY_CLASS: Final = "org.apache.spark.api.python.PythonGatewayServer"
_CONNECTION_FILE: Final = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_LOCAL_IP: Final = "SPARK_LOCAL_IP"
_START_SECONDS: Final = 60
_POLL_SECONDS: Final = 0.01
_ABORT_SECONDS: Final = 5
_END_SECONDS: Final = 0.5
_LOG_BYTES: Final = 1 << 20
_ARCHIVE_OPTION: Final = "-XX:SharedArchiveFile="
_NOT_INITIALIZED: Final = "Error occurred during initialization of VM"
_CRASHED: Final = "# A fatal error has been detected by the Java Runtime Environment:"

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
"""Packages of java.base that Spark opens (``JavaModuleOptions`` of Spark's launcher)."""

COMPILER_OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+IgnoreUnrecognizedVMOptions")
"""A JVM that only passes on the work of Python workers has little to compile."""

JVM_OPTIONS: Final = (
    # There is little to collect, either.
    "-XX:+UseSerialGC",
    *COMPILER_OPTIONS,
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    # A crash leaves no files: its report is part of the output.
    "-XX:+ErrorFileToStderr",
    "-XX:-CreateCoredumpOnCrash",
    # Messages about the archive do not matter to people.
    "-Xshare:auto",
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
    "-Xlog:cds=off",
    "-Xlog:cds+dynamic=off",
)


class Gateway(Struct, frozen=True):
    """How to reach a running JVM."""

    port: int
    secret: str


class JavaProcess:
    """A JVM with Spark's gateway for Python; it ends when this process does.

    It has an empty current directory of its own, so that neither it nor its children find or leave
    files in kdump's.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        spark_home: Path,
        archive: ClassArchive | None = None,
        local_ip: str | None = None,
    ) -> None:
        """Start the JVM, without waiting for it.

        Args:
            command: the command, for example :func:`gateway_command`.
            archive: the archive of classes in the command. If the JVM does not start with it, it
                is started without.
            local_ip: the address of this machine for Spark, unless ``SPARK_LOCAL_IP`` names one;
                None if Spark is to look for it by the name of the host.

        Raises:
            NoSparkError: the command cannot be executed, or there is no place for temporary files.
        """
        self._command = command
        self._spark_home = spark_home
        self._archive = archive
        self._variables = {} if local_ip is None else {_LOCAL_IP: local_ip}
        self._folder = _temporary_folder()
        self._connection_file = self._folder / "gateway"
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the JVM
        try:
            self._process = self._start()
        except OSError as failure:
            self._discard_folder()
            raise NoSparkError(f"{command[0]}: {failure.strerror}") from failure

    def _start(self) -> subprocess.Popen[bytes]:
        working_directory = self._folder / "work"
        working_directory.mkdir(exist_ok=True)
        return subprocess.Popen(  # noqa: S603 - no shell
            self._command,
            stdin=subprocess.PIPE,
            stdout=self.log,
            stderr=self.log,
            cwd=working_directory,
            env={
                **self._variables,
                **os.environ,
                **child_environment(),
                _CONNECTION_FILE: str(self._connection_file),
                "SPARK_HOME": str(self._spark_home),
                "SPARK_CONNECT_MODE": "0",
            },
            # ^C on the terminal is for kdump alone, which then ends the JVM.
            start_new_session=True,
        )

    def wait_for_gateway(self) -> Gateway:
        """Wait until the JVM can be reached.

        Raises:
            NoSparkError: it ended, or takes too long.
        """
        # The archive is checked while the JVM starts with it, which costs no time.
        if self._archive is not None and not self._archive.is_intact():
            self._archive.discard()
            self._start_without_archive()
        deadline = time.monotonic() + _START_SECONDS
        while not self._connection_file.exists():
            if self._process.poll() is not None and self._archive is not None:
                suspect = self._archive
                self._start_without_archive()
                gateway = self.wait_for_gateway()
                suspect.discard()
                return gateway
            if self.has_ended or time.monotonic() > deadline:
                raise NoSparkError(f"Spark did not start: {self.reason()}")
            time.sleep(_POLL_SECONDS)
        content = self._connection_file.read_bytes()
        size = int.from_bytes(content[4:8], "big")
        return Gateway(int.from_bytes(content[:4], "big"), content[8 : 8 + size].decode())

    def _start_without_archive(self) -> None:
        self._kill()
        self._connection_file.unlink(missing_ok=True)
        self.log.seek(0)
        self.log.truncate()
        given = f"{_ARCHIVE_OPTION}{self._archive.path}" if self._archive else ""
        self._command = [each for each in self._command if each != given]
        self._archive = None
        self._process = self._start()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def ends_soon(self) -> bool:
        """Whether the JVM ends within a moment: its connections end before it does."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        return self.has_ended

    def leave_nothing(self, jvm: Any) -> None:
        """Let the JVM remove its directory, in case this process cannot.

        Args:
            jvm: the ``py4j.java_gateway.JVMView`` of this JVM.
        """
        self._connection_file.unlink(missing_ok=True)
        # The JVM deletes them in reverse order.
        for folder in (self._folder, self._folder / "work"):
            jvm.java.io.File(str(folder)).deleteOnExit()

    def release(self) -> None:
        """Let the JVM stop Spark and end by itself; it removes its temporary files."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._forget()

    def wait(self) -> None:
        """As :meth:`release`, and wait until the JVM has ended."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._forget()

    def abort(self) -> None:
        """End the JVM, whatever it is doing, and wait for it."""
        self._kill()
        self._forget()

    def stop_now(self) -> None:
        """End the JVM; its output can still be read."""
        self._kill()

    def _kill(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_ABORT_SECONDS)
                break

    def _forget(self) -> None:
        self._discard_folder()
        self.log.close()
        # Popen warns about processes that nobody waited for: this one may outlive kdump.
        if self._process.returncode is None:
            self._process.returncode = 0

    def _discard_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def log_lines(self) -> list[str]:
        """The output of the JVM until now, without empty lines."""
        # The JVM writes to the same open file: its position must not change.
        size = os.fstat(self.log.fileno()).st_size
        output = os.pread(self.log.fileno(), min(size, _LOG_BYTES), max(0, size - _LOG_BYTES))
        lines = output.decode(errors="replace").splitlines()
        return [line.strip() for line in lines if line.strip()]

    def reason(self) -> str:
        """Why the JVM did not start, or ended: the most specific line of its output."""
        lines = self.log_lines()
        if any("UnsupportedClassVersionError" in line for line in lines):
            return f"it needs Java 17 or 21, and {self._command[0]} is older"
        status = self._process.poll()
        if status is not None and (status < 0 or _CRASHED in lines[:2]):
            name = signal.Signals(-status).name if status < 0 else "a fatal error"
            hint = " (out of memory?)" if name == "SIGKILL" else ""
            return f"Java was ended by {name}{hint}"
        telling = [line for line in lines if "rror" in line or "xception" in line]
        ended = "no answer" if status is None else f"{self._command[0]} ended with status {status}"
        if lines[:-1] and lines[0] == _NOT_INITIALIZED:
            return lines[1]
        return (telling or lines or [ended])[0]


def _temporary_folder() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="kdump-spark-"))
    except FileNotFoundError as failure:
        # As in a container whose root file system is mounted read-only.
        raise NoSparkError(
            "Spark needs a directory for temporary files, and none can be written:"
            " mount a volume or a tmpfs at /tmp, or name another in TMPDIR"
        ) from failure


def gateway_command(
    java: Java, spark: Spark, *, heap: str, archive: ClassArchive | None, archive_to: Path | None
) -> list[str]:
    """The command that starts a JVM on this machine.

    Args:
        heap: the memory limit, as ``-Xmx`` takes it.
        archive: the archive of classes to use; None for none.
        archive_to: where to write an archive of all loaded classes when the JVM ends, which makes
            it twice as slow; None for nowhere.
    """
    archiving = [f"{_ARCHIVE_OPTION}{archive.path}"] if archive is not None else []
    if archive_to is not None:
        archiving = [f"-XX:ArchiveClassesAtExit={archive_to}"]
    options = [f"-Xmx{heap}", *archiving, *JVM_OPTIONS]
    return [str(java.path), *options, "-cp", spark.class_path, _GATEWAY_CLASS]


def submit_command(spark_home: Path, properties: Mapping[str, str]) -> list[str]:
    """The command that starts a JVM by ``spark-submit``, which knows clusters."""
    conf = [word for name, value in properties.items() for word in ("--conf", f"{name}={value}")]
    own = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    return [str(spark_home / "bin" / "spark-submit"), *conf, *own]
