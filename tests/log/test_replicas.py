"""The replicas of a partition in several log directories, and the one to believe."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from builders.batches import batch, record
from builders.log_directories import write_log_directory, write_partition
from kdump.formats import names
from kdump.formats.names import TopicPartition
from kdump.formats.partition_metadata import PartitionMetadata, encode_partition_metadata
from kdump.formats.uuids import format_uuid
from kdump.log.directory import LogDirectory, read_log_directory
from kdump.log.log_search import ReplicaEnd, Trust, log_end
from kdump.log.replicas import (
    choose_replicas,
    most_advanced,
    of_one_topic,
    replicas_by_partition,
)
from kdump.storage.local_disk import local

DIVERGED = TopicPartition("div-a", 0)
OLD_ID, NEW_ID = uuid.UUID(int=77), uuid.UUID(int=78)


@pytest.fixture(scope="module")
def brokers(fixtures: Path) -> list[LogDirectory]:
    """The log directories of three brokers; the second broker has two."""
    names = ("b1-d1", "b2-d1", "b2-d2", "b3-d1")
    return [read_log_directory(local(fixtures / "states" / "clean" / name)) for name in names]


def test_a_partition_has_a_replica_for_each_broker_that_has_its_log(
    brokers: list[LogDirectory],
) -> None:
    found = replicas_by_partition(brokers)
    assert [replica.node_id for replica in found[DIVERGED]] == [1, 3]


def test_the_replica_of_the_greatest_epoch_is_believed_and_not_the_longest(
    brokers: list[LogDirectory],
) -> None:
    replicas = replicas_by_partition(brokers)[DIVERGED]
    ends = {each.node_id: log_end(each.partition, Trust.HEADERS) for each in replicas}
    assert ends[1].offset > ends[3].offset
    assert ends[1].leader_epoch < ends[3].leader_epoch
    assert most_advanced(replicas).node_id == 3


@pytest.mark.parametrize("lost", ["segment", "batch"])
def test_of_replicas_that_end_alike_the_one_that_lacks_something_is_not_believed(
    lost: str, tmp_path: Path
) -> None:
    """Another one has those records, and whoever reads one replica would miss them in silence."""
    each = [batch([record(offset)]) for offset in range(6)]
    whole = {0: each[0], 1: each[1] + each[2] + each[3], 4: each[4] + each[5]}
    holed = {**whole, 1: each[1] + each[3]} if lost == "batch" else {0: whole[0], 4: whole[4]}
    for disk, segments in ("b1", holed), ("b2", whole), ("b3", holed):
        write_partition(write_log_directory(tmp_path / disk) / "orders-0", segments)
    for disks in ("b1", "b2"), ("b2", "b1"), ("b1", "b3", "b2"):
        found = replicas_by_partition(read_log_directory(local(tmp_path / disk)) for disk in disks)
        best = most_advanced(found[TopicPartition("orders", 0)])
        assert best.log_directory.path.name == "b2"


def test_a_gap_counts_more_than_the_size(tmp_path: Path) -> None:
    """Retention has not yet deleted from one what it has deleted from the other."""
    each = [batch([record(offset)]) for offset in range(9)]
    b1 = {0: each[0] + each[1] + each[2], 3: each[3] + each[4], 7: each[7] + each[8]}
    b2 = {3: each[3] + each[4], 5: each[5] + each[6], 7: each[7] + each[8]}
    for disk, segments in ("b1", b1), ("b2", b2):
        write_partition(write_log_directory(tmp_path / disk) / "orders-0", segments)
    found = replicas_by_partition(
        read_log_directory(local(tmp_path / disk)) for disk in ("b1", "b2")
    )
    assert most_advanced(found[TopicPartition("orders", 0)]).log_directory.path.name == "b2"


def test_an_empty_log_has_no_epoch(brokers: list[LogDirectory]) -> None:
    replica = replicas_by_partition(brokers)[TopicPartition("empty", 0)][0]
    for trust in Trust:
        assert log_end(replica.partition, trust) == ReplicaEnd(-1, 0)


def test_a_replica_that_becomes_stray_is_chosen_only_where_there_is_no_other(
    tmp_path: Path,
) -> None:
    """Its broker has no log after a start, however long the log in the directory is."""
    longer = write_partition(
        write_log_directory(tmp_path / "b1") / "orders-0",
        {0: batch([record(0)]) + batch([record(1)])},
    )
    write_partition(write_log_directory(tmp_path / "b2") / "orders-0", {0: batch([record(0)])})
    (longer / names.PARTITION_METADATA).unlink()

    def chosen(*disks: str) -> list[str]:
        directories = [read_log_directory(local(tmp_path / disk)) for disk in disks]
        found = replicas_by_partition(directories)[TopicPartition("orders", 0)]
        assert most_advanced(found).log_directory.path.name == disks[-1]
        best = choose_replicas(found, lambda *_: None).chosen
        return [each.log_directory.path.name for each in best]

    assert chosen("b1", "b2") == ["b2"]
    assert chosen("b1") == ["b1"]


@pytest.mark.parametrize(
    ("known", "of"),
    [
        pytest.param({}, "new", id="most replicas"),
        pytest.param({"orders": "other"}, "new", id="an id that no replica has"),
        pytest.param({"orders": format_uuid(OLD_ID)}, "old", id="the metadata"),
    ],
)
def test_of_topics_with_one_name_the_current_one_counts(
    known: dict[str, str], of: str, tmp_path: Path
) -> None:
    """The deleted one may have more records and greater epochs, and other partitions."""
    for disk, topic_id, partitions in (
        ("b1", OLD_ID, ("orders-0", "orders-1")),
        ("b2", NEW_ID, ("orders-0",)),
        ("b3", NEW_ID, ("orders-0", "orders-2")),
    ):
        root = write_log_directory(tmp_path / disk)
        metadata = encode_partition_metadata(PartitionMetadata(0, topic_id))
        for name in partitions:
            write_partition(root / name, others={names.PARTITION_METADATA: metadata})
    directories = [read_log_directory(local(tmp_path / disk)) for disk in ("b1", "b2", "b3")]
    replicas = [each for own in replicas_by_partition(directories).values() for each in own]
    kept, others = of_one_topic(replicas, lambda: known)
    sides = {"old": {"b1"}, "new": {"b2", "b3"}}
    assert {each.log_directory.path.name for each in kept} == sides[of]
    assert len(kept) + len(others) == len(replicas)
