"""The exit statuses of what a statement leaves out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from builders import log_directories
from builders.batches import batch, record
from builders.read_tables import table_rows
from kdump.errors import ExitStatus
from kdump.formats.compression import Codec
from kdump.formats.errors import OverLimitError
from kdump.jobs.loading.load_partition import RecoverJob
from kdump.jobs.problems.found_problems import Problem
from kdump.jobs.problems.unreadable import Unreadable
from kdump.jobs.table_rows import whole_rows
from kdump.jobs.table_rows.table_reader import open_table
from kdump.jobs.transactions.open_transactions import TxnsReport, txns
from kdump.log.valid_windows import Damage
from kdump.pipeline.sql.table_views import SkippedData, problems_logged
from kdump.tables.kafka_log import splits
from kdump.tables.kafka_log.pushed_filters import PushedFilters

DAMAGED = ExitStatus.DAMAGE_LEFT
FAILED = ExitStatus.OPERATIONAL_ERROR


def skipped(table: str, path: Path, **options: str) -> list[SkippedData]:
    problems: list[SkippedData] = []
    with problems_logged(problems.append):
        table_rows(table, path, **options)
    return problems


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Write a log directory with a damaged batch, one with a large record, and a sound one."""
    damaged = bytearray(batch([record(0)]))
    damaged[70] ^= 1
    large = batch([record(1, None, bytes(40 << 20))], codec=Codec.ZSTD)
    path = log_directories.write_log_directory(tmp_path / "logs")
    log_directories.write_partition(path / "a-0", {0: bytes(damaged) + large + batch([record(2)])})
    return path


def test_a_record_over_the_limit_is_not_damage(log_dir: Path) -> None:
    damaged, over = skipped("records", log_dir, mode="DROPMALFORMED")
    assert damaged.what.endswith("bytes in 1 damaged range")
    assert damaged.status == DAMAGED
    assert over.what.endswith("bytes in 1 range not decoded: over the limit")
    assert over.status == FAILED


def test_transactions_that_cannot_be_read_are_not_damage(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(*arguments: Any) -> TxnsReport:
        return replace(
            txns(*arguments),
            damages=[Damage("a", 0, 1, "b"), Damage("c", 0, 1, OverLimitError("d", position=0))],
            problems=[Problem("e", "f", is_damage=True), Problem("g", "h", is_damage=False)],
        )

    monkeypatch.setattr(whole_rows, "txns", found)
    assert skipped("transactions", log_dir) == [
        SkippedData("a: bytes 0 to 1: b", DAMAGED),
        SkippedData("c: bytes 0 to 1: d at byte 0", FAILED),
        SkippedData("e: f", DAMAGED),
        SkippedData("g: h", FAILED),
    ]


def test_producers_that_cannot_be_read_are_not_damage(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreadable = Unreadable("a", "Input/output error")
    monkeypatch.setattr(RecoverJob, "run", lambda *_: unreadable)
    assert skipped("producers", log_dir) == [SkippedData("a: Input/output error", FAILED)]


def readable_rows(table: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[str]]:
    """Count the rows of a directory in which a partition and a log cannot be read."""
    for number in range(3):
        content = batch([record(0), record(1)])
        log_directories.write_partition(path / f"a-{number}", {0: content, 2: batch([record(2)])})
    problems: list[SkippedData] = []
    ask = {"table": table, "path": str(path), "mode": "DROPMALFORMED"}
    with problems_logged(problems.append):
        reader = open_table(ask, skips_unreadable=True)
        with monkeypatch.context() as patch:
            patch.setattr(splits, "record_splits", refusing("a-1", splits.record_splits))
            tasks = reader.splits(PushedFilters())
        (path / "a-2" / f"{0:020d}.log").unlink()
        rows = sum(each.num_rows for task in tasks for each in reader.read(task, PushedFilters()))
    assert {each.status for each in problems} == {FAILED}
    return rows, [each.what.replace(str(path), "") for each in problems]


def refusing(name: str, planned: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Return a function that plans, but not the partition with a name."""

    def plan(found: Any, *arguments: Any) -> Iterator[Any]:
        if found.partition.path.name == name:
            raise PermissionError(13, "Permission denied", str(found.partition.path))
        return planned(found, *arguments)

    return plan


@pytest.mark.parametrize(("table", "per_partition"), [("records", 3), ("batches", 2)])
def test_what_cannot_be_read_is_left_out_alone(
    table: str, per_partition: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = log_directories.write_log_directory(tmp_path / "logs")
    rows, problems = readable_rows(table, path, monkeypatch)
    assert rows == per_partition + 1
    assert problems == [
        "/a-1: Permission denied",
        f"/a-2/{0:020d}.log: No such file or directory",
    ]
