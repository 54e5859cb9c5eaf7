"""Undo data is checked before the first change, so that no undo stops halfway."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from builders.in_process import Outcome, run_kdump
from builders.log_dir_trees import original_of
from builders.repair_cases import aged, bad_batch_in_the_middle
from builders.trees import tree_of
from builders.written_files import plan_of, write_files
from kdump.apply.apply import apply_plan
from kdump.apply.interrupted_runs import finish_interrupted
from kdump.apply.journal import RunState
from kdump.apply.undo import undo
from kdump.errors import KdumpError
from kdump.target.target_file import CopiedFrom, Gone, JoinedFrom, KeptUpTo, NewBytes

LOG = "00000000000000000000.log"
BIG = "00000000000000000005.log"
SIZE_BYTES = 2 << 20


def kdump(*args: str | Path) -> Outcome:
    return run_kdump([*map(str, args)], Path.cwd())


def gone(path: Path) -> str:
    path.unlink()
    return f"{path.name} is gone"


def cut_short(path: Path) -> str:
    size_bytes = path.stat().st_size
    os.truncate(path, size_bytes - 1)
    return f"{path.name} has {size_bytes - 1} bytes, not {size_bytes}"


def flipped(path: Path) -> str:
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return f"{path.name} has changed"


def other(path: Path) -> str:
    path.unlink()
    path.mkdir()
    return f"{path.name} is not a file"


def piped(path: Path) -> str:
    path.unlink()
    os.mkfifo(path)
    return f"{path.name} is not a file"


def linked(path: Path) -> str:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")
    return path.name


harms = pytest.mark.parametrize("harm", [gone, cut_short, flipped, other, piped, linked])


class Stopped(BaseException):
    """The machine stopped here."""


def stop(*_: object) -> None:
    raise Stopped


def stopped(work: Callable[[], object], where: str) -> None:
    """Let the machine stop before ``where`` is called."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, stop)
        with pytest.raises(Stopped):
            work()


def run_up_to(state: RunState, log_dir: Path, work: Callable[[], object]) -> None:
    """Let a run that keeps an undo be stopped in ``state``, or be done."""
    if state is RunState.APPLYING:
        stopped(work, "kdump.apply.apply.roll_forward")
        return
    work()
    if state is RunState.UNDOING:
        stopped(lambda: undo(log_dir), "kdump.apply.undo.roll_back")


