"""Undo data on a file system without hard links: files are copied, and nothing is lost."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from builders.log_dir_trees import original_of, seen_by_broker
from builders.repair_bench import Bench
from builders.repair_cases import CASES, Case
from builders.samples import at_some_or_all, moments_of
from builders.written_files import plan_of, write_files
from kdump.apply import files as file_operations
from kdump.apply.apply import apply_plan
from kdump.apply.files import DISK
from kdump.apply.runs import list_undos
from kdump.apply.undo import undo
from kdump.target.target_file import Gone

pytestmark = pytest.mark.slow
unsynced_or_not = pytest.mark.parametrize("unsynced", [False, True], ids=["kept", "lost"])
LOG = "00000000000000000000.log"


@pytest.fixture(autouse=True)
def without_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse every hard link of kdump's, as FAT and many network file systems do."""
    refuse_links(monkeypatch, errno.EPERM)


def refuse_links(monkeypatch: pytest.MonkeyPatch, failure: int) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(failure, os.strerror(failure))

    monkeypatch.setattr(file_operations, "_hard_link", refused)


@pytest.fixture(params=CASES, ids=lambda case: case.__name__)
def bench(request: pytest.FixtureRequest, quick_path: Path) -> Bench:
    case: Case = request.param
    return Bench(quick_path, case)


def test_a_plan_reaches_its_target_state_and_its_undo_the_original(bench: Bench) -> None:
    bench.apply()
    assert seen_by_broker(bench.path) == bench.repaired
    undo(bench.path)
    assert bench.original() == bench.before
    assert bench.kdumps() == []


@at_some_or_all
@unsynced_or_not
def test_a_run_interrupted_at_any_operation_is_finished_and_undone(
    bench: Bench, unsynced: bool, is_all: bool
) -> None:
    for at in moments_of(bench.stops(bench.apply, unsynced=unsynced), is_all=is_all):
        bench.restart()
        bench.stop(bench.apply, at, unsynced=unsynced)
        if at % 2 and list_undos(bench.path):
            bench.undo()
            assert bench.original() == bench.before, at
            continue
        bench.finish_or_run_again()
        assert seen_by_broker(bench.path) == bench.repaired, at
        bench.undo()
        assert bench.original() == bench.before, at


@at_some_or_all
@unsynced_or_not
def test_an_undo_interrupted_at_any_operation_is_finished_by_the_next_run(
    bench: Bench, unsynced: bool, is_all: bool
) -> None:
    bench.check_interrupted_undos(unsynced=unsynced, is_all=is_all)


@at_some_or_all
def test_a_failing_operation_leaves_the_original_or_the_target_state(
    bench: Bench, is_all: bool
) -> None:
    bench.check_failures(errno.ENOSPC, is_all=is_all)


@pytest.mark.parametrize(
    "failure", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK], ids=errno.errorcode.get
)
def test_a_deleted_file_comes_back_with_its_metadata(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: int
) -> None:
    refuse_links(monkeypatch, failure)
    write_files(tmp_path, {LOG: b"1234"})
    next(tmp_path.rglob(LOG)).chmod(0o604)
    before = original_of(tmp_path)

    apply_plan(plan_of(tmp_path, {LOG: Gone()}), keep_undo=True, command="kdump recover")

    (kept,) = tmp_path.glob(".kdump-*-old-*")
    assert (kept.read_bytes(), kept.stat().st_nlink) == (b"1234", 1)
    undo(tmp_path)
    assert original_of(tmp_path) == before


def test_another_failure_is_not_answered_with_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_links(monkeypatch, errno.EIO)
    write_files(tmp_path, {LOG: b"1234"})
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        DISK.link(tmp_path / LOG, tmp_path / "other")
    assert not (tmp_path / "other").exists()
