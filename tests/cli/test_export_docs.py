"""The examples of ``docs/export.md`` run as printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest

from builders.batches import batch, record
from builders.in_process import run_kdump
from builders.log_directories import write_log_directory, write_partition

EXPECTED: Final[list[list[tuple[Any, ...]]]] = [
    [("orders", 0, 3, 0), ("orders", 1, 1, 7)],
    [("a", "a2"), ("b", "=cmd()\n"), ("c", "7")],
    [
        ("orders", "a", "a0"),
        ("orders", "a", "a2"),
        ("orders", "b", "=cmd()\n"),
        ("orders", "c", "7"),
    ],
    [("complete", 4, 0, 0)],
]
"""The rows of the statements, in the order of the page."""


@pytest.fixture
def exports(tmp_path: Path) -> Path:
    log_dir = write_log_directory(tmp_path / "logs")
    first = [record(0, b"a", b"a0"), record(1, b"b", b"=cmd()\n"), record(2, b"a", b"a2")]
    write_partition(log_dir / "orders-0", {0: batch(first)})
    write_partition(log_dir / "orders-1", {0: batch([record(7, b"c", b"7")])})
    for name, options in (("orders", ()), ("orders-csv", ("--format", "csv"))):
        args = ["export", "--topic", "orders", "--out", str(tmp_path / name), *options]
        assert run_kdump([*args, str(log_dir)], tmp_path).exit_status == 0
    return tmp_path


def test_the_statements_run_as_printed(repository_root: Path, exports: Path) -> None:
    text = (repository_root / "docs" / "export.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    statements = [each for block in blocks for each in block.split(";") if each.strip()]
    for statement, expected in zip(statements, EXPECTED, strict=True):
        found = duckdb.sql(statement.replace("/exports/", f"{exports}/"))
        assert found is not None
        rows = [tuple(row.values()) for row in found.to_arrow_table().to_pylist()]
        assert sorted(row[:4] for row in rows) == expected
