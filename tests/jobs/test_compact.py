"""Compaction has the same result on both engines, and after an interruption at any point."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from builders.compactable_directories import (
    KEYS,
    NOW_MS,
    last_values,
    plain_directory,
    varied_directory,
)
from builders.trees import contents_of, tree_of
from builders.volatile_files import VolatileFiles
from kdump.apply.apply import apply_plan
from kdump.apply.files import DISK, Files
from kdump.apply.interrupted_runs import finish_interrupted, remove_remains
from kdump.apply.lock import hold_locks
from kdump.apply.plan import Plan
from kdump.engine.engine import Engine
from kdump.engine.local import LocalEngine
from kdump.engine.spark import SparkEngine
from kdump.errors import KdumpError
from kdump.formats import names
from kdump.formats.checkpoints import OffsetEntry, encode_offset_checkpoint
from kdump.formats.names import TopicPartition
from kdump.jobs.compact import swap as swapping
from kdump.jobs.compact import wave
from kdump.jobs.compact.compact import DirectoryCompaction, compact_on
from kdump.jobs.compact.request import CompactRequest
from kdump.jobs.compact.swap import NoSpace
from kdump.jobs.compact.tasks import RewriteJob, ScanJob, rewrite_splits, scan_splits
from kdump.jobs.writing.execution import Writing
from kdump.log.directory import DirectoryKind, read_log_directory
from kdump.state.metadata.settings import Settings
from kdump.storage.local_disk import local
from kdump.target import content_store
from kdump.target.target_file import NewBytes

KNOWN = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "86400000",
    "remote.storage.enable": "false",
}
"""The configuration that topics need if they are selected by a pattern."""
COMPACT = Writing("compact", keep_undo=False)


def compacted(
    root: Path,
    engine: Engine | None = None,
    writing: Writing = COMPACT,
    files: Files = DISK,
    **given: str,
) -> DirectoryCompaction:
    """Compact all of ``root``; ``given`` are Kafka's properties, with underscores for dots."""
    directory = read_log_directory(local(root), DirectoryKind.LOG_DIRECTORY)
    settings = Settings(KNOWN | {name.replace("_", "."): value for name, value in given.items()})
    request = CompactRequest([directory], {local(root): settings}, now_ms=NOW_MS)
    (result,) = compact_on(engine or LocalEngine(1), request, writing, files)
    return result


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split logs into many parts, and swap in each new segment immediately."""
    monkeypatch.setattr(wave, "split_bytes", lambda *_: 2_000)
    monkeypatch.setattr(wave, "REWRITTEN_BYTES", 5_000)
    monkeypatch.setattr(swapping, "SWAPPED_BYTES", 0)


@pytest.mark.slow
@pytest.mark.usefixtures("small_parts")
def test_both_engines_have_the_same_result(quick_path: Path, spark: SparkEngine) -> None:
    root = varied_directory(quick_path / "logs", seed=3)
    found = {}
    with LocalEngine(2) as workers:
        for name, engine in (("here", LocalEngine(1)), ("workers", workers), ("spark", spark)):
            copy = shutil.copytree(root, quick_path / name)
            result = compacted(copy, engine, internal_segment_bytes="9000")
            previews = [each.preview for each in result.partitions]
            found[name] = contents_of(copy), previews
    assert found["workers"] == found["here"]
    assert found["spark"] == found["here"]
    assert found["here"][0] != contents_of(root)


@pytest.mark.slow
@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("is_varied", [True, False])
@pytest.mark.parametrize("cleaned_to", [None, 40])
def test_spark_finds_the_latest_records_in_its_shuffle(
    quick_path: Path,
    spark: SparkEngine,
    monkeypatch: pytest.MonkeyPatch,
    is_varied: bool,
    cleaned_to: int | None,
) -> None:
    if is_varied:
        root = varied_directory(quick_path / "logs", seed=5)
    else:
        root = plain_directory(quick_path / "logs", ("case", "users"))
    if cleaned_to is not None:
        lines = [OffsetEntry(TopicPartition("case", number), cleaned_to) for number in range(4)]
        (root / names.CLEANER_OFFSET_CHECKPOINT).write_bytes(encode_offset_checkpoint(lines))
    here, there = (Path(shutil.copytree(root, quick_path / name)) for name in ("here", "there"))
    expected = compacted(here)
    monkeypatch.setattr(wave, "BUCKET_BYTES", 2_000)

    result = compacted(there, spark)

    assert contents_of(there) == contents_of(here)
    assert [each.preview for each in result.partitions] == [
        each.preview for each in expected.partitions
    ]
    assert contents_of(here) != contents_of(root)


@pytest.mark.slow
def test_the_result_does_not_depend_on_how_the_work_is_split(
    quick_path: Path, request: pytest.FixtureRequest
) -> None:
    root = varied_directory(quick_path / "logs", seed=4)
    whole, cut = (Path(shutil.copytree(root, quick_path / name)) for name in ("whole", "cut"))

    compacted(whole)
    request.getfixturevalue("small_parts")
    compacted(cut)

    assert contents_of(cut) == contents_of(whole)


def test_splits_and_results_can_be_pickled(quick_path: Path) -> None:
    root = plain_directory(quick_path / "logs")
    (partition,) = read_log_directory(local(root)).partitions
    begun = wave.Wave(
        CompactRequest([], {local(root): Settings()}, now_ms=NOW_MS),
        read_log_directory(local(root)),
        LocalEngine(1),
        swapping.Discarder(),
    )._begun(partition)
    assert isinstance(begun, wave._Work)
    scanned, mapped = {}, []
    for split in scan_splits(partition, begun.begun.parts_to_scan(), 10**6):
        found, pieces = ScanJob().map(pickle.loads(pickle.dumps(split)), 1)
        scanned[split.part.path] = [pickle.loads(pickle.dumps(found))]
        mapped += pickle.loads(pickle.dumps(list(pieces.values())))
    live = pickle.loads(pickle.dumps(ScanJob().reduce(mapped)))[partition.path].live
    groups = begun.begun.groups_to_rewrite(scanned, live)
    for rewrite in rewrite_splits(groups):
        assert pickle.loads(pickle.dumps(RewriteJob().run(pickle.loads(pickle.dumps(rewrite)))))


def test_the_latest_value_of_each_key_is_kept(quick_path: Path) -> None:
    root = plain_directory(quick_path / "logs", segments=5)
    before = last_values(root / "users-0")

    result = compacted(root)

    assert last_values(root / "users-0") == {k: v for k, v in before.items() if k is not None}
    (partition,) = result.partitions
    assert partition.preview is not None
    assert partition.preview.after.records == KEYS
    assert partition.preview.records_without_key == 1
    assert sorted(path.name for path in (root / "users-0").glob("*.log")) == [
        f"{offset:020d}.log" for offset in (0, 50)
    ]


def test_the_directory_is_clean_and_complete_between_two_swaps(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swapping, "SWAPPED_BYTES", 0)
    root = plain_directory(quick_path / "logs", segments=5)
    expected = last_values(root / "users-0")
    seen = []
    swap = swapping.Swapper.swap

    def noting(swapper: swapping.Swapper) -> None:
        swap(swapper)
        leftover = [*root.rglob("*.cleaned"), *root.rglob("*.swap"), *root.glob(".kdump*")]
        assert not leftover
        found = last_values(root / "users-0")
        assert expected.items() - found.items() <= {(None, expected[None])}
        seen.append((root / names.CLEAN_SHUTDOWN_MARKER).exists())

    monkeypatch.setattr(swapping.Swapper, "swap", noting)
    compacted(root, internal_segment_bytes="600")

    assert len(seen) > 2
    assert all(seen)


def swaps_of(root: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Compact ``root`` into many segments, and count the swaps."""
    swaps = []

    def noting(plan: Plan, **given: Any) -> str | None:
        swaps.append(plan)
        return apply_plan(plan, **given)

    with monkeypatch.context() as watched:
        watched.setattr(swapping, "apply_plan", noting)
        compacted(root, internal_segment_bytes="600")
    return len(swaps)


