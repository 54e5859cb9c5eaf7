"""The outcome of each log directory is reported after a failure or a signal."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.log_dir_trees import original_of
from builders.programs import PYTHON_PATH
from builders.repair_cases import bad_batch_in_the_middle
from kdump.apply.apply import apply_plan
from kdump.apply.plan import Plan
from kdump.errors import ExitStatus, KdumpError
from kdump.formats import names

pytestmark = pytest.mark.slow

STOPPING = """
import os, signal, sys
import {module} as module

# Whoever runs the tests may ignore signals, as nohup does; then kdump would ignore them, too.
interrupts = {number} == signal.SIGINT
signal.signal({number}, signal.default_int_handler if interrupts else signal.SIG_DFL)
from kdump.cli.main import main

real, calls = module.{function}, []

def stop(*args, **keywords):
    calls.append(args)
    if len(calls) == {call}:
        os.kill(os.getpid(), {number})
    return real(*args, **keywords)

module.{function} = stop
main()
"""
WRITING = (
    "recover",
    "recover --policy salvage",
    "recover --no-undo",
    "verify --repair",
    "resolve",
    "rebuild-index",
    "snapshot rebuild",
    "compact --recover --topic *",
)


@pytest.fixture(scope="module")
def _damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damaged") / "logs"
    bad_batch_in_the_middle(path)
    for partition in path.glob("*-0"):
        (partition / "00000000000000000007.log.deleted").write_bytes(b"x")
    (path / "orders-0" / "00000000000000000060.snapshot").write_bytes(b"damaged")
    (path / "other-0" / "00000000000000000000.index").unlink()
    return path


@pytest.fixture
def log_dirs(tmp_path: Path, _damaged: Path) -> list[Path]:
    """Return three directories, with different partitions."""
    made = []
    for number in "123":
        path = shutil.copytree(_damaged, tmp_path / number)
        for partition in path.glob("*-0"):
            partition.rename(partition.with_name(f"t{number}{partition.name}"))
        (path / names.RECOVERY_POINT_CHECKPOINT).unlink()
        (path / names.LOCK_FILE).unlink()
        made.append(path)
    return made


@pytest.fixture
def _second_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(plan: Plan, **options: Any) -> str | None:
        if plan.path.name == "2":
            raise KdumpError(f"{plan.path}: the disk is on fire; nothing has been changed")
        return apply_plan(plan, **options)

    monkeypatch.setattr("kdump.jobs.writing.execution.apply_plan", failing)


@pytest.mark.usefixtures("_second_fails")
@pytest.mark.parametrize("command", WRITING)
def test_a_failed_directory_does_not_hide_changes_to_the_others(
    log_dirs: list[Path], command: str
) -> None:
    before = original_of(log_dirs[1])
    outcome = run_kdump([*command.split(), *map(str, log_dirs)], Path("/"))
    said = (outcome.stdout + outcome.stderr).decode()
    assert outcome.exit_status & ExitStatus.OPERATIONAL_ERROR
    for log_dir in (log_dirs[0], log_dirs[2]):
        [line] = [line for line in said.splitlines() if line.startswith(f"{log_dir}:")][-1:]
        assert "made" in line or "compacted" in line
        if "--no-undo" not in command and "compact" not in command:
            assert f"kdump undo {log_dir} 1" in line
    assert said.splitlines()[-1].endswith("2: the disk is on fire; nothing has been changed")
    assert original_of(log_dirs[1]) == before
    assert not any((log_dir / names.LOCK_FILE).exists() for log_dir in log_dirs)


@pytest.mark.usefixtures("_second_fails")
def test_programs_get_each_outcome(log_dirs: list[Path]) -> None:
    args = ["recover", "--output", "jsonl", *map(str, log_dirs)]
    rows = objects(run_kdump(args, Path("/")).stdout)
    failures = {row["log_dir"]: row["failure"] for row in rows if row["type"] == "directory"}
    assert [failures[str(log_dir)] is None for log_dir in log_dirs] == [True, False, True]


def stopped(
    number: signal.Signals, module: str, function: str, call: int, *args: str | Path
) -> subprocess.CompletedProcess[str]:
    """Run kdump, with a signal when a function is called for the nth time."""
    program = STOPPING.format(module=module, function=function, call=call, number=int(number))
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, args)],
        env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_a_change_reports_each_directory(
    log_dirs: list[Path], number: signal.Signals
) -> None:
    done = stopped(number, "kdump.apply.apply", "roll_forward", 2, "recover", *log_dirs)
    assert done.returncode == 128 + number
    lines = done.stderr.strip().splitlines()
    assert any(f"kdump undo {log_dirs[0]} 1" in line for line in lines)
    assert f"{log_dirs[1]}: partly changed; run the command again to finish" in lines
    assert f"{log_dirs[2]}: nothing was changed" in lines
    assert lines[-1] == f"kdump: stopped by {number.name}"
    assert not any((log_dir / names.LOCK_FILE).exists() for log_dir in log_dirs)
    assert run_kdump(["recover", *map(str, log_dirs)], Path("/")).exit_status & 8 == 0


@pytest.mark.parametrize(
    ("number", "command"),
    [
        (signal.SIGINT, "recover"),
        (signal.SIGTERM, "resolve"),
        (signal.SIGHUP, "checkpoint rebuild"),
        (signal.SIGTERM, "verify --repair"),
    ],
)
def test_a_signal_before_the_first_change_changes_nothing(
    log_dirs: list[Path], number: signal.Signals, command: str
) -> None:
    before = [original_of(log_dir) for log_dir in log_dirs]
    module = "kdump.log.directory"
    done = stopped(number, module, "_listed", 5, *command.split(), *log_dirs)
    assert done.returncode == 128 + number
    assert "Traceback" not in done.stderr
    assert [original_of(log_dir) for log_dir in log_dirs] == before
    for log_dir in log_dirs:
        assert f"{log_dir}: nothing was changed" in done.stderr.splitlines()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_an_undo_says_how_to_finish_it(
    log_dirs: list[Path], number: signal.Signals
) -> None:
    log_dir = log_dirs[0]
    before = original_of(log_dir)
    assert run_kdump(["recover", str(log_dir)], Path("/")).exit_status == ExitStatus.REPAIRED
    done = stopped(number, "kdump.apply.undo", "roll_back", 1, "undo", log_dir)
    assert done.returncode == 128 + number
    assert "run the command again to finish" in done.stderr
    assert not (log_dir / names.LOCK_FILE).exists()
    assert run_kdump(["undo", str(log_dir)], Path("/")).exit_status == 0
    assert original_of(log_dir) == before


def test_an_undo_is_reported_even_if_its_output_cannot_be_written(log_dirs: list[Path]) -> None:
    assert run_kdump(["recover", str(log_dirs[0])], Path("/")).exit_status == ExitStatus.REPAIRED
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kdump", "undo", str(log_dirs[0])],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == ExitStatus.OPERATIONAL_ERROR
    assert f"{log_dirs[0]}: run 1 (recover) is undone" in done.stderr


@pytest.mark.parametrize(
    "command", ["recover", "resolve", "compact --recover --topic *", "verify --repair"]
)
def test_changes_are_reported_even_if_the_output_cannot_be_written(
    log_dirs: list[Path], command: str
) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kdump", *command.split(), *map(str, log_dirs)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode & ExitStatus.OPERATIONAL_ERROR
    assert "Traceback" not in done.stderr
    if command != "verify --repair":  # it prints what it finds before it changes anything
        assert all(f"{log_dir}: " in done.stderr for log_dir in log_dirs)
