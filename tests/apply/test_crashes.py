"""A run interrupted at any operation can be finished and undone."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.log_dir_trees import seen_by_broker
from builders.memory import in_memory
from builders.repair_bench import Bench
from builders.repair_cases import (
    CASES,
    PARTITION,
    RETENTION_CASES,
    Case,
    bad_batch_in_the_middle,
    log_end_before_its_start,
    salvage,
)
from builders.samples import at_some_or_all, moments_of
from kdump.apply.interrupted_runs import finish_interrupted
from kdump.apply.runs import list_undos
from kdump.apply.undo import undo

pytestmark = pytest.mark.slow

unsynced_or_not = pytest.mark.parametrize("unsynced", [False, True], ids=["kept", "lost"])


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.__name__)
def bench_of_a_case(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    """Write the directory of a case once for all tests."""
    with in_memory(tmp_path_factory.mktemp("bench")) as path:
        yield Bench(path, request.param)


@pytest.fixture
def bench(bench_of_a_case: Bench) -> Bench:
    """Return the directory of a case as it was before the repair."""
    bench_of_a_case.restart()
    return bench_of_a_case


def test_a_plan_reaches_its_target_state_and_its_undo_the_original(bench: Bench) -> None:
    undo_id = bench.apply()

    assert seen_by_broker(bench.path) == bench.repaired
    assert [each.undo_id for each in list_undos(bench.path)] == [undo_id]
    undo(bench.path)
    assert bench.original() == bench.before
    assert list_undos(bench.path) == []


def test_without_undo_data_only_the_target_state_remains(bench: Bench) -> None:
    assert bench.apply(keep_undo=False) is None

    assert seen_by_broker(bench.path) == bench.repaired
    assert bench.kdumps() == []


@at_some_or_all
@unsynced_or_not
def test_a_run_interrupted_at_any_operation_is_finished_by_the_next(
    bench: Bench, unsynced: bool, is_all: bool
) -> None:
    for at in moments_of(bench.stops(bench.apply, unsynced=unsynced), is_all=is_all):
        bench.restart()
        bench.stop(bench.apply, at, unsynced=unsynced)

        bench.finish_or_run_again()

        assert seen_by_broker(bench.path) == bench.repaired, at
        bench.undo()
        assert bench.original() == bench.before, at


@at_some_or_all
@unsynced_or_not
def test_a_run_interrupted_at_any_operation_can_be_undone(
    bench: Bench, unsynced: bool, is_all: bool
) -> None:
    for at in moments_of(bench.stops(bench.apply, unsynced=unsynced), is_all=is_all):
        bench.restart()
        bench.stop(bench.apply, at, unsynced=unsynced)

        if list_undos(bench.path):
            bench.undo()
        else:
            finish_interrupted(bench.path, files=bench.disk)

        assert bench.original() == bench.before, at
        assert bench.kdumps() == [], at


@at_some_or_all
@unsynced_or_not
def test_an_undo_interrupted_at_any_operation_is_finished_by_the_next_run(
    bench: Bench, unsynced: bool, is_all: bool
) -> None:
    bench.check_interrupted_undos(unsynced=unsynced, is_all=is_all)


@at_some_or_all
@pytest.mark.parametrize(
    "case",
    [*RETENTION_CASES, bad_batch_in_the_middle, log_end_before_its_start],
    ids=lambda case: case.__name__,
)
def test_a_partly_deleted_log_never_has_a_hole(quick_path: Path, case: Case, is_all: bool) -> None:
    bench = Bench(quick_path, case)

    def bases() -> list[int]:
        return sorted(int(log.stem) for log in (bench.path / PARTITION).glob("*.log"))

    old = bases()
    bench.apply()
    every = sorted({*old, *bases()})
    bench.restart()
    found = set()
    stops = bench.stops(bench.apply, unsynced=False)
    for at in moments_of(stops, is_all=is_all, samples=24):
        bench.restart()
        bench.stop(bench.apply, at, unsynced=False)
        left = bases()
        assert left, at
        first = every.index(left[0])
        assert left == every[first : first + len(left)], at
        found.add(len(left))
    assert len(found) > 2


@at_some_or_all
@pytest.mark.parametrize(
    ("case", "failure"), [*((case, errno.ENOSPC) for case in CASES), (salvage, errno.EIO)]
)
def test_a_failing_operation_leaves_the_original_or_the_target_state(
    quick_path: Path, case: Case, failure: int, is_all: bool
) -> None:
    Bench(quick_path, case).check_failures(failure, is_all=is_all)
