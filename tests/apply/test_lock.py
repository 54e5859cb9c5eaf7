"""A log directory is locked as a broker locks it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from builders.lock_holder import HOLDER, held_elsewhere
from kdump.apply.files import Metadata
from kdump.apply.lock import LockedError, drop_leftover, hold_locks, leave_behind, leftover_of
from kdump.errors import KdumpError


def refusal_of(*log_dirs: Path) -> str:
    with pytest.raises(LockedError) as refused, hold_locks(log_dirs):
        pass
    return str(refused.value)


def is_locked_for_others(log_dir: Path) -> bool:
    command = [sys.executable, "-c", HOLDER, str(log_dir / ".lock")]
    done = subprocess.run(command, input=b"", capture_output=True, check=False)
    return done.returncode != 0


def test_the_lock_is_exclusive_and_its_file_is_deleted_afterwards(tmp_path: Path) -> None:
    with hold_locks([tmp_path]):
        assert is_locked_for_others(tmp_path)

    assert not (tmp_path / ".lock").exists()


def test_a_lock_file_left_by_a_crash_stays_until_the_directory_is_changed(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch(mode=0o640)
    os.utime(tmp_path / ".lock", ns=(1, 2))

    with hold_locks([tmp_path]):
        leftover = leftover_of(tmp_path)

    assert leftover is not None
    assert (leftover.mode, leftover.modified_ns) == (0o640, 2)
    assert (tmp_path / ".lock").exists()
    with hold_locks([tmp_path]):
        drop_leftover(tmp_path)

    assert not (tmp_path / ".lock").exists()


def test_the_lock_file_is_kept_on_request(tmp_path: Path) -> None:
    with hold_locks([tmp_path]):
        assert leftover_of(tmp_path) is None
        assert leave_behind(tmp_path)

    assert (tmp_path / ".lock").exists()
    assert not is_locked_for_others(tmp_path)
    assert not leave_behind(tmp_path)


def test_the_holder_of_the_lock_is_named(tmp_path: Path) -> None:
    with held_elsewhere(tmp_path) as process_id:
        said = refusal_of(tmp_path)

    assert str(tmp_path) in said
    assert f"process {process_id} ({sys.executable} -c" in said
    assert (tmp_path / ".lock").exists()


def test_a_second_holder_in_this_process_is_refused(tmp_path: Path) -> None:
    with hold_locks([tmp_path]):
        with pytest.raises(LockedError), hold_locks([tmp_path / ".." / tmp_path.name]):
            pass
        assert is_locked_for_others(tmp_path)


@pytest.mark.slow
def test_all_or_none_of_several_directories_are_locked(tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.mkdir()
    second.mkdir()
    with held_elsewhere(second):
        assert "2: locked" in refusal_of(second, first)
    assert not (first / ".lock").exists()

    with hold_locks([second, first, first]):
        assert is_locked_for_others(first)
        assert is_locked_for_others(second)


def test_a_lock_file_that_its_holder_deletes_meanwhile_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ".lock"
    path.touch()
    lockf = fcntl.lockf
    deleted: list[int] = []

    def deleting(descriptor: int, command: int) -> None:
        lockf(descriptor, command)
        if not deleted:
            deleted.append(os.fstat(descriptor).st_ino)
            path.unlink()

    monkeypatch.setattr(fcntl, "lockf", deleting)
    with hold_locks([tmp_path]):
        assert deleted
        assert is_locked_for_others(tmp_path)


def test_a_lock_taken_during_the_release_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lockf = fcntl.lockf
    with ExitStack() as others:

        def releasing(descriptor: int, command: int) -> None:
            lockf(descriptor, command)
            if command == fcntl.LOCK_UN:
                others.enter_context(held_elsewhere(tmp_path))

        with monkeypatch.context() as patch:
            patch.setattr(fcntl, "lockf", releasing)
            with hold_locks([tmp_path]):
                pass
        assert "locked by process" in refusal_of(tmp_path)


def test_a_lock_that_cannot_be_taken_is_named_by_the_path_that_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d1/.lock").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KdumpError, match=r"^d1/\.lock: cannot take the lock"):
        hold_locks([Path("d1")]).__enter__()


@pytest.mark.parametrize(
    ("name", "why"), [("nowhere", "No such file or directory"), ("file", "Not a directory")]
)
def test_only_a_directory_can_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, why: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KdumpError) as refused, hold_locks([Path(name)]):
        pass
    assert str(refused.value) == f"{name}: {why}; name a log directory"


@pytest.mark.parametrize(
    "put",
    [
        lambda path: path.symlink_to(path.name),
        lambda path: path.symlink_to("nowhere"),
        lambda path: path.symlink_to("."),
        Path.mkdir,
        os.mkfifo,
    ],
    ids=["link-to-itself", "link-to-nothing", "link-to-a-directory", "directory", "fifo"],
)
def test_what_cannot_be_a_lock_file_is_refused_with_what_to_do(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    put(tmp_path / ".lock")
    with pytest.raises(KdumpError, match=r"\.lock: cannot take the lock: .*remove it$"):
        hold_locks([tmp_path]).__enter__()
    assert [each.name for each in tmp_path.iterdir()] == [".lock"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
def test_the_lock_file_gets_the_owner_of_the_directory(tmp_path: Path) -> None:
    os.chown(tmp_path, 4711, 4712)
    with hold_locks([tmp_path]):
        status = Metadata.of((tmp_path / ".lock").stat())
    assert (status.uid, status.gid) == (4711, 4712)


@pytest.mark.differential
def test_kafka_and_kdump_refuse_each_other(tmp_path: Path, java_classpath: str) -> None:
    command = ["java", "-Xshare:auto", "-cp", java_classpath, "LockHolder", str(tmp_path)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as kafka:
        assert kafka.stdin is not None
        assert kafka.stdout is not None

        def ask(request: str) -> str:
            assert kafka.stdin is not None
            assert kafka.stdout is not None
            kafka.stdin.write(request + "\n")
            kafka.stdin.flush()
            return kafka.stdout.readline().strip()

        with hold_locks([tmp_path]):
            assert ask("lock") == "refused"
        assert ask("lock") == "locked"
        assert f"process {kafka.pid} (java LockHolder" in refusal_of(tmp_path)
        assert ask("stop") == "stopped"
        with hold_locks([tmp_path]):
            assert ask("lock") == "refused"
        kafka.stdin.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_foreign_file_that_appears_as_the_lock_keeps_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir, foreign = tmp_path / "logs", tmp_path / "foreign"
    log_dir.mkdir()
    os.chown(log_dir, 4711, 4711)
    foreign.touch()
    # The file appears between the check and the open.
    looks: list[Path] = []

    def look(path: Path) -> None:
        if not looks:
            path.hardlink_to(foreign)
        looks.append(path)

    monkeypatch.setattr("kdump.apply.lock._metadata_of", look)
    with (
        pytest.raises(LockedError, match="other processes keep taking the lock"),
        hold_locks([log_dir]),
    ):
        pass
    assert len(looks) > 1
    assert foreign.stat().st_uid == os.geteuid()
