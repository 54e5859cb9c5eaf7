"""What is read of a cluster's metadata."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from builders.metadata_log import (
    ABORT_TRANSACTION,
    BEGIN_TRANSACTION,
    BROKER_RESOURCE,
    END_TRANSACTION,
    TOPIC_RESOURCE,
    config_record,
    partition_change_record,
    partition_record,
    remove_topic_record,
    topic_record,
    write_metadata_log,
)
from kdump.formats.names import CLUSTER_METADATA_TOPIC, PartitionState, TopicPartition
from kdump.formats.uuids import format_uuid
from kdump.log.partition import read_partition
from kdump.state.cluster import ClusterImage, read_cluster_image
from kdump.storage.local_disk import local


def image(tmp_path: Path, *values: bytes) -> ClusterImage:
    found = read_cluster_image(write_metadata_log(tmp_path, values))
    assert found is not None
    return found


def configs_of(tmp_path: Path, *values: bytes) -> dict[str, str]:
    """What topic ``t`` is left with, after it was made and ``values`` came."""
    found = image(tmp_path, topic_record("t", 1), *values)
    return dict(found.topics["t"].configs)


def set_for_t(key: str, value: str | None) -> bytes:
    return config_record(TOPIC_RESOURCE, "t", key, value)


def test_a_topic_has_what_was_set_last(tmp_path: Path) -> None:
    assert configs_of(tmp_path, set_for_t("a", "1"), set_for_t("b", "2"), set_for_t("a", "3")) == {
        "a": "3",
        "b": "2",
    }


def test_a_property_that_was_taken_away_is_not_set(tmp_path: Path) -> None:
    assert configs_of(tmp_path, set_for_t("a", "1"), set_for_t("a", None)) == {}


def test_a_topic_made_again_has_nothing_of_the_one_before(tmp_path: Path) -> None:
    found = image(
        tmp_path,
        topic_record("t", 1),
        set_for_t("a", "1"),
        remove_topic_record(1),
        topic_record("t", 2),
    )
    assert found.topics["t"].topic_id == "AAAAAAAAAAAAAAAAAAAAAg"
    assert found.topics["t"].configs == {}


def test_a_transaction_counts_from_its_end_on(tmp_path: Path) -> None:
    assert configs_of(tmp_path, BEGIN_TRANSACTION, set_for_t("a", "1"), END_TRANSACTION) == {
        "a": "1"
    }


def test_a_transaction_that_is_open_or_aborted_does_not_count(tmp_path: Path) -> None:
    aborted = (BEGIN_TRANSACTION, set_for_t("a", "1"), ABORT_TRANSACTION)
    assert configs_of(tmp_path, *aborted, BEGIN_TRANSACTION, set_for_t("b", "2")) == {}


def test_brokers_are_known_by_number_and_all_of_them_by_no_name(tmp_path: Path) -> None:
    found = image(
        tmp_path,
        config_record(BROKER_RESOURCE, "", "log.retention.ms", "1"),
        config_record(BROKER_RESOURCE, "7", "log.retention.ms", "2"),
    )
    assert found.broker_configs == {"": {"log.retention.ms": "1"}, "7": {"log.retention.ms": "2"}}


def test_damage_leaves_nothing_to_rely_on(tmp_path: Path) -> None:
    partition = write_metadata_log(tmp_path, [topic_record("t", 1), topic_record("u", 2)])
    log = partition.path / partition.segments[0].log_name
    data = bytearray(log.local_path.read_bytes())
    data[30] ^= 1
    log.local_path.write_bytes(data)
    assert read_cluster_image(partition) is None


def test_of_a_log_that_holds_nothing_but_rubbish_nothing_is_known(tmp_path: Path) -> None:
    partition = write_metadata_log(tmp_path, [topic_record("t", 1)])
    log = partition.path / partition.segments[0].log_name
    log.local_path.write_bytes(b"rubbish" * 20)
    assert read_cluster_image(partition) is None


def test_a_real_cluster_is_read_from_its_snapshot_and_log(fixtures: Path) -> None:
    path = fixtures / "out" / "clean-mv39" / "meta" / f"{CLUSTER_METADATA_TOPIC}-0"
    partition = read_partition(
        local(path), TopicPartition(CLUSTER_METADATA_TOPIC, 0), PartitionState.LIVE
    )
    found = read_cluster_image(partition)
    assert found is not None
    assert {name: dict(topic.configs) for name, topic in found.topics.items()}["old-feat"] == {
        "internal.segment.bytes": "16384"
    }


def test_a_partition_has_the_replicas_that_it_was_given_last(tmp_path: Path) -> None:
    found = image(
        tmp_path,
        topic_record("t", 1),
        partition_record(1, 0, [5, 6], [50, 60]),
        partition_record(1, 1, [5], [51]),
        partition_change_record(1, 0, replicas=[6, 7]),
        partition_change_record(1, 0, directories=[61, 70]),
    )
    partitions = found.topics["t"].partitions
    assert {number: each.replicas for number, each in partitions.items()} == {0: (6, 7), 1: (5,)}
    assert partitions[0].directory_on(7) == format_uuid(UUID(int=70))
    assert partitions[0].directory_on(5) is None


def test_a_deleted_topic_takes_its_partitions_along(tmp_path: Path) -> None:
    found = image(
        tmp_path,
        topic_record("t", 1),
        partition_record(1, 0, [5], [50]),
        remove_topic_record(1),
        topic_record("t", 2),
    )
    assert found.topics["t"].partitions == {}
