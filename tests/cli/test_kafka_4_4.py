"""Directories that a real node of Kafka 4.4.0 left: stopped, and killed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from builders.freeing import of_type
from builders.in_process import run_kdump
from builders.json_answers import objects
from kdump.errors import ExitStatus
from kdump.log.directory import DirectoryKind, read_log_directory
from kdump.state.metadata.settings import read_settings
from kdump.storage.local_disk import local


@pytest.fixture
def home(fixtures: Path) -> Path:
    return fixtures / "old" / "4.4.0"


@pytest.mark.parametrize("state", ["clean", "crashed"])
def test_nothing_is_found_in_it(state: str, home: Path) -> None:
    for options in ([], ["--kafka-version=4.4.0"]):
        outcome = run_kdump(["verify", "--strict", str(home / state), *options], home)
        assert outcome.exit_status == ExitStatus.SOUND, outcome.stdout


def test_its_version_is_that_of_its_registration(home: Path) -> None:
    directory = read_log_directory(local(home / "clean"), DirectoryKind.LOG_DIRECTORY)
    (settings,) = read_settings([directory]).values()
    assert str(settings.kafka_version) == "4.4"
    assert settings.kafka_version_reason == "broker 1 last ran that version"


@pytest.mark.parametrize("state", ["clean", "crashed"])
def test_a_plan_keeps_everything_in_its_metadata(state: str, home: Path, tmp_path: Path) -> None:
    path = str(home / state)
    outcome = run_kdump(["metadata", "collect", path, "--out", "c.json"], tmp_path)
    assert outcome.exit_status == ExitStatus.SOUND, outcome.stderr
    controller = "--controller=1@localhost:9093"
    outcome = run_kdump(["metadata", "plan", controller, "c.json", "--out", "p.json"], tmp_path)
    assert outcome.exit_status == ExitStatus.SOUND, outcome.stdout
    plan: dict[str, Any] = json.loads((tmp_path / "p.json").read_text())
    assert [each["data"]["resourceName"] for each in plan["acls"]] == ["orders"]
    assert [each["data"]["name"] for each in plan["scram"]] == ["alice"]
    assert [each["data"]["value"] for each in plan["quotas"]] == [1000.0]
    levels = {each["name"]: each["level"] for each in plan["features"]}
    assert (levels["metadata.version"], levels["share.version"]) == (33, 2)
    configs = {
        each["name"]: {config["name"]: config["value"] for config in each["configs"]}
        for each in plan["topics"]
    }
    assert configs["state"] == {"cleanup.policy": "compact"}
    assert configs["orders"]["remote.copy.lag.ms"] == "5"
    (tmp_path / "controller").mkdir()
    outcome = run_kdump(["metadata", "apply", "p.json", "controller"], tmp_path)
    assert outcome.exit_status == ExitStatus.SOUND, outcome.stderr
    shown = run_kdump(["metadata", "show", "controller", "--output", "jsonl"], tmp_path)
    (metadata,) = objects(shown.stdout)
    assert metadata["features"]["metadata.version"] == 33


def test_its_quorum_can_be_reset(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "clean", tmp_path / "d1")
    outcome = run_kdump(["quorum", "reset", "--voter=1@localhost:9093", "d1"], tmp_path)
    assert outcome.exit_status == ExitStatus.SOUND, outcome.stderr
    shown = run_kdump(["metadata", "show", "d1", "--output", "jsonl"], tmp_path)
    (metadata,) = objects(shown.stdout)
    assert len(metadata["acls"]) == len(metadata["scram"]) == 1


def test_a_killed_one_is_recovered(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "crashed", tmp_path / "d1")
    outcome = run_kdump(["recover", "d1", "--output", "jsonl"], tmp_path)
    assert outcome.exit_status in (ExitStatus.SOUND, ExitStatus.REPAIRED), outcome.stderr
    partitions = of_type(objects(outcome.stdout), "partition")
    assert all(each["verdict"].startswith(("valid", "only the active")) for each in partitions)
    assert run_kdump(["verify", "--strict", "d1"], tmp_path).exit_status == ExitStatus.SOUND


@pytest.mark.parametrize("state", ["clean", "crashed"])
def test_info_says_which_release_ran_last(state: str, home: Path) -> None:
    outcome = run_kdump(["info", str(home / state), "--output", "jsonl"], home)
    (row,) = objects(outcome.stdout)
    assert row["broker_generation"] == "4.4"


METADATA = "__cluster_metadata-0"


def test_the_indexes_of_a_metadata_log_stay_in_full(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "clean", tmp_path / "d1")
    sizes = {each.name: each.stat().st_size for each in (tmp_path / "d1" / METADATA).glob("*index")}
    selected = ["recover", "d1", "--partition", METADATA]
    outcome = run_kdump([*selected, "--dry-run", "--kafka-version=4.3.1"], tmp_path)
    assert all(each.encode() in outcome.stdout for each in sizes), "an older one trims them"
    assert run_kdump(selected, tmp_path).exit_status & ~ExitStatus.REPAIRED == 0
    for name, size_bytes in sizes.items():
        assert (tmp_path / "d1" / METADATA / name).stat().st_size == size_bytes > 10**7


def test_a_metadata_log_with_a_wrong_index_is_repaired(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "clean", tmp_path / "d1")
    index = tmp_path / "d1" / METADATA / "00000000000000000000.index"
    with index.open("r+b") as file:
        file.write(b"\0\0\0\1")
    assert run_kdump(["recover", "d1", "--partition", METADATA], tmp_path).exit_status in (0, 1)
    assert index.read_bytes()[:4] != b"\0\0\0\1"


@pytest.mark.parametrize("state", ["clean", "crashed"])
def test_the_size_of_those_indexes_is_no_finding(state: str, home: Path) -> None:
    path = str(home / state / METADATA)
    for version, expected in (("4.4", 0), ("4.3.1", 2)):
        options = ["--output", "jsonl", f"--kafka-version={version}"]
        found = of_type(objects(run_kdump(["verify", path, *options], home).stdout), "finding")
        assert [each["code"] for each in found].count("index-padding") == expected
