"""Files and checkpoints after retention and record deletion, without Kafka's own classes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from builders import batches, log_directories
from builders.batches import BASE_TIMESTAMP_MS, batch, record
from builders.message_sets import message
from builders.recovery import recovered
from kdump.broker.loader.load_context import load_context
from kdump.broker.retention.record_deletion import (
    TO_HIGH_WATERMARK,
    RecordsNotDeletableError,
    without_records_before,
)
from kdump.broker.retention.retention import RetainableSegment
from kdump.broker.retention.retention_outcome import (
    LoadedLog,
    interim_log_starts,
    load_log,
    retained,
    retained_root,
    wrongly_old,
)
from kdump.formats import names
from kdump.formats.checkpoints import decode_offset_checkpoint
from kdump.formats.names import TopicPartition
from kdump.log.directory import LogDirectory, read_log_directory
from kdump.state.metadata.config_keys import CleanupPolicy
from kdump.state.metadata.settings import TopicSettings
from kdump.storage.local_disk import local
from kdump.target.target_file import Gone, NewBytes, TargetFile

ORDERS = TopicPartition("orders", 0)
NOW_MS = BASE_TIMESTAMP_MS + 10_000
EVERYTHING_OLD = TopicSettings(retention_ms=0)
SUFFIXES = (".index", ".log", ".timeindex")
NOTHING_OLD = TopicSettings(retention_ms=-1)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Write a clean directory of one partition, with segments at 0, 6 and 12 and log end 18."""
    path = log_directories.write_log_directory(
        tmp_path / "data",
        recovery_points={("orders", 0): 18, ("others", 3): 5},
        log_start_offsets={("others", 3): 2},
    )
    logs = {base: b"".join(batches.batches(2, base_offset=base)) for base in (0, 6, 12)}
    indexes = {base: log_directories.time_index((BASE_TIMESTAMP_MS + base + 5, 5)) for base in logs}
    log_directories.write_partition(path / "orders-0", logs, time_indexes=indexes)
    return path


def loaded(log_dir: Path, high_watermark: int | None = 18) -> LoadedLog:
    directory = read_log_directory(local(log_dir))
    (partition,) = directory.partitions
    found = load_log(partition.path, load_context(directory, ORDERS, now_ms=NOW_MS), high_watermark)
    assert isinstance(found, LoadedLog), found
    return found


def gone(files: Mapping[str, TargetFile]) -> list[str]:
    return sorted(name for name, target in files.items() if isinstance(target, Gone))


def lines(target: TargetFile) -> dict[TopicPartition, int]:
    assert isinstance(target, NewBytes)
    return dict(decode_offset_checkpoint(target.data))


def root_after(log_dir: Path, log: LoadedLog, settings: TopicSettings) -> dict[str, TargetFile]:
    directory: LogDirectory = read_log_directory(local(log_dir))
    return retained_root(directory, {ORDERS: retained(log, settings, NOW_MS).outcome})


def test_all_files_of_a_segment_are_deleted(log_dir: Path) -> None:
    log = loaded(log_dir, high_watermark=6)
    outcome = retained(log, EVERYTHING_OLD, NOW_MS).outcome
    assert gone(outcome.files) == [
        f"{0:020d}{suffix}" for suffix in (".index", ".log", ".timeindex")
    ]
    assert (outcome.log_start_offset, outcome.checkpointed_log_start_offset) == (6, None)


def test_a_completely_deleted_log_gets_an_empty_segment(log_dir: Path) -> None:
    outcome = retained(loaded(log_dir), EVERYTHING_OLD, NOW_MS).outcome
    empty = {name for name, target in outcome.files.items() if target == NewBytes(b"")}
    assert empty == {f"{18:020d}{suffix}" for suffix in SUFFIXES}
    assert outcome.log_start_offset == 18


def test_a_directory_without_deletions_is_left_unchanged(log_dir: Path) -> None:
    first = retained(loaded(log_dir), NOTHING_OLD, NOW_MS)
    assert not first.deleted
    # Loading writes a snapshot of the producers; with it, nothing changes.
    for name, target in first.outcome.files.items():
        if isinstance(target, NewBytes):
            (log_dir / "orders-0" / name).write_bytes(target.data)
    again = retained(loaded(log_dir), NOTHING_OLD, NOW_MS).outcome
    assert again.files == {}
    assert root_after(log_dir, loaded(log_dir), NOTHING_OLD) == {}


def test_lines_of_other_partitions_and_the_marker_are_kept(log_dir: Path) -> None:
    root = root_after(log_dir, loaded(log_dir), EVERYTHING_OLD)
    assert root == {}
    log = loaded(log_dir)
    outcome = without_records_before(log, NOTHING_OLD, 8)
    root = retained_root(read_log_directory(local(log_dir)), {ORDERS: outcome})
    assert lines(root[names.LOG_START_OFFSET_CHECKPOINT]) == {
        ORDERS: 8,
        TopicPartition("others", 3): 2,
    }
    assert names.CLEAN_SHUTDOWN_MARKER not in root


