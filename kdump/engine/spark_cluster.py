"""Notice that a Spark cluster does not work, and say so in one line.

Spark retries for a minute or more if a master does not answer, and forever if no executor starts;
it only logs why.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from kdump.engine.spark_java import JavaProcess
from kdump.errors import KdumpError, UsageProblem, reason_of

_MASTERS: Final = (
    r"local(\[(\d+|\*)(\s*,\s*\d+)?\])?",
    r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]",
    r"spark://.+",
    r"k8s://.+",
    r"yarn",
)
"""What ``SparkContext.createTaskScheduler`` and ``SparkSubmit`` accept (``SparkMasterRegex``)."""
_KNOWN: Final = "local[N], spark://HOST:PORT, yarn and k8s://HOST:PORT"

_CONNECT_SECONDS: Final = 5
_REGISTER_SECONDS: Final = 20
"""After this time Spark asks a master again (``StandaloneAppClient``)."""
_EXECUTORS_SECONDS: Final = 60
"""How long granted executors may take to start. YARN and Kubernetes do not tell when they grant
them."""
_GRANT_SECONDS: Final = 10
"""How long a standalone master may take to grant the first; if it has room it does so at once."""
_WAITING_PROPERTY: Final = "spark.scheduler.maxRegisteredResourcesWaitingTime"
_POLL_SECONDS: Final = 0.1

_LOGGERS: Final = (
    "org.apache.spark.deploy.client.StandaloneAppClient$ClientEndpoint",
    "org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend",
)
_REGISTERING: Final = "Connecting to master"
_REGISTERED: Final = "Connected to Spark cluster with app ID"
_GRANTED_EXECUTOR: Final = "Executor added: "
_ENDED_EXECUTOR: Final = re.compile(
    r"Executor updated: \S+ is now (?:EXITED|FAILED|LOST)(?: \((.+)\))?"
)
_ENOUGH_ENDED: Final = 2
_TELLING: Final = (
    re.compile(r"(Application has been killed. Reason: .+)"),
    re.compile(r"(All masters are unresponsive)"),
    re.compile(r"(Master removed our application: .+)"),
)
"""Lines of Spark's log that give the cause, the most specific first."""


def find_master(url: str) -> None:
    """Check that the master exists, before a JVM is started for it.

    Raises:
        UsageProblem: Spark does not accept the URL.
        KdumpError: nothing listens at any of its addresses.
    """
    if not any(re.fullmatch(pattern, url) for pattern in _MASTERS):
        raise UsageProblem(f"--master {url}: not a Spark master; Spark knows {_KNOWN}")
    if re.match(r"local\[0", url):
        raise UsageProblem(f"--master {url}: Spark needs at least one core")
    if not url.startswith("spark://"):
        return
    problems = []
    for address in url.removeprefix("spark://").split(","):
        host, port = _host_and_port(url, address)
        try:
            socket.create_connection((host, port), _CONNECT_SECONDS).close()
        except OSError as failure:
            problems.append(f"{address}: {reason_of(failure)}")
        else:
            return
    raise KdumpError(f"Spark master {'; '.join(problems)}: start it, or correct --master")


def _host_and_port(url: str, address: str) -> tuple[str, int]:
    expected = UsageProblem(f"--master {url}: not a Spark master; expected spark://HOST:PORT")
    try:
        parts = urlsplit(f"spark://{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise expected from None
    if host is None or port is None or parts.path or parts.query or parts.username:
        raise expected
    return host, port


def log_cluster(jvm: Any) -> None:
    """Let a JVM (``py4j.java_gateway.JVMView``) log the messages of a cluster's master."""
    log4j = jvm.org.apache.logging.log4j
    for logger in _LOGGERS:
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.INFO)


def wait_for_master(url: str, java: JavaProcess, make_context: Callable[[], Any]) -> Any:
    """Make a context on a cluster, without waiting for a master that does not answer.

    A context also takes time when the master has answered: seconds on a busy machine.

    Raises:
        KdumpError: the master does not answer.
        Exception: what ``make_context`` raises.
    """
    made: list[Any] = []
    failed: list[BaseException] = []

    def make() -> None:
        try:
            made.append(make_context())
        except BaseException as failure:  # noqa: BLE001 - raised again by the waiting thread
            failed.append(failure)

    thread = threading.Thread(target=make, name="kdump Spark context", daemon=True)
    thread.start()
    registering_since: float | None = None
    while thread.is_alive():
        thread.join(_POLL_SECONDS)
        lines = java.log_lines()
        if any(_REGISTERED in line for line in lines):
            thread.join()
        elif registering_since is None:
            if any(_REGISTERING in line for line in lines):
                registering_since = time.monotonic()
        elif time.monotonic() > registering_since + _REGISTER_SECONDS and not made:
            java.stop_now()
            thread.join()
            raise KdumpError(f"{url} does not answer as a Spark master does: correct --master")
    if failed:
        raise failed[0]
    return made[0]


def check_executors(url: str, context: Any, java: JavaProcess, waiting_seconds: float) -> None:
    """Check that a cluster has an executor, or still has time to start one.

    Args:
        context: the ``pyspark.SparkContext``.
        waiting_seconds: the time since the last answer of a task.

    Raises:
        KdumpError: all executors have ended, or none has started in time.
    """
    # The driver counts as one.
    if context._jsc.sc().getExecutorMemoryStatus().size() > 1:
        return
    lines = java.log_lines()
    ended = [match[1] for line in lines if (match := _ENDED_EXECUTOR.search(line))]
    if len(ended) >= _ENOUGH_ENDED:
        raise KdumpError(f"{url}: executors end as soon as they start: {ended[-1]}; see their logs")
    is_granted = any(_GRANTED_EXECUTOR in line for line in lines)
    is_standalone = url.startswith("spark://")
    default = _GRANT_SECONDS if is_standalone and not is_granted else _EXECUTORS_SECONDS
    conf = context._jsc.sc().conf()
    if waiting_seconds > conf.getTimeAsSeconds(_WAITING_PROPERTY, f"{default}s"):
        raise KdumpError(
            f"{url} has started no executor in {waiting_seconds:.0f} seconds: are its cores and"
            f" memory in use? (--spark-conf {_WAITING_PROPERTY}=10min waits longer)"
        )


def told_cause(java: JavaProcess) -> str | None:
    """Why Spark stopped or does not start, if its log has the cause."""
    lines = java.log_lines()
    for pattern in _TELLING:
        for line in reversed(lines):
            if match := pattern.search(line):
                return match[1]
    return None
