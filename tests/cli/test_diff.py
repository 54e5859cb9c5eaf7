"""``kdump diff`` of real replicas, and of logs made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects

DISKS: Final = ("b1-d1", "b2-d1", "b2-d2", "b3-d1")


def diff(*args: str | Path, cwd: Path | None = None) -> Outcome:
    return run_kdump(["diff", *map(str, args)], cwd or Path.cwd())


def rows_of(*args: str | Path, cwd: Path | None = None) -> list[dict[str, Any]]:
    """The rows about two replicas."""
    outcome = diff(*args, "--output", "jsonl", cwd=cwd)
    return [row for row in objects(outcome.stdout) if row["type"] == "partition"]


def name_of(row: dict[str, Any]) -> str:
    return f"{row['topic']}-{row['partition']}"


@pytest.fixture(scope="module")
def cluster(fixtures: Path) -> Path:
    """Give the disks of a cluster whose brokers 1 and 3 led some partitions in turn."""
    return fixtures / "states" / "clean"


@pytest.fixture(scope="module")
def rows(cluster: Path) -> list[dict[str, Any]]:
    """Give the rows of all brokers, each with each."""
    return rows_of(*DISKS, cwd=cluster)


def told(cluster: Path, name: str) -> Any:
    return json.loads((cluster / f"{name}.json").read_text())


def test_the_ends_are_those_that_the_leaders_reported(
    cluster: Path, rows: list[dict[str, Any]]
) -> None:
    of_left, of_right = told(cluster, "ends-1"), told(cluster, "ends-3")
    found = {
        name_of(row): (row["left_end_offset"], row["right_end_offset"])
        for row in rows
        if row["topic"].startswith("div-")
    }
    assert found == {
        name: (of_left[name]["end_offset"], of_right[name]["end_offset"]) for name in found
    }
    assert len(found) == 5


def test_every_follower_truncates_as_it_logged(cluster: Path, rows: list[dict[str, Any]]) -> None:
    topics = told(cluster, "after")["topics"]
    logged = {
        (int(broker), name): end
        for broker, truncations in told(cluster, "truncations").items()
        for name, end in truncations
    }
    predicted, ends = {}, {}
    for row in rows:
        if row["topic"] == "__cluster_metadata":
            continue
        leader = topics[row["topic"]]["partitions"][str(row["partition"])]["leader"]
        for follower, other in (("left", "right"), ("right", "left")):
            if row[f"{other}_node_id"] == leader:
                key = row[f"{follower}_node_id"], name_of(row)
                predicted[key] = row[f"{follower}_truncates_to"]
                ends[key] = row[f"{follower}_end_offset"]
    # Followers without epochs log that they truncate to their high watermark, the end of the log.
    assert {key: predicted[key] for key in logged} == logged
    assert {key for key, end in predicted.items() if end < ends[key]} == {
        (1, "div-a-0"),
        (1, "div-a-1"),
        (1, "div-txn-0"),
    }


def test_what_a_truncation_loses_is_what_only_the_follower_has(rows: list[dict[str, Any]]) -> None:
    (row,) = (row for row in rows if name_of(row) == "div-a-0")
    assert (row["verdict"], row["common_end_offset"], row["common_epoch"]) == ("diverged", 24, 2)
    assert (row["left_only_records"], row["left_lost_records"]) == (7, 7)
    assert (row["right_only_records"], row["right_lost_records"]) == (5, 5)
    assert (row["suggested_leader"], row["suggested_leader_loses"]) == ("broker 1", 5)
    assert (row["elected_leader"], row["elected_leader_loses"]) == ("broker 3", 7)


def test_replicas_that_were_in_sync_are_the_same(rows: list[dict[str, Any]]) -> None:
    differing = {name_of(row) for row in rows if row["verdict"] != "same"}
    assert differing == {
        "__cluster_metadata-0",
        *("div-a-0", "div-a-1", "div-a-2", "div-txn-0", "lag-prefix-0", "lag-prefix-1"),
    }
