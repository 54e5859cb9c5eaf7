"""Command lines that run one after another in one process, on one Spark context of a cluster."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from builders.in_process import Outcome
from builders.programs import PYTHON_PATH

MASTER: Final = "local-cluster[2,1,1024]"
"""A cluster whose two executors are processes of this machine."""
_PROGRAM: Final = """
import json, sys
from pathlib import Path
from builders.in_process import run_kdump
from kdump.engine.spark_session import SparkSession, job_properties

spark = SparkSession(sys.argv[1], job_properties(sys.argv[1]))
context = spark.context
before = 0
for line in sys.stdin:
    words, folder = json.loads(line)
    outcome = run_kdump(words, Path(folder))
    texts = [outcome.stdout.decode(), outcome.stderr.decode()]
    jobs = context._jsc.sc().statusStore().jobsList(None).size()
    print(json.dumps([outcome.exit_status, *texts, jobs - before]), flush=True)
    before = jobs
spark.finish()
"""

Run = Callable[[Sequence[str], Path], Outcome]
"""Runs a command line in a working directory."""


@contextlib.contextmanager
def commands_on_a_cluster(temporary: Path) -> Iterator[Run]:
    """Start a Spark cluster in a process of its own, and yield what runs a command line there.

    Its JVMs have the environment of this moment. A command takes more seconds to start a cluster
    than to use it.
    """
    folders = {"TMPDIR": str(temporary), "SPARK_LOCAL_DIRS": str(temporary)}
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, MASTER],
        env=os.environ | folders | {"PYTHONPATH": PYTHON_PATH},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        requests, answers = process.stdin, process.stdout
        assert requests is not None
        assert answers is not None

        def run(words: Sequence[str], folder: Path) -> Outcome:
            requests.write(json.dumps([[*words, "--master", MASTER], str(folder)]) + "\n")
            requests.flush()
            line = answers.readline()
            assert line, f"the process has ended with {process.wait()}"
            status, stdout, stderr, jobs = json.loads(line)
            assert jobs, "the command has not used the cluster"
            return Outcome(stdout.encode(), stderr.encode(), status)

        yield run
        requests.close()
        assert process.wait() == 0
