"""Undo data can be listed, used in order, and discarded; changes by others are never lost."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from builders.log_dir_trees import original_of, seen_by_broker
from builders.written_files import plan_of, write_files
from kdump.apply.apply import apply_plan
from kdump.apply.interrupted_runs import finish_interrupted
from kdump.apply.journal import RunState
from kdump.apply.journal_file import read_journal, run_files_in
from kdump.apply.lock import hold_locks
from kdump.apply.runs import list_undos
from kdump.apply.undo import discard, preview_undo, undo
from kdump.errors import KdumpError
from kdump.formats import names
from kdump.storage.local_disk import LocalDisk
from kdump.target.target_file import Gone, KeptUpTo, NewBytes, TargetFile

LOG = "00000000000000000000.log"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Return a log directory with a partition of a few files."""
    path = tmp_path / "logs"
    write_files(path, {LOG: b"12345678", "b": b"b", "c": b"c"})
    (path / names.RECOVERY_POINT_CHECKPOINT).write_bytes(b"0\n0\n")
    return path


def apply(log_dir: Path, files: dict[str, TargetFile], command: str = "kdump recover") -> None:
    apply_plan(plan_of(log_dir, files), keep_undo=True, command=command)


def test_runs_are_undone_one_after_the_other(log_dir: Path) -> None:
    states = []
    for size_bytes in (6, 4, 2):
        states.append(original_of(log_dir))
        apply(log_dir, {LOG: KeptUpTo(size_bytes)})
    assert [each.undo_id for each in list_undos(log_dir)] == ["1", "2", "3"]

    for undo_id in ("3", "2", "1"):
        assert undo(log_dir, undo_id).undo_id == undo_id
        assert original_of(log_dir) == states.pop()


def test_a_run_is_undone_whose_files_have_times_after_2262(log_dir: Path) -> None:
    for name in (LOG, "b"):
        os.utime(log_dir / "orders-0" / name, (10_000_000_000, 10_000_000_000))
    before = original_of(log_dir)
    apply(log_dir, {LOG: KeptUpTo(6), "b": Gone()})
    undo(log_dir)
    assert original_of(log_dir) == before


def test_an_older_run_is_not_undone_before_the_newer_one(log_dir: Path) -> None:
    apply(log_dir, {LOG: KeptUpTo(6)})
    apply(log_dir, {"b": Gone()})
    with pytest.raises(KdumpError, match="run 2 came after 1; undo that one first"):
        undo(log_dir, "1")


@pytest.mark.parametrize("undo_id", ["1", "x", "01"])
def test_a_run_without_undo_data_cannot_be_undone_or_discarded(log_dir: Path, undo_id: str) -> None:
    for use in (undo, discard):
        with pytest.raises(KdumpError, match=f"there is no undo {undo_id}"):
            use(log_dir, undo_id)
    with pytest.raises(KdumpError, match="nothing to undo"):
        undo(log_dir)


def test_discarding_removes_all_undo_data_of_a_run(log_dir: Path) -> None:
    before = original_of(log_dir)
    apply(log_dir, {LOG: KeptUpTo(6)})
    apply(log_dir, {"b": Gone(), "c": NewBytes(b"d")})
    assert [each.undo_id for each in discard(log_dir, "1")] == ["1"]
    undo(log_dir)
    apply(log_dir, {"c": Gone()})
    assert [each.undo_id for each in discard(log_dir)] == ["1"]
    assert list_undos(log_dir) == []
    assert original_of(log_dir).keys() == before.keys() - {"orders-0/c"}


@pytest.mark.parametrize(
    ("path", "content", "what"),
    [
        ("orders-0/b", b"B", "orders-0/b has changed"),
        ("orders-0/new", b"", "orders-0/new is new"),
        ("orders-0/c", None, "orders-0/c is gone"),
        (
            names.RECOVERY_POINT_CHECKPOINT,
            b"0\n1\n",
            "recovery-point-offset-checkpoint has changed",
        ),
    ],
)
def test_a_changed_directory_is_not_undone(
    log_dir: Path, path: str, content: bytes | None, what: str
) -> None:
    apply(log_dir, {LOG: KeptUpTo(6)})
    if content is None:
        (log_dir / path).unlink()
    else:
        (log_dir / path).write_bytes(content)
    before = original_of(log_dir)
    for use in (undo, preview_undo):
        with pytest.raises(KdumpError, match=f"{what}; 'kdump undo --discard"):
            use(log_dir)
    assert original_of(log_dir) == before


def test_notes_beside_the_partitions_may_change(log_dir: Path) -> None:
    """An undo neither reads nor changes them, and its advice would be to discard the undo data."""
    (log_dir / "changed.txt").write_bytes(b"before")
    (log_dir / "removed.txt").write_bytes(b"before")
    before = original_of(log_dir)
    root = {names.RECOVERY_POINT_CHECKPOINT: NewBytes(b"0\n1\n")}
    apply_plan(plan_of(log_dir, {LOG: KeptUpTo(6)}, root), keep_undo=True, command="x")
    (log_dir / "new.txt").write_bytes(b"")
    (log_dir / "changed.txt").write_bytes(b"after")
    (log_dir / "removed.txt").unlink()
    undo(log_dir)
    notes = {"new.txt", "changed.txt", "removed.txt"}
    assert {path: of for path, of in original_of(log_dir).items() if path not in notes} == {
        path: of for path, of in before.items() if path not in notes
    }