def test_a_broker_started_before_all_files_are_deleted_uses_the_new_log_start(
    log_dir: Path,
) -> None:
    outcome = retained(loaded(log_dir), EVERYTHING_OLD, NOW_MS).outcome
    first = lines(interim_log_starts(read_log_directory(local(log_dir)), {ORDERS: outcome}))
    assert first == {ORDERS: 18, TopicPartition("others", 3): 2}
    for path in sorted((log_dir / "orders-0").glob("*.log"), reverse=True):
        path.unlink()
        found = recovered(log_dir / "orders-0", log_start_offset=first[ORDERS])
        assert (found.log_start_offset, found.log_end_offset) == (18, 18)


def test_a_segment_without_timestamps_has_the_modification_time_of_its_log(log_dir: Path) -> None:
    path = log_dir / "orders-0"
    (path / f"{0:020d}.log").write_bytes(b"".join(message(at, magic=0) for at in range(6)))
    (path / f"{0:020d}.timeindex").write_bytes(b"")
    os.utime(path / f"{0:020d}.log", ns=(0, 1_234_567_899_999))
    first = loaded(log_dir).log.segments[0]
    assert isinstance(first, RetainableSegment)
    assert (first.timestamp_ms, first.has_timestamp) == (1_234_567, False)


def test_leader_epochs_before_the_log_start_offset_are_removed(log_dir: Path) -> None:
    checkpoint = log_dir / "orders-0" / names.LEADER_EPOCH_CHECKPOINT
    checkpoint.write_text("0\n3\n0 0\n1 4\n5 9\n")
    outcome = without_records_before(loaded(log_dir), NOTHING_OLD, 8)
    assert outcome.files[names.LEADER_EPOCH_CHECKPOINT] == NewBytes(b"0\n2\n1 8\n5 9\n")


def test_records_are_deleted_up_to_the_high_watermark_only(log_dir: Path) -> None:
    log = loaded(log_dir, high_watermark=13)
    assert without_records_before(log, NOTHING_OLD, TO_HIGH_WATERMARK).log_start_offset == 13
    with pytest.raises(RecordsNotDeletableError, match="offset 14 is above the high watermark"):
        without_records_before(log, NOTHING_OLD, 14)
    with pytest.raises(RecordsNotDeletableError, match="has no line"):
        without_records_before(loaded(log_dir, high_watermark=None), NOTHING_OLD, 1)


def test_records_of_a_compacted_topic_are_not_deleted(log_dir: Path) -> None:
    policy = frozenset({CleanupPolicy.COMPACT})
    with pytest.raises(RecordsNotDeletableError, match="only compacted"):
        without_records_before(loaded(log_dir), TopicSettings(cleanup_policy=policy), 1)
    both = policy | {CleanupPolicy.DELETE}
    assert (
        without_records_before(
            loaded(log_dir), TopicSettings(cleanup_policy=both), 1
        ).checkpointed_log_start_offset
        == 1
    )


def test_deleting_deleted_records_again_changes_nothing(log_dir: Path) -> None:
    log = loaded(log_dir)
    assert without_records_before(log, NOTHING_OLD, 0) == log.delete_first(0)


def test_freed_bytes_include_indexes(log_dir: Path) -> None:
    found = retained(loaded(log_dir, high_watermark=6), EVERYTHING_OLD, NOW_MS)
    log_bytes = (log_dir / "orders-0" / f"{0:020d}.log").stat().st_size
    assert found.freed_bytes == log_bytes + 12


def test_the_timestamp_of_a_batch_with_a_single_record_comes_from_the_index(tmp_path: Path) -> None:
    # Kafka trusts the index here and reads no batch.
    path = log_directories.write_log_directory(tmp_path, recovery_points={("orders", 0): 1})
    log_directories.write_partition(
        path / "orders-0",
        {0: batch([record(0, timestamp=5)])},
        time_indexes={0: log_directories.time_index((77, 0))},
    )
    assert loaded(path, 1).log.segments[0].timestamp_ms == 77


@pytest.mark.parametrize(
    "content",
    [
        log_directories.time_index((BASE_TIMESTAMP_MS, 0)),
        log_directories.time_index((BASE_TIMESTAMP_MS + 2, 2), padding=2),
        log_directories.time_index((5, 5)),
        b"",
    ],
    ids=["truncated", "zeroed at its end", "another log's", "empty"],
)
def test_a_wrong_time_index_does_not_hide_newer_records(log_dir: Path, content: bytes) -> None:
    log = log_dir / "orders-0" / f"{0:020d}.log"
    log.with_suffix(".timeindex").write_bytes(content)
    os.utime(log, (1, 1))
    found = loaded(log_dir)
    # The newest record of the segment is 5 ms younger than the first.
    young = TopicSettings(retention_ms=10_000 - 5)
    old = TopicSettings(retention_ms=10_000 - 6)
    fates = retained(found, young, NOW_MS).fates
    assert fates[0].is_deleted
    assert wrongly_old(found, fates, young, NOW_MS) == fates[0].segment
    assert wrongly_old(found, retained(found, old, NOW_MS).fates, old, NOW_MS) is None
