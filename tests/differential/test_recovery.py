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

from builders.batches import batch, record
from builders.loading import EXPIRING, Arena, Clock, Difference, LoaderServer
from builders.log_directories import file_name, offset_checkpoint, write_partition
from kdump.broker.loader.load_context import IndexSettings
from kdump.formats import names, producer_snapshot
from kdump.formats.names import FileKind

pytestmark = pytest.mark.differential

DEFAULTS = IndexSettings()
NO_PRODUCERS = producer_snapshot.encode(())
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


@pytest.mark.parametrize("recovery_point", [6, 50], ids=["at-the-end", "past-the-end"])
def test_an_index_that_kafka_does_not_load_is_not_trimmed(
    loader_server: LoaderServer, quick_path: Path, recovery_point: int
) -> None:
    arena = Arena(loader_server, quick_path, DEFAULTS)
    logs = {base: b"".join(batch([record(at)]) for at in (base, base + 1)) for base in (0, 2, 4)}
    write_partition(
        arena.base / "case-0",
        logs,
        offset_indexes={0: b"rest", 2: b"rest"},
        others={file_name(base, FileKind.PRODUCER_SNAPSHOT): NO_PRODUCERS for base in (2, 4)},
    )
    line = offset_checkpoint({("case", 0): recovery_point})
    (arena.base / names.RECOVERY_POINT_CHECKPOINT).write_bytes(line)

    no_differences(arena.compare())
    assert (arena.ours / "case-0" / file_name(0, FileKind.OFFSET_INDEX)).read_bytes() == b"rest"
