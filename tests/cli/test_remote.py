"""Commands with ``--remote``: partitions together with their remote segments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builders.in_process import Outcome, run_kdump
from builders.json_answers import all_objects, objects
from builders.json_schemas import problem_of_answer
from builders.tiered_fixture import TieredFixture


@pytest.fixture(scope="session")
def tiered(fixtures: Path) -> TieredFixture:
    """Return the disks of a real cluster with tiered storage."""
    return TieredFixture(fixtures / "tiered")


def kdump(*words: str | Path) -> Outcome:
    return run_kdump([str(each) for each in words], Path.cwd())


def listed(*words: str | Path) -> dict[str, dict[str, Any]]:
    outcome = kdump("ls", "--output", "jsonl", *words)
    assert (outcome.stderr, outcome.exit_status) == (b"", 0)
    return {row["directory"]: row for row in objects(outcome.stdout)}


def test_ls_gives_the_offsets_that_the_broker_gave(tiered: TieredFixture) -> None:
    rows = listed("--remote", tiered.remote, tiered.leader)
    for name, said in tiered.offsets.items():
        row = rows[name]
        assert row["log_start_offset"] == said["earliest"]
        assert row["log_end_offset"] == said["latest"]
        assert row["gaps"] == 0
        if name != "plain-0":
            assert row["local_log_start_offset"] == said["earliest-local"]


def test_ls_has_no_remote_columns_for_topics_that_are_not_tiered(tiered: TieredFixture) -> None:
    row = listed("--remote", tiered.remote, tiered.leader)["plain-0"]
    assert (row["local_log_start_offset"], row["remote_segments"]) == (None, None)


def test_ls_counts_remote_segments_that_are_not_local(tiered: TieredFixture) -> None:
    local = listed(tiered.leader)
    with_remote = listed("--remote", tiered.remote, tiered.leader)
    for name in tiered.offsets:
        remote = with_remote[name]["remote_segments"] or 0
        assert with_remote[name]["segments"] == local[name]["segments"] + remote
        size = with_remote[name]["remote_log_bytes"] or 0
        assert with_remote[name]["log_bytes"] == local[name]["log_bytes"] + size
    assert with_remote["kept-0"]["remote_segments"] == 0
    assert with_remote["moved-0"]["remote_segments"] > 0


def test_the_json_of_ls_follows_its_schema(tiered: TieredFixture) -> None:
    outcome = kdump("ls", "--output", "json", "--remote", tiered.remote, tiered.leader)
    assert problem_of_answer("ls", all_objects(outcome.stdout)) is None


def test_a_single_partition_can_be_listed(tiered: TieredFixture) -> None:
    path = tiered.leader / "orders-0"
    assert listed("--remote", tiered.remote, path)["orders-0"]["log_start_offset"] == 0


def test_a_directory_without_remote_segments_is_refused(
    tiered: TieredFixture, tmp_path: Path
) -> None:
    outcome = kdump("ls", "--remote", tmp_path, tiered.leader)
    assert outcome.exit_status == 16
    assert b"no remote segments" in outcome.stderr
    missing = kdump("ls", "--remote", tmp_path / "missing", tiered.leader)
    assert missing.exit_status == 8
    assert missing.stderr.count(b"\n") == 1
