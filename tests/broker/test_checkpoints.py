"""Checkpoints and the clean shutdown marker, as a broker writes them at a clean shutdown."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.batches import batch, batches, record
from builders.log_directories import write_log_directory, write_partition
from builders.recovery import joined
from kdump.broker.loader.checkpoints import is_loaded, rebuilt_root, recovered_root
from kdump.broker.loader.load_context import load_context
from kdump.broker.loader.loader import recover_partition
from kdump.broker.loader.recovered_partition import Recovered
from kdump.formats import names
from kdump.formats.checkpoints import (
    EpochEntry,
    decode_offset_checkpoint,
    encode_leader_epoch_checkpoint,
)
from kdump.formats.names import TopicPartition
from kdump.log.directory import LogDirectory, read_log_directory
from kdump.storage.local_disk import local
from kdump.target.refusal import Refusal
from kdump.target.target_file import Gone, NewBytes, TargetFile

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
POINTS = {("orders", 0): 3, ("orders", 1): 4, ("gone", 0): 5}


def directory_of(path: Path, *, clean: bool = False) -> LogDirectory:
    """Write two partitions of twelve records, and a checkpoint line for a missing one."""
    write_log_directory(
        path, clean=clean, recovery_points=POINTS, log_start_offsets={("orders", 1): 6}
    )
    for name in ("orders-0", "orders-1"):
        write_partition(path / name, {0: joined(batches(4))})
    return read_log_directory(local(path))


def outcomes_of(directory: LogDirectory) -> dict[TopicPartition, Recovered | Refusal]:
    return {
        partition.topic_partition: recover_partition(
            partition, load_context(directory, partition.topic_partition)
        )
        for partition in directory.partitions
        if partition.topic_partition and is_loaded(partition)
    }


def lines(target: TargetFile) -> dict[TopicPartition, int]:
    assert isinstance(target, NewBytes)
    return dict(decode_offset_checkpoint(target.data))


def test_recovery_points_become_the_log_end_offsets(tmp_path: Path) -> None:
    directory = directory_of(tmp_path)
    root = recovered_root(directory, outcomes_of(directory))

    assert lines(root["recovery-point-offset-checkpoint"]) == {A: 12, B: 12}


def test_only_a_log_start_offset_after_the_first_base_offset_is_checkpointed(
    tmp_path: Path,
) -> None:
    directory = directory_of(tmp_path)
    root = recovered_root(directory, outcomes_of(directory))

    assert lines(root["log-start-offset-checkpoint"]) == {B: 6}


def test_the_clean_shutdown_marker_has_no_broker_epoch(tmp_path: Path) -> None:
    directory = directory_of(tmp_path)
    root = recovered_root(directory, outcomes_of(directory))

    assert root[".kafka_cleanshutdown"] == NewBytes(b'{"version":0,"brokerEpoch":-1}')


def test_a_refused_partition_keeps_its_lines_and_prevents_the_marker(tmp_path: Path) -> None:
    directory = directory_of(tmp_path)
    outcomes = outcomes_of(directory) | {B: Refusal("so", "file", "Exception")}
    root = recovered_root(directory, outcomes)

    assert lines(root["recovery-point-offset-checkpoint"])[B] == 4
    assert lines(root["log-start-offset-checkpoint"]) == {B: 6}
    assert root[".kafka_cleanshutdown"] == Gone()


def test_unselected_partitions_keep_their_lines_and_prevent_the_marker(tmp_path: Path) -> None:
    directory = directory_of(tmp_path)
    root = recovered_root(directory, {A: outcomes_of(directory)[A]})

    assert lines(root["recovery-point-offset-checkpoint"]) == {
        A: 12,
        B: 4,
        TopicPartition("gone", 0): 5,
    }
    assert root[".kafka_cleanshutdown"] == Gone()


def test_a_clean_directory_stays_clean_without_the_partitions_that_are_not_selected(
    tmp_path: Path,
) -> None:
    directory = directory_of(tmp_path, clean=True)
    root = recovered_root(directory, {A: outcomes_of(directory)[A]})

    assert lines(root["recovery-point-offset-checkpoint"])[B] == 4
    assert root[".kafka_cleanshutdown"] == NewBytes(b'{"version":0,"brokerEpoch":-1}')


def test_a_clean_directory_with_a_refused_partition_does_not_stay_clean(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, clean=True)
    root = recovered_root(directory, {A: Refusal("so", "file", "Exception")})

    assert root[".kafka_cleanshutdown"] == Gone()


def test_metadata_deleted_stray_and_future_logs_are_not_loaded(tmp_path: Path) -> None:
    write_log_directory(tmp_path)
    for name in (
        "__cluster_metadata-0",
        "orders-0.9f36f73ca56645049171464ecf376d7b-delete",
        "orders-0.9f36f73ca56645049171464ecf376d7b-stray",
        "orders-1.9f36f73ca56645049171464ecf376d7b-future",
    ):
        write_partition(tmp_path / name, {0: b""})

    loaded = [
        p.topic_partition for p in read_log_directory(local(tmp_path)).partitions if is_loaded(p)
    ]

    assert loaded == [B]


# ---- Rebuilt from the logs ----


def rebuilt(
    path: Path, *, epoch_start: int = 12, **files: dict[tuple[str, int], int]
) -> dict[str, TargetFile]:
    """Rebuild the checkpoints of one log of twelve records that starts at offset 10."""
    epochs = encode_leader_epoch_checkpoint([EpochEntry(0, epoch_start)])
    write_log_directory(path, clean="clean" in files, **{k: v for k, v in files.items() if v})
    write_partition(
        path / "orders-0",
        {10: batch([record(10 + at) for at in range(12)], partition_leader_epoch=0)},
        others={names.LEADER_EPOCH_CHECKPOINT: epochs},
    )
    return rebuilt_root(read_log_directory(local(path)))


def test_a_recovery_point_after_the_log_end_is_lowered(tmp_path: Path) -> None:
    root = rebuilt(tmp_path, recovery_points={("orders", 0): 30})

    assert lines(root["recovery-point-offset-checkpoint"]) == {A: 22}


@pytest.mark.parametrize("state", ["stray", "delete", "future"])
def test_lines_stay_whatever_other_directories_the_partition_has(
    tmp_path: Path, state: str
) -> None:
    write_partition(tmp_path / f"orders-0.{'0' * 32}-{state}", {0: joined(batches(1))})

    points, starts = {("orders", 0): 22}, {("orders", 0): 12}

    root = rebuilt(tmp_path, clean={}, recovery_points=points, log_start_offsets=starts)

    assert root == {}


def test_a_lost_log_start_is_that_of_the_log_and_not_of_a_copy_beside_it(tmp_path: Path) -> None:
    rebuilt(tmp_path, epoch_start=10, recovery_points={("orders", 0): 22})
    write_partition(
        tmp_path / f"orders-0.{'0' * 32}-future",
        {10: batch([record(10 + at) for at in range(12)], partition_leader_epoch=0)},
        others={names.LEADER_EPOCH_CHECKPOINT: encode_leader_epoch_checkpoint([EpochEntry(0, 15)])},
    )
    (tmp_path / names.LOG_START_OFFSET_CHECKPOINT).write_bytes(b"junk")

    root = rebuilt_root(read_log_directory(local(tmp_path)))

    assert lines(root[names.LOG_START_OFFSET_CHECKPOINT]) == {}


def test_lines_of_missing_partitions_are_removed(tmp_path: Path) -> None:
    root = rebuilt(
        tmp_path,
        recovery_points={("orders", 0): 15, ("gone", 0): 3},
        log_start_offsets={("orders", 0): 12, ("gone", 0): 3},
    )

    assert lines(root["recovery-point-offset-checkpoint"]) == {A: 15}
    assert lines(root["log-start-offset-checkpoint"]) == {A: 12}


def test_a_missing_recovery_point_is_0_after_an_unclean_shutdown(tmp_path: Path) -> None:
    assert lines(rebuilt(tmp_path)["recovery-point-offset-checkpoint"]) == {A: 0}


def test_a_missing_recovery_point_is_the_log_end_after_a_clean_shutdown(tmp_path: Path) -> None:
    assert lines(rebuilt(tmp_path, clean={})["recovery-point-offset-checkpoint"]) == {A: 22}


@pytest.mark.parametrize("start", [0, 10])
def test_a_useless_log_start_offset_is_removed(tmp_path: Path, start: int) -> None:
    points = {("orders", 0): 15}
    root = rebuilt(tmp_path, recovery_points=points, log_start_offsets={("orders", 0): start})

    assert lines(root["log-start-offset-checkpoint"]) == {}


def test_valid_checkpoints_are_left_unchanged(tmp_path: Path) -> None:
    points = {("orders", 0): 15}

    assert not rebuilt(tmp_path, recovery_points=points, log_start_offsets={("orders", 0): 12})


def test_a_log_start_offset_after_the_first_leader_epoch_is_kept(tmp_path: Path) -> None:
    points = {("orders", 0): 15}

    assert not rebuilt(
        tmp_path, epoch_start=10, recovery_points=points, log_start_offsets={("orders", 0): 12}
    )


@pytest.mark.parametrize(("epoch_start", "start"), [(12, {A: 12}), (10, {}), (23, {})])
def test_a_log_that_ends_before_its_start_begins_with_its_epochs(
    tmp_path: Path, epoch_start: int, start: dict[TopicPartition, int]
) -> None:
    root = rebuilt(
        tmp_path,
        epoch_start=epoch_start,
        recovery_points={("orders", 0): 15},
        log_start_offsets={("orders", 0): 23},
    )

    assert lines(root["log-start-offset-checkpoint"]) == start


# ---- Malformed: what can be known stays


def cut_header(path: Path, name: str) -> None:
    """Lose the first line of a checkpoint, so that no broker reads it."""
    checkpoint = path / name
    checkpoint.write_bytes(checkpoint.read_bytes().split(b"\n", 1)[1])


def test_readable_lines_of_malformed_log_start_offsets_stay(tmp_path: Path) -> None:
    starts = {("orders", 0): 14, ("gone", 0): 3}
    rebuilt(tmp_path, recovery_points={("orders", 0): 15}, log_start_offsets=starts)
    cut_header(tmp_path, names.LOG_START_OFFSET_CHECKPOINT)
    root = rebuilt_root(read_log_directory(local(tmp_path)))
    assert lines(root[names.LOG_START_OFFSET_CHECKPOINT]) == {A: 14}


@pytest.mark.parametrize(("epoch_start", "start"), [(13, {A: 13}), (10, {}), (0, {}), (23, {})])
def test_what_leader_epochs_show_to_be_deleted_stays_deleted_without_a_line(
    epoch_start: int, start: dict[TopicPartition, int], tmp_path: Path
) -> None:
    rebuilt(tmp_path, epoch_start=epoch_start, recovery_points={("orders", 0): 15})
    (tmp_path / names.LOG_START_OFFSET_CHECKPOINT).write_bytes(b"0\n2\norders 0 1")
    root = rebuilt_root(read_log_directory(local(tmp_path)))
    assert lines(root[names.LOG_START_OFFSET_CHECKPOINT]) == start


def test_batches_of_an_old_format_are_not_taken_for_deleted(tmp_path: Path) -> None:
    """A topic that was upgraded has epochs only from there on."""
    write_log_directory(tmp_path, recovery_points={("orders", 0): 15})
    old = batch([record(10)], partition_leader_epoch=-1)
    epochs = encode_leader_epoch_checkpoint([EpochEntry(0, 11)])
    write_partition(
        tmp_path / "orders-0",
        {10: old + batch([record(11)])},
        others={names.LEADER_EPOCH_CHECKPOINT: epochs},
    )
    (tmp_path / names.LOG_START_OFFSET_CHECKPOINT).write_bytes(b"?")
    root = rebuilt_root(read_log_directory(local(tmp_path)))
    assert lines(root[names.LOG_START_OFFSET_CHECKPOINT]) == {}


@pytest.mark.parametrize(
    "name", [names.REPLICATION_OFFSET_CHECKPOINT, names.CLEANER_OFFSET_CHECKPOINT]
)
def test_readable_lines_of_the_other_malformed_checkpoints_stay(name: str, tmp_path: Path) -> None:
    rebuilt(tmp_path, recovery_points={("orders", 0): 15})
    (tmp_path / name).write_bytes(b"0\n3\norders 0 13\norders 1 x\norders 2 -4\ngone 0 1")
    root = rebuilt_root(read_log_directory(local(tmp_path)))
    assert lines(root[name]) == {A: 13}
