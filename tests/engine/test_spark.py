from __future__ import annotations

import contextlib
import importlib
import logging
import os
import re
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pytest

from builders.jobs import CountBatches, FailOn, KillWorker, TellExecutable, TellProcess, parent_of
from builders.programs import InterruptedProgram, in_a_fresh_process
from kdump.engine import spark as spark_engine
from kdump.engine import spark_cluster, spark_installation, spark_java, spark_session
from kdump.engine.engine_choice import EngineChoice, EngineOptions, open_engine
from kdump.engine.job import JobFailedError, Split
from kdump.engine.local import LocalEngine
from kdump.engine.spark import SparkEngine
from kdump.errors import KdumpError, UsageProblem
from kdump.storage.local_disk import local

SPARK = EngineOptions(EngineChoice.SPARK)


def test_workers_run_the_same_python(spark: SparkEngine) -> None:
    [(_, executable)] = spark.run(TellExecutable(), [Split(local("any"))])
    assert executable == sys.executable


def test_a_failure_names_the_file_and_the_byte(work: list[Split], spark: SparkEngine) -> None:
    gone = Split(local("gone/00000000000000000000.log"), 4096, None, 1)
    with pytest.raises(JobFailedError) as caught:
        list(spark.run(CountBatches(), [*work, gone]))
    assert str(caught.value) == (
        "gone/00000000000000000000.log from byte 4096: No such file or directory"
    )


def test_an_unexpected_failure_has_its_stack_trace(work: list[Split], spark: SparkEngine) -> None:
    with pytest.raises(JobFailedError, match="ZeroDivisionError: no bytes a second") as caught:
        list(spark.run(FailOn(work[-1].path), work))
    assert "builders/jobs.py" in caught.value.trace


@pytest.mark.slow
def test_a_split_whose_worker_died_runs_again(
    work: list[Split], spark: SparkEngine, tmp_path: Path
) -> None:
    job = KillWorker(work[-1].path, scar=str(tmp_path / "scar"))
    with LocalEngine() as here:
        expected = dict(here.run(CountBatches(), work))
    assert dict(spark.run(job, work)) == expected
    assert (tmp_path / "scar").exists()


@pytest.mark.slow
def test_a_split_that_kills_every_worker_is_named(work: list[Split], spark: SparkEngine) -> None:
    with pytest.raises(JobFailedError, match="each time it was tried") as caught:
        list(spark.run(KillWorker(work[0].path), work))
    assert caught.value.split.path == work[0].path


@pytest.mark.slow
def test_a_job_closed_early_does_not_delay_the_next_job(
    work: list[Split], spark: SparkEngine
) -> None:
    with contextlib.closing(spark.run(TellProcess(), work)) as results:
        next(results)
    assert len(list(spark.run(TellProcess(), work))) == len(work)


@pytest.mark.slow
def test_an_existing_context_is_used_and_not_stopped(work: list[Split], spark: SparkEngine) -> None:
    list(spark.run(TellProcess(), work))
    with open_engine(SPARK, total_bytes=0) as other:
        assert len(list(other.run(TellProcess(), work))) == len(work)
    assert len(list(spark.run(TellProcess(), work))) == len(work)


