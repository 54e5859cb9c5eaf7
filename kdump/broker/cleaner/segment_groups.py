"""Group the segments that compaction merges into one.

Follows ``Cleaner.groupSegmentsBySize``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kdump.broker.cleaner.cleanable_log import SegmentFiles
from kdump.state.metadata.settings import TopicSettings

Group = tuple[SegmentFiles, ...]

_INT32_MAX: Final = 2**31 - 1


def group_segments(
    segments: Sequence[SegmentFiles], settings: TopicSettings, end_offset: int
) -> list[Group]:
    """Group consecutive segments as long as no file of the result can become too large.

    Args:
        segments: the segments to compact, by base offset.
        end_offset: end of the last one, exclusive.
    """
    limits = (
        settings.largest_segment_bytes,
        settings.segment_index_bytes,
        settings.segment_index_bytes,
    )
    groups: list[list[SegmentFiles]] = []
    sizes: tuple[int, ...] = (0, 0, 0)
    for at, segment in enumerate(segments):
        following = segments[at + 1].base_offset if at + 1 < len(segments) else end_offset
        own = (segment.size_bytes, segment.offset_index_bytes, segment.time_index_bytes)
        together = tuple(map(sum, zip(sizes, own, strict=True)))
        # An empty segment has no offsets: otherwise one would remain every 2**31 offsets.
        is_near = (
            not groups
            or segment.size_bytes == 0
            or following - 1 - groups[-1][0].base_offset <= _INT32_MAX
        )
        if groups and is_near and all(map(int.__le__, together, limits)):
            groups[-1].append(segment)
            sizes = together
        else:
            groups.append([segment])
            sizes = own
    return [tuple(group) for group in groups]
