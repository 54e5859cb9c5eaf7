"""A deleted topic whose replica is left on a disk is not taken for the one created again."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Final

import pytest

import kdump
from builders.batches import batch, record
from builders.group_records import offset_key, offset_value
from builders.in_process import run_kdump
from builders.json_answers import objects
from builders.log_directories import write_log_directory, write_partition
from builders.metadata_log import topic_record, write_metadata_log
from builders.serving import opened
from kdump.formats import names
from kdump.formats.partition_metadata import PartitionMetadata, encode_partition_metadata

OLD: Final = 77
NEW: Final = 78


def write_topic(log_dir: Path, name: str, topic_id: int, log: bytes) -> None:
    metadata = encode_partition_metadata(PartitionMetadata(0, uuid.UUID(int=topic_id)))
    write_partition(log_dir / f"{name}-0", {0: log}, others={names.PARTITION_METADATA: metadata})


@pytest.fixture
def disks(tmp_path: Path) -> list[str]:
    """Write a disk that was away when its topics were deleted, and that of the broker that stayed.

    The deleted topics have the greater epoch and more records.
    """
    for disk, topic_id, epoch, count in ("b1", OLD, 5, 5), ("b2", NEW, 0, 3):
        root = write_log_directory(tmp_path / disk)
        orders = [batch([record(offset)], partition_leader_epoch=epoch) for offset in range(count)]
        write_topic(root, "orders", topic_id, b"".join(orders))
        commit = record(0, offset_key(b"g"), offset_value(count))
        write_topic(
            root, "__consumer_offsets", topic_id + 10, batch([commit], partition_leader_epoch=epoch)
        )
    topics = [topic_record("orders", NEW), topic_record("__consumer_offsets", NEW + 10)]
    write_metadata_log(tmp_path / "b2", topics)
    return [str(tmp_path / disk) for disk in ("b1", "b2")]


def test_an_export_has_the_topic_that_the_metadata_has(disks: list[str], tmp_path: Path) -> None:
    words = ["export", *disks, "--topic", "orders", "--out", str(tmp_path / "out")]
    outcome = run_kdump(words, tmp_path)
    assert b"1 partition, 3 records" in outcome.stdout
    assert (
        f"not exported: 1 replica of another topic with the same name (first: {disks[0]}/orders-0)"
        in outcome.stderr.decode()
    )


def test_a_server_has_the_topic_that_the_metadata_has(disks: list[str]) -> None:
    with opened(*map(Path, disks)) as server:
        cluster = server.cluster
    assert cluster.partitions_by_directory() == {disks[1]: 2}
    assert {str(each.partition.path.parent) for each in cluster.other_topics} == {disks[0]}


def test_offsets_are_those_of_the_coordinator_that_the_metadata_has(
    disks: list[str], tmp_path: Path
) -> None:
    outcome = run_kdump(["groups", "--output", "jsonl", *disks], tmp_path)
    (offset,) = (each for each in objects(outcome.stdout) if each["type"] == "offset")
    assert offset["committed_offset"] == 3


def test_python_reads_the_topic_that_the_metadata_has(disks: list[str]) -> None:
    partition = kdump.open_log_dir(*disks).partition("orders", 0)
    assert str(partition.path) == f"{disks[1]}/orders-0"


def test_each_topic_has_a_replica_that_should_lead(disks: list[str], tmp_path: Path) -> None:
    words = ["lookup", "--offset", "0", "--topic", "orders", "--output", "jsonl", *disks]
    found = objects(run_kdump(words, tmp_path).stdout)
    leading = [row["is_most_advanced"] for row in found if "is_most_advanced" in row]
    assert leading == [True, True]
