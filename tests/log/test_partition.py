"""A partition's directory has files in use, leftover files and foreign files."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders.log_directories import TOPIC_ID, file_name, write_partition
from kdump.formats import names
from kdump.formats.checkpoints import EpochEntry
from kdump.formats.errors import FormatError
from kdump.formats.names import FileKind, PartitionState, TopicPartition
from kdump.log.partition import Leftover, LeftoverKind, Partition, read_partition
from kdump.log.segment import Segment
from kdump.storage.local_disk import local

PATH = Path("/data/orders-0")

pytestmark = pytest.mark.usefixtures("fs")


def read(path: Path = PATH) -> Partition:
    return read_partition(local(path), TopicPartition("orders", 0))


def test_segments_are_logs_and_the_indexes_beside_them() -> None:
    write_partition(
        PATH, {100: b"bb", 0: b"a" * 7}, offset_indexes={0: bytes(8)}, time_indexes={0: bytes(12)}
    )
    (PATH / file_name(100, FileKind.OFFSET_INDEX)).unlink()
    (PATH / file_name(100, FileKind.TRANSACTION_INDEX)).write_bytes(bytes(34))
    assert read().segments == (
        Segment(0, 7, 8, 12, None, FileKind.LOG, file_name(0, FileKind.LOG)),
        Segment(100, 2, None, 0, 34, FileKind.LOG, file_name(100, FileKind.LOG)),
    )


def test_sizes_are_of_the_logs_and_of_all_files() -> None:
    write_partition(PATH, {0: b"a" * 7, 9: b"b"}, others={"notes.txt": b"123"})
    small = sum((PATH / name).stat().st_size for name in names.PARTITION_FILES - {"quorum-state"})
    partition = read()
    assert (partition.log_bytes, partition.total_bytes) == (8, 8 + 3 + small)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("00000000000000000005.log.deleted", LeftoverKind.DELETED),
        ("00000000000000000005.snapshot.deleted", LeftoverKind.DELETED),
        ("00000000000000000005.log.cleaned", LeftoverKind.CLEANED),
        ("00000000000000000005.timeindex.swap", LeftoverKind.SWAP),
        ("00000000000000000005.index", LeftoverKind.ORPHAN),
        ("00000000000000000005.txnindex", LeftoverKind.ORPHAN),
        ("leader-epoch-checkpoint.tmp", LeftoverKind.TEMPORARY),
        ("partition.metadata.tmp", LeftoverKind.TEMPORARY),
        ("00000000000000000005-0000000001-99.checkpoint.part", LeftoverKind.TEMPORARY),
        ("00000000000000000005-0000000001.checkpoint.deleted", LeftoverKind.DELETED),
    ],
)
def test_leftover_files_have_a_kind(name: str, kind: LeftoverKind) -> None:
    write_partition(PATH, {0: b""}, others={name: b"12345"})
    partition = read()
    assert partition.leftovers == (Leftover(name, kind, 5),)
    assert partition.leftover_counts == {kind: 1}
    assert [segment.base_offset for segment in partition.segments] == [0]


def test_snapshots_are_listed_by_offset() -> None:
    write_partition(
        PATH,
        others={
            file_name(9, FileKind.PRODUCER_SNAPSHOT): bytes(10),
            file_name(5, FileKind.PRODUCER_SNAPSHOT): bytes(56),
            "00000000000000000298-0000000001.checkpoint": bytes(3),
        },
    )
    partition = read()
    assert [(file.offset, file.size_bytes) for file in partition.producer_snapshots] == [
        (5, 56),
        (9, 10),
    ]
    assert [(file.end_offset, file.epoch) for file in partition.metadata_snapshots] == [(298, 1)]


def test_other_files_and_directories_are_foreign() -> None:
    write_partition(PATH, {0: b""}, others={"notes.txt": b"", "7.log": b""})
    (PATH / "sub").mkdir()
    partition = read()
    assert partition.foreign == ("7.log", "notes.txt", "sub")
    assert partition.leftovers == ()


def test_dangling_and_circular_links_are_foreign() -> None:
    write_partition(PATH)
    (PATH / "circle").symlink_to("circle")
    (PATH / file_name(0, FileKind.LOG)).symlink_to("/gone")
    assert read().foreign == (file_name(0, FileKind.LOG), "circle")


def test_a_link_to_a_file_is_listed_as_that_file() -> None:
    write_partition(PATH)
    Path("/elsewhere").write_bytes(b"1234")
    (PATH / file_name(0, FileKind.LOG)).symlink_to("/elsewhere")
    assert read().log_bytes == 4


def test_segments_of_0_7_keep_their_names() -> None:
    write_partition(PATH, others={"00000000512.kafka": b"12", f"{0:020d}.kafka": b"1"})
    partition = read()
    assert partition.is_0_7
    assert [(s.base_offset, s.log_bytes, s.log_name) for s in partition.segments] == [
        (0, 1, f"{0:020d}.kafka"),
        (512, 2, "00000000512.kafka"),
    ]
    assert (
        partition.segment_path(partition.segments[1], FileKind.LOG_0_7).local_path.read_bytes()
        == b"12"
    )


def test_small_files_are_read_on_request() -> None:
    write_partition(PATH)
    partition = read()
    metadata = partition.read_metadata()
    assert metadata is not None
    assert metadata.topic_id == TOPIC_ID
    assert partition.read_leader_epochs() == [EpochEntry(0, 0)]
    assert partition.read_quorum_state() is None


def test_small_files_that_are_missing_are_none() -> None:
    PATH.mkdir(parents=True)
    partition = read_partition(local(PATH), TopicPartition("orders", 0), PartitionState.STRAY)
    assert partition.read_metadata() is None
    assert partition.read_leader_epochs() is None


def test_a_malformed_small_file_is_a_format_error() -> None:
    write_partition(PATH, others={names.PARTITION_METADATA: b"garbage"})
    with pytest.raises(FormatError, match="line 1"):
        read().read_metadata()
