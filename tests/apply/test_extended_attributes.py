"""Extended attributes stay with files that are replaced, and come back with an undo."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from uuid import UUID

import pytest

from builders.batches import batch, record
from builders.compactable_directories import plain_directory
from builders.in_process import run_kdump
from builders.log_directories import write_log_directory, write_partition
from builders.two_disks import write_two_disks
from builders.volatile_files import Stopped, VolatileFiles
from builders.written_files import plan_of, write_files
from kdump.apply import files as file_operations
from kdump.apply.apply import apply_plan
from kdump.apply.copied_directory import copy_of
from kdump.apply.interrupted_runs import finish_interrupted
from kdump.apply.plan import TargetDirectory, make_plan
from kdump.apply.undo import undo
from kdump.errors import ExitStatus
from kdump.formats.uuids import format_uuid
from kdump.target.target_file import CopiedFrom, Gone, JoinedFrom, NewBytes

LOG = "00000000000000000000.log"
INDEX = "00000000000000000000.index"
NAME, VALUE = "user.backup", b"on tape 7"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a directory on a file system that has extended attributes."""
    probe = tmp_path / "probe"
    probe.touch()
    try:
        os.setxattr(probe, NAME, VALUE)
    except (AttributeError, OSError):
        pytest.skip("the file system of the tests has no extended attributes")
    probe.unlink()
    return tmp_path


def test_a_compacted_segment_keeps_them(place: Path) -> None:
    root = plain_directory(place / "logs")
    log = root / "users-0" / LOG
    os.setxattr(log, NAME, VALUE)
    before = log.stat()

    found = run_kdump(["compact", str(root), "--topic=users", "--force", "--undo"], place)

    assert found.exit_status == 0
    assert log.stat().st_size < before.st_size
    assert os.getxattr(log, NAME) == VALUE
    assert run_kdump(["undo", str(root)], place).exit_status == 0
    assert (log.stat().st_size, os.getxattr(log, NAME)) == (before.st_size, VALUE)


def test_a_partition_that_moves_to_another_disk_keeps_them(place: Path) -> None:
    write_two_disks(place)
    paths = sorted((place / "d1/users-0").iterdir())
    for path in (place / "d1/users-0", *paths):
        os.setxattr(path, NAME, VALUE)

    found = run_kdump(["move", "--partition=users-0", "--from=d1", "--to=d2"], place)

    assert found.exit_status == 0
    for path in paths:
        assert os.getxattr(place / "d2/users-0" / path.name, NAME) == VALUE
    assert os.getxattr(place / "d2/users-0", NAME) == VALUE


def test_a_directory_gets_them_if_the_run_is_stopped_before_it_is_created(place: Path) -> None:
    partition = write_files(place / "old", {LOG: b"1234"})
    os.setxattr(partition, NAME, VALUE)
    root = place / "logs"
    root.mkdir()
    copy = {"moved-0": copy_of(partition, lambda _: None)}
    plan = make_plan(TargetDirectory(root, (), {}, directories=copy))
    attics = place / "attic-1", place / "attic-2"
    for each in attics:
        each.mkdir()
    whole = VolatileFiles(root, attics[0])
    apply_plan(plan, keep_undo=True, command="kdump move", files=whole)
    undo(root)
    made = next(at for at, each in enumerate(whole.operations) if "make_directory" in each)

    stopped = VolatileFiles(root, attics[1], stop_after=made)
    with pytest.raises(Stopped):
        apply_plan(plan, keep_undo=True, command="kdump move", files=stopped)
    assert finish_interrupted(root) is not None

    assert os.getxattr(root / "moved-0", NAME) == VALUE


def test_a_transplanted_partition_has_them(place: Path) -> None:
    source = write_partition(
        write_log_directory(place / "old") / "orders-0", {0: batch([record(0)])}
    )
    for path in (source, source / LOG):
        os.setxattr(path, NAME, VALUE)
    target = write_log_directory(place / "new")
    given = ["--into", str(target), f"--topic-id={format_uuid(UUID(int=7))}", "--leader-epoch=3"]

    found = run_kdump(["transplant", str(source), *given], place)

    assert found.exit_status == ExitStatus.REPAIRED, found.stderr
    for path in (target / "orders-0", target / "orders-0" / LOG):
        assert os.getxattr(path, NAME) == VALUE


@pytest.mark.parametrize("has_links", [True, False], ids=["links", "no-links"])
def test_a_replaced_file_and_its_before_image_keep_them(
    place: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    if not has_links:
        monkeypatch.setattr(file_operations, "_hard_link", refused)
    root = place / "logs"
    partition = write_files(root, {LOG: b"1234", INDEX: b"12345678", "old": b"x"})
    for path in partition.iterdir():
        os.setxattr(path, NAME, path.name.encode())

    plan = plan_of(root, {INDEX: NewBytes(b"new"), "old": Gone()})
    apply_plan(plan, keep_undo=True, command="kdump recover")

    assert os.getxattr(partition / INDEX, NAME) == INDEX.encode()
    undo(root)
    for path in partition.iterdir():
        assert os.getxattr(path, NAME) == path.name.encode()


def test_a_file_that_is_put_together_again_keeps_them(place: Path) -> None:
    root = place / "logs"
    content = os.urandom(2 << 20)
    partition = write_files(root, {LOG: content})
    os.setxattr(partition / LOG, NAME, VALUE)

    kept = JoinedFrom((CopiedFrom(LOG, 0, 1 << 20),))
    apply_plan(plan_of(root, {LOG: kept}), keep_undo=True, command="kdump recover")

    assert os.getxattr(partition / LOG, NAME) == VALUE
    undo(root)
    assert (partition / LOG).read_bytes() == content
    assert os.getxattr(partition / LOG, NAME) == VALUE


def test_attributes_that_cannot_be_set_are_left_out(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = write_files(place / "logs", {INDEX: b"12345678"})
    os.setxattr(partition / INDEX, NAME, VALUE)

    def refused(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "setxattr", refused)
    plan = plan_of(place / "logs", {INDEX: NewBytes(b"new")})
    apply_plan(plan, keep_undo=True, command="kdump recover")

    assert (partition / INDEX).read_bytes() == b"new"
