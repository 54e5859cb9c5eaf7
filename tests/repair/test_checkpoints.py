"""What a broker that stops cleanly leaves in the root of a log directory."""

from __future__ import annotations

from pathlib import Path

from builders.batches import batches
from builders.log_directories import write_log_directory, write_partition
from builders.recovery import joined
from kdump.formats.checkpoints import decode_offset_checkpoint
from kdump.formats.names import TopicPartition
from kdump.log.directory import LogDirectory, read_log_directory
from kdump.repair.checkpoints import is_loaded, load_context, recovered_root
from kdump.repair.loader import Recovered, recover_partition
from kdump.repair.refusal import Refusal
from kdump.repair.wanted import Gone, NewBytes, WantedFile

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
POINTS = {("orders", 0): 3, ("orders", 1): 4, ("gone", 0): 5}


def directory_of(path: Path) -> LogDirectory:
    """Two partitions of twelve records, and a line for one that is not there."""
    write_log_directory(
        path, clean=False, recovery_points=POINTS, log_start_offsets={("orders", 1): 6}
    )
    for name in ("orders-0", "orders-1"):
        write_partition(path / name, {0: joined(batches(4))})
    return read_log_directory(path)


def outcomes_of(directory: LogDirectory) -> dict[TopicPartition, Recovered | Refusal]:
    return {
        partition.topic_partition: recover_partition(
            partition, load_context(directory, partition.topic_partition)
        )
        for partition in directory.partitions
        if partition.topic_partition and is_loaded(partition)
    }


def lines(wanted: WantedFile) -> dict[TopicPartition, int]:
    assert isinstance(wanted, NewBytes)
    return dict(decode_offset_checkpoint(wanted.data))


def test_the_recovery_points_are_the_ends_of_the_logs_that_are_there(tmp_path: Path) -> None:
    directory = directory_of(tmp_path)
    root = recovered_root(directory, outcomes_of(directory))

    assert lines(root["recovery-point-offset-checkpoint"]) == {A: 12, B: 12}


def test_only_a_log_start_behind_the_first_segment_has_a_line(tmp_path: Path) -> None:
    directory = directory_of(tmp_path)
    root = recovered_root(directory, outcomes_of(directory))

    assert lines(root["log-start-offset-checkpoint"]) == {B: 6}


def test_the_marker_of_a_clean_stop_is_written_without_a_broker_epoch(tmp_path: Path) -> None:
    directory = directory_of(tmp_path)
    root = recovered_root(directory, outcomes_of(directory))

    assert root[".kafka_cleanshutdown"] == NewBytes(b'{"version":0,"brokerEpoch":-1}')


def test_lines_of_what_was_refused_stay_and_there_is_no_marker(tmp_path: Path) -> None:
    directory = directory_of(tmp_path)
    outcomes = outcomes_of(directory) | {B: Refusal("so", "file", "Exception")}
    root = recovered_root(directory, outcomes)

    assert lines(root["recovery-point-offset-checkpoint"])[B] == 4
    assert lines(root["log-start-offset-checkpoint"]) == {B: 6}
    assert root[".kafka_cleanshutdown"] == Gone()


def test_lines_of_partitions_that_were_not_gone_through_stay(tmp_path: Path) -> None:
    directory = directory_of(tmp_path)
    root = recovered_root(directory, {A: outcomes_of(directory)[A]})

    assert lines(root["recovery-point-offset-checkpoint"]) == {
        A: 12,
        B: 4,
        TopicPartition("gone", 0): 5,
    }
    assert root[".kafka_cleanshutdown"] == Gone()


def test_the_metadata_log_and_what_is_set_aside_are_not_loaded(tmp_path: Path) -> None:
    write_log_directory(tmp_path)
    for name in (
        "__cluster_metadata-0",
        "orders-0.9f36f73ca56645049171464ecf376d7b-delete",
        "orders-0.9f36f73ca56645049171464ecf376d7b-stray",
        "orders-1.9f36f73ca56645049171464ecf376d7b-future",
    ):
        write_partition(tmp_path / name, {0: b""})

    loaded = [p.topic_partition for p in read_log_directory(tmp_path).partitions if is_loaded(p)]

    assert loaded == [B]
