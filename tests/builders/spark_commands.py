"""A Spark in a process of its own, which runs command lines and reads tables one after another."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from builders.in_process import Outcome
from builders.programs import PYTHON_PATH

MASTER: Final = "local-cluster[2,1,1024]"
"""A cluster whose two executors are processes of this machine."""
_PROGRAM: Final = """
import json, sys
from pathlib import Path
from builders.in_process import run_kdump
from kdump.engine.spark_session import SparkSession, job_properties

master, given = sys.argv[1:]
spark = SparkSession(master, job_properties(master) | json.loads(given))
context = spark.context
jobs = context._jsc.sc().statusStore()
before = 0


def run(words, folder):
    outcome = run_kdump(words, Path(folder))
    return [outcome.exit_status, outcome.stdout.decode(), outcome.stderr.decode()]


def load(options, path):
    import pyarrow as pa
    from kdump.pipeline.data_source import sql_session

    try:
        frame = sql_session(context).read.format("kafka-log").options(**options).load()
        found = frame.toArrow()
    except Exception as failure:
        return str(failure)
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, found.schema) as writer:
        writer.write_table(found)


for line in sys.stdin:
    name, *asked = json.loads(line)
    said = {"run": run, "load": load}[name](*asked)
    done = jobs.jobsList(None).size()
    print(json.dumps([said, done - before]), flush=True)
    before = done
spark.finish()
"""
_READ_QUICKLY: Final = {
    # A plan for some hundred rows is not worth compiling.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.session.timeZone": "UTC",
}

Run = Callable[[Sequence[str], Path], Outcome]
"""Runs a command line in a working directory."""


class LoadFailedError(Exception):
    """What Spark says instead of a table."""


class SparkProcess:
    """A process with one Spark context."""

    def __init__(self, master: str, process: subprocess.Popen[str], folder: Path) -> None:
        self.master = master
        self._process = process
        self._folder = folder
        self._numbers = itertools.count()

    def run(self, words: Sequence[str], folder: Path) -> Outcome:
        """Run a command line on this Spark, which has to use it."""
        (status, stdout, stderr), jobs = self._ask(
            "run", [*words, "--master", self.master], str(folder)
        )
        assert jobs, "the command has not used the cluster"
        return Outcome(stdout.encode(), stderr.encode(), status)

    def load(self, **options: str) -> pa.Table:
        """Read a table by the data source.

        Raises:
            LoadFailedError: Spark cannot.
        """
        path = self._folder / f"loaded-{next(self._numbers)}"
        failure, jobs = self._ask("load", options, str(path))
        if failure is not None:
            raise LoadFailedError(failure)
        assert jobs, "the table was not read by a job"
        with pa.OSFile(str(path)) as file:
            found: pa.Table = pa.ipc.open_file(file).read_all()
        path.unlink()
        return found

    def _ask(self, *request: Any) -> tuple[Any, int]:
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        requests.write(json.dumps(request) + "\n")
        requests.flush()
        line = answers.readline()
        assert line, f"the process has ended with {self._process.wait()}"
        said, jobs = json.loads(line)
        return said, jobs


@contextlib.contextmanager
def spark_process(
    temporary: Path, master: str = MASTER, properties: Mapping[str, str] | None = None
) -> Iterator[SparkProcess]:
    """Start Spark in a process of its own.

    Its JVMs have the environment of this moment. To start them takes more seconds than to use them.

    Args:
        temporary: a folder for all temporary files.
        master: URL of Spark's master.
        properties: Spark's own properties.
    """
    folders = {"TMPDIR": str(temporary), "SPARK_LOCAL_DIRS": str(temporary)}
    given = json.dumps(_READ_QUICKLY | dict(properties or {}))
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, master, given],
        env=os.environ | folders | {"PYTHONPATH": PYTHON_PATH},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield SparkProcess(master, process, temporary)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait() == 0


@contextlib.contextmanager
def commands_on_a_cluster(temporary: Path) -> Iterator[Run]:
    """Start a Spark cluster in a process of its own, and yield what runs a command line there."""
    with spark_process(temporary) as spark:
        yield spark.run
