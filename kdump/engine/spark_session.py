"""One Spark context, on this machine or a cluster, with as little else as possible."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kdump.engine.class_archive import find_archive
from kdump.engine.spark_cluster import (
    check_executors,
    find_master,
    log_cluster,
    told_cause,
    wait_for_master,
)
from kdump.engine.spark_installation import (
    NoSparkError,
    Spark,
    find_java,
    find_spark,
    first_line,
)
from kdump.engine.spark_java import (
    COMPILER_OPTIONS,
    JVM_OPTIONS,
    JavaProcess,
    gateway_command,
    submit_command,
)
from kdump.errors import KdumpError
from kdump.processes.isolation import environment, python_path

DEFAULT_MASTER: Final = "local[*]"

_LOCAL_MASTER: Final = re.compile(r"local(?:\[(\d+|\*)(?:\s*,\s*(\d+))?\])?")
_LOOPBACK: Final = "127.0.0.1"
_TASK_ATTEMPTS: Final = 4
"""How often a task runs if its worker dies: as often as Spark does on a cluster."""
_HEAP_PROPERTY: Final = "spark.driver.memory"
_DEFAULT_HEAP: Final = "1g"
_SQL_MODULE: Final = "pyspark.sql"
_NEEDS_SUBMIT: Final = (
    "spark.archives",
    "spark.driver.defaultJavaOptions",
    "spark.driver.extra",
    "spark.files",
    "spark.jars",
    "spark.plugins",
    "spark.submit",
)
"""Prefixes of properties that ``spark-submit`` acts on before there is a JVM."""


def master_url(master: str | None) -> str:
    """The URL of the master; a local one runs tasks again whose worker died."""
    url = master or DEFAULT_MASTER
    match = _LOCAL_MASTER.fullmatch(url)
    if match is None:
        return url
    return f"local[{match[1] or 1},{match[2] or _TASK_ATTEMPTS}]"


def is_local_master(url: str) -> bool:
    """Whether work is done on this machine, not on a cluster."""
    return bool(_LOCAL_MASTER.fullmatch(url))


def properties(master: str, spark_conf: Mapping[str, str]) -> dict[str, str]:
    """All of Spark's properties; those in ``spark_conf`` override kdump's."""
    found = {
        "spark.app.name": "kdump",
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.submit.deployMode": "client",
        # A SQL session reads these when it starts.
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # One thread per worker: there are as many workers as CPUs.
        "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
        "spark.executorEnv.PYTHONPATH": python_path(),
        "spark.executorEnv.PYTHONSAFEPATH": "1",
    }
    if is_local_master(master):
        # Connections within this machine need no resolver and pass no firewall.
        found |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    return found | dict(spark_conf)


def job_properties(master: str | None) -> dict[str, str]:
    """The properties of a Spark that only passes on the work of Python workers.

    The JVMs of a cluster compile their code quickly instead of well: on one core each, the workers
    have a sixth more of it in the first minute. On this machine they always do.

    Those that ``spark-defaults.conf`` sets stay, because Spark takes only one of the two.

    Raises:
        NoSparkError: pyspark is missing.
    """
    if is_local_master(master_url(master)):
        return {}
    configured = ""
    with contextlib.suppress(OSError):
        conf = _conf_folder(_spark_home(find_spark()))
        configured = (conf / "spark-defaults.conf").read_text(errors="replace")
    names = (f"spark.{where}.defaultJavaOptions" for where in ("driver", "executor"))
    return {name: " ".join(COMPILER_OPTIONS) for name in names if name not in configured}


def _spark_home(spark: Spark) -> Path:
    """The installation whose ``spark-submit`` runs."""
    return Path(os.environ.get("SPARK_HOME") or spark.home)


def _conf_folder(home: Path) -> Path:
    """Where the configuration of an installation is."""
    return Path(os.environ.get("SPARK_CONF_DIR") or home / "conf")


class SparkSession:
    """A Spark context and its JVM.

    The JVM starts in the background; :attr:`context` waits for it.
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
            master: as ``spark-submit`` takes it; None for all CPUs of this machine.
            spark_conf: Spark's own properties, which override kdump's.
            archive_to: where the JVM writes the archive of its classes; None for nowhere.

        Raises:
            UsageProblem: Spark does not accept the master's URL.
            NoSparkError: pyspark or Java is missing or cannot be started.
            KdumpError: the master does not listen.
        """
        self.master = master_url(master)
        self.properties = properties(self.master, spark_conf)
        self._java: JavaProcess | None = None
        self._context: Any = None
        self._is_ours = True
        spark = find_spark()
        if _active_context() is None:
            find_master(self.master)
            self._java = self._start_java(spark, archive_to)

    def _start_java(self, spark: Spark, archive_to: Path | None) -> JavaProcess:
        # Spark looks for an address by the name of the host, which may have none.
        local_ip = _LOOPBACK if self.is_local else None
        if not self.is_quick:
            home = _spark_home(spark)
            if not (home / "bin" / "spark-submit").is_file():
                raise NoSparkError(f"SPARK_HOME ({home}) has no bin/spark-submit")
            if not (_conf_folder(home) / "spark-env.sh").exists():
                find_java(os.environ)
            command = submit_command(home, self.properties)
            return JavaProcess(command, spark_home=home, local_ip=local_ip)
        java = find_java(os.environ)
        archive = find_archive(java, spark, JVM_OPTIONS, os.environ)
        if archive is not None and (archive_to is not None or not archive.is_usable()):
            archive = None
        if archive is not None:
            archive.note_use()
        heap = self.properties.get(_HEAP_PROPERTY, _DEFAULT_HEAP)
        command = gateway_command(java, spark, heap=heap, archive=archive, archive_to=archive_to)
        return JavaProcess(command, spark_home=spark.home, archive=archive, local_ip=local_ip)

    @property
    def is_quick(self) -> bool:
        """Whether the JVM can be started without ``spark-submit``."""
        return self.is_local and not any(
            name.startswith(_NEEDS_SUBMIT)
            for name in self.properties
            if name != "spark.submit.deployMode"
        )

    @property
    def is_local(self) -> bool:
        """Whether the work is done on this machine, not on a cluster."""
        return is_local_master(self.master)

    @property
    def context(self) -> Any:
        """The ``pyspark.SparkContext``; waits for Spark to start.

        Raises:
            KdumpError: Spark does not start.
        """
        if self._context is None:
            self._context = self._connect()
        return self._context

    def _connect(self) -> Any:
        active = _active_context()
        if active is not None:
            self._is_ours = False
            if _is_stopped(active):
                raise KdumpError(
                    "the Spark context of this process is stopped, or its JVM has ended:"
                    " call SparkContext.stop() and make another, or use --engine local"
                )
            return active
        # The property alone would not reach all workers.
        with environment({"PYSPARK_PYTHON": self._python()}), _own_interrupts():
            try:
                context = self._new_context()
            except KdumpError:
                self.abort()
                raise
            except Exception as failure:
                cause = self.cause() or first_line(failure)
                self.abort()
                raise NoSparkError(f"Spark did not start: {cause}") from failure
            context.setLogLevel("ERROR")
        return context

    def _python(self) -> str:
        """The Python of workers: that of this process, unless configured otherwise.

        On this machine ``PYSPARK_PYTHON``, which may be set for other programs, does not count.
        """
        ours = sys.executable
        if not self.is_local:
            ours = os.environ.get("PYSPARK_PYTHON") or ours
        return self.properties.get("spark.pyspark.python", ours)

    def _new_context(self) -> Any:
        from pyspark import SparkConf, SparkContext, java_gateway

        assert self._java is not None
        do_not_log_interrupts()
        launch_gateway: Callable[..., Any] = java_gateway.launch_gateway
        reached = self._java.wait_for_gateway()
        with environment(
            {"PYSPARK_GATEWAY_PORT": str(reached.port), "PYSPARK_GATEWAY_SECRET": reached.secret}
        ):
            gateway = launch_gateway()
        self._java.leave_nothing(gateway.jvm)
        conf = SparkConf(loadDefaults=False)
        for name, value in self.properties.items():
            conf.set(name, value)
        if self.is_local:
            return SparkContext(conf=conf, gateway=gateway)
        log_cluster(gateway.jvm)
        return wait_for_master(
            self.master, self._java, lambda: SparkContext(conf=conf, gateway=gateway)
        )

    def check(self, waiting_seconds: float) -> None:
        """Check that the cluster works.

        Raises:
            KdumpError: the cluster has no executor for this job.
        """
        if not self.is_local and self._context is not None and self._java is not None:
            check_executors(self.master, self._context, self._java, waiting_seconds)

    def cause(self) -> str | None:
        """Why Spark stopped, if its JVM has ended or logged the cause."""
        if self._java is None:
            return None
        if self._java.ends_soon():
            return self._java.reason()
        return told_cause(self._java)

    def close(self) -> None:
        """Stop Spark; on this machine without waiting for it."""
        self._end(JavaProcess.release)

    def finish(self) -> None:
        """Stop Spark, and wait for it."""
        self._end(JavaProcess.wait)

    def abort(self) -> None:
        """End Spark, whatever it is doing, and wait for it."""
        self._end(JavaProcess.abort)

    def _end(self, end_java: Callable[[JavaProcess], None]) -> None:
        context, self._context = self._context, None
        java, self._java = self._java, None
        if not self._is_ours or java is None:
            return
        if context is not None and not self.is_local and end_java is not JavaProcess.abort:
            # The cluster has to know before the JVM ends.
            with _quiet_accumulators(context), contextlib.suppress(Exception):
                context.stop()
            end_java = JavaProcess.wait
        _detach(context)
        (end_java if context is not None else JavaProcess.abort)(java)


def do_not_log_interrupts() -> None:
    """Keep py4j from logging where ^C stopped it, with the root logger: it is raised as well."""
    logging.getLogger().addFilter(_is_not_an_interrupt)


def _is_not_an_interrupt(record: logging.LogRecord) -> bool:
    failure = record.exc_info[1] if record.exc_info else None
    return record.module != "java_gateway" or not isinstance(failure, KeyboardInterrupt)


def _active_context() -> Any:
    from pyspark import SparkContext

    return SparkContext._active_spark_context


def _is_stopped(context: Any) -> bool:
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except Exception:  # noqa: BLE001 - py4j raises many kinds if the JVM is gone
        return True


def _detach(context: Any) -> None:
    """Forget a context whose JVM ends by itself, so that another can be created."""
    from pyspark import SparkContext

    if context is not None and context._accumulatorServer is not None:
        with _quiet_accumulators(context):
            # It takes half a second; nobody needs to wait.
            threading.Thread(target=context._accumulatorServer.shutdown, daemon=True).start()
    _close_gateway()
    with SparkContext._lock:
        SparkContext._active_spark_context = None
    _forget_sql_session()


def _forget_sql_session() -> None:
    """Keep a SQL session of this process, if there is one, from being taken for the next one."""
    if _SQL_MODULE in sys.modules:
        from pyspark.sql import SparkSession as SqlSession

        SqlSession._instantiatedSession = None
        SqlSession._activeSession = None


def _close_gateway() -> None:
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.close()
    SparkContext._gateway = None
    SparkContext._jvm = None


@contextlib.contextmanager
def _quiet_accumulators(context: Any) -> Iterator[None]:
    """Keep the accumulator server from printing a traceback when the JVM disconnects."""
    server = context._accumulatorServer
    if server is not None:
        server.handle_error = lambda *_: None
    yield


@contextlib.contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep the handler of ^C, which pyspark replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Passing:
    """How an accumulator adds lists: the driver's passes them on.

    Has the methods of ``pyspark.AccumulatorParam``, which is not imported before it is needed.
    """

    def __init__(self, take: Callable[[list[Any]], None] | None = None) -> None:
        self._take = take

    def __reduce__(self) -> tuple[type[Passing], tuple[()]]:
        # On a worker it collects them.
        return type(self), ()

    def zero(self, value: list[Any]) -> list[Any]:
        return []

    def addInPlace(self, value1: list[Any], value2: list[Any]) -> list[Any]:  # noqa: N802 - pyspark's name
        if self._take is None:
            value1.extend(value2)
        else:
            self._take(value2)
        return value1
