"""The image of a cluster's metadata."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace

from builders.batches import batch, record
from builders.lock_holder import held_elsewhere
from builders.log_directories import write_partition
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
from builders.simulated_broker import SteppedDisk
from kdump.formats.names import CLUSTER_METADATA_TOPIC, PartitionState, TopicPartition
from kdump.formats.snapshot_writer import SnapshotHead, encode_snapshot
from kdump.formats.uuids import format_uuid
from kdump.log.lock_holders import ReadAs, forget_holders, is_living
from kdump.log.partition import read_partition
from kdump.state.metadata.cluster import ClusterImage, read_cluster_image
from kdump.storage.local_disk import local
from kdump.storage.location import Location


def image(tmp_path: Path, *values: bytes) -> ClusterImage:
    found = read_cluster_image(write_metadata_log(tmp_path, values))
    assert found is not None
    return found


def configs_of(tmp_path: Path, *values: bytes) -> dict[str, str]:
    """Return the configuration of topic ``t`` after its creation and ``values``."""
    found = image(tmp_path, topic_record("t", 1), *values)
    return dict(found.topics["t"].configs)


def set_for_t(key: str, value: str | None) -> bytes:
    return config_record(TOPIC_RESOURCE, "t", key, value)


def test_the_last_value_of_a_property_wins(tmp_path: Path) -> None:
    assert configs_of(tmp_path, set_for_t("a", "1"), set_for_t("b", "2"), set_for_t("a", "3")) == {
        "a": "3",
        "b": "2",
    }


def test_a_removed_property_is_not_set(tmp_path: Path) -> None:
    assert configs_of(tmp_path, set_for_t("a", "1"), set_for_t("a", None)) == {}


def test_a_recreated_topic_does_not_keep_the_old_configuration(tmp_path: Path) -> None:
    found = image(
        tmp_path,
        topic_record("t", 1),
        set_for_t("a", "1"),
        remove_topic_record(1),
        topic_record("t", 2),
    )
    assert found.topics["t"].topic_id == "AAAAAAAAAAAAAAAAAAAAAg"
    assert found.topics["t"].configs == {}


def test_a_metadata_transaction_takes_effect_at_its_end(tmp_path: Path) -> None:
    assert configs_of(tmp_path, BEGIN_TRANSACTION, set_for_t("a", "1"), END_TRANSACTION) == {
        "a": "1"
    }


def test_an_open_or_aborted_metadata_transaction_has_no_effect(tmp_path: Path) -> None:
    aborted = (BEGIN_TRANSACTION, set_for_t("a", "1"), ABORT_TRANSACTION)
    assert configs_of(tmp_path, *aborted, BEGIN_TRANSACTION, set_for_t("b", "2")) == {}


def test_an_empty_broker_name_stands_for_all_brokers(tmp_path: Path) -> None:
    found = image(
        tmp_path,
        config_record(BROKER_RESOURCE, "", "log.retention.ms", "1"),
        config_record(BROKER_RESOURCE, "7", "log.retention.ms", "2"),
    )
    assert found.broker_configs == {"": {"log.retention.ms": "1"}, "7": {"log.retention.ms": "2"}}


def test_a_damaged_metadata_log_has_no_image(tmp_path: Path) -> None:
    partition = write_metadata_log(tmp_path, [topic_record("t", 1), topic_record("u", 2)])
    log = partition.path / partition.segments[0].log_name
    data = bytearray(log.local_path.read_bytes())
    data[30] ^= 1
    log.local_path.write_bytes(data)
    assert read_cluster_image(partition) is None


def test_a_log_of_random_bytes_has_no_image(tmp_path: Path) -> None:
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


def test_the_last_assignment_of_a_partition_wins(tmp_path: Path) -> None:
    found = image(
        tmp_path,
        topic_record("t", 1),
        partition_record(1, 0, [5, 6], [500, 600]),
        partition_record(1, 1, [5], [510]),
        partition_change_record(1, 0, replicas=[6, 7]),
        partition_change_record(1, 0, directories=[610, 700]),
    )
    partitions = found.topics["t"].partitions
    assert {number: each.replicas for number, each in partitions.items()} == {0: (6, 7), 1: (5,)}
    assert partitions[0].directory_on(7) == format_uuid(UUID(int=700))
    assert partitions[0].directory_on(5) is None


def test_the_partitions_of_a_deleted_topic_are_removed(tmp_path: Path) -> None:
    found = image(
        tmp_path,
        topic_record("t", 1),
        partition_record(1, 0, [5], [50]),
        remove_topic_record(1),
        topic_record("t", 2),
    )
    assert found.topics["t"].partitions == {}


@pytest.mark.parametrize("is_locked", [True, False], ids=["locked", "read with --live"])
def test_metadata_whose_segments_a_broker_replaces_with_a_snapshot_is_read_again(
    is_locked: bool, quick_path: Path
) -> None:
    values = [topic_record("t", 1), topic_record("u", 2)]
    logs = {at: batch([record(at, None, value)]) for at, value in enumerate(values)}
    snapshot = b"".join(encode_snapshot(SnapshotHead(0, 0, 0), values[:1]))
    for moment in count():
        root = quick_path / str(moment)
        root.mkdir()
        path = write_partition(root / f"{CLUSTER_METADATA_TOPIC}-0", logs)
        left = count(moment, -1)

        def step(path: Path = path, left: Iterator[int] = left) -> None:
            if not next(left):
                (path / f"{1:020d}-{0:010d}.checkpoint").write_bytes(snapshot)
                for each in path.glob(f"{0:020d}.*"):
                    each.unlink()

        with held_elsewhere(root) if is_locked else nullcontext():
            forget_holders()
            stepped = Location(SteppedDisk(step), str(path))
            if not is_locked:
                assert is_living(stepped.parent, ReadAs.LIVING)
            listed = read_partition(local(path), TopicPartition(CLUSTER_METADATA_TOPIC, 0))
            found = read_cluster_image(replace(listed, path=stepped))
        assert found is not None
        assert found.topics.keys() == {"t", "u"}
        if next(left) >= 0:
            break
    assert moment > 1
    forget_holders()
