"""Applying a plan keeps metadata, does not touch other files, and needs little space."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from builders.apply_target import apply_target
from builders.log_dir_trees import original_of, seen_by_broker
from builders.written_files import PARTITION, plan_of, target_of, write_files
from kdump.apply.apply import apply_plan
from kdump.apply.files import DISK, Content, Files, Metadata
from kdump.apply.plan import make_plan
from kdump.apply.runs import list_undos
from kdump.apply.undo import undo
from kdump.errors import KdumpError
from kdump.target.target_file import (
    CopiedFrom,
    Gone,
    JoinedFrom,
    KeptUpTo,
    NewBytes,
    RenamedFrom,
    TargetFile,
)

ZERO, FIVE = (f"{base:020d}" for base in (0, 5))
OLD_NS = 1_600_000_000_000_000_007


def apply(log_dir: Path, files: dict[str, TargetFile], *, keep_undo: bool = True) -> None:
    apply_plan(plan_of(log_dir, files), keep_undo=keep_undo, command="kdump recover")


def set_aside(path: Path, mode: int) -> Metadata:
    path.chmod(mode)
    os.utime(path, ns=(OLD_NS, OLD_NS))
    return Metadata.of(path.stat())


def described(path: Path) -> tuple[int, int, int, int]:
    status = path.stat()
    return status.st_mode & 0o7777, status.st_uid, status.st_gid, status.st_mtime_ns


@pytest.mark.parametrize("target", [KeptUpTo(2), NewBytes(b"other"), JoinedFrom(())])
def test_a_changed_file_keeps_owner_group_mode_and_time(tmp_path: Path, target: TargetFile) -> None:
    log = write_files(tmp_path, {f"{ZERO}.log": b"1234"}) / f"{ZERO}.log"
    set_aside(log, 0o604)
    if os.geteuid() == 0:
        os.chown(log, 4711, 4712)
    before = described(log)
    apply(tmp_path, {log.name: target})
    assert described(log) == before


def test_a_new_file_of_a_segment_gets_the_metadata_of_its_log(tmp_path: Path) -> None:
    partition = write_files(tmp_path, {f"{ZERO}.log": b"1234", f"{FIVE}.log": b"1"})
    set_aside(partition / f"{ZERO}.log", 0o600)
    set_aside(partition / f"{FIVE}.log", 0o640)
    apply(
        tmp_path, {f"{FIVE}.index": NewBytes(b"x"), "00000000000000000004.snapshot": NewBytes(b"")}
    )
    assert described(partition / f"{FIVE}.index") == described(partition / f"{FIVE}.log")
    snapshot = partition / "00000000000000000004.snapshot"
    assert described(snapshot) == described(partition / f"{ZERO}.log")


def test_any_other_new_file_gets_owner_and_mode_of_its_directory_and_the_current_time(
    tmp_path: Path,
) -> None:
    partition = write_files(tmp_path, {})
    partition.chmod(0o750)
    apply(tmp_path, {"leader-epoch-checkpoint": NewBytes(b"0\n0\n")})
    mode, uid, gid, modified_ns = described(partition / "leader-epoch-checkpoint")
    assert (mode, uid, gid) == (0o640, partition.stat().st_uid, partition.stat().st_gid)
    assert modified_ns > OLD_NS


@pytest.mark.parametrize("target", [KeptUpTo(2), NewBytes(b"other"), Gone(), JoinedFrom(())])
@pytest.mark.parametrize("kind", ["symbolic", "hard"])
def test_a_symbolic_link_to_a_foreign_file_is_not_followed_for_writing(
    tmp_path: Path, target: TargetFile, kind: str
) -> None:
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"1234")
    set_aside(foreign, 0o644)
    partition = write_files(tmp_path / "logs", {f"{ZERO}.index": b""})
    log = partition / f"{ZERO}.log"
    log.symlink_to(foreign) if kind == "symbolic" else log.hardlink_to(foreign)
    before, seen = described(foreign), original_of(tmp_path / "logs")

    apply(tmp_path / "logs", {log.name: target})

    assert (foreign.read_bytes(), described(foreign)) == (b"1234", before)
    assert not log.is_symlink()
    if isinstance(target, KeptUpTo):
        assert log.read_bytes() == b"12"
    undo(tmp_path / "logs")
    assert original_of(tmp_path / "logs") == seen
    assert (foreign.read_bytes(), log.samefile(foreign)) == (b"1234", True)


def test_truncating_a_linked_swap_leaves_the_foreign_file_unchanged(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"1234")
    partition = write_files(tmp_path / "logs", {f"{ZERO}.log": b"old"})
    (partition / f"{ZERO}.log.swap").symlink_to(foreign)
    seen = original_of(tmp_path / "logs")
    apply(
        tmp_path / "logs",
        {f"{ZERO}.log": RenamedFrom(f"{ZERO}.log.swap", 2), f"{ZERO}.log.swap": Gone()},
    )
    assert foreign.read_bytes() == b"1234"
    assert {path.name: path.read_bytes() for path in partition.iterdir()} == {f"{ZERO}.log": b"12"}
    undo(tmp_path / "logs")
    assert original_of(tmp_path / "logs") == seen


def test_a_file_system_without_modes_is_refused_before_anything_changes(tmp_path: Path) -> None:
    write_files(tmp_path, {f"{ZERO}.log": b"1234", "old": b""})
    before = original_of(tmp_path)

    class WithoutModes(Files):
        def create(self, path: Path, content: Content) -> None:
            super().create(path, content)
            path.chmod(0o777)

    for keep_undo in (True, False):
        plan = plan_of(tmp_path, {f"{ZERO}.log": KeptUpTo(1), "old": NewBytes(b"x")})
        with pytest.raises(KdumpError, match="does not keep owners and modes; nothing has been"):
            apply_plan(plan, keep_undo=keep_undo, command="x", files=WithoutModes())
        assert original_of(tmp_path) == before


@pytest.mark.parametrize("target", [KeptUpTo(2), JoinedFrom((CopiedFrom(f"{ZERO}.log", 0, 2),))])
def test_a_file_that_is_replaced_meanwhile_is_neither_read_nor_changed(
    tmp_path: Path, target: TargetFile
) -> None:
    log_dir, foreign = tmp_path / "logs", tmp_path / "foreign"
    foreign.write_bytes(b"somebody else's")
    log = write_files(log_dir, {f"{ZERO}.log": b"1234"}) / f"{ZERO}.log"
    for replacement in (log.symlink_to, log.hardlink_to):
        plan = plan_of(log_dir, {log.name: target})
        log.unlink()
        replacement(foreign)
        for keep_undo in (True, False):
            with pytest.raises(KdumpError):
                apply_plan(plan, keep_undo=keep_undo, command="x")
            assert foreign.read_bytes() == b"somebody else's"
            undone = [path for path in log_dir.iterdir() if path.is_file()]
            assert not any(b"some" in path.read_bytes() for path in undone)
            for path in undone:
                path.unlink()
        log.unlink()
        log.write_bytes(b"1234")


def test_no_directory_is_ever_created_beside_the_partitions(tmp_path: Path) -> None:
    write_files(tmp_path, {f"{ZERO}.log": b"12345678"})

    class Watched(Files):
        def sync(self, paths: Iterable[Path]) -> None:
            super().sync(paths)
            assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [PARTITION]

    split: dict[str, TargetFile] = {
        f"{ZERO}.log": KeptUpTo(4),
        f"{FIVE}.log": CopiedFrom(f"{ZERO}.log", 4, 8),
    }
    plan = plan_of(tmp_path, split)
    apply_plan(plan, keep_undo=True, command="kdump recover", files=Watched())
    undo(tmp_path, files=Watched())


def test_without_enough_space_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path, {f"{ZERO}.log": b"x" * 100_000})
    before = original_of(tmp_path)
    plan = plan_of(tmp_path, {f"{ZERO}.log": KeptUpTo(1)})
    real = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((*real[:3], 3, 2, *real[5:])))
    with pytest.raises(KdumpError, match="needs 101023 bytes of free space, has"):
        apply_plan(plan, keep_undo=True, command="kdump recover")
    assert original_of(tmp_path) == before


def test_an_owner_that_cannot_be_set_is_detected_before_anything_changes(
    tmp_path: Path,
) -> None:
    write_files(tmp_path, {f"{ZERO}.log": b"1234", "old": b""})
    before = original_of(tmp_path)

    class NotRoot(Files):
        def set_metadata(self, path: Path, metadata: Metadata, names: Sequence[Path] = ()) -> None:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))

    plan = plan_of(tmp_path, {f"{ZERO}.log": KeptUpTo(1), "old": NewBytes(b"x")})
    with pytest.raises(KdumpError, match=r"nothing has been changed; run kdump as the user"):
        apply_plan(plan, keep_undo=True, command="kdump recover", files=NotRoot())
    assert original_of(tmp_path) == before


@pytest.mark.slow
def test_undo_data_has_the_size_of_the_truncated_or_dropped_bytes(
    tmp_path: Path,
) -> None:
    size_bytes = 4 << 20
    content = os.urandom(size_bytes)
    partition = write_files(tmp_path, {f"{ZERO}.log": content, f"{FIVE}.log": content})
    os.truncate(write_files(tmp_path, {f"{FIVE}.index": b"12345678"}) / f"{FIVE}.index", 10 << 20)
    before = original_of(tmp_path)
    rewritten = f"{ZERO}.log"
    apply(
        tmp_path,
        {
            rewritten: JoinedFrom(
                (CopiedFrom(rewritten, 0, 1000), CopiedFrom(rewritten, 3000, size_bytes))
            ),
            f"{FIVE}.log": KeptUpTo(size_bytes - 5000),
            f"{FIVE}.index": KeptUpTo(8),
        },
    )
    (kept,) = list_undos(tmp_path)
    assert kept.kept_bytes < 40_000
    assert (partition / f"{FIVE}.log").stat().st_nlink == 1
    undo(tmp_path)
    assert original_of(tmp_path) == before


def test_a_segment_is_renamed_and_truncated_without_being_copied(tmp_path: Path) -> None:
    partition = write_files(tmp_path, {f"{ZERO}.log.swap": b"x" * 5000, f"{FIVE}.log": b"y" * 5000})
    inodes = [(partition / name).stat().st_ino for name in (f"{ZERO}.log.swap", f"{FIVE}.log")]
    swap = f"{ZERO}.log.swap"
    apply(
        tmp_path, {f"{ZERO}.log": RenamedFrom(swap, 4000), swap: Gone(), f"{FIVE}.log": KeptUpTo(3)}
    )
    after = [partition / f"{ZERO}.log", partition / f"{FIVE}.log"]
    assert [path.stat().st_ino for path in after] == inodes
    assert [path.stat().st_size for path in after] == [4000, 3]
    assert [path.stat().st_nlink for path in after] == [1, 1]


# ---- Any directory, and any target state ----

NAMES = [
    f"{base}{kind}{suffix}"
    for base in (ZERO, FIVE, f"{9:020d}")
    for kind in (".log", ".index", ".txnindex", ".snapshot")
    for suffix in ("", ".swap", ".cleaned", ".deleted")
] + ["leader-epoch-checkpoint", "partition.metadata", "damaged-x", "README"]


@st.composite
def directories(draw: st.DrawFn) -> dict[str, bytes]:
    chosen = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=10))
    return {name: draw(st.binary(max_size=12)) for name in chosen}


@st.composite
def target_files(draw: st.DrawFn, files: dict[str, bytes]) -> dict[str, TargetFile]:
    """Generate any valid target state of these files."""
    target: dict[str, TargetFile] = {}
    free = [name for name in draw(st.permutations(NAMES)) if not name.endswith(".deleted")]
    for name in sorted(files):
        what = draw(st.sampled_from(["keep", "cut", "gone", "rename", "new"]))
        if what == "cut":
            target[name] = KeptUpTo(draw(st.integers(0, len(files[name]))))
        elif what == "new":
            target[name] = NewBytes(draw(st.binary(max_size=12)))
        elif what != "keep":
            target[name] = Gone()
    gone = [name for name, each in target.items() if isinstance(each, Gone)]
    renamed = [name for name in gone if not name.endswith(".cleaned") and draw(st.booleans())]
    free = [name for name in free if name not in files or (name in gone and name not in renamed)]
    for source in renamed:
        size_bytes = draw(st.integers(0, len(files[source])))
        target[free.pop()] = RenamedFrom(source, size_bytes)
    for source in sorted(files.keys() - set(renamed)):
        name = free.pop()
        if draw(st.booleans()):
            end = draw(st.integers(0, len(files[source])))
            piece = CopiedFrom(source, draw(st.integers(0, end)), end)
            target[name] = JoinedFrom((piece, piece)) if draw(st.booleans()) else piece
    return target


@pytest.mark.slow
@given(st.data())
@settings(phases=[Phase.explicit, Phase.generate])  # to shrink takes minutes
def test_any_target_state_is_reached_and_can_be_undone(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    files = data.draw(directories())
    target = data.draw(target_files(files))
    ours, expected = tmp_path_factory.mktemp("ours"), tmp_path_factory.mktemp("expected")
    write_files(ours, files)
    write_files(expected, files)
    before = original_of(ours)
    apply_target(expected / PARTITION, target)

    try:
        plan = make_plan(target_of(ours, target))
    except KdumpError as refused:
        assume("in the way" not in str(refused))
        raise
    apply_plan(plan, keep_undo=True, command="x", files=DISK)

    assert seen_by_broker(ours) == seen_by_broker(expected)
    assert make_plan(target_of(ours, {})).is_empty
    if list_undos(ours):
        undo(ours)
    assert original_of(ours) == before
