"""Without PySpark and Java every command works; only who asks for Spark is told what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from builders.in_process import run_kdump
from builders.programs import PYTHON_PATH, in_a_fresh_process
from builders.verified import LogModel
from cli.test_exit_statuses import CELLS, DENSE
from kdump.cli.command_group import command_names

HIDE: Final = """
import os, sys
sys.modules["pyspark"] = None  # to import it fails, as if it was not installed
os.environ["PATH"] = "/nowhere"
os.environ.pop("JAVA_HOME", None)
"""
RUN_EACH: Final = """
import json, shutil
from pathlib import Path
from builders.in_process import run_kdump
from cli.test_exit_statuses import CELLS
from kdump.cli.main import cli
from kdump.engine.engine_rates import SPARK_RATES, EngineRate

# However little there is to read, Spark would be faster.
SPARK_RATES.update(dict.fromkeys(SPARK_RATES, EngineRate(-1, 0)))
template, folder = map(Path, sys.argv[1:])
statuses = {}
for number, row in enumerate(CELLS):
    if row in {"query", "serve"}:
        continue
    args, happening = next(iter(CELLS[row].values()))
    root = shutil.copytree(template, folder / str(number) / "logs")
    happening(root)
    command = cli.get_command(None, args[0])
    has_engine = any("--engine" in each.opts for each in command.params)
    outcome = run_kdump(args, root)
    statuses[row] = [outcome.exit_status, b"Spark" in outcome.stderr, has_engine]
print(json.dumps(statuses))
"""
RUN: Final = "from kdump.cli.main import main; main()"


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a log directory with nothing to repair."""
    root = LogModel().write(tmp_path_factory.mktemp("without") / "logs").parent
    for path in (root / "orders-0").glob("*index"):
        path.unlink()
    run_kdump(["rebuild-index", "--no-undo", *DENSE, str(root)], root)
    return root


def run_without_spark(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HIDE + RUN, *args],
        env=os.environ | {"PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_every_command_works_for_any_size_and_does_not_mention_spark(
    log_dir: Path, tmp_path: Path
) -> None:
    done = in_a_fresh_process(HIDE + RUN_EACH, str(log_dir), str(tmp_path))
    statuses = json.loads(done.stdout)
    others = {
        row: next(iter(cells)) for row, cells in CELLS.items() if row not in {"query", "serve"}
    }
    assert {row: status for row, (status, _, _) in statuses.items()} == others
    assert not [row for row, (_, mentions_spark, _) in statuses.items() if mentions_spark]
    assert {row.split()[0] for row in statuses} == set(command_names()) - {"query", "serve"}
    assert sum(has_engine for _, _, has_engine in statuses.values()) >= 10


@pytest.mark.parametrize(
    "options", [("--engine", "spark"), ("--master", "local[2]")], ids=lambda each: each[0]
)
def test_who_asks_for_spark_is_told_in_one_line_that_it_is_not_installed(
    options: tuple[str, str], log_dir: Path
) -> None:
    done = run_without_spark("verify", *options, log_dir)
    assert done.returncode == 8
    assert done.stderr == (
        "kdump: Spark is not installed ('pip install kafka-kdump' also installs it): "
        "use --engine local, which needs neither Java nor Spark\n"
    )


def test_query_is_not_told_to_use_an_engine_that_it_does_not_have(log_dir: Path) -> None:
    done = run_without_spark("query", "SELECT 1", log_dir)
    assert done.returncode == 8
    assert done.stderr == (
        "kdump: Spark is not installed ('pip install kafka-kdump' also installs it): "
        "SQL needs Spark, all other commands do not\n"
    )


def test_the_data_source_says_that_spark_is_not_installed() -> None:
    register = """
import kdump.pipeline
from kdump.errors import KdumpError
try:
    kdump.pipeline.register(None)
except KdumpError as failure:
    print(failure)
"""
    said = in_a_fresh_process(HIDE + register).stdout
    assert said == (
        "Spark is not installed ('pip install kafka-kdump' also installs it):"
        " the data source needs it\n"
    )
