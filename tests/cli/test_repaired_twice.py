"""Repaired directories need no second repair."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from builders import random_partitions
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.log_directories import write_log_directory
from builders.verified import write_topic_id
from kdump.formats import names

REPAIRS: Final = {"recover": ("recover",), "verify --repair": ("verify", "--repair")}
ALTERNATES: Final = "at one shutdown and deletes it at the next start"


def write_damaged(root: Path, seed: int, count: int, *, clean: bool) -> None:
    """Write partitions with random damage."""
    rng = random.Random(seed)
    write_log_directory(root, clean=clean)
    for number in range(count):
        files = random_partitions.random_logs(rng)
        if not clean:
            files = random_partitions.as_after_crash(files)
        _, files = random_partitions.after_happenings(rng, files)
        partition = root / f"case-{number}"
        partition.mkdir()
        for name, content in files.items():
            (partition / name).write_bytes(content)
        if not (partition / names.PARTITION_METADATA).exists():
            write_topic_id(partition)


def run(command: str, *options: str | Path) -> tuple[int, list[dict[str, Any]]]:
    words = [*REPAIRS[command], *map(str, options), "--output", "jsonl"]
    outcome = run_kdump(words, Path.cwd())
    return outcome.exit_status, objects(outcome.stdout)


def changed_again(said: list[dict[str, Any]]) -> list[str]:
    """Return the partitions with changes that a broker does not repeat at every start."""
    return [
        str(row.get("directory") or row["log_dir"])
        for row in said
        if row["type"] in ("partition", "repair")
        and row.get("operations")
        and ALTERNATES not in row.get("verdict", "")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("command", REPAIRS)
def test_repaired_partitions_need_no_repair_again(command: str, quick_path: Path) -> None:
    write_damaged(quick_path / "logs", 1, 60, clean=False)
    run(command, "--no-undo", quick_path / "logs")

    _, said = run(command, "--dry-run", quick_path / "logs")

    assert changed_again(said) == []


@pytest.mark.parametrize("seed", [3, 14, 36, 89, 100])
def test_a_recovered_directory_needs_no_recovery_again(seed: int, quick_path: Path) -> None:
    write_damaged(quick_path / "logs", seed, 1, clean=True)
    run("recover", "--no-undo", quick_path / "logs")

    status, said = run("recover", "--dry-run", quick_path / "logs")

    assert changed_again(said) == []
    assert not status & 1


@pytest.mark.slow
def test_a_snapshot_that_alternates_is_reported_as_such(fixtures: Path, quick_path: Path) -> None:
    log_dir = quick_path / "d1"
    shutil.copytree(fixtures / "out" / "clean" / "d1", log_dir)
    path = log_dir / "delete-records-all-0" / f"{50:020d}.snapshot"
    run("recover", "--no-undo", log_dir)

    seen = []
    for _ in range(3):
        status, said = run("recover", "--dry-run", log_dir)
        (row,) = [row for row in said if row.get("directory") == path.parent.name]
        assert (status, ALTERNATES in row["verdict"]) == (0, True)
        run("recover", "--no-undo", log_dir)
        seen.append(path.exists())

    assert seen in ([True, False, True], [False, True, False])


def test_the_deletion_of_the_marker_for_a_refused_partition_is_reported(quick_path: Path) -> None:
    write_damaged(quick_path / "logs", 5, 3, clean=True)
    (quick_path / "logs" / "case-1" / names.PARTITION_METADATA).write_bytes(b"")

    outcome = run_kdump(["recover", str(quick_path / "logs")], Path.cwd())

    assert "the clean shutdown marker is deleted" in outcome.stdout.decode()
    assert not (quick_path / "logs" / names.CLEAN_SHUTDOWN_MARKER).exists()
