"""Target states and refusals equal those of Kafka's own loader, byte for byte.

Random partitions are loaded by Kafka once, and then damaged as by crashes, bad disks and people.
Producer snapshots are compared byte for byte, too: kdump writes their entries in the order of
Kafka's hash maps.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from builders.loading import EXPIRING, Arena, Clock, Difference, LoaderServer
from builders.log_directories import offset_checkpoint
from kdump.broker.loader.load_context import IndexSettings
from kdump.formats import names

pytestmark = pytest.mark.differential

DEFAULTS = IndexSettings()
MORE_SEEDS = [pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 3)]


def no_differences(found: Sequence[Difference]) -> None:
    """Fail with the first few of the differences, if there are any."""
    if found:
        shown = "\n".join(str(difference) for difference in found[:3])
        pytest.fail(f"{len(found)} partitions differ, such as\n{shown}", pytrace=False)


@pytest.mark.parametrize("seed", [1, *MORE_SEEDS])
def test_an_unclean_directory_is_left_as_kafka_leaves_it(
    loader_server: LoaderServer, quick_path: Path, seed: int
) -> None:
    arena = Arena(loader_server, quick_path, DEFAULTS)
    arena.generate(random.Random(seed), 150, clean=False)

    no_differences(arena.compare())


@pytest.mark.parametrize("seed", [1, *MORE_SEEDS])
def test_a_clean_directory_is_left_as_kafka_leaves_it(
    loader_server: LoaderServer, quick_path: Path, seed: int
) -> None:
    arena = Arena(loader_server, quick_path, DEFAULTS)
    arena.generate(random.Random(seed), 80, clean=True)

    no_differences(arena.compare())


@pytest.mark.parametrize("interval_bytes", [0, 300])
def test_the_index_interval_has_the_same_effect(
    loader_server: LoaderServer, quick_path: Path, interval_bytes: int
) -> None:
    arena = Arena(loader_server, quick_path, IndexSettings(interval_bytes=interval_bytes))
    arena.generate(random.Random(interval_bytes), 40, clean=False)

    no_differences(arena.compare())


def test_full_indexes_are_refused_as_by_kafka(
    loader_server: LoaderServer, quick_path: Path
) -> None:
    arena = Arena(loader_server, quick_path, DEFAULTS)
    arena.generate(random.Random(7), 40, clean=False)
    arena.settings = IndexSettings(interval_bytes=300, max_bytes=240)

    no_differences(arena.compare())


def test_producers_expire_at_the_same_time(loader_server: LoaderServer, quick_path: Path) -> None:
    arena = Arena(loader_server, quick_path, DEFAULTS, EXPIRING)
    arena.generate(random.Random(8), 40, clean=False)

    no_differences(arena.compare())


@pytest.mark.parametrize("clean", [False, True], ids=["unclean", "clean"])
def test_the_whole_directory_is_left_as_the_log_manager_leaves_it(
    loader_server: LoaderServer, quick_path: Path, clean: bool
) -> None:
    arena = Arena(loader_server, quick_path, DEFAULTS, Clock())
    arena.generate(random.Random(9), 25, clean=clean, damage=False)

    no_differences(arena.compare(whole=True))


def test_the_snapshot_of_an_empty_log_alternates_as_in_kafka(
    loader_server: LoaderServer, fixtures: Path, quick_path: Path
) -> None:
    name = "delete-records-all-0"
    source = fixtures / "out" / "clean" / "d1"
    shutil.copytree(source / name, quick_path / name)
    line = offset_checkpoint({("delete-records-all", 0): 50})
    for checkpoint in (names.LOG_START_OFFSET_CHECKPOINT, names.RECOVERY_POINT_CHECKPOINT):
        (quick_path / checkpoint).write_bytes(line)

    seen = []
    for _ in range(4):
        loader_server.load(quick_path, DEFAULTS, Clock(), whole=True)
        seen.append((quick_path / name / f"{50:020d}.snapshot").exists())

    assert seen == [False, True, False, True]
