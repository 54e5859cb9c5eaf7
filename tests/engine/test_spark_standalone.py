"""kdump on Spark's standalone cluster, whose machines fail.

Each command answers what the local engine answers, and writes the same bytes, whatever happens to
the workers. The command whose driver dies leaves nothing that the next run does not finish.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from builders.cluster_logs import write_cluster_logs
from builders.compactable_directories import NOW_MS
from builders.in_process import run_kdump
from builders.spark_standalone import StandaloneCluster, kill_machine, start_kdump
from builders.trees import contents_of
from builders.waiting import until
from kdump.formats.names import LOCK_FILE, FileStage

pytestmark = pytest.mark.soak

VERIFY: Final = ("verify", "--output", "json", "logs")
EXPORT: Final = ("export", "--output", "json", "--out", "exported", "logs")
GROUPS: Final = ("groups", "--output", "json", "logs")
COMPACT: Final = (
    *("compact", "--output", "json", "--now", str(NOW_MS), "--config", "cleanup.policy=compact"),
    *("--topic", "users", "--topic", "__consumer_offsets", "logs"),
)
COMMANDS: Final = (VERIFY, EXPORT, GROUPS, COMPACT)
REDUCING: Final = 1
"""The stage in which compaction finds the latest records, from what the stage before it wrote."""
STATUS_CHANGES: Final = re.compile(rb'"(changed_ns|fingerprint)": ?[^,}]+')
"""When a source's status last changed, and what is made of it."""
Popen = subprocess.Popen[str]

every_command = pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    with StandaloneCluster(tmp_path_factory.mktemp("standalone")) as running:
        yield running


@pytest.fixture
def one_worker(cluster: StandaloneCluster) -> Iterator[StandaloneCluster]:
    """Return the cluster with a worker of its own."""
    cluster.add_worker()
    yield cluster
    cluster.remove_workers()


@pytest.fixture
def workers(one_worker: StandaloneCluster) -> StandaloneCluster:
    """Return the cluster with two workers of its own."""
    one_worker.add_worker()
    return one_worker


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cluster_logs(tmp_path_factory.mktemp("written") / "logs")


@pytest.fixture
def work(logs: Path, tmp_path: Path) -> Path:
    """Return a working directory with ``logs``, a log directory."""
    shutil.copytree(logs, tmp_path / "work" / "logs")
    return tmp_path / "work"


class Local:
    """What the local engine answers and leaves in a working directory, which is then as before."""

    def __init__(self, command: Sequence[str], work: Path) -> None:
        before = work.with_name("before")
        shutil.copytree(work, before)
        self.done = run_kdump([*command, "--engine", "local"], work)
        self.files = files_in(work)
        shutil.rmtree(work)
        before.rename(work)


def on_cluster(command: Sequence[str], cluster: StandaloneCluster, work: Path) -> Popen:
    return start_kdump(*command, "--master", cluster.url, cwd=work, temporary=temporary_of(work))


def temporary_of(work: Path) -> Path:
    return work.with_name("temporary")


def check(running: Popen, expected: Local, work: Path) -> None:
    """Check that a command answers and writes what it does locally, and leaves nothing else."""
    answer, said = running.communicate()
    assert said == expected.done.stderr.decode()
    assert running.returncode == expected.done.exit_status
    assert without_times(answer) == without_times(expected.done.stdout.decode())
    assert files_in(work) == expected.files
    assert contents_of(temporary_of(work)) == {}


def without_times(answer: str) -> str:
    return re.sub(r'"seconds": ?[0-9.]+', "", answer)


def files_in(work: Path) -> dict[str, bytes]:
    """Return the files, but of a manifest not when the status of its sources last changed.

    That is when the sources were copied here.
    """
    return {name: STATUS_CHANGES.sub(b"", each) for name, each in contents_of(work).items()}


def is_empty(folder: Path) -> bool:
    return not any(folder.iterdir())


def has_begun_to_write(running: Popen, work: Path) -> bool:
    """Whether compaction has begun to write a new segment, or has ended."""
    return running.poll() is not None or any(work.rglob(f"*{FileStage.CLEANED.value}*"))


