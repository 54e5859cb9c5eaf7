"""Commands that write hold no large new content in memory, and have the same result."""

from __future__ import annotations

import pickle
import re
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from builders.batches import batches
from builders.in_process import run_kdump
from builders.log_directories import write_log_directory, write_partition
from builders.recovery import joined
from builders.repair_cases import PARTITION, clean_directory, crashed, with_damage
from builders.trees import contents_of
from kdump.apply.apply import apply_plan
from kdump.apply.plan import Plan
from kdump.broker.loader.load_context import IndexSettings
from kdump.broker.loader.recovered_partition import Recovered
from kdump.engine.spark import SparkEngine
from kdump.jobs.loading.load_partition import RecoverJob
from kdump.jobs.loading.load_split import LoadSplit, load_split
from kdump.jobs.writing import execution
from kdump.jobs.writing.execution import Writing
from kdump.jobs.writing.large_content import LargeContent
from kdump.log.directory import LogDirectory, read_log_directory
from kdump.state.metadata.settings import Settings
from kdump.storage.local_disk import local
from kdump.target import content_store
from kdump.target.target_file import NewBytes, StagedBytes

COMMANDS = (
    ("recover", "--now=1767225600000"),
    ("recover", "--policy=salvage", "--now=1767225600000"),
    ("rebuild-index",),
    ("verify", "--repair"),
)
LEAST_BYTES = 8


def without_indexes(path: Path) -> Path:
    """Write the log directory of a crashed broker, without indexes and with damage."""
    root = crashed(clean_directory(path))
    for index in (root / PARTITION).glob("*index"):
        index.unlink()
    with_damage(max((root / PARTITION).glob("*.log")), 4)
    return root


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_has_the_same_result(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    root = without_indexes(quick_path / "logs")
    in_memory, on_disk = (Path(shutil.copytree(root, quick_path / n)) for n in ("m", "d"))
    args = [*words, "--no-undo", "--config", "index.interval.bytes=0"]
    expected = run_kdump([*args, str(in_memory)], quick_path).exit_status
    assert expected != 16
    seen: list[tuple[int, int]] = []

    def noting(plan: Plan, **given: Any) -> str | None:
        targets = [op.target for each in plan.partitions for op in each.operations]
        held = [each.size_bytes for each in targets if isinstance(each, NewBytes)]
        seen.append((max(held, default=0), len(plan.early_content)))
        return apply_plan(plan, **given)

    monkeypatch.setattr(content_store, "LEAST_BYTES", LEAST_BYTES)
    monkeypatch.setattr(execution, "apply_plan", noting)
    found = run_kdump([*args, str(on_disk)], quick_path).exit_status

    assert found == expected
    assert contents_of(on_disk) == contents_of(in_memory) != contents_of(root)
    assert max(held for held, _ in seen) < LEAST_BYTES
    assert sum(early for _, early in seen) > 0


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_preview_shows_the_same_changes_and_writes_nothing(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    root = without_indexes(quick_path / "logs")
    before = contents_of(root)
    args = [*words, "--dry-run", "--output=json", str(root)]
    expected = run_kdump(args, quick_path)

    monkeypatch.setattr(content_store, "LEAST_BYTES", LEAST_BYTES)
    found = run_kdump(args, quick_path)

    assert _without_time(found.stdout) == _without_time(expected.stdout)
    assert contents_of(root) == before


def _without_time(stdout: bytes) -> bytes:
    return re.sub(rb'"seconds":[0-9.]+', b"", stdout)


@pytest.mark.slow
def test_tasks_of_spark_write_it(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkEngine
) -> None:
    root = many_segments(quick_path / "logs", 2)
    directory = read_log_directory(local(root))
    content = LargeContent(Writing("recover"))
    splits = [content.split(each, local(root)) for each in splits_of(directory)]
    (outcome,) = (found for _, found in spark.run(RecoverJob(), splits))
    assert isinstance(outcome, Recovered)
    written = [each for each in outcome.files.values() if isinstance(each, StagedBytes)]
    assert written
    assert {each.name for each in written} <= {path.name for path in root.glob(".kdump-*")}


def test_the_memory_of_a_task_does_not_grow_with_the_segments_of_its_partition(
    quick_path: Path,
) -> None:
    one_bytes = peak_bytes(many_segments(quick_path / "few", 4))
    many_bytes = peak_bytes(many_segments(quick_path / "many", 40))
    assert many_bytes < one_bytes + 36 * 8_000


def peak_bytes(root: Path) -> int:
    """Return the peak of memory while a partition is recovered, before its result is sent."""
    (split,) = splits_of(read_log_directory(local(root)))
    split = LargeContent(Writing("recover")).split(split, local(root))
    tracemalloc.start()
    try:
        outcome = RecoverJob().run(split)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(pickle.dumps(outcome)) < 50_000
    return peak


def many_segments(path: Path, count: int) -> Path:
    """Write a log directory with a partition of segments without indexes."""
    write_log_directory(path)
    batches_each = 600
    logs = {}
    for number in range(count):
        base = number * batches_each
        logs[base] = joined(batches(batches_each, 1, base_offset=base))
    write_partition(path / PARTITION, logs)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (path / name).unlink(missing_ok=True)
    for index in (path / PARTITION).glob("*index"):
        index.unlink()
    return path


def splits_of(directory: LogDirectory) -> list[LoadSplit]:
    splits = [load_split(each, directory, Settings()) for each in directory.partitions]
    settings = IndexSettings(interval_bytes=0)
    return [replace(each, context=replace(each.context, settings=settings)) for each in splits]
