"""Loading directories that no broker writes: forged batches, odd names, subdirectories."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from builders.batches import batch, batches, record
from builders.damage import ATTRIBUTES_POSITION, checksum_again
from builders.log_directories import offset_index, write_partition
from builders.recovery import (
    files_after,
    joined,
    log_name,
    marker,
    of_producer,
    recovered,
    refused,
)
from kdump.formats import producer_snapshot
from kdump.formats.compression import Codec
from kdump.formats.names import FileKind
from kdump.target.target_file import Gone, Kept, KeptUpTo
from kdump.target.virtual_directory import file_name

BASE_OFFSET = struct.Struct(">q")
FIRST, SECOND = log_name(0), log_name(12)
METADATA, EPOCHS = "partition.metadata", "leader-epoch-checkpoint"


def partition(path: Path, *logs: tuple[int, bytes], **others: bytes) -> Path:
    return write_partition(path / "orders-0", dict(logs), others=others)


def two_segments(path: Path) -> Path:
    return partition(path, (0, joined(batches(4))), (12, joined(batches(4, base_offset=12))))


def directory_instead(path: Path, name: str) -> None:
    (path / name).unlink(missing_ok=True)
    (path / name).mkdir()


def moved_to(offset: int, data: bytes) -> bytes:
    """Change the base offset of a batch, which its checksum does not cover."""
    return BASE_OFFSET.pack(offset) + data[BASE_OFFSET.size :]


# ---- Batches ----


@pytest.mark.parametrize(
    ("codec", "exception"), [(5, "IllegalArgumentException"), (Codec.GZIP, "KafkaException")]
)
def test_a_marker_that_cannot_be_decompressed_is_refused(
    tmp_path: Path, codec: int, exception: str
) -> None:
    forged = bytearray(marker(1))
    forged[ATTRIBUTES_POSITION + 1] |= codec
    checksum_again(forged, 0)
    path = partition(tmp_path, (0, joined(of_producer(0, transactional=True), bytes(forged))))

    assert refused(path).exception == exception


def test_a_log_that_ends_at_the_largest_offset_keeps_its_recovery_point(tmp_path: Path) -> None:
    last = 2**63 - 2
    path = partition(tmp_path, (0, b""), (last, moved_to(last, batch([record(0)]))))
    outcome = recovered(path, recovery_point=5)

    assert (outcome.log_end_offset, outcome.recovery_point) == (2**63 - 1, 5)


def test_a_split_into_two_segments_with_the_same_name_is_refused(tmp_path: Path) -> None:
    far = moved_to(2**32, batch([record(0)]))
    path = partition(tmp_path, (0, joined(batches(1), far, batches(1), far)))

    assert refused(path).exception == "NoSuchFileException"


# ---- Names ----


def test_of_several_snapshots_at_one_offset_the_last_listed_is_used(tmp_path: Path) -> None:
    path = two_segments(tmp_path)
    snapshots = [f"{0:0{zeroes}d}7.snapshot" for zeroes in (1, 7, 13, 19, 25)]
    for name in snapshots:
        (path / name).write_bytes(producer_snapshot.encode([]))
    listed = [entry.name for entry in os.scandir(path) if entry.name in snapshots]
    files = recovered(path, is_clean=True).files

    assert [name for name in listed if files[name] == Gone()] == listed[-1:]


def test_an_untrimmed_index_keeps_old_bytes_after_its_entries(
    tmp_path: Path,
) -> None:
    far = moved_to(2**32, batch([record(0)]))
    times = struct.pack(">qi", 1_767_225_600_000, 3)
    path = write_partition(tmp_path / "orders-0", {0: far}, time_indexes={0: times})
    (path / file_name(0, FileKind.OFFSET_INDEX)).unlink()
    after = files_after(path, is_clean=True)

    assert after[file_name(0, FileKind.TIME_INDEX)].startswith(times)
    assert after[log_name(2**32)] == far


# ---- Directories in place of files ----


@pytest.mark.parametrize(
    ("name", "exception"),
    [
        (METADATA, "KafkaStorageException"),
        (EPOCHS, "KafkaStorageException"),
        (file_name(0, FileKind.TRANSACTION_INDEX), "FileSystemException"),
        (file_name(0, FileKind.OFFSET_INDEX), "FileNotFoundException"),
    ],
)
def test_a_directory_named_like_a_file_is_refused(
    tmp_path: Path, name: str, exception: str
) -> None:
    path = two_segments(tmp_path)
    directory_instead(path, name)
    refusal = refused(path)

    assert (refusal.file, refusal.exception) == (name, exception)


def test_a_segment_whose_snapshot_cannot_be_written_is_emptied(tmp_path: Path) -> None:
    path = two_segments(tmp_path)
    directory_instead(path, file_name(12, FileKind.PRODUCER_SNAPSHOT))
    outcome = recovered(path)

    assert outcome.files[FIRST] == KeptUpTo(0)
    assert outcome.files[SECOND] == Gone()


def test_an_index_is_kept_beside_a_directory_named_like_its_log(tmp_path: Path) -> None:
    path = two_segments(tmp_path)
    index = file_name(40, FileKind.OFFSET_INDEX)
    (path / index).write_bytes(offset_index((41, 5)))
    directory_instead(path, log_name(40))

    assert recovered(path).files[index] == Kept()


def test_epochs_that_cannot_be_written_are_left_unchanged(
    tmp_path: Path,
) -> None:
    path = partition(tmp_path, (0, joined(batches(4))), **{EPOCHS: b"0\n2\n0 0\n9 40\n"})
    directory_instead(path, EPOCHS + ".tmp")

    assert recovered(path).files[EPOCHS] == Kept()
