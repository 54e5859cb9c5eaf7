"""The runbook for applications that need the data of a cluster that is gone, as it is printed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from builders.cluster_clients import ClusterClients
from builders.cluster_jvms import ClusterJvms
from builders.in_process import run_kdump
from builders.runbook import commands_of, words_of
from builders.served_process import served

pytestmark = pytest.mark.differential

RUNBOOK: Final = commands_of("applications-need-their-data")
PRINTED_ADDRESS: Final = "127.0.0.1:9092"
GROUP: Final = "g-classic"


@pytest.fixture(scope="module")
def disks(fixtures: Path) -> Path:
    return fixtures / "states" / "clean"


@pytest.fixture(scope="module")
def names(disks: Path) -> dict[str, str]:
    """Return what stands for the names in the runbook."""
    return {
        "/mnt/b1": str(disks / "b1-d1"),
        "/mnt/b2": f"{disks}/b2-d1 {disks}/b2-d2",
        "/mnt/b3": str(disks / "b3-d1"),
        "/mnt/c1": str(disks / "c1001"),
        "billing": GROUP,
    }


def commands(start: str) -> list[str]:
    """Return the commands of the runbook that begin with these words."""
    return [line for line in RUNBOOK if line.startswith(start)]


@pytest.fixture(scope="module", params=commands("kdump serve"))
def address(request: pytest.FixtureRequest, names: dict[str, str]) -> Iterator[str]:
    """Start a server as the runbook does, at any free port; return its address."""
    with served(words_of(request.param, names)[1:]) as address:
        yield address


@pytest.fixture(scope="module")
def clients(
    java_classpath: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterClients]:
    """Run Kafka's tools."""
    with ClusterJvms(java_classpath, tmp_path_factory.mktemp("runbook-jvms")) as jvms:
        yield ClusterClients(jvms)


def printed(line: str, clients: ClusterClients, address: str, names: dict[str, str]) -> list[str]:
    """Run a tool as the runbook does; return what it prints."""
    tool, *words = words_of(line, {**names, PRINTED_ADDRESS: address})
    return clients.run_tool(tool, *words)


def test_the_directories_are_of_one_cluster(names: dict[str, str]) -> None:
    (line,) = commands("kdump info")
    outcome = run_kdump(words_of(line, names)[1:], Path.cwd())
    assert outcome.exit_status == 0, outcome.stderr
    assert len(set(re.findall(rb"Cluster.*", outcome.stdout))) == 1


def test_the_tools_of_the_runbook_read_what_the_cluster_had(
    disks: Path, clients: ClusterClients, address: str, names: dict[str, str]
) -> None:
    said = json.loads((disks / "manifest.json").read_text())
    (topics,) = commands("kafka-topics")
    shown = printed(topics, clients, address, names)
    found = {line.split()[1] for line in shown if line.startswith("Topic:")}
    assert found >= said["topics"].keys()
    committed = {
        key: each["committed_offset"] for key, each in said["groups"][GROUP]["offsets"].items()
    }
    for line in commands("kafka-consumer-groups"):
        rows = [row.split() for row in printed(line, clients, address, names) if GROUP in row]
        offsets = {f"{row[1]}-{row[2]}": int(row[3]) for row in rows if row[3] != "-"}
        assert offsets == committed
    (consumer,) = commands("kafka-console-consumer")
    assert len(printed(consumer, clients, address, names)) >= 5
