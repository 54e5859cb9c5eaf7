"""``kdump undo`` undoes repairs, and lists and discards undo data."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.log_dir_trees import original_of
from builders.repair_cases import aged, bad_batch_in_the_middle
from builders.trees import tree_of
from builders.two_disks import write_two_disks
from kdump.apply.apply import apply_plan
from kdump.apply.lock import hold_locks
from kdump.apply.plan import make_plan
from kdump.formats import names


def undo(*args: str | Path) -> Outcome:
    return run_kdump(["undo", *map(str, args)], Path.cwd())


def rows(*args: str | Path) -> list[dict[str, Any]]:
    outcome = undo("--output", "jsonl", *args)
    assert (outcome.stderr, outcome.exit_status) == (b"", 0)
    return objects(outcome.stdout)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Return a crashed log directory with a damaged batch in the middle."""
    path = tmp_path / "logs"
    bad_batch_in_the_middle(path)
    aged(path)
    return path


@pytest.fixture
def original(damaged: Path) -> dict[str, Any]:
    """Return its content before the repair."""
    return dict(original_of(damaged))


@pytest.fixture
def repaired(damaged: Path, original: dict[str, Any]) -> Path:
    """Return the same after its repair."""
    assert original
    with hold_locks([damaged]):
        wanted = bad_batch_wanted(damaged)
        apply_plan(make_plan(wanted), keep_undo=True, command="kdump recover")
    return damaged


def bad_batch_wanted(path: Path) -> Any:
    from builders.repair_cases import recovery_target

    return recovery_target(path)


def test_an_undo_restores_everything_and_names_each_file(
    repaired: Path, original: dict[str, Any]
) -> None:
    found = rows(repaired)
    assert original_of(repaired) == original
    assert {row["undo"] for row in found} == {"1"}
    actions = {row["file"]: row["action"] for row in found}
    assert actions["orders-0/00000000000000000120.log"] == "restore"
    assert actions[names.CLEAN_SHUTDOWN_MARKER] == "remove"


def test_people_see_sizes_and_names(repaired: Path) -> None:
    outcome = undo(repaired)
    lines = [line.split() for line in outcome.stdout.decode().splitlines()]
    assert lines[0] == ["ACTION", "SIZE", "FILE"]
    assert ["restore", "2.1", "KiB", "orders-0/00000000000000000060.log"] in lines
    assert ["remove", "-", ".kafka_cleanshutdown"] in lines


def test_people_are_told_at_the_end_whether_it_is_done(repaired: Path) -> None:
    def last_line(*args: str | Path) -> str:
        return undo(*args).stdout.decode().splitlines()[-1]

    run = f"{repaired}: run 1 (kdump recover)"
    assert last_line("--dry-run", repaired) == f"{run} would be undone; nothing written"
    freed = last_line("--discard", "--dry-run", repaired)
    assert freed.startswith(f"{repaired}: 1 run, ")
    assert freed.endswith(" KiB would be freed; nothing written")
    assert last_line(repaired) == f"{run} is undone"


def test_a_dry_run_prints_the_same_and_changes_nothing(repaired: Path) -> None:
    before = tree_of(repaired)
    predicted = rows("--dry-run", repaired)
    assert tree_of(repaired) == before
    assert rows(repaired) == predicted


def test_the_list_has_a_line_for_each_run(repaired: Path) -> None:
    before = tree_of(repaired)
    (run,) = rows("--list", repaired)
    assert run["undo"] == "1"
    assert (run["command"], run["state"]) == ("kdump recover", "complete")
    assert run["kept_bytes"] > 0
    lines = undo("--list", repaired).stdout.decode().splitlines()
    assert lines[0].split() == ["ID", "WHEN", "COMMAND", "STATE", "FILES", "SIZE"]
    assert "Z  kdump recover  complete" in lines[1]
    assert tree_of(repaired) == before


def test_a_discarded_run_cannot_be_undone(repaired: Path) -> None:
    before = tree_of(repaired)
    assert [row["undo"] for row in rows("--discard", "--dry-run", repaired)] == ["1"]
    assert tree_of(repaired) == before
    assert [row["undo"] for row in rows("--discard", repaired, "1")] == ["1"]
    assert not list(repaired.glob(".kdump-*"))
    outcome = undo(repaired)
    assert outcome.exit_status == 8
    assert outcome.stderr.decode() == f"kdump: {repaired}: there is nothing to undo\n"


def test_the_lock_file_of_a_crashed_broker_stays_if_nothing_is_undone(repaired: Path) -> None:
    lock = repaired / names.LOCK_FILE
    lock.touch()
    assert run_kdump(["undo", str(repaired), "9"], repaired.parent).exit_status
    assert lock.exists()


def test_a_directory_that_has_changed_is_refused_with_the_changes(repaired: Path) -> None:
    (repaired / "orders-0" / "00000000000000000060.log").write_bytes(b"new")
    outcome = undo(repaired)
    assert outcome.exit_status == 8
    assert b"orders-0/00000000000000000060.log has changed" in outcome.stderr
    assert not (repaired / ".lock").exists()


def test_a_locked_directory_is_refused(repaired: Path) -> None:
    with hold_locks([repaired]):
        outcome = undo(repaired)
    assert outcome.exit_status == 8
    assert str(repaired).encode() in outcome.stderr


@pytest.mark.parametrize("more", [[], ["--list"], ["--discard"], ["--dry-run"]])
def test_a_directory_that_is_not_there_is_named_as_typed(tmp_path: Path, more: list[str]) -> None:
    outcome = run_kdump(["undo", "missing", *more], tmp_path)
    assert outcome.exit_status == 8
    assert outcome.stderr == b"kdump: missing: No such file or directory\n"


@pytest.mark.parametrize("more", [["--discard"], ["1"]])
def test_list_excludes_other_options(repaired: Path, more: list[str]) -> None:
    assert undo("--list", repaired, *more).exit_status == 16


def test_files_left_by_an_undo_killed_at_its_end_are_removed(
    repaired: Path, original: dict[str, Any]
) -> None:
    undo(repaired)
    (repaired / ".kdump-1-old-0").hardlink_to(repaired / names.RECOVERY_POINT_CHECKPOINT)

    outcome = undo(repaired)

    assert outcome.exit_status == 8
    assert b"there is nothing to undo" in outcome.stderr
    (repaired / names.LOCK_FILE).touch()
    assert original_of(repaired).keys() == original.keys()


@pytest.mark.parametrize("options", [(), ("--list",), ("--discard",), ("--dry-run",)])
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("d1/users-0", "is a partition: name its log directory, d1"),
        (".", "is not a Kafka log directory; it contains log directories: d1 d2"),
    ],
)
def test_a_directory_whose_undo_data_is_elsewhere_is_refused(
    quick_path: Path, options: tuple[str, ...], path: str, why: str
) -> None:
    write_two_disks(quick_path)
    shutil.rmtree(quick_path / "model")
    outcome = run_kdump(["undo", path, *options], quick_path)
    assert (outcome.stderr.decode(), outcome.exit_status) == (f"kdump: {path} {why}\n", 16)
