"""A staged file is complete and durable, or a broker and the next run delete it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.trees import contents_of
from builders.volatile_files import VolatileFiles
from builders.written_files import plan_of
from kdump.apply.apply import apply_plan
from kdump.apply.files import Content, FileRange
from kdump.apply.interrupted_runs import finish_interrupted
from kdump.apply.staging import stage_file
from kdump.target.target_file import Gone, RenamedFrom, TargetFile

LOG = "00000000000000000000.log"
TIME_NS = 1_600_000_000_123_000_000


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return a log in a partition, with a mode of its own."""
    path = tmp_path / "logs" / "orders-0" / LOG
    path.parent.mkdir(parents=True)
    path.write_bytes(b"12345678")
    path.chmod(0o604)
    return path


def content_of(log: Path) -> Content:
    return [b"ab", FileRange(log, 2, 5)]


def volatile(log: Path, tmp_path: Path) -> VolatileFiles:
    attic = tmp_path / "attic"
    attic.mkdir(exist_ok=True)
    return VolatileFiles(log.parent.parent, attic)


def test_a_staged_file_has_its_content_and_the_metadata_of_the_old_log(log: Path) -> None:
    staged = log.with_name(LOG + ".cleaned")
    stage_file(staged, content_of(log), like=log, modified_ns=TIME_NS)
    status = staged.stat()
    assert staged.read_bytes() == b"ab345"
    assert (status.st_mode & 0o777, status.st_mtime_ns) == (0o604, TIME_NS)
    assert (status.st_uid, status.st_gid) == (log.stat().st_uid, log.stat().st_gid)


def test_a_file_can_be_staged_again_after_any_stop(log: Path, tmp_path: Path) -> None:
    staged = log.with_name(LOG + ".cleaned")

    def stage(files: VolatileFiles) -> None:
        stage_file(staged, content_of(log), like=log, modified_ns=TIME_NS, files=files)

    operations = volatile(log, tmp_path).operations_of(stage)
    for unsynced in (False, True):
        for at in range(len(operations)):
            staged.unlink()
            volatile(log, tmp_path).stop_in(stage, at, unsynced=unsynced)
            assert contents_of(log.parent).keys() <= {LOG, staged.name}

            stage_file(staged, content_of(log), like=log, modified_ns=TIME_NS)

            assert staged.read_bytes() == b"ab345"


def test_a_staged_file_survives_a_power_failure(log: Path, tmp_path: Path) -> None:
    staged = log.with_name(LOG + ".cleaned")
    files = volatile(log, tmp_path)
    stage_file(staged, content_of(log), like=log, modified_ns=TIME_NS, files=files)
    files.lose_unsynced()
    assert (staged.read_bytes(), staged.stat().st_mtime_ns) == (b"ab345", TIME_NS)


@pytest.mark.parametrize("at", range(1, 5))
def test_a_full_disk_leaves_no_file(log: Path, tmp_path: Path, at: int) -> None:
    files = volatile(log, tmp_path)
    files.fail_at, files.failure = at, errno.ENOSPC
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        stage_file(
            log.with_name(LOG + ".cleaned"),
            content_of(log),
            like=log,
            modified_ns=TIME_NS,
            files=files,
        )
    assert contents_of(log.parent) == {LOG: b"12345678"}


def test_failing_content_leaves_no_file(log: Path) -> None:
    def failing() -> Iterator[bytes]:
        yield b"half"
        raise LookupError("no more")

    with pytest.raises(LookupError):
        stage_file(log.with_name(LOG + ".cleaned"), failing(), like=log, modified_ns=TIME_NS)
    assert contents_of(log.parent) == {LOG: b"12345678"}


@pytest.mark.parametrize("keep_undo", [False, True])
def test_files_that_others_staged_are_synced_before_the_journal_is_written(
    log: Path, tmp_path: Path, keep_undo: bool
) -> None:
    log_dir = log.parent.parent
    staged = log.with_name(LOG + ".cleaned")
    target: dict[str, TargetFile] = {LOG: RenamedFrom(staged.name, 2), staged.name: Gone()}

    def compact(files: VolatileFiles) -> None:
        files.create(staged, [b"ab"])
        plan = plan_of(log_dir, target)
        apply_plan(plan, keep_undo=keep_undo, command="kdump compact", files=files)

    at = 0
    while log.read_bytes() != b"ab":
        staged.unlink(missing_ok=True)
        volatile(log, tmp_path).stop_in(compact, at, unsynced=True)
        finish_interrupted(log_dir)
        assert log.read_bytes() in (b"12345678", b"ab"), at
        at += 1
    assert at > 3
    assert not staged.exists()


def test_a_name_that_a_broker_would_keep_is_refused(log: Path) -> None:
    with pytest.raises(ValueError, match="would not delete"):
        stage_file(log.with_name("00000000000000000005.log"), [], like=log, modified_ns=0)


def test_a_file_that_replaces_the_log_meanwhile_is_not_copied(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"somebody else's")

    def swapped() -> Iterator[bytes | FileRange]:
        yield FileRange(log, 0, 2)
        log.unlink()
        log.symlink_to(other)
        yield FileRange(log, 2, 5)

    with pytest.raises(OSError, match="was replaced while it was read"):
        stage_file(log.with_name(LOG + ".cleaned"), swapped(), like=log, modified_ns=TIME_NS)
    assert contents_of(log.parent).keys() == {LOG}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads what others may not")
def test_a_file_is_not_copied_for_an_owner_who_may_not_read_it(log: Path) -> None:
    os.chown(log, 4711, 4711)
    other = log.with_name("other")
    other.write_bytes(b"somebody else's")
    other.chmod(0o640)
    with pytest.raises(OSError, match="belongs to another user"):
        stage_file(
            log.with_name(LOG + ".cleaned"),
            [FileRange(other, 0, 2)],
            like=log,
            modified_ns=TIME_NS,
        )
    assert contents_of(log.parent).keys() == {LOG, "other"}