def files_without_lock(work: Path) -> dict[str, bytes]:
    """Return the files; the file that a killed driver had locked may stay, as a broker's does."""
    return {name: each for name, each in files_in(work).items() if name != f"logs/{LOCK_FILE}"}


@every_command
def test_a_worker_that_is_killed_changes_no_result(
    workers: StandaloneCluster, work: Path, command: Sequence[str]
) -> None:
    expected = Local(command, work)
    running = on_cluster(command, workers, work)
    workers.first_at_work(running).kill()
    check(running, expected, work)
    workers.wait_until_idle()


@every_command
def test_a_worker_that_is_added_takes_over_from_one_that_is_slow(
    one_worker: StandaloneCluster, work: Path, command: Sequence[str]
) -> None:
    expected = Local(command, work)
    running = on_cluster(command, one_worker, work)
    slow = one_worker.first_at_work(running)
    slow.freeze()
    added = one_worker.add_worker()
    until(added.has_a_task, "the added worker has a task")
    slow.thaw()
    check(running, expected, work)


def test_a_worker_that_is_killed_takes_the_keys_that_it_has_found_with_it(
    workers: StandaloneCluster, work: Path
) -> None:
    expected = Local(COMPACT, work)
    running = on_cluster(COMPACT, workers, work)
    workers.first_at_work(running, REDUCING).kill()
    check(running, expected, work)


def test_a_task_that_runs_twice_writes_one_file(workers: StandaloneCluster, work: Path) -> None:
    expected = Local(EXPORT, work)
    speculating = ("--spark-conf", "spark.speculation=true")
    running = on_cluster((*EXPORT, *speculating), workers, work)
    slow = workers.first_at_work(running)
    slow.freeze()
    check(running, expected, work)
    slow.thaw()
    workers.wait_until_idle()


@every_command
def test_a_driver_that_is_killed_leaves_nothing_behind(
    workers: StandaloneCluster, work: Path, command: Sequence[str]
) -> None:
    expected = Local(command, work)
    running = on_cluster(command, workers, work)
    workers.first_at_work(running)
    if command is COMPACT:
        until(lambda: has_begun_to_write(running, work), "a new segment is written")
    running.kill()
    running.communicate()
    assert running.returncode == -signal.SIGKILL
    workers.wait_until_idle()
    until(lambda: is_empty(temporary_of(work)), "the temporary files of the driver are deleted")
    again = run_kdump([*command, "--engine", "local"], work)
    assert again.exit_status == expected.done.exit_status
    assert files_without_lock(work) == expected.files


def test_executors_end_if_the_machine_of_the_driver_dies(
    workers: StandaloneCluster, work: Path
) -> None:
    running = on_cluster(VERIFY, workers, work)
    workers.first_at_work(running)
    kill_machine(running.pid)
    running.communicate()
    workers.wait_until_idle()


def test_executors_run_the_python_of_an_archive(one_worker: StandaloneCluster, work: Path) -> None:
    expected = Local(VERIFY, work)
    python, used = work.with_name("python"), work.with_name("used")
    python.write_text(f'#!/bin/sh\necho >>"{used}"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    archive = work.with_name("env.tar.gz")
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(python, "bin/python")
    properties = (f"spark.archives={archive}#env", "spark.pyspark.python=./env/bin/python")
    options = (word for each in properties for word in ("--spark-conf", each))
    check(on_cluster((*VERIFY, *options), one_worker, work), expected, work)
    assert used.exists()


def test_a_cluster_without_workers_is_named(cluster: StandaloneCluster, work: Path) -> None:
    options = ("--spark-conf", "spark.scheduler.maxRegisteredResourcesWaitingTime=1s")
    running = on_cluster((*VERIFY, *options), cluster, work)
    _, said = running.communicate()
    assert said.startswith(f"kdump: {cluster.url} has started no executor in ")
    assert running.returncode == 8
    assert is_empty(temporary_of(work))