def test_notes_beside_the_partitions_are_neither_read_nor_recorded(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that only its owner may read does not stop a run."""
    note = log_dir / "note.txt"
    note.write_bytes(b"of somebody else")
    read = LocalDisk.read

    def refusing(disk: LocalDisk, path: str) -> bytes:
        if path == str(note):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return read(disk, path)

    monkeypatch.setattr(LocalDisk, "read", refusing)
    apply(log_dir, {LOG: KeptUpTo(6)})
    journal = read_journal(run_files_in(log_dir)[1][RunState.APPLIED.value])
    assert names.RECOVERY_POINT_CHECKPOINT in journal.fingerprints
    assert note.name not in journal.fingerprints


def test_a_change_of_content_alone_is_detected_in_small_files(log_dir: Path) -> None:
    apply(log_dir, {LOG: KeptUpTo(6)})
    apply_plan(plan_of(log_dir, {"b": NewBytes(b"B")}), keep_undo=False, command="x")
    with pytest.raises(KdumpError, match="orders-0/b has changed"):
        undo(log_dir)


def test_other_partitions_and_the_lock_may_change(log_dir: Path) -> None:
    apply(log_dir, {LOG: KeptUpTo(6)})
    (log_dir / "other-0").mkdir()
    (log_dir / "other-0" / LOG).write_bytes(b"new")
    (log_dir / names.LOCK_FILE).touch()
    undo(log_dir)
    assert (log_dir / "orders-0" / LOG).read_bytes() == b"12345678"


def test_a_run_can_be_undone_in_a_copy_of_the_directory(log_dir: Path, tmp_path: Path) -> None:
    before = seen_by_broker(log_dir)
    apply(log_dir, {LOG: KeptUpTo(6), "b": Gone()})
    shutil.copytree(log_dir, tmp_path / "copy")
    undo(tmp_path / "copy")
    assert seen_by_broker(tmp_path / "copy") == before


def test_a_truncated_file_with_another_hard_link_is_not_written_through(
    log_dir: Path, tmp_path: Path
) -> None:
    before = original_of(log_dir)
    apply(log_dir, {LOG: KeptUpTo(6)})
    (tmp_path / "backup").hardlink_to(log_dir / "orders-0" / LOG)
    undo(log_dir)
    assert (tmp_path / "backup").read_bytes() == b"123456"
    assert original_of(log_dir) == before


def test_a_lock_file_left_by_a_crash_is_restored(log_dir: Path) -> None:
    (log_dir / names.LOCK_FILE).touch()
    before = original_of(log_dir)
    with hold_locks([log_dir]):
        apply(log_dir, {LOG: KeptUpTo(6)})
    assert not (log_dir / names.LOCK_FILE).exists()
    with hold_locks([log_dir]):
        undo(log_dir)
    assert original_of(log_dir) == before


def test_an_undo_can_be_previewed(log_dir: Path) -> None:
    apply(log_dir, {LOG: KeptUpTo(6), "d": NewBytes(b"")}, command="kdump verify --repair")
    run, restored = preview_undo(log_dir)
    assert (run.command, run.is_interrupted, run.files) == ("kdump verify --repair", False, 2)
    assert [(each.path, each.is_removed, each.size_bytes) for each in restored] == [
        (f"orders-0/{LOG}", False, 8),
        ("orders-0/d", True, 0),
    ]


@pytest.mark.parametrize("damage", [b"", b"{}\n", b'{"kdump":1,"size_bytes":0,"crc32c":1}\n'])
def test_a_damaged_journal_is_refused_and_can_be_discarded(log_dir: Path, damage: bytes) -> None:
    apply(log_dir, {LOG: KeptUpTo(6)})
    (log_dir / ".kdump-1.applied").write_bytes(damage)
    with pytest.raises(KdumpError, match=r"\.kdump-1\.applied: is damaged"):
        undo(log_dir)
    assert [each.undo_id for each in discard(log_dir)] == ["1"]
    assert not list(log_dir.glob(".kdump-*"))


def test_files_with_odd_names_are_restored(log_dir: Path) -> None:
    odd = ["\udcff", "a\nb", "'", "ä", ".kdump-1-old-0", "x" * 255]
    for name in odd:
        (log_dir / "orders-0" / name).write_bytes(b"1")
    (log_dir / '\udcff "').write_bytes(b"2")
    before = original_of(log_dir)
    apply(log_dir, {name: Gone() for name in odd})
    assert not any((log_dir / "orders-0" / name).exists() for name in odd)
    undo(log_dir)
    assert original_of(log_dir) == before


def test_without_an_interrupted_run_there_is_nothing_to_finish(log_dir: Path) -> None:
    apply(log_dir, {LOG: KeptUpTo(6)})
    before = original_of(log_dir)
    assert finish_interrupted(log_dir) is None
    assert original_of(log_dir) == before


def test_a_run_number_that_would_not_be_recognised_is_refused(log_dir: Path) -> None:
    largest = log_dir / f".kdump-{'9' * 18}.applied"
    largest.touch()
    before = original_of(log_dir)

    with pytest.raises(KdumpError, match=f"{largest.name}.*nothing has been changed"):
        apply(log_dir, {"b": Gone()})

    assert original_of(log_dir) == before
