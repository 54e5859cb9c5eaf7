"""Split a segment whose offsets do not fit its indexes.

Follows ``LocalLog.splitOverflowedSegment`` and ``replaceSegments``. Compaction before Kafka 1.1
could create such segments.
"""

from __future__ import annotations

import numpy as np

from kdump.broker.loader.index_builder import IndexBuilder
from kdump.broker.loader.indexes import InvalidOffset
from kdump.broker.loader.loaded_segment import SEGMENT_KINDS, LoadedSegment
from kdump.formats import record_batch
from kdump.formats.names import FileKind, FileStage
from kdump.scan.batches import BatchColumns, StopReason
from kdump.target.refusal import Refused
from kdump.target.virtual_directory import VirtualDirectory, file_name, part_of

_INT32_MAX = 2**31 - 1


def split_segment(segment: LoadedSegment) -> list[LoadedSegment]:
    """Move the batches of ``segment`` to new segments that do not overflow.

    The new files have the suffix ``.cleaned``; :func:`replace_segments` renames them.

    Raises:
        Refused: Kafka cannot split this one.
    """
    _require_overflow(segment)
    parts: list[LoadedSegment] = []
    position = 0
    while position < segment.size_bytes:
        part, position = _next_part(segment, position)
        parts.append(part)
    if len({part.base_offset for part in parts}) < len(parts):
        raise _refused(
            segment, "two parts of the segment have the same base offset", "NoSuchFileException"
        )
    for part in parts:
        try:
            part.become_inactive()
        except InvalidOffset as problem:
            raise _refused(segment, str(problem), "InvalidOffsetException") from problem
    return parts


def replace_segments(parts: list[LoadedSegment], old: list[LoadedSegment]) -> None:
    """Replace the segments ``old`` by new ones."""
    for segment in old:
        segment.delete()
    for part in parts:
        part.rename("")


def _require_overflow(segment: LoadedSegment) -> None:
    next_offset = segment.next_offset()
    if next_offset <= segment.base_offset or _fits(next_offset - 1, segment.base_offset):
        raise _refused(
            segment,
            "an offset does not fit the segment, and the last one does",
            "IllegalArgumentException",
        )


def _next_part(segment: LoadedSegment, start: int) -> tuple[LoadedSegment, int]:
    """The new segment for the batches from byte ``start`` on, and where the next one starts."""
    directory = segment.directory
    part: LoadedSegment | None = None
    builder: IndexBuilder | None = None
    end = start
    try:
        for window in segment.windows(start):
            batches = window.batches
            if batches.count and part is None:
                base_offset = segment.base_offset_at(start)
                part = _new_part(directory, segment, base_offset)
                builder = IndexBuilder(base_offset, segment.settings.interval_bytes)
            if part is None or builder is None:
                break
            count = _count_fitting(batches, part.base_offset)
            _require_known_magic(segment, batches, count)
            if count:
                _index(part, builder, batches.rows(slice(0, count)), start)
                end = int(batches.next_position[count - 1])
            if count < batches.count:
                break
            _require_whole(segment, window.stop.reason if window.stop else None)
    except InvalidOffset as problem:
        raise _refused(segment, str(problem), "InvalidOffsetException") from problem
    if part is None or builder is None or end == start:
        raise _refused(segment, "a part of the segment holds no batch", "IllegalStateException")
    part.max_timestamp = builder.max_timestamp
    builder.store(part.offset_index, part.time_index)
    directory.put(part.log_name, part_of(directory.content(segment.log_name), start, end))
    return part, end


def _new_part(
    directory: VirtualDirectory, segment: LoadedSegment, base_offset: int
) -> LoadedSegment:
    suffix = FileStage.CLEANED.value
    log = part_of(directory.content(segment.log_name), 0, 0)
    names = {kind: file_name(base_offset, kind) + suffix for kind in SEGMENT_KINDS}
    for name in names.values():
        directory.remove(name)
    directory.put(names[FileKind.LOG], log)
    part = LoadedSegment(directory, base_offset, segment.settings, suffix)
    part.load_indexes()
    return part


def _index(part: LoadedSegment, builder: IndexBuilder, batches: BatchColumns, start: int) -> None:
    moved = BatchColumns(**{**batches.columns(), "position": batches.position - start})
    plan = builder.plan(moved)
    builder.commit(plan, plan.reach, part.offset_index, part.time_index)
    if plan.invalid is not None:
        raise plan.invalid


def _count_fitting(batches: BatchColumns, base_offset: int) -> int:
    relative = batches.last_offset - base_offset
    fits = (relative >= 0) & (relative <= _INT32_MAX)
    return batches.count if fits.all() else int(np.argmin(fits))


def _require_known_magic(segment: LoadedSegment, batches: BatchColumns, count: int) -> None:
    magic = batches.magic[:count]
    unknown = np.flatnonzero((magic < 0) | (magic > 2))
    if unknown.size:
        raise _refused(
            segment,
            f"a batch has the unknown magic {int(magic[unknown[0]])}",
            "CorruptRecordException",
            int(batches.position[unknown[0]]),
        )


def _require_whole(segment: LoadedSegment, reason: StopReason | None) -> None:
    if reason not in (None, StopReason.END):
        raise _refused(segment, "the segment does not end with a batch", "IllegalStateException")


def _fits(offset: int, base_offset: int) -> bool:
    return 0 <= record_batch.wrap_int64(offset - base_offset) <= _INT32_MAX


def _refused(
    segment: LoadedSegment, reason: str, exception: str, position: int | None = None
) -> Refused:
    return Refused(reason, segment.log_name, exception, position)
