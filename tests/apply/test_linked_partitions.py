"""Partitions that are symbolic links or mounts are read, but never written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.freeing import ALL_IS_OLD
from builders.in_process import Outcome, run_kdump
from builders.log_dir_trees import seen_by_broker
from builders.mounts import mounted
from builders.repair_cases import PARTITION, bad_batch_in_the_middle
from builders.trees import tree_of
from builders.verified import LogModel
from kdump.apply.pinned_directory import has_no_mounts_below

pytestmark = pytest.mark.slow

WRITERS = (
    ("recover", "--dry-run"),
    ("recover",),
    ("recover", "--policy", "salvage"),
    ("recover", "--no-undo"),
    ("verify", "--repair"),
    ("rebuild-index",),
    ("snapshot", "rebuild"),
)


def kdump(*args: str | Path) -> Outcome:
    return run_kdump([*map(str, args)], Path.cwd())


def link_elsewhere(partition: Path) -> Path:
    elsewhere = partition.parent.parent / "elsewhere"
    partition.rename(elsewhere)
    partition.symlink_to(elsewhere)
    return elsewhere


@pytest.mark.parametrize("command", WRITERS, ids=" ".join)
def test_a_linked_partition_is_refused_before_anything_is_written(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    log_dir = tmp_path / "logs"
    bad_batch_in_the_middle(log_dir)
    (log_dir / PARTITION / "00000000000000000000.index").unlink()
    (log_dir / PARTITION / "00000000000000000120.snapshot").write_bytes(b"damaged")
    elsewhere = link_elsewhere(log_dir / PARTITION)
    before, there = tree_of(log_dir), tree_of(elsewhere)

    outcome = kdump(*command, log_dir)

    # The preview of a start says besides what a broker loses.
    assert outcome.exit_status == (12 if "--dry-run" in command else 8)
    said = outcome.stderr.decode()
    assert f"{log_dir / PARTITION}: is a symbolic link to {elsewhere}" in said
    assert "nothing has been changed" in said
    after = tree_of(log_dir)
    for tree in (before, after):
        del tree["."]
        tree.pop(".lock", None)
    assert (after, tree_of(elsewhere)) == (before, there)


@pytest.mark.parametrize(
    "command",
    [
        ("retain", *ALL_IS_OLD, "--config", "cleanup.policy=delete"),
        ("compact", "--config", "cleanup.policy=compact"),
    ],
    ids=lambda it: it[0],
)
def test_a_linked_partition_frees_no_space(tmp_path: Path, command: tuple[str, ...]) -> None:
    log_dir = LogModel().write(tmp_path / "logs").parent
    elsewhere = link_elsewhere(log_dir / PARTITION)
    before = tree_of(elsewhere)
    for dry_run in ([], ["--dry-run"]):
        known = ("--config", "remote.storage.enable=false")
        outcome = kdump(*command, *known, *dry_run, "--topic", "*", log_dir)
        assert outcome.exit_status == 8
        assert b"is a symbolic link" in outcome.stderr
        assert tree_of(elsewhere) == before


def test_a_partition_that_replaces_its_link_is_recovered(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    bad_batch_in_the_middle(log_dir)
    elsewhere = link_elsewhere(log_dir / PARTITION)
    assert kdump("recover", log_dir).exit_status == 8
    (log_dir / PARTITION).unlink()
    elsewhere.rename(log_dir / PARTITION)
    assert kdump("recover", log_dir).exit_status & 8 == 0


def test_other_partitions_can_be_recovered(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    bad_batch_in_the_middle(log_dir)
    elsewhere = link_elsewhere(log_dir / PARTITION)
    before = tree_of(elsewhere)
    assert kdump("recover", "--partition", "other-0", log_dir).exit_status & 8 == 0
    assert tree_of(elsewhere) == before


def test_a_linked_log_directory_is_followed(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    bad_batch_in_the_middle(log_dir)
    link = tmp_path / "link"
    link.symlink_to(log_dir)
    assert kdump("recover", link).exit_status & 8 == 0
    assert kdump("undo", link).exit_status == 0


@pytest.fixture
def bind_mounted(tmp_path: Path) -> Iterator[Path]:
    """Return a log directory in which a partition is a mount of a directory beside it."""
    log_dir, elsewhere = tmp_path / "logs", tmp_path / "elsewhere"
    bad_batch_in_the_middle(log_dir)
    shutil.copytree(log_dir / PARTITION, elsewhere)
    with mounted("--bind", str(elsewhere), at=log_dir / PARTITION):
        yield log_dir


@pytest.mark.parametrize("args", [(), ("--no-undo",)], ids=["with an undo", "without"])
def test_a_mount_of_the_same_file_system_is_refused_before_anything_is_written(
    bind_mounted: Path, args: tuple[str, ...]
) -> None:
    before = seen_by_broker(bind_mounted)

    outcome = kdump("recover", *args, bind_mounted)

    assert outcome.exit_status == 8
    assert b"is on another file system or mount" in outcome.stderr
    assert seen_by_broker(bind_mounted) == before


def test_a_mount_below_a_directory_with_a_blank_in_its_name_is_noticed(tmp_path: Path) -> None:
    log_dir = tmp_path / "my logs"
    (log_dir / PARTITION).mkdir(parents=True)
    assert has_no_mounts_below(log_dir)
    with mounted("-t", "tmpfs", "tmpfs", at=log_dir / PARTITION):
        assert not has_no_mounts_below(log_dir)
        assert has_no_mounts_below(log_dir / PARTITION)


def test_a_run_is_not_undone_into_a_mount(tmp_path: Path) -> None:
    log_dir, elsewhere = tmp_path / "logs", tmp_path / "elsewhere"
    bad_batch_in_the_middle(log_dir)
    assert kdump("recover", log_dir).exit_status & 8 == 0
    shutil.copytree(log_dir / PARTITION, elsewhere)
    with mounted("--bind", str(elsewhere), at=log_dir / PARTITION):
        before = seen_by_broker(log_dir)

        outcome = kdump("undo", log_dir)

        assert outcome.exit_status == 8
        assert b"is on another file system or mount" in outcome.stderr
        assert seen_by_broker(log_dir) == before