@pytest.mark.parametrize(
    ("asked", "url"),
    [
        (None, "local[*,4]"),
        ("local", "local[1,4]"),
        ("local[3]", "local[3,4]"),
        ("local[3,1]", "local[3,1]"),
        ("spark://host:7077", "spark://host:7077"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
    ],
)
def test_failed_tasks_run_again_on_a_local_master(asked: str | None, url: str) -> None:
    assert spark_session.master_url(asked) == url


def test_given_properties_override_those_of_kdump() -> None:
    found = spark_session.properties("local[2,4]", {"spark.ui.enabled": "true"})
    assert found["spark.ui.enabled"] == "true"
    assert found["spark.app.name"] == "kdump"


@pytest.mark.parametrize("master", [None, "local", "local[3,1]"])
def test_jobs_on_this_machine_need_no_spark_submit(master: str | None) -> None:
    assert not spark_session.job_properties(master)


@pytest.mark.parametrize("master", ["spark://host:7077", "local-cluster[2,1,1024]", "yarn"])
@pytest.mark.parametrize("where", ["driver", "executor"])
def test_jvms_of_a_cluster_do_not_compile_their_code_twice(master: str, where: str) -> None:
    options = spark_session.job_properties(master)[f"spark.{where}.defaultJavaOptions"]
    assert "-XX:TieredStopAtLevel=1" in options.split()


@pytest.mark.parametrize("where", ["driver", "executor"])
def test_java_options_that_an_administrator_configured_stay(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"spark.{where}.defaultJavaOptions"
    (tmp_path / "spark-defaults.conf").write_text(f"{name}  -Djava.security.krb5.conf=/etc/own\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    found = spark_session.job_properties("spark://host:7077")
    assert (name in found, len(found)) == (False, 1)


@pytest.mark.parametrize("java_home", [True, False], ids=["in JAVA_HOME", "on the path"])
def test_a_missing_java_is_reported_in_one_line(
    java_home: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path) if java_home else "")
    with pytest.raises(KdumpError) as caught:
        spark_installation.find_java(os.environ)
    where = f"in JAVA_HOME ({tmp_path})" if java_home else "on the PATH"
    assert str(caught.value) == (
        f"Spark needs Java 17 or 21, and there is none {where}: "
        "use --engine local, which needs neither Java nor Spark"
    )


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            "Error: LinkageError\njava.lang.UnsupportedClassVersionError: org/apache",
            "it needs Java 17 or 21, and {java} is older",
        ),
        ("Error occurred during initialization of VM\nToo small", "Too small"),
        ("", "{java} ended with status 1"),
    ],
)
def test_a_java_that_does_not_start_spark_is_reported_in_one_line(
    output: str, reason: str, tmp_path: Path
) -> None:
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{output}\nEND\nexit 1\n")
    java.chmod(0o755)
    process = spark_java.JavaProcess([str(java)], spark_home=tmp_path)
    try:
        with pytest.raises(KdumpError) as caught:
            process.wait_for_gateway()
    finally:
        process.abort()
    assert f"Spark did not start: {reason.format(java=java)}: use --engine local" in str(
        caught.value
    )
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("master", "configured", "told"),
    [
        (None, None, "127.0.0.1"),
        ("local[2]", None, "127.0.0.1"),
        (None, "192.0.2.7", "192.0.2.7"),
        ("local-cluster[2,1,1024]", None, "none"),
    ],
)
def test_on_this_machine_spark_needs_no_address_of_its_name(
    master: str | None,
    configured: str | None,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("bin/java", "bin/spark-submit"):
        program = tmp_path / name
        program.parent.mkdir(exist_ok=True)
        program.write_text('#!/bin/sh\necho "error: ${SPARK_LOCAL_IP:-none}" >&2\nexit 1\n')
        program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    if configured is not None:
        monkeypatch.setenv("SPARK_LOCAL_IP", configured)
    # Other tests of this process have a Spark that runs.
    monkeypatch.setattr(spark_session, "_active_context", lambda: None)
    java = spark_session.SparkSession(master, {})._java
    assert java is not None
    # Closing the session would close the gateway of that Spark.
    try:
        with pytest.raises(KdumpError, match=rf"error: {re.escape(told)}:"):
            java.wait_for_gateway()
    finally:
        java.abort()


def test_without_a_place_for_temporary_files_it_says_what_to_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    nowhere = [str(tmp_path / "missing")]
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: nowhere)
    with pytest.raises(spark_installation.NoSparkError, match=r"mount a volume .* or .*TMPDIR"):
        spark_java.JavaProcess(["java"], spark_home=tmp_path)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("foo://host:7077", "not a Spark master; Spark knows local"),
        ("localhost:7077", "not a Spark master; Spark knows local"),
        ("spark://localhost", "expected spark://HOST:PORT"),
        ("spark://localhost:port", "expected spark://HOST:PORT"),
        ("local[0,4]", "at least one core"),
    ],
)
def test_an_unknown_kind_of_master_is_refused_immediately(url: str, problem: str) -> None:
    with pytest.raises(UsageProblem, match=f"--master {re.escape(url)}: .*{re.escape(problem)}"):
        spark_cluster.find_master(url)


