"""A broker that is started, stopped or killed while a directory is read leaves no false finding."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from builders import busy_broker
from builders.cluster_jvms import ClusterJvms
from builders.cluster_nodes import ALONE, Node
from builders.kraft_cluster import KraftCluster
from builders.memory import in_memory
from builders.ports import HOST

pytestmark = [pytest.mark.soak, pytest.mark.differential, pytest.mark.slow]

COMMANDS: Final = {
    ("ls",): 0,
    ("verify",): 0,
    ("verify", "--deep"): 0,
    ("grep", "no record has this"): 1,
    ("export", "--out", "exported"): 0,
    ("groups",): 0,
    ("txns",): 0,
}
"""Commands over log directories, with the status that they have where nothing is wrong."""
HARMLESS: Final = (
    "in use by process",
    "not exported",
    "that may have remote.storage.enable",  # a broker that was killed leaves old checkpoints
)
"""What is said of directories in which nothing is wrong."""


@contextmanager
def read_all_the_time(log_dirs: list[str], folder: Path) -> Iterator[list[str]]:
    """Run the commands in turns, in processes of their own; yields what they complain of."""
    complaints: list[str] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            for words, status in COMMANDS.items():
                shutil.rmtree(folder / "exported", ignore_errors=True)
                command = [sys.executable, "-m", "kdump", *words, *log_dirs]
                done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
                lines = [
                    each
                    for each in done.stderr.splitlines()
                    if not any(known in each for known in HARMLESS)
                ]
                if lines or done.returncode != status:
                    text = "\n".join([*lines[:5], done.stdout[-3000:]])
                    complaints.append(f"{words}: {done.returncode}\n{text}")

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield complaints
    finally:
        stop.set()
        thread.join()


def is_any_left(broker: KraftCluster) -> bool:
    """Whether a topic that was deleted has directories: a start would rename them to -stray."""
    found = [path for each in broker.log_dirs() for path in each.glob("brief-*")]
    return any(not path.name.endswith("-delete") for path in found)


def test_nothing_that_a_start_or_a_stop_does_is_damage(
    cluster_jvms: ClusterJvms, fixtures: Path, tmp_path: Path
) -> None:
    node = Node(1, ("d1", "d2"), "broker,controller")
    address = f"{HOST}:{node.client_port}"
    with in_memory(tmp_path) as folder:
        shutil.copytree(fixtures / "out" / "clean", folder / "clean")
        broker = KraftCluster(
            cluster_jvms, folder / "clean", [node], properties=ALONE | busy_broker.PROPERTIES
        )
        log_dirs = [str(each) for each in broker.log_dirs()]
        with read_all_the_time(log_dirs, folder) as complaints:
            for number in range(6):
                broker.start()
                with busy_broker.busy(address):
                    time.sleep(2)
                while is_any_left(broker):
                    time.sleep(0.1)
                if number % 2:
                    broker.stop()
                broker.kill()
        assert complaints == []
