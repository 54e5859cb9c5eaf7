"""Log directories whose partitions became ``-stray`` or ``-delete``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from builders.batches import batch, record
from builders.log_directories import offset_checkpoint, write_log_directory, write_partition
from builders.metadata_log import partition_record, topic_record, write_metadata_log
from kdump.formats import names
from kdump.formats.partition_metadata import PartitionMetadata, encode_partition_metadata

NODE: Final = 7
"""Of the directories of :func:`~builders.log_directories.write_log_directory`."""
ID: Final = "0123456789abcdef0123456789abcdef"
OTHER_ID: Final = "fedcba9876543210fedcba9876543210"
RECORDS: Final = 5
"""In each log."""


def stray(name: str, unique_id: str = ID) -> str:
    """Return the name of the stray directory of a partition."""
    return f"{name}.{unique_id}-stray"


def write_directory(log_dir: Path, name: str, topic_id: int) -> Path:
    """Write the directory of a partition with five records, under any name."""
    log = b"".join(batch([record(at)]) for at in range(RECORDS))
    metadata = encode_partition_metadata(PartitionMetadata(0, UUID(int=topic_id)))
    return write_partition(log_dir / name, {0: log}, others={names.PARTITION_METADATA: metadata})


def stray_log_directory(
    path: Path, directories: dict[str, int], *, clean: bool = True, points: Sequence[str] = ()
) -> Path:
    """Write a log directory with directories of these names and topic ids.

    ``points`` are partitions with a line in the checkpoint of recovery points, at 2.
    """
    write_log_directory(path, clean=clean)
    for name, topic_id in directories.items():
        write_directory(path, name, topic_id)
    lines = {(each.rpartition("-")[0], int(each.rpartition("-")[2])): 2 for each in points}
    (path / names.RECOVERY_POINT_CHECKPOINT).write_bytes(offset_checkpoint(lines))
    return path


def know(log_dir: Path, topics: dict[str, int], replicas: Sequence[int] = (NODE,)) -> None:
    """Write the cluster's metadata: topics of one partition, with their ids."""
    values = []
    for name, topic_id in topics.items():
        values += [topic_record(name, topic_id), partition_record(topic_id, 0, replicas, replicas)]
    write_metadata_log(log_dir, values)
