"""The oldest clients that a broker of Kafka 4 answers, those of 0.11, read from ``kdump serve``."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from builders.serving import RunningServer

pytestmark = pytest.mark.differential

TOPICS: Final = ("orders", "txn-hang", "users", "codec-gzip", "codec-snappy", "codec-lz4")
"""These clients do not know zstd, which a broker of Kafka 4 sends to them all the same."""


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_the_consumer_of_0_11_reads_alone_and_in_a_group(
    level: str,
    dead_cluster_of_a_test: RunningServer,
    oldest_clients_classpath: str,
    fixtures: Path,
) -> None:
    manifest = fixtures / "states" / "clean" / "manifest.json"
    said: dict[str, Any] = json.loads(manifest.read_text())["topics"]
    words = [dead_cluster_of_a_test.address, level, "oldest", *TOPICS]
    java = ["java", "-cp", oldest_clients_classpath, "OldestConsumer", *words]

    run = subprocess.run(java, capture_output=True, text=True, timeout=120, check=False)

    assert run.returncode == 0, run.stderr
    found = {tuple(row[:2]): row[2:] for row in map(str.split, run.stdout.splitlines())}
    expected = {
        f"{topic}-{number}": partition[level]["count"]
        for topic in TOPICS
        for number, partition in said[topic]["partitions"].items()
    }
    for how in ("assigned", "subscribed"):
        assert {name: int(found[how, name][0]) for name in expected} == expected
    for name in expected:
        assert found["committed", name][1] == found["subscribed", name][1]
