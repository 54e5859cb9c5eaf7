"""The batches of partitions are counted on any engine, with the same result."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builders.batches import batches
from builders.in_process import run_kdump
from builders.log_directories import write_log_directory, write_partition
from kdump.engine.engine_choice import EngineChoice, EngineOptions
from kdump.engine.spark import SparkEngine
from kdump.jobs.listing.batch_survey import survey
from kdump.log.directory import read_log_directory
from kdump.log.partition import Partition
from kdump.storage.local_disk import local

LOG = b"".join(batches(2))


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Write three partitions; one log is damaged, and one cannot be opened."""
    path = write_log_directory(tmp_path / "logs")
    damaged = bytearray(LOG)
    damaged[70] ^= 1
    write_partition(path / "a-0", {0: LOG, 6: b""})
    write_partition(path / "a-1", {0: bytes(damaged)})
    write_partition(path / "b-0", {0: LOG})
    return path


def partitions(log_dir: Path) -> tuple[Partition, ...]:
    found = read_log_directory(local(log_dir)).partitions
    log = log_dir / "b-0" / found[2].segments[0].log_name
    log.unlink()
    os.mkfifo(log)
    return found


def test_damage_is_reported_and_the_rest_counted(log_dir: Path) -> None:
    contents, problems = survey(partitions(log_dir))
    assert contents.batches == 3
    assert [Path(each.path).parent.name for each in problems] == ["a-1", "b-0"]
    assert [each.is_damage for each in problems] == [True, False]


@pytest.mark.slow
def test_workers_have_the_same_result(log_dir: Path) -> None:
    found = partitions(log_dir)
    assert survey(found, EngineOptions(EngineChoice.LOCAL, processes=2)) == survey(found)


def test_spark_has_the_same_result(log_dir: Path, spark: SparkEngine) -> None:
    found = partitions(log_dir)
    assert survey(found, EngineOptions(EngineChoice.SPARK)) == survey(found)


def test_deep_counts_run_on_the_engine_that_is_asked_for(log_dir: Path) -> None:
    arguments = ["info", "--deep", "--engine", "local", "--verbose", "--output", "json"]
    outcome = run_kdump([*arguments, str(log_dir / "a-0")], log_dir)
    assert b'"batches":2' in outcome.stdout
    assert outcome.stderr == b"kdump: runs on local, because of --engine\n"
