"""One Spark context, on a master of this machine or any other, with as little else as can be."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Final

from kdump.errors import KdumpError
from kdump.pipeline.spark_java import USE_LOCAL, JavaProcess, Spark

DEFAULT_MASTER: Final = "local[*]"

_LOCAL_MASTER: Final = re.compile(r"local(?:\[(\d+|\*)(?:\s*,\s*(\d+))?\])?")
_TASK_ATTEMPTS: Final = 4
"""How often a task is tried whose worker died: what Spark does on a cluster."""
_HEAP_PROPERTY: Final = "spark.driver.memory"
_DEFAULT_HEAP: Final = "1g"
_NEEDS_SUBMIT: Final = (
    "spark.archives",
    "spark.driver.defaultJavaOptions",
    "spark.driver.extra",
    "spark.files",
    "spark.jars",
    "spark.plugins",
    "spark.submit",
)
"""Beginnings of properties that ``spark-submit`` acts on before there is a JVM."""


def master_url(master: str | None) -> str:
    """The master, with retries for workers that die where it is this machine."""
    wanted = master or DEFAULT_MASTER
    match = _LOCAL_MASTER.fullmatch(wanted)
    if match is None:
        return wanted
    return f"local[{match[1] or 1},{match[2] or _TASK_ATTEMPTS}]"


def properties(master: str, spark_conf: Mapping[str, str]) -> dict[str, str]:
    """All of Spark's properties; those that were asked for win."""
    found = {
        "spark.app.name": "kdump",
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.submit.deployMode": "client",
        # What a SQL session needs to know from the start.
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        # One thread a worker: the workers are as many as the cores.
        "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
        "spark.executorEnv.PYTHONPATH": python_path(),
    }
    if _LOCAL_MASTER.fullmatch(master):
        # Neither a resolver nor a firewall has a say in what stays inside this machine.
        found |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return found | dict(spark_conf)


def python_path() -> str:
    """The path by which workers find the modules that this process finds.

    Workers run the same Python, so what comes with it they have anyway; what is not there on
    another machine does no harm.
    """
    own = {sys.prefix, sys.base_prefix, sys.exec_prefix}
    inherent = tuple(str(Path(prefix) / "lib") + os.sep for prefix in own)
    found = [str(Path(entry or ".").absolute()) for entry in sys.path if not entry.endswith(".zip")]
    return os.pathsep.join(dict.fromkeys(e for e in found if not e.startswith(inherent)))


