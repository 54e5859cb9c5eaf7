"""The logs that groups consume, and the ids of their topics."""

from __future__ import annotations

from pathlib import Path

from builders.batches import batches
from builders.log_directories import write_log_directory, write_partition
from kdump.formats.names import PARTITION_METADATA, TopicPartition
from kdump.jobs.groups.consumed_logs import ConsumedLogs
from kdump.log.directory import read_log_directory
from kdump.log.replicas import replicas_by_partition
from kdump.storage.local_disk import local


def test_a_malformed_topic_id_is_one_problem(tmp_path: Path) -> None:
    path = write_partition(write_log_directory(tmp_path) / "orders-0", {0: b"".join(batches(1))})
    (path / PARTITION_METADATA).write_bytes(b"damaged")
    directory = read_log_directory(local(tmp_path))
    consumed = ConsumedLogs(replicas_by_partition([directory]), None)

    log = consumed.log(TopicPartition("orders", 0))
    assert log is not None
    assert log.topic_id is None
    assert consumed.topic_names() == {}
    assert len(consumed.problems) == 1


def test_lag_is_not_counted_from_a_replica_that_becomes_stray(tmp_path: Path) -> None:
    for name, count in ("d1", 3), ("d2", 2):
        root = write_log_directory(tmp_path / name)
        write_partition(root / "orders-0", {0: b"".join(batches(count))})
    (tmp_path / "d1" / "orders-0" / PARTITION_METADATA).unlink()
    directories = [read_log_directory(local(tmp_path / name)) for name in ("d1", "d2")]
    log = ConsumedLogs(replicas_by_partition(directories), None).log(TopicPartition("orders", 0))
    assert log is not None
    assert log.replica.log_directory is directories[1]
    assert log.have_other_ends
