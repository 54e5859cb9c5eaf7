"""Directories change on full disks, for other users, without permission: nothing is lost."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from builders.directory_cases import CREATED, LOG, OLD, target_of, write_log_directory
from builders.log_dir_trees import original_of
from builders.mounts import mounted
from builders.volatile_files import VolatileFiles
from kdump.apply.apply import apply_plan
from kdump.apply.directory_changes import (
    CreatedDirectory,
    FileStream,
    NewFile,
    RemovedDirectory,
    RenamedDirectory,
    StreamedFrom,
)
from kdump.apply.files import DISK, free_bytes_at
from kdump.apply.interrupted_runs import finish_interrupted
from kdump.apply.journal import Journal, RunState
from kdump.apply.journal_file import read_journal, write_journal
from kdump.apply.plan import Plan, TargetDirectory, make_plan
from kdump.apply.undo import undo
from kdump.errors import KdumpError
from kdump.target.target_file import NewBytes

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of two megabytes."""
    path = tmp_path / "disk"
    path.mkdir()
    with mounted("-t", "tmpfs", "-o", "size=2m", "kdump-test", at=path):
        yield path


def plan_of_a_copy(log_dir: Path, source: Path) -> Plan:
    files = {LOG: NewFile(StreamedFrom(FileStream.of(source)))}
    changes = {CREATED: CreatedDirectory(files)}
    return make_plan(TargetDirectory(log_dir, (), {}, directories=changes))


def test_a_copy_that_does_not_fit_is_not_begun(small_disk: Path, tmp_path: Path) -> None:
    log_dir = write_log_directory(small_disk / "logs")
    source = tmp_path / "large"
    source.write_bytes(b"x" * (3 << 20))
    before = original_of(log_dir)
    with pytest.raises(KdumpError, match=r"needs [0-9]+ bytes of free space"):
        apply_plan(plan_of_a_copy(log_dir, source), keep_undo=True, command="kdump move")
    assert original_of(log_dir) == before


def test_a_disk_that_fills_up_during_a_copy_is_as_before(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = write_log_directory(small_disk / "logs")
    source = tmp_path / "large"
    source.write_bytes(b"x" * (3 << 20))
    before, free_bytes = original_of(log_dir), free_bytes_at(log_dir)
    monkeypatch.setattr("kdump.apply.disk_space.free_bytes_at", lambda _: 1 << 30)
    with pytest.raises(KdumpError, match="No space left on device; nothing has been changed"):
        apply_plan(plan_of_a_copy(log_dir, source), keep_undo=True, command="kdump move")
    assert original_of(log_dir) == before
    assert free_bytes_at(log_dir) == free_bytes


def test_renaming_and_removing_needs_no_space_for_the_content(small_disk: Path) -> None:
    log_dir = write_log_directory(small_disk / "logs")
    (log_dir / OLD / LOG).write_bytes(b"x" * (1 << 20))
    (small_disk / "filler").write_bytes(b"x" * (free_bytes_at(small_disk) - 64 * 1024))
    before = original_of(log_dir)
    changes = {"renamed-0": RenamedDirectory(OLD)}
    for directories in (changes, {OLD: RemovedDirectory()}):
        plan = make_plan(TargetDirectory(log_dir, (), {}, directories=directories))
        apply_plan(plan, keep_undo=True, command="kdump move")
        undo(log_dir)
        assert original_of(log_dir) == before


@as_root
def test_new_directories_belong_to_the_owner_of_the_log_directory(quick_path: Path) -> None:
    log_dir = write_log_directory(quick_path / "logs")
    os.chown(log_dir, NOBODY, NOBODY)
    files = {LOG: NewFile(NewBytes(b"x"))}
    plan = make_plan(
        TargetDirectory(log_dir, (), {}, directories={CREATED: CreatedDirectory(files)})
    )
    apply_plan(plan, keep_undo=True, command="kdump transplant")
    for path in (log_dir / CREATED, log_dir / CREATED / LOG, log_dir / ".kdump-1.applied"):
        assert (path.stat().st_uid, path.stat().st_gid) == (NOBODY, NOBODY)


@as_root
def test_a_journal_of_the_owner_creates_directories_for_nobody_else(quick_path: Path) -> None:
    log_dir = write_log_directory(quick_path / "logs")
    os.chown(log_dir, NOBODY, NOBODY)
    plan = make_plan(target_of(log_dir))
    apply_plan(plan, keep_undo=True, command="kdump move")
    undo_path = log_dir / ".kdump-1.applied"
    journal = read_journal(undo_path)
    undo(log_dir)

    def for_root(journal: Journal) -> Journal:
        moves = tuple(
            replace(each, metadata=replace(each.metadata, uid=0, gid=0)) for each in journal.moves
        )
        return replace(journal, moves=moves)

    forged = log_dir / f".kdump-1{RunState.APPLIED.value}"
    write_journal(log_dir, for_root(journal), RunState.APPLIED, DISK)
    os.chown(forged, NOBODY, NOBODY)
    found = read_journal(forged)
    assert not found.is_trusted
    assert {each.metadata.uid for each in found.moves} == {NOBODY}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
@pytest.mark.parametrize("closed", ["logs", f"logs/{OLD}"])
def test_missing_permission_is_detected_before_anything_changes(
    quick_path: Path, closed: str
) -> None:
    log_dir = write_log_directory(quick_path / "logs")
    quick_path.chmod(0o755)
    (log_dir / OLD).chmod(0o755)
    (quick_path / closed).chmod(0o555)
    before = original_of(log_dir)
    child = os.fork()
    if not child:
        status = 1
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            change = {OLD: RemovedDirectory()}
            plan = make_plan(TargetDirectory(log_dir, (), {}, directories=change))
            apply_plan(plan, keep_undo=False, command="kdump move")
        except KdumpError as refused:
            status = 0 if "Permission denied; nothing has been changed" in str(refused) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert original_of(log_dir) == before


def test_a_run_whose_new_directory_a_broker_has_deleted_can_only_be_undone(
    quick_path: Path,
) -> None:
    log_dir, attic = write_log_directory(quick_path / "logs"), quick_path / "attic"
    attic.mkdir()
    before = original_of(log_dir)
    plan = make_plan(target_of(log_dir))

    def apply(files: VolatileFiles) -> None:
        apply_plan(plan, keep_undo=True, command="kdump move", files=files)

    operations = VolatileFiles(log_dir, attic).operations_of(apply)
    undo(log_dir)
    first = next(at for at, what in enumerate(operations) if "rename_dir" in what)
    VolatileFiles(log_dir, attic).stop_in(apply, first, unsynced=False)
    (filled,) = log_dir.glob("*-new-0-delete")
    shutil.rmtree(filled)

    with pytest.raises(KdumpError, match=f"the new content of {CREATED}/{LOG} is gone"):
        finish_interrupted(log_dir)

    undo(log_dir)
    assert original_of(log_dir) == before
