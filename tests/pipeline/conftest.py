"""What the engines are tried on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from builders import large_segments
from builders.large_segments import LargeSegment
from kdump.pipeline import splits
from kdump.pipeline.engine import EngineOptions
from kdump.pipeline.job import Split
from kdump.pipeline.spark import SparkEngine


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> list[Split]:
    """Give three partitions as splits, one of them large enough for many."""
    folder = tmp_path_factory.mktemp("work")
    found: list[Split] = []
    for topic, count in (("large", 600), ("medium", 90), ("small", 2)):
        segment = LargeSegment.of(count)
        partition = large_segments.write(folder, segment, index=segment.index(), topic=topic)
        found += splits.partition_splits(partition, 64 << 10)
    return found


@pytest.fixture(scope="session")
def cache(repository_root: Path) -> Iterator[Path]:
    """Let the cache be in the repository, where the archive of Spark's classes stays."""
    with pytest.MonkeyPatch.context() as patch:
        folder = repository_root / "build" / "cache"
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture
def quick_jvms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a JVM that kdump does not start itself compile little, as it lives for seconds only."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def spark(cache: Path) -> Iterator[SparkEngine]:
    """Give Spark on two cores, started once for all tests of a process."""
    with SparkEngine(EngineOptions(master="local[2]")) as engine:
        yield engine
