"""``kdump metadata collect``: one private file, and what people see of it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from builders.in_process import Outcome, run_kdump, run_on_terminal
from builders.json_answers import objects
from builders.log_directories import write_log_directory
from builders.trees import contents_of
from builders.verified import LogModel
from kdump.state.metadata.disk_collection import decode_collection


def collect(cwd: Path, *args: str | Path) -> Outcome:
    return run_kdump(["metadata", "collect", *map(str, args)], cwd)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return LogModel().write(tmp_path / "d1").parent


def test_the_file_is_a_collection_that_only_its_owner_can_read(
    log_dir: Path, tmp_path: Path
) -> None:
    before = contents_of(log_dir)
    assert collect(tmp_path, "d1", "--out", "c.json").exit_status == 0
    assert stat.S_IMODE((tmp_path / "c.json").stat().st_mode) == 0o600
    (directory,) = decode_collection((tmp_path / "c.json").read_bytes()).log_directories
    assert directory.path == "d1"
    assert contents_of(log_dir) == before


def test_secrets_are_in_the_file_and_never_printed(fixtures: Path, tmp_path: Path) -> None:
    controller = fixtures / "states" / "clean" / "c1001"
    for form in ("text", "json", "csv"):
        outcome = collect(tmp_path, controller, "--out", "c.json", "--force", "--output", form)
        assert outcome.exit_status == 0
        document = json.loads((tmp_path / "c.json").read_text())
        records = document["log_directories"][0]["metadata"]["records"]
        secrets = [
            record["data"][name]
            for record in records
            if record["type"] == "USER_SCRAM_CREDENTIAL_RECORD"
            for name in ("salt", "storedKey", "serverKey")
        ]
        assert len(secrets) >= 3
        printed = (outcome.stdout + outcome.stderr).decode()
        assert not [secret for secret in secrets if secret in printed]


def test_the_summary_says_what_is_missing_and_what_to_do_next(
    log_dir: Path, tmp_path: Path
) -> None:
    outcome = collect(tmp_path, "d1", "--out", "c.json")
    lines = outcome.stdout.decode().splitlines()
    assert "no copy of the cluster's metadata is here" in lines
    assert lines[-1].startswith("next: collect on the other hosts, then kdump metadata plan")
    row = objects(collect(tmp_path, "d1", "--out", "d.json", "--output", "jsonl").stdout)[-1]
    assert (row["partitions"], row["metadata_log_dir"]) == (1, None)


def test_directories_of_several_clusters_are_said(log_dir: Path, tmp_path: Path) -> None:
    other = write_log_directory(tmp_path / "d2")
    properties = (other / "meta.properties").read_text()
    (other / "meta.properties").write_text(properties.replace("a-cluster", "another"))
    outcome = collect(tmp_path, "d1", "d2", "--out", "c.json")
    assert "several clusters: a-cluster, another" in outcome.stdout.decode()


def test_a_directory_that_cannot_be_listed_is_8_and_the_others_are_collected(
    log_dir: Path, tmp_path: Path
) -> None:
    outcome = collect(tmp_path, "d1", "nowhere", "--out", "c.json")
    assert outcome.exit_status == 8
    assert b"nowhere: No such file or directory" in outcome.stderr
    assert len(decode_collection((tmp_path / "c.json").read_bytes()).log_directories) == 1


def test_damage_is_4_and_on_standard_error(log_dir: Path, tmp_path: Path) -> None:
    (log_dir / "orders-0" / "leader-epoch-checkpoint").write_bytes(b"0\n2\n0 0\n")
    outcome = collect(tmp_path, "d1", "--out", "c.json")
    assert outcome.exit_status == 4
    assert outcome.stderr.startswith(b"kdump: d1/orders-0: leader-epoch-checkpoint: checkpoint")
    assert b"2 problems" in outcome.stdout  # and that a broker does not load it


def test_an_existing_file_or_one_in_a_log_directory_is_refused_before_anything_is_read(
    log_dir: Path, tmp_path: Path
) -> None:
    (tmp_path / "c.json").write_text("theirs")
    for out in ("c.json", "d1/c.json"):
        assert collect(tmp_path, "d1", "--out", out).exit_status == 16
    assert (tmp_path / "c.json").read_text() == "theirs"


def test_names_that_are_no_text_are_collected(log_dir: Path, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"d\xff\x1b[31m")
    log_dir.rename(odd)
    (odd / os.fsdecode(b"x\xfe-0")).mkdir()
    outcome = collect(tmp_path, odd, "--out", "c.json")
    assert outcome.exit_status == 4
    assert b"\x1b[31m" not in outcome.stdout + outcome.stderr
    (directory,) = decode_collection((tmp_path / "c.json").read_bytes()).log_directories
    assert [each.topic for each in directory.partitions] == ["orders"]
    assert len(directory.problems) == 1


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_terminal_of_any_width_shows_the_directory(
    columns: int, log_dir: Path, tmp_path: Path
) -> None:
    lines = run_on_terminal(["metadata", "collect", "d1", "--out", "c.json"], tmp_path, columns)
    assert all(len(line) <= columns for line in lines)
    assert "d1" in [line.partition(" ")[0] for line in lines]
