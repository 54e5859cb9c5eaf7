"""A journal moves only directories of its own log directory, and deletes none that is in use."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from builders.forged_journals import FOREIGN, LOG, Forge, forge, log_dir_with_a_run, with_steps
from builders.log_dir_trees import original_of
from builders.trees import tree_of
from builders.written_files import PARTITION
from kdump.apply.files import Metadata
from kdump.apply.interrupted_runs import finish_interrupted
from kdump.apply.journal import DirectoryMove, Journal, RunState
from kdump.apply.journal_record import JournalRecord, RecordKind
from kdump.apply.undo import undo
from kdump.errors import KdumpError

PLAIN = Metadata(0o755, 0, 0, 0, 0)
NEW = "new-0.kdump-1-new-0-delete"
OLD_STRAY = "old-0.kdump-1-old-0-stray"
OLD_DELETE = "old-0.kdump-1-old-0-delete"


@pytest.fixture
def log_dir(quick_path: Path) -> Path:
    path = log_dir_with_a_run(quick_path)
    (path / "old-0").mkdir()
    (path / "old-0" / LOG).write_bytes(b"records")
    return path


def with_move(*moves: DirectoryMove) -> Forge:
    return lambda journal: replace(journal, moves=moves)


def move(
    before: str | None, between: str | None, after: str | None, *, is_kept: bool = False
) -> DirectoryMove:
    return DirectoryMove(before, between, after, is_kept, PLAIN)


FORGED = {
    "above": move("../outside", None, "inside-0"),
    "to-above": move("old-0", None, "../outside-0"),
    "absolute": move("old-0", None, "/tmp/outside-0"),
    "itself": move(".", None, "inside-0"),
    "deep": move(f"{PARTITION}/b", None, "inside-0"),
    "lock": move(".lock", None, "inside-0"),
    "run": move(".kdump-1.applied", None, "inside-0"),
    "privilege": replace(move(None, NEW, "new-0"), attributes=(("security.capability", b"\1"),)),
    "empty": move("", None, "inside-0"),
    "twice": move("old-0", None, "old-0"),
    "changed": move(PARTITION, None, "inside-0"),
    "too-long": move("old-0", None, "x" * 254 + "-0"),
    "foreign-filling": move(None, "old-0", "new-0"),
    "filling-of-another-run": move(None, "new-0.kdump-2-new-0-delete", "new-0"),
    "unfinished": move(None, NEW, None),
    "kept-new": move(None, NEW, "new-0", is_kept=True),
    "foreign-kept": move("old-0", None, "other-0", is_kept=True),
    "kept-for-deletion": move("old-0", OLD_DELETE, OLD_STRAY, is_kept=True),
    "deleted-with-undo": move("old-0", OLD_DELETE, None),
    "foreign-deleted": move("old-0", "other-0", None),
    "nowhere": move("old-0", None, None),
    "set-id": replace(move("old-0", None, "new-0"), metadata=replace(PLAIN, mode=0o4755)),
}


@pytest.mark.parametrize("state", [RunState.APPLIED, RunState.APPLYING])
@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_forged_move_is_refused(log_dir: Path, forged: DirectoryMove, state: RunState) -> None:
    path = forge(log_dir, with_move(forged), state)
    before = tree_of(log_dir.parent)
    for work in (undo, finish_interrupted) if state is RunState.APPLYING else (undo,):
        with pytest.raises(KdumpError) as failure:
            work(log_dir)
        assert str(path) in str(failure.value)
        assert tree_of(log_dir.parent) == before


@pytest.mark.parametrize(
    "record",
    [
        JournalRecord(RecordKind.SHIFT, f"../{FOREIGN}", "old-0"),
        JournalRecord(RecordKind.SHIFT, "other-0", "old-0"),
        JournalRecord(RecordKind.SHIFT, "renamed-0", PARTITION),
        JournalRecord(RecordKind.DROP, "old-0", "old-0"),
        JournalRecord(RecordKind.DROP, PARTITION, PARTITION),
        JournalRecord(RecordKind.MAKE, "old-0", "old-0"),
        JournalRecord(RecordKind.MAKE, "renamed-0", "old-0"),
    ],
    ids=lambda record: f"{record.kind.value} {record.path}",
)
def test_a_forged_record_about_a_directory_is_refused(log_dir: Path, record: JournalRecord) -> None:
    def forged(journal: Journal) -> Journal:
        return replace(with_steps(record)(journal), moves=(move("old-0", None, "renamed-0"),))

    forge(log_dir, forged)
    before = original_of(log_dir)
    with pytest.raises(KdumpError):
        undo(log_dir)
    assert original_of(log_dir) == before


def test_nothing_is_deleted_in_a_directory_that_is_in_use(log_dir: Path) -> None:
    def forged(journal: Journal) -> Journal:
        steps = with_steps(JournalRecord(RecordKind.REMOVE, f"old-0/{LOG}"))(journal)
        fingerprints = journal.fingerprints | {f"old-0/{LOG}": journal.fingerprints["orders-0/c"]}
        return replace(steps, moves=(move("old-0", None, "new-0"),), fingerprints=fingerprints)

    forge(log_dir, forged, RunState.UNDOING)
    finish_or_refuse(log_dir)
    assert (log_dir / "old-0" / LOG).read_bytes() == b"records"


def finish_or_refuse(log_dir: Path) -> None:
    try:
        finish_interrupted(log_dir)
    except KdumpError:
        return


def test_a_link_in_place_of_a_directory_is_not_followed(log_dir: Path, quick_path: Path) -> None:
    outside = quick_path / "outside"
    outside.mkdir()
    (outside / LOG).write_bytes(b"of somebody else")
    (log_dir / "new-0").symlink_to(outside)
    (log_dir / "old-0" / LOG).unlink()
    (log_dir / "old-0").rmdir()
    forge(log_dir, with_move(move("old-0", None, "new-0")))
    with pytest.raises(KdumpError, match="new-0 is a symbolic link"):
        undo(log_dir)
    assert (outside / LOG).read_bytes() == b"of somebody else"
