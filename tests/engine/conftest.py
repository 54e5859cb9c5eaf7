"""Splits for the tests of engines."""

from __future__ import annotations

import pytest

from builders import large_segments
from builders.large_segments import LargeSegment
from kdump.engine import splits
from kdump.engine.job import Split


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> list[Split]:
    """Return three partitions as splits, one of them large enough for many."""
    folder = tmp_path_factory.mktemp("work")
    found: list[Split] = []
    for topic, count in (("large", 600), ("medium", 90), ("small", 2)):
        segment = LargeSegment.of(count)
        partition = large_segments.write(folder, segment, index=segment.index(), topic=topic)
        found += splits.partition_splits(partition, 64 << 10)
    return found
