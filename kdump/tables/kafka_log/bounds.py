"""Offsets in a partition that are not written anywhere: those of times."""

from __future__ import annotations

from collections.abc import Iterator

from kdump.formats.names import FileKind
from kdump.log.partition import Partition
from kdump.log.seek import IndexedLog
from kdump.log.segment import Segment
from kdump.log.sound import Damage, batch_damage, segment_part, sound_windows
from kdump.scan.batches import Window
from kdump.scan.records import RecordColumns
from kdump.scan.selection import Selection
from kdump.scan.walk import MessageSet, expand_window
from kdump.storage.local_disk import local
from kdump.storage.location import StoredFile
from kdump.tables.kafka_log.damage import OnDamage


def indexed_log(partition: Partition, segment: Segment, log: StoredFile) -> IndexedLog:
    """The log of a segment, to be searched by its indexes."""
    return IndexedLog(
        log,
        segment.base_offset,
        partition.segment_path(segment, FileKind.OFFSET_INDEX),
        partition.segment_path(segment, FileKind.TIME_INDEX),
    )


def is_older(
    partition: Partition, segment: Segment, following: Segment | None, timestamp_ms: int
) -> bool:
    """Whether all records of a segment are known to be older, without reading much of it.

    Raises:
        OSError: a file cannot be read.
    """
    if not segment.time_index_bytes or following is None:
        return False
    with local(partition.segment_path(segment, FileKind.LOG)).open_file() as log:
        largest = indexed_log(partition, segment, log).largest_timestamp()
    return largest is not None and largest < timestamp_ms


def offset_of_time(
    partition: Partition, timestamp_ms: int, start_offset: int, on_damage: OnDamage
) -> int | None:
    """The first offset from ``start_offset`` on whose record is not older than ``timestamp_ms``.

    Follows ``LogSegment.findOffsetByTimestamp``, but believes no index and no header unseen; None
    where there is none.

    Args:
        partition: as a starting broker loads it.
        timestamp_ms: the time.
        start_offset: the first that counts.
        on_damage: is given what damage is met, which may hold that record.

    Raises:
        OSError: a file of the partition cannot be read.
    """
    selection = Selection(from_offset=start_offset, from_time_ms=timestamp_ms)
    for segment, following in partition.with_following():
        if following is not None and following.base_offset <= start_offset:
            continue
        if is_older(partition, segment, following, timestamp_ms):
            continue
        with local(partition.segment_path(segment, FileKind.LOG)).open_file() as log:
            searched = indexed_log(partition, segment, log)
            start = max(
                searched.position_of(start_offset),
                searched.position_after_times_below(timestamp_ms),
            )
            for step in sound_windows(log, segment_part(segment, following, start)):
                if isinstance(step, Damage):
                    on_damage(step)
                    continue
                for found in _first_in(step, selection, str(log.location)):
                    if isinstance(found, int):
                        return found
                    on_damage(found)
    return None


def _first_in(window: Window, selection: Selection, path: str) -> Iterator[int | Damage]:
    """Offsets of wanted records, and damage, in order; those behind the first may be left out."""
    for step in expand_window(window, selection, with_records=True):
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
