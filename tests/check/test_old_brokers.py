"""Directories that older brokers wrote have no findings, and are read as their consumers read them.

``expected-*.jsonl`` is what the consumer of that version returned of each partition.
"""

from __future__ import annotations

import base64
import itertools
import json
import shutil
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from builders.in_process import run_kdump
from builders.source_tables import table_of
from builders.trees import contents_of
from builders.verified import findings_in, summary_of
from kdump.check.findings import Finding, Severity
from kdump.check.part import Level
from kdump.formats.record_batch import NO_TIMESTAMP

VERSIONS = ("0.9.0.1", "0.10.2.2", "1.1.1", "2.0.1")
STOPPED_ONLY = ("0.8.2.2", "0.11.0.3", "1.0.2", "2.4.1", "2.8.2", "3.3.2", "3.9.1", "4.4.0")
COLUMNS = "offset,timestamp,key,value,headers"


def loud(root: Path, level: Level = Level.DEEP) -> list[Finding]:
    return findings_in(root, level=level, at_least=Severity.WARNING)


@pytest.mark.slow
@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("state", ["clean", "recovered"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_clean_directory_has_no_findings(
    fixtures: Path, version: str, state: str, level: Level
) -> None:
    assert loud(fixtures / "old" / version / state, level) == []


@pytest.mark.parametrize("level", [Level.QUICK, Level.DEEP])
@pytest.mark.parametrize("version", STOPPED_ONLY)
def test_a_clean_directory_of_another_generation_has_no_findings(
    fixtures: Path, version: str, level: Level
) -> None:
    assert loud(fixtures / "old" / version / "clean", level) == []


@pytest.mark.parametrize("version", [*VERSIONS, *STOPPED_ONLY])
def test_a_clean_directory_is_sound_for_its_own_broker_and_after_an_upgrade(
    fixtures: Path, tmp_path: Path, version: str
) -> None:
    for kafka in (version, "4.4"):
        words = ["verify", "--strict", f"--kafka-version={kafka}"]
        outcome = run_kdump([*words, str(fixtures / "old" / version / "clean")], tmp_path)
        assert outcome.exit_status == 0, outcome.stdout


@pytest.mark.parametrize("version", VERSIONS)
def test_a_repair_of_a_clean_directory_changes_nothing(
    fixtures: Path, tmp_path: Path, version: str
) -> None:
    root = tmp_path / "logs"
    shutil.copytree(fixtures / "old" / version / "clean", root)
    outcome = run_kdump(["verify", "--repair", str(root)], tmp_path)
    assert outcome.exit_status == 0
    assert contents_of(root) == contents_of(fixtures / "old" / version / "clean")


def recovered_by_kdump(crashed: Path, root: Path) -> Path:
    shutil.copytree(crashed, root)
    assert run_kdump(["recover", "--no-undo", str(root)], root.parent).exit_status in (0, 1)
    return root


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_crashed_directory_has_no_findings_once_it_is_recovered(
    fixtures: Path, tmp_path: Path, version: str
) -> None:
    root = recovered_by_kdump(fixtures / "old" / version / "crashed", tmp_path / "logs")
    assert loud(root) == []


EXPECTED = [
    (version, state, isolation)
    for version in VERSIONS
    for state in ("clean", "recovered", "on-kdump")
    for isolation in ("read_uncommitted", "read_committed")
    if isolation == "read_uncommitted" or version in ("1.1.1", "2.0.1")
]


@pytest.mark.slow
@pytest.mark.parametrize(("version", "state", "isolation"), EXPECTED)
def test_the_records_are_those_that_its_consumer_read(
    fixtures: Path, tmp_path: Path, version: str, state: str, isolation: str
) -> None:
    home = fixtures / "old" / version
    root = (
        recovered_by_kdump(home / "crashed", tmp_path / "logs")
        if state == "on-kdump"
        else home / state
    )
    expected = (home / f"expected-{state}.{isolation}.jsonl").read_text().split("\n")
    lines = map(json.loads, filter(None, expected))
    for (topic, number), of_partition in itertools.groupby(lines, itemgetter("t", "p")):
        theirs = [as_ours(line) for line in of_partition if "end" not in line]
        partition = root / f"{topic}-{number}"
        ours = list(rows(partition, isolation))
        if state == "on-kdump" and topic.startswith("__"):
            theirs = theirs[: len(ours)]  # a broker ran on it, and wrote more
        assert ours == theirs, partition.name


def rows(partition: Path, isolation: str) -> Iterator[tuple[Any, ...]]:
    table = table_of(partition, columns=COLUMNS, **{"kafka.isolation.level": isolation})
    milliseconds = table["timestamp"].cast("int64").to_pylist()
    for at, row in enumerate(table.to_pylist()):
        yield (
            row["offset"],
            milliseconds[at] // 1000,
            row["key"],
            row["value"],
            [(each["key"], each["value"]) for each in row["headers"] or []],
        )


def as_ours(line: dict[str, Any]) -> tuple[Any, ...]:
    return (
        line["o"],
        NO_TIMESTAMP if line["ts"] is None else line["ts"],
        decoded(line["k"]),
        decoded(line["v"]),
        [(base64.b64decode(key).decode(), decoded(value)) for key, value in line.get("h", ())],
    )


def decoded(value: str | dict[str, str] | None) -> bytes | None:
    if value is None:
        return None
    return value["s"].encode() if isinstance(value, dict) else base64.b64decode(value)


def test_records_in_compressed_message_sets_are_counted_right_or_not_at_all(fixtures: Path) -> None:
    root = fixtures / "out/legacy/logs"
    assert summary_of(root, level=Level.DEFAULT).records is None
    partitions = {path.name for path in root.iterdir() if path.is_dir()}
    expected = sum(
        len(path.read_text().splitlines())
        for path in (fixtures / "out/expected.legacy").glob("*.uncommitted.jsonl")
        if path.name.removesuffix(".uncommitted.jsonl") in partitions
    )
    assert summary_of(root).records == expected