def test_a_swap_of_many_files_waits_for_more_bytes_if_there_is_space(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swapping, "SWAPPED_BYTES", 100)
    roots = [plain_directory(quick_path / name, segments=9) for name in ("few", "many", "full")]

    few = swaps_of(roots[0], monkeypatch)
    monkeypatch.setattr(swapping, "_EXAMINED_FILES", 1)
    many = swaps_of(roots[1], monkeypatch)
    monkeypatch.setattr(swapping, "_most_bytes", lambda _: 0)
    monkeypatch.setattr(swapping, "free_bytes_at", lambda _: 100)
    full = swaps_of(roots[2], monkeypatch)

    assert many < few == full
    assert contents_of(roots[1]) == contents_of(roots[0])


def test_all_swaps_are_one_run_if_undo_data_is_kept(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swapping, "SWAPPED_BYTES", 0)
    root = plain_directory(quick_path / "logs", ("a", "b"), segments=5)

    result = compacted(root, writing=Writing("compact"), internal_segment_bytes="600")

    assert result.undos == ("1",)


def test_large_indexes_are_on_disk_before_the_plan_is_made(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_store, "LEAST_BYTES", 12)
    root = plain_directory(quick_path / "logs", ("a", "b"), segments=5)
    expected = Path(shutil.copytree(root, quick_path / "expected"))
    held: list[int] = []

    def noting(plan: Plan, **given: Any) -> str | None:
        targets = [op.target for each in plan.partitions for op in each.operations]
        held.extend(each.size_bytes for each in targets if isinstance(each, NewBytes))
        written = plan.early_content
        assert written
        assert {name: (root / name).stat().st_size for name in written} == written
        return apply_plan(plan, **given)

    compacted(expected, index_interval_bytes="0")
    with monkeypatch.context() as watched:
        watched.setattr(swapping, "apply_plan", noting)
        compacted(root, writing=Writing("compact"), index_interval_bytes="0")

    assert max(held, default=0) < 12
    assert contents_of(root / "a-0") == contents_of(expected / "a-0")


