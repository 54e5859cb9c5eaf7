"""Names of files and directories are parsed as Kafka parses them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kdump.formats.errors import FormatError
from kdump.formats.names import (
    FileKind,
    FileStage,
    MetadataSnapshotName,
    OffsetFileName,
    PartitionDirectoryName,
    PartitionState,
    SnapshotStage,
    TopicPartition,
    parse_0_7_directory_name,
    parse_metadata_snapshot_name,
    parse_offset_file_name,
    parse_partition_directory_name,
)

UNIQUE_ID = "9f36f73ca56645049171464ecf376d7b"
OFFSETS = st.integers(0, 2**63 - 1)


@given(
    OFFSETS,
    st.sampled_from([k for k in FileKind if k is not FileKind.LOG_0_7]),
    st.sampled_from(FileStage),
)
def test_every_name_of_a_segments_file_is_read_back(
    offset: int, kind: FileKind, stage: FileStage
) -> None:
    name = OffsetFileName(offset, kind, stage)
    assert parse_offset_file_name(str(name)) == name


def test_a_segments_file_has_twenty_digits() -> None:
    assert str(OffsetFileName(7, FileKind.LOG)) == "00000000000000000007.log"
    assert (
        str(OffsetFileName(7, FileKind.TIME_INDEX, FileStage.DELETED))
        == "00000000000000000007.timeindex.deleted"
    )


@pytest.mark.parametrize("digits", [11, 20])
def test_a_file_of_0_7_has_eleven_or_twenty_digits(digits: int) -> None:
    assert parse_offset_file_name(f"{512:0{digits}d}.kafka") == OffsetFileName(
        512, FileKind.LOG_0_7
    )


@pytest.mark.parametrize(
    "name",
    [
        "7.log",
        "0000000000000000007.log",
        "000000000000000000007.log",
        "99999999999999999999.log",
        "-0000000000000000007.log",
        "0000000000000000000٣.log",
        "00000000000000000007",
        "00000000000000000007.LOG",
        "00000000000000000007.log.bak",
        "00000000000000000007.log.deleted.deleted",
        "00000000000000000007.log\n",
        "000000000007.kafka",
        "00000000000.kafka.deleted",
        "leader-epoch-checkpoint",
    ],
)
def test_other_names_are_not_those_of_a_segments_file(name: str) -> None:
    assert parse_offset_file_name(name) is None


@given(OFFSETS, st.integers(0, 2**31 - 1), st.sampled_from(SnapshotStage))
def test_every_name_of_a_metadata_snapshot_is_read_back(
    end_offset: int, epoch: int, stage: SnapshotStage
) -> None:
    unique_part = "-123456" if stage is SnapshotStage.PARTIAL else ""
    name = MetadataSnapshotName(end_offset, epoch, stage, unique_part)
    assert parse_metadata_snapshot_name(str(name)) == name


def test_a_metadata_snapshot_has_twenty_and_ten_digits() -> None:
    assert str(MetadataSnapshotName(298, 1)) == "00000000000000000298-0000000001.checkpoint"


@pytest.mark.parametrize(
    "name",
    [
        "bootstrap.checkpoint",
        "00000000000000000298-1.checkpoint",
        "00000000000000000298-9999999999.checkpoint",
        "99999999999999999999-0000000001.checkpoint",
        "00000000000000000298-0000000001.snapshot",
    ],
)
def test_other_names_are_not_those_of_a_metadata_snapshot(name: str) -> None:
    assert parse_metadata_snapshot_name(name) is None


@pytest.mark.parametrize(
    ("name", "topic", "partition"),
    [
        ("orders-0", "orders", 0),
        ("1-2-3-0", "1-2-3", 0),
        ("multi.part-topic_x-3", "multi.part-topic_x", 3),
        ("a--5", "a-", 5),
        ("a-007", "a", 7),
        ("a-+7", "a", 7),
        ("-delete-0", "-delete", 0),
        ("topic.with.dots-0", "topic.with.dots", 0),
    ],
)
def test_a_partition_is_named_by_topic_and_number(name: str, topic: str, partition: int) -> None:
    assert parse_partition_directory_name(name) == PartitionDirectoryName(topic, partition)


@pytest.mark.parametrize("state", [s for s in PartitionState if s.value])
def test_a_suffix_is_the_partitions_state(state: PartitionState) -> None:
    name = PartitionDirectoryName("jbod-move", 0, state, UNIQUE_ID)
    assert str(name) == f"jbod-move-0.{UNIQUE_ID}{state.value}"
    assert parse_partition_directory_name(str(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "orders",
        "lost+found",
        "-0",
        "orders-",
        "orders-x",
        "orders-0-delete",
        "orders-0.-delete",
        f"orders-0.{UNIQUE_ID}.x-delete",
        f"orders 0.{UNIQUE_ID}-delete",
        "orders-2147483648",
        "orders-1 ",
    ],
)
def test_other_names_prevent_a_broker_from_starting(name: str) -> None:
    with pytest.raises(FormatError, match="directory name is not that of a partition"):
        parse_partition_directory_name(name)


@given(st.text())
def test_any_name_is_a_partitions_or_a_format_error(name: str) -> None:
    try:
        parsed = parse_partition_directory_name(name)
    except FormatError:
        return
    assert parsed.topic


@pytest.mark.parametrize("name", ["my_topic_0", "my_topic-0"])
def test_a_partition_of_0_7_may_have_an_underscore(name: str) -> None:
    assert parse_0_7_directory_name(name) == TopicPartition("my_topic", 0)


@pytest.mark.parametrize("name", ["topic", "_0", "topic_x", "topic_99999999999"])
def test_other_names_are_not_those_of_0_7(name: str) -> None:
    assert parse_0_7_directory_name(name) is None
