"""What a backup stores of files that a broker changes all the time.

It is what a broker leaves that is killed: the last segment up to the end of a batch, the entries of
its indexes that are of these batches, and checkpoints that say no more than that. A starting broker
recovers this segment, and with it its indexes (``LogLoader.recoverLog``), because no checkpoint of
a recovery point is past it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from kdump.formats import offset_index, time_index, transaction_index
from kdump.formats.checkpoints import (
    decode_leader_epoch_checkpoint,
    encode_leader_epoch_checkpoint,
    encode_offset_checkpoint,
)
from kdump.formats.errors import FormatError
from kdump.formats.names import FileKind, TopicPartition
from kdump.formats.producer_snapshot import read as read_producers
from kdump.formats.record_batch import NO_PARTITION_LEADER_EPOCH
from kdump.log.directory import Offsets
from kdump.log.log_search import SegmentSearch, Trust
from kdump.log.partition import Partition, read_if_there
from kdump.log.segment import Segment
from kdump.scan.source import read_at
from kdump.storage.location import Location, StoredFile

_ENTRY_DTYPES: Final = {
    FileKind.OFFSET_INDEX: offset_index.ENTRY_DTYPE,
    FileKind.TIME_INDEX: time_index.ENTRY_DTYPE,
    FileKind.TRANSACTION_INDEX: transaction_index.ENTRY_DTYPE,
}
_TOGETHER_BYTES: Final = 1 << 16


class StoredEnd(NamedTuple):
    """Where what is stored of a log ends: after a valid batch.

    Attributes:
        offset: the next one.
        position: the byte in the last segment.
        leader_epoch: of that batch: if it is the same, so are all batches before it.
    """

    offset: int
    position: int
    leader_epoch: int = NO_PARTITION_LEADER_EPOCH


def stored_end(partition: Partition, segment: Segment, log: StoredFile) -> StoredEnd:
    """Find the last valid batch of the last segment.

    Args:
        partition: as it was listed.
        segment: its last one.
        log: what is to be stored of its log, or all that there is.

    Raises:
        OSError: the segment cannot be read.
    """
    path = partition.segment_path
    index = path(segment, FileKind.OFFSET_INDEX) if segment.offset_index_bytes else None
    times = path(segment, FileKind.TIME_INDEX)
    with SegmentSearch(log, segment.base_offset, index, times, Trust.CHECKSUMS) as search:
        end = search.end()
    if end.offset <= segment.base_offset:
        return StoredEnd(segment.base_offset, 0)
    return StoredEnd(end.offset, end.position, end.leader_epoch)


def used_bytes(index: Location) -> bytes | None:
    """What an index has before its padding; None if it is missing.

    Raises:
        OSError: it cannot be read.
    """
    parts = []
    try:
        with index.open_file() as source:
            for position in range(0, source.size_bytes, _TOGETHER_BYTES):
                parts.append(read_at(source, position, _TOGETHER_BYTES))
                if not parts[-1].strip(b"\0"):
                    break
    except FileNotFoundError:
        return None
    return b"".join(parts)


def entries_before(kind: FileKind, data: bytes, base_offset: int, end: StoredEnd) -> bytes:
    """The entries of an index that are of stored batches, up to the first that cannot be one.

    Args:
        base_offset: of its segment.
        end: where that is cut.
    """
    dtype = _ENTRY_DTYPES[kind]
    entries = np.frombuffer(data, dtype, len(data) // dtype.itemsize)
    if kind is FileKind.TRANSACTION_INDEX:
        is_stored = entries["last_offset"] < end.offset
    else:
        is_stored = base_offset + entries["relative_offset"].astype(np.int64) < end.offset
    if kind is FileKind.OFFSET_INDEX:
        is_stored &= entries["position"] < end.position
        is_stored[:1] &= entries["position"][:1] > 0
        is_stored[1:] &= entries["relative_offset"][1:] > entries["relative_offset"][:-1]
        is_stored[1:] &= entries["position"][1:] > entries["position"][:-1]
    if kind is FileKind.TIME_INDEX:
        is_stored[:1] &= entries["timestamp"][:1] > 0
        is_stored[1:] &= entries["timestamp"][1:] > entries["timestamp"][:-1]
        is_stored[1:] &= entries["relative_offset"][1:] >= entries["relative_offset"][:-1]
    count = len(entries) if is_stored.all() else int(np.argmin(is_stored))
    return data[: count * dtype.itemsize]


def epochs_before(data: bytes, end: StoredEnd) -> bytes:
    """A leader epoch checkpoint without the epochs that begin after the end; as it is if malformed.

    One that begins at the end is of a leader that has not appended anything yet.
    """
    try:
        epochs = decode_leader_epoch_checkpoint(data)
    except FormatError:
        return data
    return encode_leader_epoch_checkpoint(
        each for each in epochs if each.start_offset <= end.offset
    )


def offsets_before(offsets: Offsets, ends: Iterable[tuple[TopicPartition, StoredEnd]]) -> bytes:
    """An offset checkpoint with the lines of stored partitions, none past the end of its log."""
    known: dict[TopicPartition, int] = {}
    for key, end in ends:
        known[key] = min(end.offset, known.get(key, end.offset))
    return encode_offset_checkpoint(
        (key, min(offset, known[key])) for key, offset in offsets.items() if key in known
    )


def is_whole_snapshot(path: Location) -> bool:
    """Whether a snapshot of producers is complete: a broker writes it in place.

    Raises:
        OSError: it cannot be read.
    """
    data = read_if_there(path)
    if data is None:
        return False
    try:
        read_producers(data)
    except FormatError:
        return False
    return True
