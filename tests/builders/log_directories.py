"""Write partitions and log directories to a real or a fake disk."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kdump.formats import names
from kdump.formats.checkpoints import (
    EpochEntry,
    OffsetEntry,
    encode_leader_epoch_checkpoint,
    encode_offset_checkpoint,
    known_leader_epochs,
)
from kdump.formats.clean_shutdown import encode_clean_shutdown
from kdump.formats.names import FileKind, OffsetFileName, TopicPartition
from kdump.formats.partition_metadata import PartitionMetadata, encode_partition_metadata
from kdump.state.epochs.epoch_history import EpochHistory

TOPIC_ID: Final = uuid.UUID("96be52f9-d44a-4569-8f70-32a65ffda637")
TOPIC_ID_TEXT: Final = "lr5S-dRKRWmPcDKmX_2mNw"

META_PROPERTIES: Final = (
    b"#\n#Sat Nov 21 05:45:23 UTC 2026\nnode.id=7\ndirectory.id=V1dW8O41RR6_pKmks-3sKg\n"
    b"version=1\ncluster.id=a-cluster\n"
)


def file_name(offset: int, kind: FileKind, suffix: str = "") -> str:
    """Return the name of a file of the segment at ``offset``."""
    return f"{OffsetFileName(offset, kind)}{suffix}"


def offset_index(*entries: tuple[int, int], padding: int = 0) -> bytes:
    """Encode an index of (relative offset, position) with ``padding`` entries of zeroes."""
    return b"".join(struct.pack(">ii", *entry) for entry in entries) + bytes(8 * padding)


def time_index(*entries: tuple[int, int], padding: int = 0) -> bytes:
    """Encode an index of (timestamp, relative offset) with ``padding`` entries of zeroes."""
    return b"".join(struct.pack(">qi", *entry) for entry in entries) + bytes(12 * padding)


def write_partition(
    path: Path,
    logs: Mapping[int, bytes] | None = None,
    *,
    offset_indexes: Mapping[int, bytes] | None = None,
    time_indexes: Mapping[int, bytes] | None = None,
    others: Mapping[str, bytes] | None = None,
) -> Path:
    """Write a partition's directory: its segments by base offset, and files by name.

    Every segment gets empty indexes, unless others are given.
    """
    path.mkdir(parents=True)
    for offset, log in (logs or {}).items():
        for kind, content in (
            (FileKind.LOG, log),
            (FileKind.OFFSET_INDEX, (offset_indexes or {}).get(offset, b"")),
            (FileKind.TIME_INDEX, (time_indexes or {}).get(offset, b"")),
        ):
            (path / file_name(offset, kind)).write_bytes(content)
    files = {
        names.PARTITION_METADATA: encode_partition_metadata(PartitionMetadata(0, TOPIC_ID)),
        names.LEADER_EPOCH_CHECKPOINT: encode_leader_epoch_checkpoint([EpochEntry(0, 0)]),
        **(others or {}),
    }
    for name, content in files.items():
        (path / name).write_bytes(content)
    return path


def offset_checkpoint(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """Encode an offset checkpoint of these partitions."""
    return encode_offset_checkpoint(
        OffsetEntry(TopicPartition(*partition), offset) for partition, offset in offsets.items()
    )


def begin_epochs_at(partition: Path, log_start_offset: int) -> None:
    """Let the leader epochs of a partition begin with its log, as a broker does."""
    path = partition / names.LEADER_EPOCH_CHECKPOINT
    history = EpochHistory(known_leader_epochs(path.read_bytes()))
    history.truncate_from_start(log_start_offset)
    path.write_bytes(encode_leader_epoch_checkpoint(history.entries))


def write_log_directory(
    path: Path,
    *,
    clean: bool = True,
    recovery_points: Mapping[tuple[str, int], int] | None = None,
    log_start_offsets: Mapping[tuple[str, int], int] | None = None,
    high_watermarks: Mapping[tuple[str, int], int] | None = None,
) -> Path:
    """Write the root of a log directory: ``meta.properties``, checkpoints, and the marker."""
    path.mkdir(parents=True, exist_ok=True)
    files = {
        names.META_PROPERTIES: META_PROPERTIES,
        names.RECOVERY_POINT_CHECKPOINT: offset_checkpoint(recovery_points or {}),
        names.LOG_START_OFFSET_CHECKPOINT: offset_checkpoint(log_start_offsets or {}),
        names.REPLICATION_OFFSET_CHECKPOINT: offset_checkpoint(high_watermarks or {}),
        names.CLEANER_OFFSET_CHECKPOINT: b"",
    }
    if clean:
        files[names.CLEAN_SHUTDOWN_MARKER] = encode_clean_shutdown(301)
    else:
        files[names.LOCK_FILE] = b""
    for name, content in files.items():
        (path / name).write_bytes(content)
    return path
