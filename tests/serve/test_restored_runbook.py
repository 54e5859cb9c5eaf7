"""The drill for backups, line by line, with the disks of a real cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from builders.cluster_clients import ClusterClients
from builders.cluster_jvms import ClusterJvms
from builders.in_process import Outcome, run_kdump
from builders.runbook import commands_of, words_of
from builders.served_process import served
from builders.trees import tree_of

RUNBOOK: Final = commands_of("backups-that-were-restored")
DISKS: Final = {"1": "b1-d1", "2": "b3-d1", "c": "c1001"}
PRINTED_ADDRESS: Final = "127.0.0.1:9092"
INSTEAD: Final = {"billing": "g-classic", "2026-11-21T14:05:00Z": "2024-01-01T00:00:00Z"}


@pytest.fixture(scope="module")
def names(fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what stands for the names in the runbook; the disks are those of the fixture."""
    folder = tmp_path_factory.mktemp("drill")
    (folder / "drill").mkdir()
    disks = fixtures / "states" / "clean"
    return {
        **{f"/data/{name}": str(disks / real) for name, real in DISKS.items()},
        "/drill": str(folder / "drill"),
        "/backup/kafka": str(folder / "repository"),
        **INSTEAD,
    }


def run(line: str, names: dict[str, str]) -> Outcome:
    return run_kdump(words_of(line, names)[1:], Path.cwd())


@pytest.fixture(scope="module")
def outcomes(names: dict[str, str]) -> dict[str, Outcome]:
    """Run all commands of kdump in their order, but the server."""
    return {
        line: run(line, names)
        for line in RUNBOOK
        if line.startswith("kdump") and not line.startswith("kdump serve")
    }


@pytest.mark.slow
def test_every_line_does_what_the_runbook_says(
    outcomes: dict[str, Outcome], names: dict[str, str]
) -> None:
    assert len(outcomes) == 12
    for line, outcome in outcomes.items():
        if "rewind" in line:
            assert b" cut, " in outcome.stdout
        else:
            assert outcome.exit_status == 0, (line, outcome)
    for name in DISKS:
        assert tree_of(Path(names["/drill"], name)) == tree_of(Path(names[f"/data/{name}"]))


@pytest.mark.slow
@pytest.mark.parametrize("command", ["groups", "ls", "txns", "metadata show"])
def test_what_was_restored_is_read_as_the_original(
    outcomes: dict[str, Outcome], names: dict[str, str], command: str
) -> None:
    assert outcomes
    before, after = (
        run(f"kdump {command} --output jsonl {paths}", names)
        for paths in ("/data/1 /data/2 /data/c", "/drill/1 /drill/2 /drill/c")
    )
    assert before.exit_status == after.exit_status
    said = after.stdout.decode()
    for name in DISKS:
        said = said.replace(str(Path(names["/drill"], name)), names[f"/data/{name}"])
    assert said == before.stdout.decode()


@pytest.fixture(scope="module")
def clients(
    java_classpath: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterClients]:
    """Run Kafka's tools."""
    with ClusterJvms(java_classpath, tmp_path_factory.mktemp("drill-jvms")) as jvms:
        yield ClusterClients(jvms)


@pytest.mark.differential
def test_the_tools_of_kafka_read_what_was_restored_as_the_original(
    outcomes: dict[str, Outcome], names: dict[str, str], clients: ClusterClients
) -> None:
    assert outcomes
    (serve,) = (line for line in RUNBOOK if line.startswith("kdump serve"))
    answers = []
    for line in (serve, serve.replace("/drill", "/data")):
        with served(words_of(line, names)[1:]) as address:
            instead = {**names, PRINTED_ADDRESS: address}
            answers.append(
                [
                    clients.run_tool(*words_of(each, instead))
                    for each in RUNBOOK
                    if each.startswith("kafka-") and PRINTED_ADDRESS in each
                ]
            )
    assert answers[0] == answers[1]
    assert all(answers[0])
