"""Search the logs of a partition by time, without trusting indexes or headers."""

from __future__ import annotations

from collections.abc import Iterator

from kdump.formats.names import FileKind
from kdump.log.partition import Partition
from kdump.log.seek import SeekableLog
from kdump.log.segment import Segment
from kdump.log.valid_windows import Damage, OnDamage, batch_damage, segment_part, valid_windows
from kdump.scan.batches import Window
from kdump.scan.records import RecordColumns
from kdump.scan.selection import Selection
from kdump.scan.walk import MessageSet, expand_window


def is_older(
    partition: Partition, segment: Segment, following: Segment | None, timestamp_ms: int
) -> bool:
    """Whether all records of a segment are known to be older, without reading much.

    Raises:
        OSError: a file cannot be read.
    """
    if not segment.time_index_bytes or following is None:
        return False
    with partition.segment_path(segment, FileKind.LOG).open_file() as log:
        largest = SeekableLog.of_segment(partition, segment, log).largest_timestamp()
    return largest is not None and largest < timestamp_ms


def offset_of_time(
    partition: Partition, timestamp_ms: int, start_offset: int, on_damage: OnDamage
) -> int | None:
    """The offset of the first record from ``start_offset`` on that is not older than a time.

    Follows ``UnifiedLog.searchOffsetInLocalLog``, but trusts no index and no header unseen. None if
    there is no such record.

    Args:
        partition: as a starting broker loads it.
        timestamp_ms: the time.
        start_offset: the first offset that counts.
        on_damage: takes the damage found on the way, which may have held that record.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    selection = Selection(from_offset=start_offset, from_time_ms=timestamp_ms)
    for segment, following in partition.with_following():
        if following is not None and following.base_offset <= start_offset:
            continue
        if is_older(partition, segment, following, timestamp_ms):
            continue
        with partition.segment_path(segment, FileKind.LOG).open_file() as log:
            seekable = SeekableLog.of_segment(partition, segment, log)
            start = seekable.start_of(start_offset, timestamp_ms)
            for step in valid_windows(log, segment_part(segment, following, start)):
                if isinstance(step, Damage):
                    on_damage(step)
                    continue
                for found in _first_in(step, selection, str(log.location)):
                    if isinstance(found, int):
                        return found
                    on_damage(found)
    return None


def _first_in(window: Window, selection: Selection, path: str) -> Iterator[int | Damage]:
    """Offsets of selected records, and damage, in order; those after the first may be left out."""
    for step in expand_window(window, selection, with_records=True, only_valid=True):
        if isinstance(step, RecordColumns):
            problems = {
                int(step.batches.position[row]): batch_damage(
                    window,
                    int(window.batches.position.searchsorted(step.batches.position[row])),
                    path,
                    problem,
                )
                for row, problem in step.problems.items()
            }
            first = int(step.batches.position[step.batch[0]]) if step.count else None
            yield from (d for at, d in sorted(problems.items()) if first is None or at < first)
            if step.count:
                yield int(step.offset[0])
            yield from problems.values()
        elif isinstance(step, MessageSet):
            if step.messages:
                yield step.messages[0].offset
            if step.problem is not None:
                yield batch_damage(step.window, 0, path, step.problem)
