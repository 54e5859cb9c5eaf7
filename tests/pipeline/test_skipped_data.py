"""The exit statuses of what a statement leaves out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builders import log_directories
from builders.batches import batch, record
from builders.read_tables import table_rows
from kdump.errors import ExitStatus
from kdump.formats.compression import Codec
from kdump.formats.errors import OverLimitError
from kdump.jobs.loading import RecoverJob
from kdump.jobs.table_rows import whole_rows
from kdump.jobs.txns import Problem, TxnsReport, txns
from kdump.jobs.unreadable import Unreadable
from kdump.log.valid_windows import Damage
from kdump.pipeline.table_views import SkippedData, problems_logged

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
