"""Where the valid batches of a log end, by its last few batches."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kdump.formats.names import FileKind
from kdump.formats.record_batch import NO_PARTITION_LEADER_EPOCH
from kdump.log.batch_validity import LogPart
from kdump.log.header_seek import HeaderSeekableLog
from kdump.log.partition import Partition
from kdump.log.segment import Segment
from kdump.log.valid_windows import Damage, valid_windows
from kdump.scan.batches import Window
from kdump.storage.location import StoredFile


@dataclass(frozen=True, slots=True)
class ValidEnd:
    """The end of a log.

    Attributes:
        offset: one above the last valid batch; the base offset of the first segment in a log
            without one.
        damage: what follows the last offset index entry and is not valid, such as a torn tail.
        leader_epoch: of the last valid batch; -1 if there is none, or if it has none.
        has_batches: whether there is a valid batch.
    """

    offset: int
    damage: tuple[Damage, ...] = ()
    leader_epoch: int = field(default=NO_PARTITION_LEADER_EPOCH, compare=False)
    has_batches: bool = field(default=True, compare=False)


def valid_end(partition: Partition) -> ValidEnd | None:
    """Find the end of a log by the batches after the last entry of the active segment's index.

    Unlike :func:`~kdump.log.replicas.replica_end`, checksums are verified: a batch that was not
    written completely does not count.

    Args:
        partition: as a starting broker loads it; not of Kafka 0.7.

    Returns:
        The end; None if there is no segment.

    Raises:
        OSError: a log cannot be read.
    """
    damage: tuple[Damage, ...] = ()
    least = None
    for segment in reversed(partition.segments):
        found = _end_of(partition, segment, is_active=least is None)
        damage = (*found.damage, *damage)
        if found.offset > segment.base_offset:
            return ValidEnd(max(found.offset, least or 0), damage, found.leader_epoch)
        least = segment.base_offset if least is None else least
    return None if least is None else ValidEnd(least, damage, has_batches=False)


def _end_of(partition: Partition, segment: Segment, *, is_active: bool) -> ValidEnd:
    with partition.segment_path(segment, FileKind.LOG).open_file() as log:
        seekable = HeaderSeekableLog.of_segment(partition, segment, log)
        start = seekable.last_indexed_position() if segment.offset_index_bytes else 0
        part = LogPart(start, least_offset=segment.base_offset, may_be_padded=is_active)
        found = _end_in(log, part)
        if start and found.offset <= segment.base_offset:
            # The last indexed batch itself is damaged.
            found = _end_in(log, replace(part, start=0))
        return found


def _end_in(log: StoredFile, part: LogPart) -> ValidEnd:
    offset, damage = part.least_offset, []
    epoch = NO_PARTITION_LEADER_EPOCH
    for step in valid_windows(log, part):
        if isinstance(step, Window):
            offset = int(step.batches.last_offset[-1]) + 1
            epoch = int(step.batches.partition_leader_epoch[-1])
        else:
            damage.append(step)
    return ValidEnd(offset, tuple(damage), epoch)