def test_a_port_without_a_listener_is_reported_immediately() -> None:
    with closed_port() as port, pytest.raises(KdumpError, match="Connection refused"):
        spark_cluster.find_master(f"spark://127.0.0.1:{port}")


def test_one_reachable_master_of_several_is_enough() -> None:
    with closed_port() as closed, socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        spark_cluster.find_master(f"spark://127.0.0.1:{closed},127.0.0.1:{port}")


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """Return a port that has no listener during the test."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


class ClusterLog:
    """Fake JVM that has only a log."""

    def __init__(self, *lines: str) -> None:
        self.lines = lines
        self.was_asked_again = threading.Event()
        self.was_stopped = threading.Event()

    def log_lines(self) -> list[str]:
        return list(self.lines)

    def stop_now(self) -> None:
        self.was_stopped.set()


def test_a_server_that_is_not_a_master_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_cluster, "_REGISTER_SECONDS", 0)
    java = ClusterLog("INFO ClientEndpoint: Connecting to master spark://h:1...")

    def wait_for_the_end() -> None:
        java.was_stopped.wait()
        raise OSError("the JVM is gone")

    with pytest.raises(KdumpError, match="spark://h:1 does not answer as a Spark master does"):
        spark_cluster.wait_for_master("spark://h:1", cast("Any", java), wait_for_the_end)


class AnsweringMaster(ClusterLog):
    """Fake JVM whose master answers between two looks at the log."""

    def log_lines(self) -> list[str]:
        if self.lines:
            self.was_asked_again.set()
        self.lines = (
            "INFO ClientEndpoint: Connecting to master spark://h:1...",
            *(["INFO Backend: Connected to Spark cluster with app ID app-1"] * bool(self.lines)),
        )
        return list(self.lines)

    def stop_now(self) -> None:
        super().stop_now()
        self.was_asked_again.set()


def test_a_context_may_take_its_time_once_the_master_has_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spark_cluster, "_REGISTER_SECONDS", 0)
    java = AnsweringMaster()

    def make() -> bool:
        java.was_asked_again.wait()
        return not java.was_stopped.is_set()

    assert spark_cluster.wait_for_master("spark://h:1", cast("Any", java), make)


class Cluster:
    """Fake Spark context of a cluster that only knows its executors."""

    def __init__(self, executors: int) -> None:
        self._jsc = self
        self.executors = executors

    def sc(self) -> Cluster:
        return self

    def conf(self) -> Cluster:
        return self

    def getTimeAsSeconds(self, name: str, default: str) -> int:  # noqa: N802
        return int(default.removesuffix("s"))

    def getExecutorMemoryStatus(self) -> Cluster:  # noqa: N802
        return self

    def size(self) -> int:
        return 1 + self.executors


def test_executors_that_end_immediately_are_not_waited_for() -> None:
    ended = "Executor updated: app-1/{} is now EXITED (Command exited with code 1)"
    java = cast("Any", ClusterLog(*map(ended.format, range(2))))
    spark_cluster.check_executors("spark://h:1", Cluster(1), java, 1.0)
    with pytest.raises(KdumpError, match="executors end as soon as they start: Command exited"):
        spark_cluster.check_executors("spark://h:1", Cluster(0), java, 1.0)


@pytest.mark.parametrize(
    ("url", "lines", "patience_seconds"),
    [
        ("spark://h:1", (), 10.0),
        ("spark://h:1", ("Executor added: app-1/0 on worker-1 (h:2) with 1 core(s)",), 60.0),
        ("yarn", (), 60.0),
    ],
    ids=["without room", "an executor starts", "another cluster"],
)
def test_a_cluster_without_executors_is_reported_after_a_timeout(
    url: str, lines: tuple[str, ...], patience_seconds: float
) -> None:
    java = cast("Any", ClusterLog(*lines))
    spark_cluster.check_executors(url, Cluster(0), java, patience_seconds)
    with pytest.raises(KdumpError, match=f"no executor in {patience_seconds + 1:.0f} seconds"):
        spark_cluster.check_executors(url, Cluster(0), java, patience_seconds + 1)


@pytest.mark.soak
def test_a_python_missing_on_a_worker_is_reported_with_the_machine(cache: Path) -> None:
    output = in_a_fresh_process(WITHOUT_PYTHON).stdout
    assert re.fullmatch(
        r'the Spark job failed: Cannot run program "/gone/python": .*No such file.* \(on \S+\)\n',
        output,
    )


WITHOUT_PYTHON = """
from builders.jobs import TellProcess
from kdump.errors import KdumpError
from kdump.engine.engine_choice import EngineChoice, EngineOptions, open_engine
from kdump.engine.job import Split
from kdump.storage.local_disk import local
conf = (("spark.pyspark.python", "/gone/python"),)
try:
    with open_engine(EngineOptions(EngineChoice.SPARK, spark_conf=conf), total_bytes=0) as engine:
        list(engine.run(TellProcess(), [Split(local("any"))]))
