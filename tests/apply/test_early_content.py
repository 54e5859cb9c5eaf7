"""Large new content is written before its plan is made."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from builders.trees import contents_of
from builders.volatile_files import Stopped, VolatileFiles
from kdump.apply.apply import apply_plan
from kdump.apply.early_content import EarlyContent
from kdump.apply.files import DISK
from kdump.apply.plan import Plan, TargetDirectory, TargetPartition, make_plan
from kdump.apply.undo import undo
from kdump.errors import KdumpError
from kdump.formats.names import LOCK_FILE
from kdump.jobs.writing.execution import Writing, locked_for_writing
from kdump.storage.local_disk import local
from kdump.target.content_store import without_content
from kdump.target.target_file import Gone, NewBytes, StagedBytes, TargetFile

INDEX = "00000000000000000000.index"
LARGE = NewBytes(b"12345678" * 1000)


@pytest.fixture
def log_dir(quick_path: Path) -> Path:
    """Return a log directory whose partition has an index."""
    partition = quick_path / "logs" / "orders-0"
    partition.mkdir(parents=True)
    (partition / INDEX).write_bytes(b"old")
    (partition / INDEX).chmod(0o640)
    return partition.parent


def plan_with(log_dir: Path, target: TargetFile) -> Plan:
    partition = TargetPartition(log_dir / "orders-0", {INDEX: target})
    return make_plan(TargetDirectory(log_dir, (partition,), {}))


def test_a_plan_uses_it_and_can_be_undone(log_dir: Path) -> None:
    before = contents_of(log_dir)
    plan = plan_with(log_dir, EarlyContent.of_next_run(log_dir).staged(LARGE))

    assert apply_plan(plan, keep_undo=True, command="test") == "1"

    assert (log_dir / "orders-0" / INDEX).read_bytes() == LARGE.data
    assert (log_dir / "orders-0" / INDEX).stat().st_mode & 0o777 == 0o640
    undo(log_dir)
    assert contents_of(log_dir) == before


def test_a_plan_without_it_needs_as_much_space(log_dir: Path) -> None:
    staged = EarlyContent.of_next_run(log_dir).staged(LARGE)
    space = {plan_with(log_dir, each).needed_bytes for each in (LARGE, without_content(LARGE))}
    assert space == {plan_with(log_dir, staged).needed_bytes}


def test_small_content_stays_in_memory(log_dir: Path) -> None:
    small = NewBytes(b"small")
    assert EarlyContent.of_next_run(log_dir).staged(small) is small
    assert without_content(small) is small
    assert [path.name for path in log_dir.iterdir()] == ["orders-0"]


def test_it_is_removed_if_no_plan_is_applied(log_dir: Path) -> None:
    with locked_for_writing([local(log_dir)], Writing("test")):
        assert isinstance(EarlyContent.of_next_run(log_dir).staged(LARGE), StagedBytes)
        assert len(list(log_dir.glob(".kdump-*"))) == 1
    assert not list(log_dir.glob(".kdump-*"))


def test_another_attempt_of_a_task_leaves_what_the_first_has_written(log_dir: Path) -> None:
    """Spark may run a task twice at the same time, and kill one whose result does not count."""
    content = pickle.dumps(EarlyContent.of_next_run(log_dir))
    plan = plan_with(log_dir, pickle.loads(content).staged(LARGE))
    killed = replace(pickle.loads(content), files=KilledInFile(log_dir, log_dir.parent))
    with pytest.raises(Stopped):
        killed.staged(LARGE)

    apply_plan(plan, keep_undo=False, command="test")

    assert (log_dir / "orders-0" / INDEX).read_bytes() == LARGE.data
    assert not list(log_dir.glob(".kdump-*"))


def test_nothing_is_written_where_the_directory_has_another_lock(
    log_dir: Path, quick_path: Path
) -> None:
    """A node of a cluster may have the log directory of another broker at the same path."""
    other = quick_path / "other" / "orders-0"
    other.mkdir(parents=True)
    (other.parent / LOCK_FILE).touch()
    with locked_for_writing([local(log_dir)], Writing("test")):
        there = replace(EarlyContent.of_next_run(log_dir), log_dir=other.parent)
        assert there.staged(LARGE) is LARGE
    assert [path.name for path in other.parent.glob(".kdump*")] == []


def test_nothing_is_written_after_the_lock_was_released(log_dir: Path) -> None:
    """Tasks of a driver that is gone may still run."""
    with locked_for_writing([local(log_dir)], Writing("test")):
        content = EarlyContent.of_next_run(log_dir)
    assert content.staged(LARGE) is LARGE
    assert [path.name for path in log_dir.iterdir()] == ["orders-0"]


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_it_stays_in_memory_where_nothing_can_be_written(log_dir: Path, code: int) -> None:
    """A node of a cluster may have the log directory for reading only."""
    files = VolatileFiles(log_dir, log_dir.parent, fail_at=0, failure=code)
    assert EarlyContent.of_next_run(log_dir, files).staged(LARGE) is LARGE


def test_it_stays_in_memory_if_the_disk_is_full(log_dir: Path) -> None:
    files = FullDisk(log_dir, log_dir.parent)
    assert EarlyContent.of_next_run(log_dir, files).staged(LARGE) is LARGE
    assert not list(log_dir.glob(".kdump-*"))


def test_it_survives_the_removals_that_make_room_for_the_rest(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leftover = log_dir / "orders-0" / "00000000000000000000.log.cleaned"
    leftover.write_bytes(bytes(100))
    partition = TargetPartition(
        log_dir / "orders-0",
        {INDEX: EarlyContent.of_next_run(log_dir).staged(LARGE), leftover.name: Gone()},
    )
    plan = make_plan(TargetDirectory(log_dir, (partition,), {}))
    files = FullUntilRemoved(log_dir, log_dir.parent)

    apply_plan(plan, keep_undo=False, command="test", files=files)

    assert (log_dir / "orders-0" / INDEX).read_bytes() == LARGE.data
    assert not list(log_dir.glob(".kdump-*"))


def test_it_is_removed_if_the_plan_cannot_be_applied(log_dir: Path) -> None:
    plan = plan_with(log_dir, EarlyContent.of_next_run(log_dir).staged(LARGE))
    with pytest.raises(KdumpError, match="nothing has been changed"):
        apply_plan(plan, keep_undo=False, command="test", files=FullDisk(log_dir, log_dir.parent))
    assert not list(log_dir.glob(".kdump-*"))


class FullDisk(VolatileFiles):
    """A disk on which no file can be created."""

    def create(self, path: Path, content: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


class KilledInFile(VolatileFiles):
    """Operations of a process that is killed when it has written a part of a file."""

    def create(self, path: Path, content: Any) -> None:
        DISK.create(path, [b"".join(content)[:100]])
        raise Stopped


class FullUntilRemoved(VolatileFiles):
    """A disk on which files can be created once a leftover file is gone."""

    def create(self, path: Path, content: Any) -> None:
        if list(self.root.rglob("*.cleaned")):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        DISK.create(path, content)
