"""A directory that is named twice is one directory, however its name is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from builders.batches import batches
from builders.in_process import run_kdump
from builders.log_directories import write_log_directory, write_partition
from kdump.storage.local_disk import local
from kdump.storage.location import each_once

COMMANDS = {
    "verify": ("verify",),
    "ls": ("ls",),
    "info": ("info",),
    "lookup": ("lookup", "--offset", "3"),
    "groups": ("groups",),
    "grep": ("grep", "--all-replicas", "--count", "."),
    "query": ("query", "SELECT COUNT(*) FROM partitions"),
    "records": ("query", "--all-replicas", "SELECT COUNT(*) FROM records"),
}
OTHER_NAMES = ["logs/", "./logs", "link", "../node/logs"]


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Return the directory around a log directory, and around a link to it."""
    ends = {("orders", 0): 9}
    path = write_log_directory(tmp_path / "node/logs", recovery_points=ends, high_watermarks=ends)
    write_partition(path / "orders-0", {0: b"".join(batches(3))})
    (tmp_path / "node/link").symlink_to("logs")
    return path.parent


@pytest.mark.parametrize("command", COMMANDS)
def test_it_is_read_once(command: str, node: Path) -> None:
    words = COMMANDS[command]
    once = run_kdump((*words, "--output", "jsonl", "logs"), node)
    twice = run_kdump((*words, "--output", "jsonl", "logs", *OTHER_NAMES), node)
    assert without_times(twice.stdout) == without_times(once.stdout)
    assert (twice.stderr, twice.exit_status) == (once.stderr, once.exit_status)


def without_times(output: bytes) -> bytes:
    return re.sub(rb'"seconds":[0-9.e-]+', b"", output)


def test_a_partition_named_twice_is_listed_once(node: Path) -> None:
    outcome = run_kdump(("ls", "--output", "jsonl", "logs/orders-0", "link/orders-0"), node)
    assert outcome.stdout.count(b'"orders-0"') == 1


def test_two_names_of_one_file_are_two_files(node: Path) -> None:
    log = node / "logs/orders-0/00000000000000000000.log"
    (node / "00000000000000000009.log").hardlink_to(log)
    paths = [local(log), local(node / "00000000000000000009.log")]
    assert each_once(paths) == paths


def test_a_path_that_does_not_exist_stays(node: Path) -> None:
    paths = [local(node / "logs"), local(node / "gone")]
    assert each_once(paths) == paths
