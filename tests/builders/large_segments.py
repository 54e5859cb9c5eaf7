"""A partition with segments large enough to be split: batches repeated at increasing offsets."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from builders import batches, index_files, log_directories
from kdump.formats.names import FileKind, PartitionState, TopicPartition
from kdump.log.partition import Partition, read_partition
from kdump.storage.local_disk import local

RECORDS_EACH = 3
_BASE_OFFSET = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class LargeSegment:
    """A segment's log, and the positions of its batches."""

    log: bytes
    positions: list[int]

    @classmethod
    def of(cls, count: int, value_bytes: int = 900) -> LargeSegment:
        """Make ``count`` batches of three records of about ``value_bytes``, alternating in size."""
        pair = [
            batches.batch([batches.record(step, value=b"v" * size) for step in range(RECORDS_EACH)])
            for size in (value_bytes, value_bytes // 3)
        ]
        log, positions = bytearray(), []
        for number in range(count):
            positions.append(len(log))
            # The checksum does not cover the base offset.
            log += _BASE_OFFSET.pack(number * RECORDS_EACH) + pair[number % 2][_BASE_OFFSET.size :]
        return cls(bytes(log), positions)

    @property
    def count(self) -> int:
        return len(self.positions)

    def index(self, every: int = 4, skipping_bytes: tuple[int, int] = (0, 0)) -> bytes:
        """Make an offset index with an entry every few batches, but none in a range of bytes."""
        entries = [
            (number * RECORDS_EACH + RECORDS_EACH - 1, position)
            for number, position in enumerate(self.positions)
            if number and number % every == 0
            if not skipping_bytes[0] <= position < skipping_bytes[1]
        ]
        return index_files.offset_index_bytes(entries)


def write(
    directory: Path, segment: LargeSegment, *, index: bytes | None = None, topic: str = "orders"
) -> Partition:
    """Write a segment to ``DIRECTORY/TOPIC-0``, with its index if one is given."""
    path = directory / f"{topic}-0"
    path.mkdir(parents=True)
    (path / log_directories.file_name(0, FileKind.LOG)).write_bytes(segment.log)
    if index is not None:
        (path / log_directories.file_name(0, FileKind.OFFSET_INDEX)).write_bytes(index)
    return read_partition(local(path), TopicPartition(topic, 0), PartitionState.LIVE)