except KdumpError as failure:
    print(failure)
"""

WITHOUT_JAVA = """
from builders.jobs import KillJava
from kdump.errors import KdumpError
from kdump.engine.engine_choice import EngineChoice, EngineOptions, open_engine
from kdump.engine.job import Split
from kdump.storage.local_disk import local
try:
    with open_engine(EngineOptions(EngineChoice.SPARK, master="local[1]"), total_bytes=0) as engine:
        list(engine.run(KillJava(), [Split(local("any"))]))
except KdumpError as failure:
    print(failure)
"""


@pytest.mark.slow
def test_a_killed_jvm_is_reported_in_one_line(cache: Path) -> None:
    done = in_a_fresh_process(WITHOUT_JAVA)
    assert done.stdout == "the Spark job failed: Java was ended by SIGKILL (out of memory?)\n"
    assert done.stderr == ""


STOPPED = """
import sys
from builders.jobs import TellProcess
from kdump.errors import KdumpError
from kdump.engine.engine_choice import EngineChoice, EngineOptions, open_engine
from kdump.engine.job import Split
from kdump.storage.local_disk import local
from kdump.engine.spark_session import SparkSession
session = SparkSession("local[1]", {})
session.context._jsc.stop()
for _ in range(2):
    try:
        with open_engine(EngineOptions(EngineChoice.SPARK), total_bytes=0) as engine:
            list(engine.run(TellProcess(), [Split(local("any"))]))
    except KdumpError as failure:
        print(failure)
    session._java.stop_now()
"""


@pytest.mark.soak
def test_a_stopped_context_is_reported_in_one_line(cache: Path) -> None:
    output = in_a_fresh_process(STOPPED).stdout.splitlines()
    assert len(output) == 2
    for line in output:
        assert line.startswith("the Spark context of this process is stopped")


NO_PYSPARK = """
import sys
sys.modules["pyspark"] = None
from kdump.errors import KdumpError
from kdump.engine.engine_choice import EngineChoice, EngineOptions, open_engine
try:
    with open_engine(EngineOptions(EngineChoice.SPARK), total_bytes=0):
        pass
except KdumpError as failure:
    print(failure)
"""


def test_a_missing_pyspark_is_reported_in_one_line() -> None:
    output = in_a_fresh_process(NO_PYSPARK).stdout
    assert output == (
        "Spark is not installed ('pip install kafka-kdump' also installs it): "
        "use --engine local, which needs neither Java nor Spark\n"
    )


NOTHING_OF_SPARK = """
import sys
from kdump.engine.engine_choice import EngineOptions, open_engine
import kdump.cli.options.engine_options, kdump.engine.spark
from builders.jobs import TellProcess
from kdump.engine.job import Split
from kdump.storage.local_disk import local
with open_engine(total_bytes=0) as engine:
    list(engine.run(TellProcess(), [Split(local("any"))]))
