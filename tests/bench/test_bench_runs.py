"""The bench keeps what it measured, and continues where an earlier run ended."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

_BENCH: Final = """
import sys
import bench
from case import Case, RateCase
from measuring import CommandFailedError, Measured, Peaks
from rows import Setting

interrupted, failing, version, machine, *sys.argv[1:] = sys.argv[1:]

def measured(case, programs, pairs, folder):
    print("measured", case.name)
    if case.name == interrupted:
        raise KeyboardInterrupt
    if case.name == failing:
        raise CommandFailedError("exit status 8")
    return bench.Figures({"kdump": [Measured(0.5, 0.5, 100.0)] * pairs})

def memory(case, folder):
    print("measured", case.name)
    return Peaks(40)

def make(call, folder):
    pass

bench.CASES = [Case(name, (), seconds=1) for name in ("a", "b", "c")]
bench.RATE_CASES = [RateCase("r", (), ())]
bench.describe_kdump = lambda: version
bench.describe_machine = lambda: machine
bench.find_programs = lambda cases, classpath: {}
bench._measure_times = measured
bench._measure_rate = lambda case, folder: print("measured", case.name) or 2.0
bench.measure_memory = memory
bench.make_input = make
sys.exit(bench.main())
"""
"""The bench with three cases and a rate; it measures nothing in fact."""


@dataclasses.dataclass(frozen=True)
class _Outcome:
    status: int
    measured: list[str]
    table: list[str]
    stdout: str
    stderr: str


_Run = Callable[..., _Outcome]


@pytest.fixture
def run(tmp_path: Path, repository_root: Path) -> _Run:
    """Runs the bench over a folder of this test."""
    path = os.pathsep.join(str(repository_root / name) for name in ("bench", ".", "tests"))

    def run_bench(
        *options: str,
        interrupted: str = "",
        failing: str = "",
        version: str = "1",
        machine: str = "m",
    ) -> _Outcome:
        words = (interrupted, failing, version, machine, "--data", str(tmp_path), *options)
        ended = subprocess.run(
            [sys.executable, "-c", _BENCH, *words],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": path},
        )
        lines = ended.stdout.splitlines()
        return _Outcome(
            ended.returncode,
            [line.removeprefix("measured ") for line in lines if line.startswith("measured ")],
            [line.split(" | ")[0].removeprefix("| ") for line in lines if " s | " in line],
            ended.stdout,
            ended.stderr,
        )

    return run_bench


def test_an_interrupted_run_is_resumed(run: _Run) -> None:
    first = run(interrupted="b")
    assert (first.status, first.measured, first.table) == (130, ["a", "b"], ["a"])
    assert "3 of 4 cases without figures" in first.stdout
    second = run("--resume")
    assert (second.status, second.measured) == (0, ["b", "c", "r"])
    assert second.table == ["a", "b", "c"]


def test_without_resume_everything_is_measured_again(run: _Run) -> None:
    run()
    assert run().measured == ["a", "b", "c", "r"]


@pytest.mark.parametrize("other", [{"version": "2"}, {"machine": "n"}])
def test_rows_of_another_version_or_machine_do_not_count(run: _Run, other: dict[str, str]) -> None:
    run(**other)
    assert run("--table").table == []
    assert run("--resume", "--only", "a").measured == ["a"]
    assert run("--table").table == ["a"]


def test_rows_of_fewer_pairs_do_not_count(run: _Run) -> None:
    run("--pairs", "2")
    assert run("--table", "--pairs", "2").table == ["a", "b", "c"]
    assert run("--table").table == []
    assert run("--resume", "--only", "[ar]").measured == ["a"]


def test_memory_is_kept_like_times(run: _Run) -> None:
    only = ("--memory", "--only", "[li][nos]*, partitions-10000")
    cases = [f"{name}, partitions-10000" for name in ("ls", "info", "lookup")]
    assert run(*only).measured == cases
    again = run(*only, "--resume")
    assert again.measured == []
    assert "| ls | 40 |" in again.stdout
    on_spark = run(*only, "--resume", "--engine", "spark")
    assert on_spark.measured == ["lookup on spark, partitions-10000"]


def test_short_cases_run_first(run: _Run, tmp_path: Path) -> None:
    run()
    path = tmp_path / "rows.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row, seconds in zip(rows, (240, 80, 40, 100), strict=True):
        row["seconds"] = seconds
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    again = run("--pairs", "1")
    assert again.measured == ["c", "b", "r", "a"]
    assert "4 cases, 1 pairs: about 5 min;" in again.stderr


def test_a_case_that_fails_is_listed_and_measured_again(run: _Run) -> None:
    first = run(failing="b")
    assert (first.status, first.table) == (1, ["a", "c"])
    assert "- b: exit status 8" in first.stdout
    assert run("--resume").measured == ["b"]


def test_a_line_that_is_no_row_is_named(run: _Run, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"case": "a"}\n')
    ended = run()
    assert ended.status == 1
    assert f"{tmp_path}/rows.jsonl, line 1: not a row of figures" in ended.stderr


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[None]:
    """Holds the lock of the folder, as another run does."""
    opened = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(opened, fcntl.LOCK_EX)
    yield
    os.close(opened)


@pytest.mark.usefixtures("locked")
def test_a_second_run_in_one_folder_is_refused(run: _Run) -> None:
    ended = run()
    assert (ended.status, ended.measured) == (1, [])
    assert "another run of the bench measures here" in ended.stderr


def test_an_interrupt_ends_what_was_started(repository_root: Path) -> None:
    program = """
import signal
import subprocess
from measuring import started
# A shell starts what runs in the background with the signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
nothing = subprocess.DEVNULL
try:
    with started(["sh", "-c", "sleep 60; sleep 60"], nothing, nothing, nothing) as process:
        raise KeyboardInterrupt
except KeyboardInterrupt:
    print(process.returncode)
"""
    path = str(repository_root / "bench")
    ended = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert ended.stdout == "-2\n"
