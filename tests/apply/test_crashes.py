"""Whatever a run is stopped by, it can be finished, and it can be taken back."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from builders.log_dir_trees import original_of, seen_by_broker
from builders.repair_bench import Bench
from builders.repair_cases import CASES, Case, salvage
from kdump.apply.files import Files
from kdump.apply.undo import finish_interrupted, list_undos, undo
from kdump.errors import KdumpError

cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)


@cases
def test_a_plan_leaves_what_is_wanted_and_its_undo_what_was_there(
    tmp_path: Path, case: Case
) -> None:
    bench = Bench(tmp_path, case)

    undo_id = bench.apply()

    assert seen_by_broker(bench.path) == bench.repaired
    assert [each.undo_id for each in list_undos(bench.path)] == [undo_id]
    undo(bench.path)
    assert original_of(bench.path) == bench.before
    assert list_undos(bench.path) == []


@cases
def test_without_an_undo_nothing_is_left_beside_what_is_wanted(tmp_path: Path, case: Case) -> None:
    bench = Bench(tmp_path, case)

    assert bench.apply(keep_undo=False) is None

    assert seen_by_broker(bench.path) == bench.repaired
    assert bench.kdumps() == []


@pytest.mark.parametrize("unsynced", [False, True], ids=["kept", "lost"])
@cases
def test_stopped_anywhere_a_run_is_finished_by_the_next(
    tmp_path: Path, case: Case, unsynced: bool
) -> None:
    bench = Bench(tmp_path, case)
    for at in range(bench.count(bench.apply)):
        bench.restart()
        bench.stop(bench.apply, at, unsynced=unsynced)

        bench.finish_or_run_again()

        assert seen_by_broker(bench.path) == bench.repaired, at
        bench.undo()
        assert original_of(bench.path) == bench.before, at


@pytest.mark.parametrize("unsynced", [False, True], ids=["kept", "lost"])
@cases
def test_stopped_anywhere_a_run_can_be_taken_back(
    tmp_path: Path, case: Case, unsynced: bool
) -> None:
    bench = Bench(tmp_path, case)
    for at in range(bench.count(bench.apply)):
        bench.restart()
        bench.stop(bench.apply, at, unsynced=unsynced)

        if list_undos(bench.path):
            bench.undo()
        else:
            finish_interrupted(bench.path, files=bench.disk)

        assert original_of(bench.path) == bench.before, at
        assert bench.kdumps() == [], at


@pytest.mark.parametrize("unsynced", [False, True], ids=["kept", "lost"])
@cases
def test_stopped_anywhere_an_undo_is_finished_by_the_next_run(
    tmp_path: Path, case: Case, unsynced: bool
) -> None:
    bench = Bench(tmp_path, case)

    def take_back(files: Files) -> None:
        undo(bench.path, files=files)

    bench.apply()
    # Every other step this way, and those between the other way.
    for at in range(int(unsynced), bench.count(take_back), 2):
        bench.restart()
        bench.apply()
        bench.stop(take_back, at, unsynced=unsynced)

        finish_interrupted(bench.path, files=bench.disk)
        if list_undos(bench.path):
            bench.undo()

        assert original_of(bench.path) == bench.before, at
        assert bench.kdumps() == [], at


@pytest.mark.parametrize(
    ("case", "failure"), [*((case, errno.ENOSPC) for case in CASES), (salvage, errno.EIO)]
)
def test_a_failing_operation_leaves_the_directory_as_it_was_or_done(
    tmp_path: Path, case: Case, failure: int
) -> None:
    bench = Bench(tmp_path, case)
    for at in range(bench.count(bench.apply)):
        bench.restart()
        files = bench.volatile()
        files.fail_at, files.failure = at, failure
        said = ""
        try:
            bench.apply(files)
        except KdumpError as failed:
            said = str(failed)
        if said:
            assert "nothing has been changed" in said or "as it was" in said
            assert original_of(bench.path) == bench.before, at
            assert bench.kdumps() == [], at
        else:
            assert seen_by_broker(bench.path) == bench.repaired, at
        files.forget_attic()
