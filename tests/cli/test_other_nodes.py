"""Who may have run on is named before a node starts with what was restored or copied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects

_OTHERS: Final = "controllers 1002, 1003 vote, too: if they have run since"


@pytest.fixture
def disk(fixtures: Path) -> str:
    """Return the disk of controller 1001, of three."""
    return str(fixtures / "states" / "clean" / "c1001")


def restored(disk: str, folder: Path, *options: str) -> Outcome:
    run_kdump(["backup", "create", "repository", disk], folder)
    return run_kdump(["backup", "restore", "--into", "new", "repository", *options], folder)


def copied(disk: str, folder: Path, *options: str) -> Outcome:
    return run_kdump(["copy", disk, "new", *options], folder)


@pytest.mark.parametrize("brought_back", [restored, copied])
def test_they_are_named_at_the_end(
    brought_back: Callable[..., Outcome], disk: str, quick_path: Path
) -> None:
    *_, last = brought_back(disk, quick_path).stdout.decode().splitlines()
    assert last.startswith(_OTHERS)
    assert last.endswith("see IN A CLUSTER THAT RAN ON, kdump-backup(1)")


def test_a_broker_alone_has_brokers_that_are_named(fixtures: Path, quick_path: Path) -> None:
    disk = fixtures / "states" / "clean" / "b1-d1"
    *_, last = copied(str(disk), quick_path).stdout.decode().splitlines()
    assert last.startswith("brokers 2, 3 have replicas of ")


def test_without_the_metadata_it_says_so(fixtures: Path, quick_path: Path) -> None:
    disk = fixtures / "states" / "clean" / "b2-d2"
    *_, last = copied(str(disk), quick_path).stdout.decode().splitlines()
    assert last.startswith("no copy of the cluster's metadata says whether other brokers")


def test_programs_have_a_row_for_each(disk: str, quick_path: Path) -> None:
    rows = objects(restored(disk, quick_path, "--output", "jsonl").stdout)
    assert [row for row in rows if row["type"] == "absent_controller"] == [
        {"type": "absent_controller", "node_id": node_id} for node_id in (1002, 1003)
    ]


@pytest.mark.parametrize("brought_back", [restored, copied])
def test_chosen_topics_are_not_for_the_cluster(
    brought_back: Callable[..., Outcome], disk: str, quick_path: Path
) -> None:
    *_, last = brought_back(disk, quick_path, "--topic", "*").stdout.decode().splitlines()
    assert last.endswith("new: complete")
