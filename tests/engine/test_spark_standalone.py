"""kdump on Spark's standalone cluster, whose workers die.

The command reads the directory of a real broker. A worker is killed when it has begun its first
task, so that work of it is always lost.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from builders.in_process import run_kdump
from builders.spark_standalone import StandaloneCluster, start_kdump
from builders.trees import contents_of

pytestmark = pytest.mark.soak

VERIFY: Final = ("verify", "--output", "json", "logs")
Popen = subprocess.Popen[str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as running:
        yield running


@pytest.fixture
def workers(cluster: StandaloneCluster) -> Iterator[StandaloneCluster]:
    """Return the cluster with two workers of its own."""
    cluster.add_worker()
    cluster.add_worker()
    yield cluster
    cluster.remove_workers()


@pytest.fixture
def work(fixtures: Path, tmp_path: Path) -> Path:
    """Return a working directory with ``logs``, the log directory of a broker."""
    shutil.copytree(fixtures / "out" / "clean" / "d1", tmp_path / "work" / "logs")
    return tmp_path / "work"


class Local:
    """What the local engine answers and leaves in a working directory, which is then as before."""

    def __init__(self, command: Sequence[str], work: Path) -> None:
        before = work.with_name("before")
        shutil.copytree(work, before)
        self.done = run_kdump([*command, "--engine", "local"], work)
        self.files = contents_of(work)
        shutil.rmtree(work)
        before.rename(work)


def on_cluster(command: Sequence[str], cluster: StandaloneCluster, work: Path) -> Popen:
    return start_kdump(*command, "--master", cluster.url, cwd=work)


def check(running: Popen, expected: Local, work: Path) -> None:
    """Check that a command answers and writes what it does locally."""
    answer, said = running.communicate()
    assert said == expected.done.stderr.decode()
    assert running.returncode == expected.done.exit_status
    assert without_times(answer) == without_times(expected.done.stdout.decode())
    assert contents_of(work) == expected.files


def without_times(answer: str) -> str:
    return re.sub(r'"seconds": ?[0-9.]+', "", answer)


def test_a_worker_that_is_killed_changes_no_result(workers: StandaloneCluster, work: Path) -> None:
    expected = Local(VERIFY, work)
    running = on_cluster(VERIFY, workers, work)
    workers.first_at_work().kill()
    check(running, expected, work)
    workers.wait_until_idle()
