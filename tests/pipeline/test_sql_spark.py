"""How Spark starts for SQL statements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from builders import log_directories
from builders.batches import batch, record
from builders.programs import in_a_fresh_process
from kdump.engine import spark_archive
from kdump.engine.spark import SparkEngine
from kdump.pipeline.sql.sql_session import SqlSession

PYTHONS_OF_A_STATEMENT: Final = """
from pathlib import Path
from kdump.pipeline.sql.sql_session import SqlSession

def children(pid):
    tasks = Path(f"/proc/{{pid}}/task").glob("*/children")
    return [int(each) for path in tasks for each in path.read_text().split()]

with SqlSession({{"paths": '["{path}"]'}}) as session:
    result = session.query("SELECT count(*) AS records FROM records")
    print([batch.to_pylist() for batch in result.batches])
    for pid in children(session._spark._java._process.pid):
        print(Path(f"/proc/{{pid}}/cmdline").read_text().split(chr(0))[1:3], len(children(pid)) > 0)
"""


@pytest.mark.slow
def test_a_statement_is_run_by_workers_that_started_before_it_was_planned(tmp_path: Path) -> None:
    root = log_directories.write_log_directory(tmp_path / "logs")
    log_directories.write_partition(root / "orders-0", {0: batch([record(0)])})
    done = in_a_fresh_process(PYTHONS_OF_A_STATEMENT.format(path=root))
    assert done.stdout.splitlines() == [
        "[[{'records': 1}]]",
        "['-m', 'kdump.pipeline.worker_daemon'] True",
    ]


@pytest.mark.slow
def test_the_archive_of_classes_is_made_after_the_first_statements(
    running_spark: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert running_spark.name == "spark"
    made: list[str] = []
    monkeypatch.setattr(spark_archive, "make_in_background", lambda: made.append("archive"))
    with SqlSession({"paths": json.dumps([str(tmp_path)])}):
        assert not made
    assert made == ["archive"]
