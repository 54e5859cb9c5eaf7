"""A directory has the same findings if it is checked whole, in splits, or by many workers."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from builders.batches import batches
from builders.verified import END_OFFSET, NOW_MS, LogModel, file, write_segment
from kdump.check.findings import Finding
from kdump.check.part import ByteAccount, Level
from kdump.engine.engine_choice import EngineChoice, EngineOptions
from kdump.formats.names import FileKind
from kdump.jobs.verify import verify as pipeline
from kdump.jobs.verify.verify import VerifyRequest, VerifySummary, VerifyTarget
from kdump.log.directory import read_log_directory
from kdump.state.metadata.settings import read_settings
from kdump.storage.local_disk import local

pytestmark = pytest.mark.slow

SPLIT_BYTES = 400
IN_HERE = EngineOptions(EngineChoice.LOCAL, processes=1)
BY_WORKERS = EngineOptions(EngineChoice.LOCAL, processes=2)


def verified(
    log_dir: Path, options: EngineOptions
) -> tuple[list[Finding], ByteAccount, int, int | None]:
    found = read_log_directory(local(log_dir))
    targets = [VerifyTarget(partition, found) for partition in found.partitions]
    request = VerifyRequest(targets, [found], Level.DEEP, NOW_MS, read_settings([found]))
    said = list(pipeline.verify(request, options))
    summary = said[-1]
    assert isinstance(summary, VerifySummary)
    findings = [each for each in said if isinstance(each, Finding)]
    return findings, summary.account, summary.batches, summary.records


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Return a log directory with an additional segment of many batches."""
    partition = LogModel().write(tmp_path / "logs")
    write_segment(partition, END_OFFSET, batches(40, base_offset=END_OFFSET))
    return partition.parent


def test_workers_report_what_one_process_reports(log_dir: Path) -> None:
    assert verified(log_dir, BY_WORKERS) == verified(log_dir, IN_HERE)


@pytest.mark.parametrize("seed", range(40))
def test_a_split_segment_has_the_findings_of_the_whole(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    log = file(log_dir / "orders-0", END_OFFSET, FileKind.LOG)
    content = bytearray(log.read_bytes())
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(content))
        size = rng.choice([1, 8, 300])
        content[at : at + size] = rng.choice([b"", bytes(size), rng.randbytes(size)])
    log.write_bytes(content)
    whole, *whole_sums = verified(log_dir, IN_HERE)
    monkeypatch.setattr(pipeline, "split_bytes", lambda *_: SPLIT_BYTES)
    cut_up, *cut_sums = verified(log_dir, IN_HERE)
    # The damaged bytes cannot depend on the split points.
    assert cut_sums == whole_sums
    assert Counter(cut_up) == Counter(whole)