class SparkSession:
    """A Spark context and the JVM that it lives in.

    The JVM begins to start at once. Whoever asks for :attr:`context` waits for it.
    """

    def __init__(
        self,
        master: str | None,
        spark_conf: Mapping[str, str],
        *,
        archive_to: Path | None = None,
    ) -> None:
        """Begin to start Spark.

        Args:
            master: as ``spark-submit`` takes it; None is all cores of this machine.
            spark_conf: Spark's own properties, which win over kdump's.
            archive_to: where the JVM is to leave the archive of its classes, if it is to.

        Raises:
            KdumpError: pyspark or Java is missing, or cannot be started.
        """
        self.master = master_url(master)
        self.properties = properties(self.master, spark_conf)
        self._java: JavaProcess | None = None
        self._log: IO[bytes] | None = None
        self._context: Any = None
        self._is_ours = True
        spark = find_spark()
        if self.is_quick and not _has_context():
            heap = self.properties.get(_HEAP_PROPERTY, _DEFAULT_HEAP)
            self._java = JavaProcess(spark, heap=heap, archive_to=archive_to)

    @property
    def is_quick(self) -> bool:
        """Whether the JVM can be started without ``spark-submit``."""
        return bool(_LOCAL_MASTER.fullmatch(self.master)) and not any(
            name.startswith(_NEEDS_SUBMIT)
            for name in self.properties
            if name != "spark.submit.deployMode"
        )

    @property
    def context(self) -> Any:
        """The ``pyspark.SparkContext``; waits until it is there.

        Raises:
            KdumpError: Spark does not start.
        """
        if self._context is None:
            self._context = self._connect()
        return self._context

    def _connect(self) -> Any:
        from pyspark import SparkConf, SparkContext

        active = SparkContext._active_spark_context
        if active is not None:
            self._is_ours = False
            return active
        # Python on the workers is the one that runs here, unless told otherwise. A property
        # alone would not reach all of them.
        python = self.properties.get("spark.pyspark.python", sys.executable)
        with _environment(PYSPARK_PYTHON=python), _own_interrupts():
            try:
                gateway = self._gateway()
                conf = SparkConf(loadDefaults=False)
                for name, value in self.properties.items():
                    conf.set(name, value)
                context = SparkContext(conf=conf, gateway=gateway)
            except KdumpError:
                raise
            except Exception as failure:
                self.abort()
                raise KdumpError(
                    f"Spark did not start: {first_line(failure)}: {USE_LOCAL}"
                ) from failure
            context.setLogLevel("ERROR")
        return context

    def _gateway(self) -> Any:
        """The connection to the JVM, which is started here where that could not be done before."""
        from pyspark import java_gateway

        launch_gateway: Callable[..., Any] = java_gateway.launch_gateway
        if self._java is None:
            from pyspark import SparkConf

            self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the JVM
            conf = SparkConf(loadDefaults=False)
            for name, value in self.properties.items():
                conf.set(name, value)
            return launch_gateway(conf, {"stdout": self._log, "stderr": self._log})
        reached = self._java.wait_for_gateway()
        with _environment(
            PYSPARK_GATEWAY_PORT=str(reached.port), PYSPARK_GATEWAY_SECRET=reached.secret
        ):
            return launch_gateway()

    def close(self) -> None:
        """Stop Spark; where it is on this machine, without waiting for it."""
        self._end(JavaProcess.release)

    def finish(self) -> None:
        """Stop Spark, and wait until it is gone."""
        self._end(JavaProcess.wait)

    def abort(self) -> None:
        """End all that runs, and wait until it is gone."""
        self._end(JavaProcess.abort)

    def _end(self, end_java: Callable[[JavaProcess], None]) -> None:
        context, self._context = self._context, None
        java, self._java = self._java, None
        if not self._is_ours:
            return
        if java is not None:
            _detach(context)
            (end_java if context is not None else JavaProcess.abort)(java)
        elif context is not None:
            with _quiet_accumulators(context):
                context.stop()
                _shut_down_gateway(context)
        if self._log is not None:
            self._log.close()
            self._log = None


def find_spark() -> Spark:
    """The Spark that comes with pyspark.

    Raises:
        KdumpError: there is none that can be imported.
    """
    try:
        import pyspark
    except Exception as failure:
        raise KdumpError(f"pyspark cannot be imported ({first_line(failure)}): {USE_LOCAL}") from (
            failure
        )
    assert pyspark.__file__ is not None
    return Spark(Path(pyspark.__file__).parent, pyspark.__version__)


def _has_context() -> bool:
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def _detach(context: Any) -> None:
    """Forget a context whose JVM ends by itself, so that another can be made."""
    from pyspark import SparkContext

    if context is not None:
        with _quiet_accumulators(context):
            # It takes half a second to notice, which nobody has to wait for.
            threading.Thread(target=context._accumulatorServer.shutdown, daemon=True).start()
    _close_gateway()
    with SparkContext._lock:
        SparkContext._active_spark_context = None


def _shut_down_gateway(context: Any) -> None:
    """End the JVM that ``spark-submit`` started for us."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    _close_gateway()
    if process is not None:
        process.stdin.close()
        process.wait()


def _close_gateway() -> None:
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.close()
    SparkContext._gateway = None
    SparkContext._jvm = None


@contextlib.contextmanager
def _quiet_accumulators(context: Any) -> Iterator[None]:
    """Let the server for accumulators not print a traceback when the JVM hangs up on it."""
    server = context._accumulatorServer
    if server is not None:
        server.handle_error = lambda *_: None
    yield


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Set environment variables for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep the handler of ^C, for which pyspark puts in its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def first_line(failure: BaseException) -> str:
    """What an exception says, on one line; of a Java exception, what it says itself."""
    java = getattr(failure, "java_exception", None)
    text = str(java.toString() if java is not None else failure) or type(failure).__name__
    return text.strip().splitlines()[0]