@pytest.fixture
def log_dir(quick_path: Path) -> Path:
    """Return a log directory."""
    path = quick_path / "logs"
    big = bytes(range(256)) * (SIZE_BYTES // 256)
    write_files(path, {LOG: b"12345678", "b": b"b", "c": b"c", BIG: big})
    return path


def repair(log_dir: Path) -> None:
    """Run a repair whose undo data has whole files, byte ranges, and ranges removed from a log."""
    left = (CopiedFrom(BIG, 0, 1000),)
    plan = plan_of(
        log_dir,
        {LOG: KeptUpTo(6), "b": Gone(), "c": NewBytes(b"C"), BIG: JoinedFrom(left)},
    )
    apply_plan(plan, keep_undo=True, command="kdump recover")


@pytest.mark.slow
@harms
@pytest.mark.parametrize("state", RunState)
@pytest.mark.parametrize("which", ["-cut", "-old-1", "-old-2"])
def test_without_all_undo_data_nothing_is_undone(
    log_dir: Path, which: str, state: RunState, harm: Callable[[Path], str]
) -> None:
    run_up_to(state, log_dir, lambda: repair(log_dir))
    kept = log_dir / f".kdump-1{which}"
    problem = harm(kept)
    before = original_of(log_dir)
    said = ""
    for command in (("undo", "--dry-run"), ("undo",)):
        outcome = kdump(*command, log_dir)
        said = outcome.stderr.decode()
        assert outcome.exit_status == 8
        assert f"cannot be undone: {problem}" in said
        assert "nothing has been changed" in said
        assert {k: v for k, v in original_of(log_dir).items() if k != ".lock"} == before

    (advice,) = re.findall(r"'kdump (undo --discard .*)' discards", said)
    if harm is other:
        kept.rmdir()
    assert kdump(*shlex.split(advice)).exit_status == 0
    assert not list(log_dir.glob(".kdump-*"))


@pytest.mark.slow
def test_a_directory_with_missing_undo_data_can_still_be_repaired(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    bad_batch_in_the_middle(log_dir)
    aged(log_dir)
    assert kdump("recover", log_dir).exit_status & 8 == 0
    (log_dir / ".kdump-1-old-1").unlink()
    assert kdump("undo", log_dir).exit_status == 8
    assert kdump("recover", log_dir).exit_status & 8 == 0
    assert kdump("verify", log_dir).exit_status & 8 == 0


def test_a_kept_log_is_not_read_as_a_whole(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    real = os.pread

    def counted(descriptor: int, size: int, position: int) -> bytes:
        data = real(descriptor, size, position)
        read.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counted)
    plan = plan_of(log_dir, {BIG: Gone()})
    apply_plan(plan, keep_undo=True, command="kdump recover")
    assert sum(read) < SIZE_BYTES // 8
    undo(log_dir)


def test_a_kept_symbolic_link_must_have_the_same_target(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    partition = write_files(log_dir, {"a": b"1", "b": b"2"})
    (partition / LOG).symlink_to("a")
    before = original_of(log_dir)
    apply_plan(plan_of(log_dir, {LOG: Gone()}), keep_undo=True, command="kdump recover")
    kept = log_dir / ".kdump-1-old-0"
    kept.unlink()
    kept.symlink_to("b")
    with pytest.raises(KdumpError, match="has changed"):
        undo(log_dir)
    assert original_of(log_dir).keys() != before.keys()


def test_truncated_new_content_is_not_renamed_into_place(log_dir: Path) -> None:
    before = original_of(log_dir)
    run_up_to(RunState.APPLYING, log_dir, lambda: repair(log_dir))
    (new, *_) = sorted(log_dir.glob(".kdump-1-new-*"))
    os.truncate(new, new.stat().st_size - 1)
    with pytest.raises(KdumpError, match=r"the new content of orders-0/\S+ has changed"):
        finish_interrupted(log_dir)
    undo(log_dir)
    assert original_of(log_dir) == before


# ---- Runs without undo data ----


def test_a_stale_journal_without_undo_data_says_how_to_discard_it(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    partition = write_files(log_dir, {LOG: b"12345678", "b": b"b"})

    plan = plan_of(log_dir, {"b": Gone()})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kdump.apply.apply.tidy_up", lambda *_: None)
        apply_plan(plan, keep_undo=False, command="kdump recover")
    assert [path.name for path in log_dir.glob(".kdump-*")] == [".kdump-1.applying"]
    (partition / LOG).write_bytes(b"a broker was here")

    advice = ""
    outcomes = [kdump(*command, log_dir) for command in (("undo",), ("recover",), ("resolve",))]

    for outcome in outcomes:
        assert outcome.exit_status == 8
        said = outcome.stderr.decode()
        (advice,) = re.findall(r"'kdump (undo --discard [^']*)'", said)
    assert kdump(*shlex.split(advice)).exit_status == 0
    assert not list(log_dir.glob(".kdump-*"))
    assert (partition / LOG).read_bytes() == b"a broker was here"
    assert kdump("recover", "--dry-run", log_dir).exit_status & 8 == 0


# ---- Previews ----


@pytest.mark.parametrize("state", [RunState.APPLYING, RunState.UNDOING])
def test_a_dry_run_shows_what_a_run_would_finish_first(tmp_path: Path, state: RunState) -> None:
    log_dir = tmp_path / "logs"
    bad_batch_in_the_middle(log_dir)
    aged(log_dir)
    run_up_to(state, log_dir, lambda: kdump("recover", log_dir))
    before = tree_of(log_dir)
    said = kdump("recover", "--dry-run", log_dir).stdout.decode()
    assert tree_of(log_dir) == before
    assert "an earlier kdump recover was interrupted" in said
    lines = said.splitlines()
    assert any("00000000000000000060.log" in line for line in lines)
    marker = [line for line in lines if line.endswith(".kafka_cleanshutdown")]
    assert bool(marker) == (state is RunState.UNDOING)


@pytest.mark.slow
def test_the_restored_lock_file_is_previewed(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    bad_batch_in_the_middle(log_dir)
    (log_dir / ".lock").touch()
    assert kdump("recover", log_dir).exit_status & 8 == 0
    assert not (log_dir / ".lock").exists()
    *predicted, _ = kdump("undo", "--dry-run", log_dir).stdout.splitlines()
    assert [line for line in predicted if re.fullmatch(rb"restore +0 B +\.lock", line)]
    assert kdump("undo", log_dir).stdout.splitlines()[:-1] == predicted
    assert (log_dir / ".lock").exists()
