from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import pytest

from builders.jobs import CountBatches, FailOn, KillWorker, ShuffleBatches, TellProcess
from builders.programs import InterruptedProgram
from kdump.engine import local as local_engine
from kdump.engine.engine_rates import JobKind
from kdump.engine.job import JobFailedError, Split
from kdump.engine.local import LocalEngine
from kdump.errors import KdumpError
from kdump.storage.local_disk import local

pytestmark = pytest.mark.slow


def test_small_work_runs_in_this_process(work: list[Split]) -> None:
    with LocalEngine() as engine:
        assert {process for _, process in engine.run(TellProcess(), work)} == {os.getpid()}


def test_workers_start_if_the_work_is_worth_it(
    work: list[Split], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FORKED_POOL_BYTES", "SPAWNED_POOL_BYTES"):
        monkeypatch.setattr(local_engine, name, 0)
    monkeypatch.setattr(local_engine, "usable_cpus", lambda: 2)
    with LocalEngine() as engine:
        processes = {process for _, process in engine.run(TellProcess(), work)}
    assert os.getpid() not in processes


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_results_do_not_depend_on_how_workers_start(
    work: list[Split], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_engine, "start_method", lambda: method)
    with LocalEngine() as here, LocalEngine(processes=2) as pool:
        expected = dict(here.run(CountBatches(), work))
        assert dict(pool.run(CountBatches(), work)) == expected


@pytest.mark.parametrize("processes", [1, 2])
def test_a_failure_names_the_file_and_the_byte(work: list[Split], processes: int) -> None:
    gone = Split(local("gone/00000000000000000000.log"), 4096, None, 1)
    with (
        LocalEngine(processes) as engine,
        pytest.raises(JobFailedError) as caught,
    ):
        list(engine.run(CountBatches(), [*work, gone]))
    assert str(caught.value) == (
        "gone/00000000000000000000.log from byte 4096: No such file or directory"
    )


@pytest.mark.parametrize("processes", [1, 2])
def test_an_unexpected_failure_has_its_stack_trace(work: list[Split], processes: int) -> None:
    with (
        LocalEngine(processes) as engine,
        pytest.raises(JobFailedError, match="ZeroDivisionError: no bytes a second") as caught,
    ):
        list(engine.run(FailOn(work[-1].path), work))
    assert "builders/jobs.py" in caught.value.trace


def test_the_split_of_a_killed_worker_is_named(work: list[Split]) -> None:
    with (
        LocalEngine(processes=2) as engine,
        pytest.raises(JobFailedError, match=r"ended by SIGKILL \(out of memory\?\)") as caught,
    ):
        list(engine.run(KillWorker(work[-1].path), work))
    assert caught.value.split == work[-1]


def test_leaving_a_job_early_ends_its_workers(work: list[Split]) -> None:
    engine = LocalEngine(processes=2)
    with contextlib.closing(engine.run(TellProcess(), work)) as results:
        _, worker = next(results)
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


INTERRUPTED = """
import sys, threading
from builders.jobs import WaitForEver
from kdump.engine.engine_rates import JobKind
from kdump.engine.job import Split
from kdump.engine.local import LocalEngine

if __name__ == "__main__":
    if sys.argv[2] == "spawn":
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    splits = [Split(str(number), 0, None, 1 << 30) for number in range(2)]
    with LocalEngine(2) as engine:
        list(engine.run(WaitForEver(sys.argv[1]), splits))
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_an_interrupt_ends_all_processes(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    interrupted = InterruptedProgram(INTERRUPTED, tmp_path, method)
    interrupted.wait_for_workers(2)
    interrupted.interrupt()
    assert not interrupted.workers_left()


def test_the_pieces_of_a_shuffle_are_gone_when_it_is_done(
    work: list[Split], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with LocalEngine(processes=1) as engine:
        engine.shuffle(ShuffleBatches(), work, 7)
        with pytest.raises(JobFailedError):
            engine.shuffle(ShuffleBatches(), [*work, Split(local("gone"))], 7)
    assert not list(tmp_path.iterdir())


def test_a_directory_for_pieces_that_cannot_be_written_is_named(
    work: list[Split], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with (
        LocalEngine(processes=1) as engine,
        pytest.raises(KdumpError, match="gone: No such file or directory: set TMPDIR to a"),
    ):
        engine.shuffle(ShuffleBatches(), work, 7)


@pytest.mark.parametrize(("kind", "is_here"), [(JobKind.SCAN, True), (JobKind.DECODE, False)])
def test_what_is_only_checked_of_an_object_store_needs_no_workers(
    work: list[Split], monkeypatch: pytest.MonkeyPatch, kind: JobKind, is_here: bool
) -> None:
    monkeypatch.setattr(local_engine, "start_method", lambda: "spawn")
    monkeypatch.setattr(local_engine, "concurrent_reads", lambda: 2)
    monkeypatch.setattr(local_engine, "usable_cpus", lambda: 2)
    monkeypatch.setattr(local_engine, "SPAWNED_POOL_BYTES", 0)
    with LocalEngine(kind=kind) as engine:
        processes = {process for _, process in engine.run(TellProcess(), work)}
    assert (processes == {os.getpid()}) == is_here