@pytest.mark.slow
@pytest.mark.parametrize("unsynced", [False, True], ids=["kept", "lost"])
def test_the_next_run_finishes_a_run_interrupted_at_any_operation(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, unsynced: bool
) -> None:
    monkeypatch.setattr(swapping, "SWAPPED_BYTES", 0)
    monkeypatch.setattr(content_store, "LEAST_BYTES", 0)
    base = plain_directory(quick_path / "base", ("a", "b"))
    attic = quick_path / "attic"
    attic.mkdir()
    done = Path(shutil.copytree(base, quick_path / "done"))

    def compact(files: VolatileFiles) -> None:
        compacted(files.root, files=files)

    operations = VolatileFiles(done, attic).operations_of(compact)
    expected = contents_of(done)
    assert expected != contents_of(base)
    for at in range(int(unsynced), len(operations), 2):
        root = Path(shutil.copytree(base, quick_path / f"at-{at}"))
        VolatileFiles(root, attic).stop_in(compact, at, unsynced=unsynced)

        finish_interrupted(root)
        compacted(root)

        assert contents_of(root) == expected, (at, operations[at])
        shutil.rmtree(root)


def test_without_enough_space_a_partition_is_left_unchanged(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = plain_directory(quick_path / "logs")
    before = tree_of(root / "users-0")
    full = SimpleNamespace(f_bfree=10, f_bavail=10, f_frsize=4096)
    monkeypatch.setattr("kdump.apply.files.os.statvfs", lambda _: full)

    (partition,) = compacted(root).partitions

    assert isinstance(partition.problem, NoSpace)
    assert partition.problem.free_bytes == 40960
    assert tree_of(root / "users-0") == before


def test_a_disk_that_fills_up_does_not_fail_the_other_partitions(
    quick_path: Path,
) -> None:
    root = plain_directory(quick_path / "logs", ("a", "b"))
    before = contents_of(root / "a-0")
    files = FullAtFirst(quick_path, quick_path)

    first, second = compacted(root, files=files).partitions

    assert isinstance(first.problem, NoSpace)
    assert contents_of(root / "a-0") == before
    assert second.problem is None
    assert len(list((root / "b-0").glob("*.log"))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("keep_undo", [False, True], ids=["no-undo", "undo"])
@pytest.mark.parametrize("failure", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EPERM])
def test_a_compaction_that_fails_removes_what_it_wrote(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, failure: int, keep_undo: bool
) -> None:
    monkeypatch.setattr(content_store, "LEAST_BYTES", 0)
    base = plain_directory(quick_path / "base", ("a", "b"))
    attic = quick_path / "attic"
    attic.mkdir()
    writing = Writing("compact", keep_undo=keep_undo)
    counting = VolatileFiles(Path(shutil.copytree(base, quick_path / "done")), attic)
    compacted(counting.root, writing=writing, files=counting)
    counting.forget_attic()
    refused = 0
    for at in range(failure % 3, len(counting.operations), 3):
        root = Path(shutil.copytree(base, quick_path / f"at-{at}"))
        files = VolatileFiles(root, attic, fail_at=at, failure=failure)
        with contextlib.suppress(KdumpError, OSError), hold_locks([root]):
            try:
                compacted(root, writing=writing, files=files)
            finally:
                remove_remains(root)
        files.forget_attic()
        if not list(root.glob(".kdump*.applying")):
            assert list(root.rglob("*.cleaned")) == [], (at, counting.operations[at])
            refused += contents_of(root) == contents_of(base)
        finish_interrupted(root)
        compacted(root)
        assert list(root.rglob("*.cleaned")) == []
        shutil.rmtree(root)
    assert refused > 5


def test_a_full_quota_leaves_only_its_partition_unchanged(quick_path: Path) -> None:
    root = plain_directory(quick_path / "logs", ("a", "b"))
    files = FullAtFirst(quick_path, quick_path, failure=errno.EDQUOT)

    first, second = compacted(root, files=files).partitions

    assert isinstance(first.problem, NoSpace)
    assert second.problem is None


class FullAtFirst(VolatileFiles):
    """A disk without space for the first new segment."""

    def create(self, path: Path, content: Any) -> None:
        if path.name.endswith(".log.cleaned") and "a-0" in str(path):
            taken: Iterator[Any] = iter(content)
            next(taken)
            failure = self.failure or errno.ENOSPC
            raise OSError(failure, os.strerror(failure), str(path))
        DISK.create(path, content)


def test_the_live_records_of_a_wave_are_in_memory_once(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = plain_directory(quick_path / "logs", segments=5)
    rewrite = wave.Wave._rewrite
    seen: list[tuple[int, int, int]] = []

    def noting(own: wave.Wave, works: list[wave._Work]) -> Iterator[Any]:
        seen.extend((len(work.groups), len(work.live), work.keys) for work in works)
        yield from rewrite(own, works)

    monkeypatch.setattr(wave.Wave, "_rewrite", noting)
    compacted(root)

    assert seen == [(1, 0, KEYS)]
