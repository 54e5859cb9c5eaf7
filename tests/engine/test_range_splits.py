"""Splits of a range of offsets say how much of the log is read for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import large_segments
from builders.large_segments import RECORDS_EACH, LargeSegment
from kdump.engine import range_splits
from kdump.engine.range_splits import RangeSplit, RecordRange
from kdump.log.partition import Partition

COUNT = 400
TARGET = 64 << 10
BETWEEN_ENTRIES = 4


@pytest.fixture(scope="module")
def segment() -> LargeSegment:
    return LargeSegment.of(COUNT)


@pytest.fixture(autouse=True)
def every_log_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_splits, "SMALLEST_SPLIT_BYTES", TARGET)


def splits_of(partition: Partition, first: int, end: int | None) -> list[RangeSplit]:
    return list(
        range_splits.range_splits(partition, partition.segments, RecordRange(first, end), TARGET)
    )


@pytest.mark.parametrize(
    ("first", "end"),
    [(0, 1), (0, 3), (1, 5), (500, 501), (500, 800), (3, 1199), (1190, 1200), (1190, None)],
)
def test_the_size_of_splits_is_that_of_the_batches_in_the_range(
    tmp_path: Path, segment: LargeSegment, first: int, end: int | None
) -> None:
    partition = large_segments.write(tmp_path, segment, index=segment.index(BETWEEN_ENTRIES))
    ends = [*segment.positions[1:], len(segment.log)]
    sizes = [end - start for start, end in zip(segment.positions, ends, strict=True)]
    last = COUNT - 1 if end is None else min(COUNT, -(-end // RECORDS_EACH)) - 1
    least = sum(sizes[first // RECORDS_EACH : last + 1])
    found = sum(split.size_bytes for split in splits_of(partition, first, end))
    # It begins at an index entry before the first batch, and may end a batch later.
    assert least <= found <= least + (BETWEEN_ENTRIES + 1) * max(sizes)


@pytest.mark.parametrize("index", [None, b"", bytes(8 * 90), b"\xff" * 80])
def test_a_wrong_index_does_not_shorten_what_is_read(
    tmp_path: Path, segment: LargeSegment, index: bytes | None
) -> None:
    partition = large_segments.write(tmp_path, segment, index=index)
    splits = splits_of(partition, 500, 800)
    start, end = segment.positions[500 // RECORDS_EACH], segment.positions[800 // RECORDS_EACH]
    assert splits[0].start <= start
    assert splits[-1].end is None or splits[-1].end >= end
