"""Partitions are described in workers if they are many, with the same results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from builders.in_process import run_kdump
from builders.log_directories import write_log_directory, write_partition
from builders.programs import PYTHON_PATH
from kdump.jobs.listing import list_partitions as partition_listing

LOG = f"{0:020d}.log"
PROCESSES = """
import json, os, sys
from kdump.jobs.listing.list_partitions import described_partitions
from kdump.log.directory import DirectoryKind
from kdump.storage.local_disk import local

root, described = described_partitions(
    local(sys.argv[1]),
    DirectoryKind.LOG_DIRECTORY,
    lambda name, key: True,
    lambda partition, root, problems: (os.getpid(), partition.path.name),
)
print(json.dumps([os.getpid(), root.unreadable, [each.description for each in described]]))
"""


def many_partitions(path: Path, count: int) -> Path:
    """Write partitions; one cannot be listed, one has a malformed file, one a swap to finish."""
    for number in range(count):
        write_partition(path / f"t-{number}", {0: b"x" * number})
    (path / "t-1" / LOG).unlink()
    os.mkfifo(path / "t-1" / LOG)
    (path / "t-2" / "partition.metadata").write_bytes(b"not a version")
    (path / "t-3" / f"{0:020d}.log.swap").write_bytes(b"")
    (path / "no partition").mkdir()
    return write_log_directory(path, recovery_points={("t", 2): 7})


@pytest.mark.slow
@pytest.mark.parametrize("is_many", [False, True])
def test_only_many_partitions_are_described_in_workers(tmp_path: Path, is_many: bool) -> None:
    count = partition_listing._LEAST_FOR_WORKERS - (0 if is_many else 1)
    path = many_partitions(tmp_path / "logs", count)
    command = [sys.executable, "-c", PROCESSES, str(path)]
    environment = os.environ | {"PYTHONPATH": PYTHON_PATH, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    own, unreadable, described = json.loads(done.stdout)
    assert unreadable == ["t-1"]
    assert [each and each[1] for each in described] == [
        None if number == 1 else f"t-{number}" for number in range(count)
    ]
    processes = {each[0] for each in described if each}
    assert (own not in processes) is is_many


@pytest.mark.parametrize("words", [["ls"], ["ls", "--output", "json"], ["info"]], ids=" ".join)
def test_workers_report_what_this_process_reports(tmp_path: Path, words: list[str]) -> None:
    path = many_partitions(tmp_path / "logs", 5)
    here = run_kdump([*words, str(path)], tmp_path)
    with patch.object(partition_listing, "_LEAST_FOR_WORKERS", 0):
        assert run_kdump([*words, str(path)], tmp_path) == here
    assert b"t-1" in here.stderr
    assert here.exit_status == 12
