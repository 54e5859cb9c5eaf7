"""``kdump move``: partitions change disks with their checkpoint lines; the broker stays clean."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders.batches import batch, record
from builders.in_process import Outcome, run_kdump
from builders.json_answers import objects
from builders.lock_holder import held_elsewhere
from builders.log_dir_trees import original_of, seen_by_broker
from builders.log_directories import write_log_directory
from builders.stray_directories import stray
from builders.two_disks import (
    CHECKPOINTS,
    lines_of,
    live_in,
    write_lines,
    write_two_disks,
)
from builders.volatile_files import VolatileFiles
from kdump.apply import files
from kdump.apply.apply import apply_plan
from kdump.apply.files import DISK
from kdump.apply.plan import Plan
from kdump.formats import names
from kdump.jobs.move import move as move_job
from kdump.jobs.writing import execution

FUTURE = "users-0.184f5a4c945d4277a4671794019b3c74-future"


@pytest.fixture
def node(quick_path: Path) -> Path:
    """Return the directory around the two log directories."""
    write_two_disks(quick_path / "node")
    shutil.rmtree(quick_path / "node/model")
    return quick_path / "node"


def move(node: Path, *args: str) -> Outcome:
    return run_kdump(["move", *args], node)


def rows(node: Path, *args: str) -> list[dict[str, Any]]:
    return objects(move(node, *args, "--output", "jsonl").stdout)


def state_of(node: Path) -> list[dict[str, bytes]]:
    return [seen_by_broker(node / name) for name in ("d1", "d2")]


def test_a_partition_moves_with_everything_that_is_said_about_it(node: Path) -> None:
    before, lines = live_in(node / "d1"), lines_of(node / "d1")
    times = {path.name: path.stat().st_mtime_ns for path in (node / "d1/users-0").iterdir()}

    outcome = move(node, "--partition", "users-0", "--from", "d1", "--to", "d2")

    assert outcome.exit_status == 0
    assert live_in(node / "d2")["users-0"] == before["users-0"]
    assert "users-0" not in live_in(node / "d1")
    for name in CHECKPOINTS:
        assert lines_of(node / "d2")[name]["users-0"] == lines[name]["users-0"]
        assert "users-0" not in lines_of(node / "d1")[name]
        assert lines_of(node / "d1")[name]["orders-0"] == lines[name]["orders-0"]
    moved = {path.name: path.stat().st_mtime_ns for path in (node / "d2/users-0").iterdir()}
    assert moved == times


def test_the_directories_stay_clean(node: Path) -> None:
    markers = [(node / name / names.CLEAN_SHUTDOWN_MARKER).read_bytes() for name in ("d1", "d2")]
    move(node, "--drain", "d1", "--to", "d2")
    assert markers == [
        (node / name / names.CLEAN_SHUTDOWN_MARKER).read_bytes() for name in ("d1", "d2")
    ]


def test_a_preview_writes_nothing_and_shows_the_very_plan(node: Path) -> None:
    before = original_of(node)
    options = ("--drain", "d1", "--to", "d2")

    previewed = rows(node, *options, "--dry-run")
    assert original_of(node) == before
    done = rows(node, *options)

    def plans(found: list[dict[str, Any]]) -> list[Any]:
        return [
            (each["log_dir"], each["operations"]) for each in found if each["type"] == "directory"
        ]

    assert plans(previewed) == plans(done)


def test_a_drained_directory_has_no_log_and_no_line_left(node: Path) -> None:
    move(node, "--drain", "d1", "--to", "d2")
    assert live_in(node / "d1") == {}
    assert set(live_in(node / "d2")) == {"orders-0", "users-0", "users-1", "other-0"}
    assert not any(lines_of(node / "d1").values())


def test_what_has_moved_needs_no_second_run(node: Path) -> None:
    move(node, "--drain", "d1", "--to", "d2")
    state = state_of(node)
    assert move(node, "--drain", "d1", "--to", "d2").exit_status == 0
    assert move(node, "--partition", "users-0", "--from", "d1", "--to", "d2").exit_status == 0
    assert state_of(node) == state


def test_a_stale_line_of_the_target_does_not_count(node: Path) -> None:
    write_lines(node / "d2", {"other-0": 12, "users-0": 999})
    path = node / "d1" / names.LOG_START_OFFSET_CHECKPOINT
    path.write_text("0\n0\n")

    move(node, "--partition", "users-0", "--from", "d1", "--to", "d2")

    assert "users-0" not in lines_of(node / "d2")[names.LOG_START_OFFSET_CHECKPOINT]


def test_a_log_that_begins_in_remote_storage_keeps_its_start(node: Path) -> None:
    for path in (node / "d1/users-0").glob(f"{0:020d}.*"):
        path.unlink()
    before = live_in(node / "d1")["users-0"]
    write_lines(node / "d1", {"orders-0": 12, "users-0": 4, "users-1": 14})

    move(node, "--partition", "users-0", "--from", "d1", "--to", "d2")

    assert lines_of(node / "d2")[names.LOG_START_OFFSET_CHECKPOINT]["users-0"] == 3
    assert live_in(node / "d2")["users-0"] == before


def test_undo_restores_both_directories(node: Path) -> None:
    before = [original_of(node / name) for name in ("d1", "d2")]

    said = move(node, "--drain", "d1", "--to", "d2", "--undo").stdout.decode()

    assert "to undo, in this order: kdump undo d1 1 && kdump undo d2 1" in said
    for name in ("d1", "d2"):
        assert run_kdump(["undo", name], node).exit_status == 0
    assert [original_of(node / name) for name in ("d1", "d2")] == before


def test_undoing_the_copy_first_is_refused(node: Path) -> None:
    move(node, "--drain", "d1", "--to", "d2", "--undo")
    state = state_of(node)

    outcome = run_kdump(["undo", "d2"], node)

    assert outcome.exit_status == 8
    assert f"kdump undo {node}/d1" in outcome.stderr.decode()
    assert state_of(node) == state


def test_a_discarded_undo_of_the_source_keeps_the_only_copy(node: Path) -> None:
    move(node, "--drain", "d1", "--to", "d2", "--undo")
    run_kdump(["undo", "--discard", "d1"], node)
    assert run_kdump(["undo", "d2"], node).exit_status == 8
    assert "orders-0" in live_in(node / "d2")


def append(partition: Path) -> None:
    """Append a record, as a broker that was started meanwhile."""
    last = max(partition.glob("*.log"))
    last.write_bytes(last.read_bytes() + batch([record(18, b"key", b"new")]))


def test_an_undo_that_would_leave_an_older_log_beside_the_moved_one_is_refused(node: Path) -> None:
    move(node, "--partition", "users-0", "--from", "d1", "--to", "d2", "--undo")
    append(node / "d2/users-0")
    before, state = live_in(node / "d2")["users-0"], state_of(node)

    outcomes = [run_kdump(["undo", "d1", *options], node) for options in ((), ("--dry-run",))]
    assert [each.exit_status for each in outcomes] == [8, 8]
    assert state_of(node) == state
    said = outcomes[0].stderr.decode()
    assert "users-0 ends at offset 19, " in said
    assert "-stray ends at offset 18;" in said

    first, second = re.findall(r"'kdump ([^']*)'", said)
    for advised in (first, second):
        assert run_kdump(advised.split(), node).exit_status == 0, advised
    assert live_in(node / "d1")["users-0"] == before
    assert "users-0" not in live_in(node / "d2")


def test_without_the_changed_copy_a_move_can_be_undone(node: Path) -> None:
    before = live_in(node / "d1")
    move(node, "--partition", "users-0", "--from", "d1", "--to", "d2", "--undo")
    append(node / "d2/users-0")
    (node / "d2/users-0").rename(node / "elsewhere")

    assert run_kdump(["undo", "d1"], node).exit_status == 0
    assert live_in(node / "d1") == before


def test_of_two_logs_it_is_said_which_one_has_more(node: Path) -> None:
    shutil.copytree(node / "d1/users-0", node / "d2/users-0")
    append(node / "d2/users-0")

    said = move(node, "--drain", "d1", "--to", "d2").stdout.decode()

    assert "d1/users-0 ends at offset 18, d2/users-0 ends at offset 19;" in said.replace(
        f"{node}/", ""
    )
    assert "kdump diff d1 d2 --partition users-0" in said.replace(f"{node}/", "")


def test_an_equal_copy_is_only_removed_from_the_source(node: Path) -> None:
    shutil.copytree(node / "d1/users-0", node / "d2/users-0")
    (found,) = [
        each
        for each in rows(node, "--partition", "users-0", "--from", "d1", "--to", "d2")
        if each["type"] == "partition"
    ]
    assert found["is_copied"] is True
    assert "users-0" in live_in(node / "d2")
    assert "users-0" not in live_in(node / "d1")


@pytest.mark.parametrize("size_bytes", [0, 5])
def test_of_two_different_logs_none_is_removed(node: Path, size_bytes: int) -> None:
    shutil.copytree(node / "d1/users-0", node / "d2/users-0")
    (node / "d2/users-0/notes").write_bytes(b"x" * size_bytes)
    state = state_of(node)

    outcome = move(node, "--partition", "users-0", "--from", "d1", "--to", "d2")

    assert outcome.exit_status == 4
    assert "notes differs" in outcome.stdout.decode()
    assert state_of(node) == state


@pytest.mark.parametrize("where", ["d1", "d2"])
def test_a_copy_that_the_broker_began_is_deleted(node: Path, where: str) -> None:
    (node / where / FUTURE).mkdir()
    (node / where / FUTURE / f"{0:020d}.log").write_bytes(b"a part")

    said = move(node, "--partition", "users-0", "--from", "d1", "--to", "d2").stdout.decode()

    assert "which the broker began to copy, is deleted" in said
    assert not (node / where / FUTURE).exists()
    assert "users-0" in live_in(node / "d2")


def test_a_new_disk_gets_the_marker_of_the_others(node: Path) -> None:
    (node / "d3").mkdir()
    run_kdump(["identity", "--repair", "d1", "d2", "d3"], node)

    assert move(node, "--drain", "d1", "--to", "d3").exit_status == 0

    marker = (node / "d1" / names.CLEAN_SHUTDOWN_MARKER).read_bytes()
    assert (node / "d3" / names.CLEAN_SHUTDOWN_MARKER).read_bytes() == marker
    assert lines_of(node / "d3")[names.REPLICATION_OFFSET_CHECKPOINT]["orders-0"] == 10


def test_balancing_evens_out_bytes_and_then_does_nothing(node: Path) -> None:
    def sizes() -> list[int]:
        return [
            sum(len(content) for each in live_in(node / name).values() for content in each.values())
            for name in ("d1", "d2")
        ]

    gap = abs(sizes()[0] - sizes()[1])
    move(node, "--balance", "d1", "d2")
    assert abs(sizes()[0] - sizes()[1]) < gap
    state = state_of(node)
    assert move(node, "--balance", "d1", "d2").stdout == b"nothing to move\n"
    assert state_of(node) == state


def become_unclean(node: Path) -> None:
    (node / "d1" / names.CLEAN_SHUTDOWN_MARKER).unlink()


def be_of_another_node(node: Path) -> None:
    path = node / "d2" / names.META_PROPERTIES
    path.write_bytes(path.read_bytes().replace(b"node.id=7", b"node.id=8"))


def be_of_another_cluster(node: Path) -> None:
    path = node / "d2" / names.META_PROPERTIES
    path.write_bytes(path.read_bytes().replace(b"a-cluster", b"another"))


def lose_the_identity(node: Path) -> None:
    (node / "d1" / names.META_PROPERTIES).unlink()


def damage_the_identity(node: Path) -> None:
    path = node / "d2" / names.META_PROPERTIES
    path.write_bytes(path.read_bytes() + b"directory.id=short\n")


def damage_a_checkpoint(node: Path) -> None:
    (node / "d2" / names.CLEANER_OFFSET_CHECKPOINT).write_bytes(b"x")


@pytest.mark.parametrize(
    ("happening", "advice"),
    [
        (become_unclean, "kdump recover d1"),
        (be_of_another_node, "of node 8"),
        (be_of_another_cluster, "cluster another"),
        (lose_the_identity, "kdump identity d1 d2"),
        (damage_the_identity, "meta.properties has no valid directory.id"),
        (damage_a_checkpoint, "kdump checkpoint rebuild d2"),
    ],
)
def test_directories_that_a_broker_would_not_start_cleanly_are_refused(
    node: Path, happening: Callable[[Path], None], advice: str
) -> None:
    happening(node)
    state = state_of(node)

    outcome = move(node, "--drain", "d1", "--to", "d2")

    assert outcome.exit_status == 8
    assert advice in outcome.stderr.decode()
    assert state_of(node) == state


def test_a_running_broker_is_left_alone(node: Path) -> None:
    with held_elsewhere(node / "d2"):
        outcome = move(node, "--drain", "d1", "--to", "d2")
    assert outcome.exit_status == 8
    assert "locked" in outcome.stderr.decode()


@pytest.mark.parametrize("kind", ["fifo", "link", "directory"])
def test_what_is_no_file_stays_and_the_rest_moves(node: Path, kind: str) -> None:
    odd = node / "d1/users-0/odd"
    if kind == "fifo":
        import os

        os.mkfifo(odd)
    elif kind == "link":
        odd.symlink_to("/etc/passwd")
    else:
        odd.mkdir()

    outcome = move(node, "--drain", "d1", "--to", "d2")

    assert outcome.exit_status == 8
    assert "users-0: left where it is" in outcome.stdout.decode()
    assert set(live_in(node / "d2")) == {"orders-0", "users-1", "other-0"}
    assert "users-0" in lines_of(node / "d1")[names.RECOVERY_POINT_CHECKPOINT]


def test_a_link_to_a_partition_stays(node: Path) -> None:
    (node / "d1/users-1").rename(node / "elsewhere")
    (node / "d1/users-1").symlink_to(node / "elsewhere")

    outcome = move(node, "--drain", "d1", "--to", "d2")

    assert outcome.exit_status == 8
    assert (node / "elsewhere/notes").exists()
    assert (node / "d1/users-1").is_symlink()
    assert "orders-0" in live_in(node / "d2")
    assert "users-1" not in live_in(node / "d2")


def test_too_little_space_is_said_before_anything_changes(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "free_bytes_at", lambda _path: 100)
    monkeypatch.setattr("kdump.jobs.move.selected_moves.free_bytes_at", lambda _path: 100)
    monkeypatch.setattr(
        "kdump.jobs.move.selected_moves.file_system_of", lambda path: hash(path.name)
    )
    state = state_of(node)

    outcome = move(node, "--drain", "d1", "--to", "d2", "--dry-run")

    assert outcome.exit_status == 8
    assert "has 100; nothing has been changed" in outcome.stderr.decode()
    assert state_of(node) == state


def test_after_the_copy_nothing_is_called_unchanged(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(plan: Plan, **options: Any) -> str | None:
        files = VolatileFiles(plan.path, node, fail_at=0, failure=errno.ENOSPC)
        return apply_plan(plan, **options, files=files if plan.path.name == "d1" else DISK)

    monkeypatch.setattr(execution, "apply_plan", failing)
    outcome = move(node, "--partition", "users-0", "--from", "d1", "--to", "d2")

    said = outcome.stdout.decode()
    assert outcome.exit_status == 8
    assert "nothing more has been changed" in said
    assert "d2/users-0 is complete, but a broker does not start with both" in said


def test_many_partitions_move_in_batches(node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move_job, "BATCH_PARTITIONS", 2)
    expected = live_in(node / "d1") | live_in(node / "d2")
    said = move(node, "--drain", "d1", "--to", "d2", "--undo").stdout.decode()
    assert live_in(node / "d2") == expected
    assert said.count("kdump undo d") == 4


@pytest.mark.parametrize(
    "args",
    [
        ("d1",),
        ("--from", "d1", "--to", "d2"),
        ("--from", "d1", "--drain", "d1", "--to", "d2"),
        ("--drain", "d1"),
        ("--drain", "d1", "--to", "d1"),
        ("--balance",),
        ("--balance", "--to", "d2", "d1"),
        ("--drain", "d1", "--to", "d2", "--partition", "no-such-0"),
    ],
)
def test_contradictory_options_are_refused(node: Path, args: tuple[str, ...]) -> None:
    assert move(node, *args).exit_status == 16


def test_only_the_clusters_metadata_stays_on_a_drained_disk(node: Path) -> None:
    write_log_directory(node / "d1")
    (node / "d1/__cluster_metadata-0").mkdir()
    said = move(node, "--drain", "d1", "--to", "d2").stdout.decode()
    assert "metadata.log.dir" in said
    assert set(live_in(node / "d1")) == {"__cluster_metadata-0"}


def test_what_is_left_on_a_drained_disk_is_counted_by_what_happens_to_it(node: Path) -> None:
    for name in (
        "orders-1.kdump-3-new-0-delete",
        "orders-2.kdump-3-old-1-stray",
        stray("a.kdump-7-0"),
        stray("b.kdump-7-0"),
    ):
        (node / "d1" / name).mkdir()
    said = move(node, "--drain", "d1", "--to", "d2").stdout.decode()
    assert re.findall("([0-9-]+) director(?:y|ies) left that (.*)", said) == [
        ("1", "a broker deletes"),
        ("1", "are kept for kdump undo"),
        ("2", "a broker leaves alone"),
    ]