print("pyspark" in sys.modules, "py4j" in sys.modules)
"""


@pytest.mark.slow
def test_pyspark_is_imported_only_when_it_is_used() -> None:
    assert in_a_fresh_process(NOTHING_OF_SPARK).stdout.split() == ["False", "False"]


WHOLE_RUN = """
import os
from builders.jobs import TellProcess
from kdump.engine.engine_choice import EngineChoice, EngineOptions, open_engine
from kdump.engine.job import Split
from kdump.storage.local_disk import local
options = EngineOptions(EngineChoice.SPARK, master="local[1]")
with open_engine(options, total_bytes=0) as engine:
    for split, process in engine.run(TellProcess(), [Split(local("any"))]):
        print(split.path, process != os.getpid())
"""


@pytest.mark.slow
def test_spark_itself_prints_nothing(cache: Path) -> None:
    done = in_a_fresh_process(WHOLE_RUN)
    assert (done.stdout, done.stderr) == ("any True\n", "")


INTERRUPTED = """
import sys
from builders.jobs import WaitForEver
from kdump.engine.engine_choice import EngineChoice, EngineOptions, open_engine
from kdump.engine.job import Split
options = EngineOptions(EngineChoice.SPARK, master="local[2]")
with open_engine(options, total_bytes=0) as engine:
    splits = [Split(str(number), 0, None, 1 << 30) for number in range(2)]
    list(engine.run(WaitForEver(sys.argv[1]), splits))
"""


@pytest.mark.slow
def test_an_interrupt_ends_all_processes(tmp_path: Path, cache: Path) -> None:
    interrupted = InterruptedProgram(INTERRUPTED, tmp_path)
    interrupted.wait_for_workers(2)
    java = parent_of(parent_of(interrupted.workers[0]))
    assert "java" in Path(f"/proc/{java}/exe").readlink().parts
    interrupted.interrupt()
    assert not interrupted.workers_left()
    assert not Path(f"/proc/{java}").exists()


def test_py4j_does_not_log_where_an_interrupt_stopped_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = importlib.import_module("py4j.java_gateway").GatewayClient()
    connection = mock.Mock(socket=None)
    connection.send_command.side_effect = KeyboardInterrupt
    monkeypatch.setattr(client, "_get_connection", lambda: connection)
    monkeypatch.setattr(logging.getLogger(), "filters", [])
    spark_session.do_not_log_interrupts()
    with pytest.raises(KeyboardInterrupt):
        client.send_command("c\n")
    assert not caplog.records
    logging.getLogger().error("something else")
    assert len(caplog.records) == 1


def test_a_sql_session_is_forgotten_with_its_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql import SparkSession as SqlSession

    for name in ("_instantiatedSession", "_activeSession"):
        monkeypatch.setattr(SqlSession, name, object())
    spark_session._forget_sql_session()
    assert SqlSession._instantiatedSession is None
    assert SqlSession._activeSession is None


@pytest.mark.parametrize(
    "error",
    [
        "ModuleNotFoundError: No module named 'kdump'",
        "base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has version: 3.9",
    ],
)
def test_an_executor_with_another_python_is_reported_with_what_to_do(error: str) -> None:
    failure = RuntimeError(
        "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
        f': PythonException: Traceback:\n  File "worker.py", line 1\n{error}\n\n\tat org.apache.X'
    )
    assert spark_engine._reason(failure) == (
        f"{error}: executors need the Python of the driver, with kdump;"
        " spark.pyspark.python names theirs"
    )


@pytest.mark.parametrize(
    ("master", "expected"),
    [("local[2]", sys.executable), ("spark://127.0.0.1:1", "/opt/python")],
)
def test_only_a_cluster_has_the_python_that_the_environment_names(
    master: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    session = spark_session.SparkSession.__new__(spark_session.SparkSession)
    session.master = spark_session.master_url(master)
    session.properties = {}
    assert session._python() == expected


def test_a_spark_home_without_spark_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr(spark_session, "_active_context", lambda: None)
    with pytest.raises(
        KdumpError, match=r"^SPARK_HOME \(.*\) has no bin/spark-submit: use --engine"
    ):
        spark_session.SparkSession("local-cluster[1,1,1024]", {})
