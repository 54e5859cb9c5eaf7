"""Snapshots of the producers of a partition, as they lie beside its logs."""

from __future__ import annotations

from kdump.formats import producer_snapshot
from kdump.formats.errors import FormatError
from kdump.formats.names import FileKind, OffsetFileName
from kdump.formats.producer_snapshot import ProducerEntry
from kdump.log.partition import Partition


def read_producers(partition: Partition, offset: int) -> tuple[ProducerEntry, ...] | None:
    """The producers in the snapshot at an offset; None if it is missing or cannot be read."""
    name = str(OffsetFileName(offset, FileKind.PRODUCER_SNAPSHOT))
    try:
        return producer_snapshot.read(partition.file_path(name).read()).entries
    except (FormatError, OSError):
        return None
