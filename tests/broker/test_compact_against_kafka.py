"""kdump compacts a log exactly as Kafka's own cleaner does.

Files are compared byte for byte; where a codec's library compresses to different bytes, by
content. Partitions hold transactions, markers, empty batches, delete horizons, gaps and messages
of magic 0 and 1. Each round starts from Kafka's result of the round before.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from builders.batches import BASE_TIMESTAMP_MS
from builders.compactable_logs import NOW_MS, random_properties
from builders.compacting import CleanerServer, CleaningArena
from builders.loading import LoaderServer
from kdump.broker.cleaner import compaction_parts, compaction_rewrite, compaction_scan
from kdump.scan.batches import read_windows

pytestmark = pytest.mark.differential

DAY_MS = 86_400_000
MORE_SEEDS = [pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 3)]


@pytest.fixture(scope="module")
def servers(
    loader_server: LoaderServer, java_classpath: str
) -> Iterator[tuple[LoaderServer, CleanerServer]]:
    """Start Kafka's loader and its cleaner, each as a server."""
    with CleanerServer(java_classpath) as cleaner:
        yield loader_server, cleaner


@pytest.mark.parametrize("seed", [1, *MORE_SEEDS])
def test_every_round_gives_the_logs_of_kafkas_cleaner(
    servers: tuple[LoaderServer, CleanerServer], quick_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    arena = CleaningArena(*servers, quick_path / "arena")
    arena.generate(rng, 40)

    for now_ms in (NOW_MS, NOW_MS, NOW_MS + DAY_MS):
        properties = random_properties(rng)
        arena.set_checkpoints(rng)
        differences = arena.compare(properties, now_ms)
        assert not differences, (properties, differences[:3])
        arena.go_on()


def test_the_result_does_not_depend_on_window_and_part_sizes(
    servers: tuple[LoaderServer, CleanerServer],
    quick_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module, window_bytes in ((compaction_scan, 400), (compaction_rewrite, 700)):
        small = functools.partial(read_windows, window_bytes=window_bytes)
        monkeypatch.setattr(module, "read_windows", small)
    monkeypatch.setattr(compaction_parts, "LARGEST_PART_BYTES", 1500)
    rng = random.Random(8)
    arena = CleaningArena(*servers, quick_path / "arena")
    arena.generate(rng, 25)
    arena.set_checkpoints(rng)

    differences = arena.compare(random_properties(rng), NOW_MS)

    assert not differences, differences[:3]


@pytest.mark.parametrize("directory", ["clean/d1", "clean/d2"])
def test_logs_of_a_real_broker_are_compacted_as_by_kafkas_cleaner(
    servers: tuple[LoaderServer, CleanerServer],
    fixtures: Path,
    quick_path: Path,
    directory: str,
) -> None:
    arena = CleaningArena(*servers, quick_path / "arena")
    arena.adopt(fixtures / "out" / directory)

    differences = arena.compare({"internal.segment.bytes": "5000"}, BASE_TIMESTAMP_MS + DAY_MS)

    assert not differences, differences[:3]


def test_groups_cleaned_before_a_failure_are_kept_as_in_kafka(
    servers: tuple[LoaderServer, CleanerServer], quick_path: Path
) -> None:
    arena = CleaningArena(*servers, quick_path / "arena")
    arena.generate(random.Random(6), 25, ends_old=True)
    arena.set_checkpoints(random.Random(6))

    differences = arena.compare({"internal.segment.bytes": "4000"}, NOW_MS)

    assert arena.failures
    assert not differences, differences[:3]
