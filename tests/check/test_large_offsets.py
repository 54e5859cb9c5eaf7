"""Offsets up to Kafka's largest are valid, and one more is not."""

from __future__ import annotations

from pathlib import Path

from builders.batches import BASE_TIMESTAMP_MS, batch, record
from builders.log_directories import write_partition
from builders.verified import findings_in
from kdump.check.findings import Severity

GREATEST = 2**63 - 2
"""The next one is where a log with it ends; after that, Kafka's number of 64 bits is negative."""


def codes(root: Path, last_offset: int) -> set[str]:
    base_offset = last_offset - 2
    three = [record(base_offset + step, timestamp=BASE_TIMESTAMP_MS) for step in range(3)]
    write_partition(root / "orders-0", {base_offset: batch(three)})
    return {each.code for each in findings_in(root, at_least=Severity.WARNING)}


def test_the_largest_offset_is_valid(tmp_path: Path) -> None:
    assert "batch-header" not in codes(tmp_path, GREATEST)


def test_an_offset_that_no_other_can_follow_is_damage(tmp_path: Path) -> None:
    assert "batch-header" in codes(tmp_path, GREATEST + 1)
