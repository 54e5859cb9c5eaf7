"""The ends that listings show: those of a starting broker, or marked."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from builders import damage
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.samples import seeds
from builders.small_file_damage import damage_small_files
from kdump.broker.loader.loader import Recovered
from kdump.formats.names import PartitionState
from kdump.jobs.listing.partition_facts import loaded_or_reported
from kdump.jobs.loading.load_partition import RecoverJob
from kdump.jobs.loading.load_split import load_split
from kdump.jobs.problems.found_problems import HeldProblems
from kdump.log.bounds import LogBounds, read_bounds
from kdump.log.directory import DirectoryKind, LogDirectory, read_log_directory
from kdump.state.metadata.settings import Settings
from kdump.storage.local_disk import local

MANY: Final = 200
FEW: Final = 4


def damage_log(rng: random.Random, folder: Path) -> None:
    """Cut, overwrite or extend a log; most often the last one."""
    logs = sorted(path for path in folder.glob("*.log") if path.stat().st_size)
    if not logs:
        return
    path = rng.choice([logs[-1], *logs])
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data))
    match rng.randrange(5):
        case 0:
            del data[at:]
        case 1:
            data[at] ^= 1 << rng.randrange(8)
        case 2:
            data[at : at + 4096] = bytes(min(4096, len(data) - at))
        case 3:
            data += rng.randbytes(rng.choice([3, 70, 500]))
        case _:
            data = rng.choice(damage.ANY_FILE)(rng, data)
    path.write_bytes(bytes(data))


def loaded(directory: LogDirectory) -> Iterator[tuple[str, LogBounds, int]]:
    """Each partition that a broker loads: its bounds, and the end that a broker gives it."""
    for listed in directory.partitions:
        if listed.topic_partition is None or listed.state is not PartitionState.LIVE:
            continue
        outcome = RecoverJob().run(load_split(listed, directory, Settings()))
        partition = loaded_or_reported(listed, HeldProblems())
        if isinstance(outcome, Recovered) and partition is not None:
            bounds = read_bounds(partition, directory.checkpoints, is_clean=directory.is_clean)
            yield listed.path.name, bounds, outcome.log_end_offset


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clean/d1", "clean/d2", "crashed/d1"])
@pytest.mark.parametrize("seed", seeds(0, count=MANY, in_main=FEW))
def test_a_certain_end_is_that_of_a_starting_broker(
    fixtures: Path, quick_path: Path, name: str, seed: int
) -> None:
    rng = random.Random(seed)
    shutil.copytree(fixtures / "out" / name, quick_path / "d", symlinks=True)
    for folder in sorted(path.parent for path in (quick_path / "d").glob("*/partition.metadata")):
        kind = rng.choice(["small files", "log", "both", "none"])
        if kind in ("small files", "both"):
            damage_small_files(rng, folder)
        if kind in ("log", "both"):
            damage_log(rng, folder)
    directory = read_log_directory(local(quick_path / "d"), DirectoryKind.LOG_DIRECTORY)
    wrong = [
        (path, bounds.log_end_offset, end)
        for path, bounds, end in loaded(directory)
        if bounds.is_end_certain and bounds.log_end_offset != end
    ]
    assert wrong == []


def test_the_ends_of_a_valid_directory_are_certain(fixtures: Path) -> None:
    directory = read_log_directory(
        local(fixtures / "out" / "clean" / "d1"), DirectoryKind.LOG_DIRECTORY
    )
    uncertain = [path for path, bounds, _ in loaded(directory) if not bounds.is_end_certain]
    assert uncertain == ["__cluster_metadata-0"]


@pytest.mark.parametrize("command", ["ls", "info"])
def test_an_end_that_a_broker_may_not_have_is_marked(
    fixtures: Path, tmp_path: Path, command: str
) -> None:
    """The last entry of the offset index leads past the end: a broker hides all records."""
    shutil.copytree(fixtures / "out" / "clean" / "d1", tmp_path / "d")
    partition = tmp_path / "d" / "codec-zstd-0"
    index = partition / f"{0:020d}.index"
    before = run_kdump([command, str(partition)], tmp_path).stdout
    data = bytearray(index.read_bytes())
    data[-3] = 0xFF
    index.write_bytes(data)
    after = run_kdump([command, str(partition)], tmp_path).stdout
    lines = run_kdump([command, str(partition), "--output", "jsonl"], tmp_path).stdout
    (said,) = (each for each in objects(lines) if "log_end_offset" in each)
    assert (said["log_end_offset"], said["is_end_certain"]) == (406, False)
    assert b" 406" in before
    assert b"~406" in after
    assert b"~" not in before
