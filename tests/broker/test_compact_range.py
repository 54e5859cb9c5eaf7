"""The cleanable range of a log, and the grouping of its segments."""

from __future__ import annotations

import pytest

from builders.memory_storage import MemoryStorage
from kdump.broker.cleaner.cleanable_log import CompactedLog, SegmentFiles
from kdump.broker.cleaner.cleanable_range import CleanableRange, DirtyFrom, Hold, cleanable_range
from kdump.broker.cleaner.segment_groups import group_segments
from kdump.state.metadata.settings import TopicSettings
from kdump.storage.location import Location
from kdump.target.virtual_directory import VirtualDirectory

NOW_MS = 1_000_000
EMPTY = MemoryStorage("empty", {}, frozenset({"/"}))


def segment(base_offset: int, size_bytes: int = 100, modified_ms: int = 0) -> SegmentFiles:
    return SegmentFiles(base_offset, size_bytes, 8, 12, modified_ms)


def log(
    *base_offsets: int,
    end: int = 100,
    start: int = 0,
    high_watermark: int | None = None,
    unstable_batch_offset: int | None = None,
    min_compaction_lag_ms: int = 0,
    modified_ms: int = 0,
) -> CompactedLog:
    """Make a log with empty time indexes, so that the modification times of its files count."""
    segments = tuple(SegmentFiles(base, 100, 0, 0, modified_ms + base) for base in base_offsets)
    return CompactedLog(
        directory=VirtualDirectory(Location(EMPTY, "/")),
        segments=segments,
        log_start_offset=start,
        log_end_offset=end,
        high_watermark=end if high_watermark is None else high_watermark,
        unstable_batch_offset=unstable_batch_offset,
        producers=(),
        settings=TopicSettings(min_compaction_lag_ms=min_compaction_lag_ms),
        now_ms=NOW_MS,
    )


def test_all_but_the_active_segment_is_compacted() -> None:
    found = cleanable_range(log(0, 40, 80), None)

    assert found == CleanableRange(0, 80, 80, Hold.ACTIVE_SEGMENT, 80, DirtyFrom.NO_CHECKPOINT)


def test_without_a_high_watermark_nothing_is_compacted() -> None:
    found = cleanable_range(log(0, 40, 80, high_watermark=0), None)

    assert found.is_empty
    assert found.held_by is Hold.HIGH_WATERMARK


def test_the_range_ends_before_the_segment_of_an_open_transaction() -> None:
    found = cleanable_range(log(0, 40, 80, unstable_batch_offset=55), None)

    assert (found.first_uncleanable_offset, found.end_offset) == (55, 40)
    assert (found.held_by, found.held_at) == (Hold.OPEN_TRANSACTION, 55)


def test_segments_within_the_compaction_lag_are_not_compacted() -> None:
    young = log(0, 40, 80, 90, min_compaction_lag_ms=50, modified_ms=NOW_MS - 100)

    found = cleanable_range(young, None)

    assert (found.end_offset, found.held_by) == (80, Hold.COMPACTION_LAG)
    assert found.held_until_ms == NOW_MS - 100 + 80 + 50


@pytest.mark.parametrize(
    ("cleaner_offset", "dirty_from"),
    [(5, DirtyFrom.CHECKPOINT_BELOW_LOG_START), (101, DirtyFrom.CHECKPOINT_PAST_LOG_END)],
)
def test_a_checkpoint_outside_the_log_makes_the_whole_log_dirty(
    cleaner_offset: int, dirty_from: DirtyFrom
) -> None:
    found = cleanable_range(log(0, 40, 80, start=10), cleaner_offset)

    assert (found.first_dirty_offset, found.dirty_from) == (10, dirty_from)
    assert found.is_reset


def test_a_range_within_one_segment_is_empty() -> None:
    found = cleanable_range(log(0, 40, 80, high_watermark=70), 50)

    assert (found.first_dirty_offset, found.end_offset) == (50, 40)
    assert found.is_empty


def test_groups_are_limited_by_bytes() -> None:
    segments = [segment(offset) for offset in (0, 10, 20, 30)]

    groups = group_segments(segments, TopicSettings(segment_bytes=250), 40)

    assert [[each.base_offset for each in group] for group in groups] == [[0, 10], [20, 30]]


def test_groups_are_limited_by_index_bytes() -> None:
    segments = [segment(offset) for offset in (0, 10, 20)]

    groups = group_segments(segments, TopicSettings(segment_index_bytes=24), 30)

    assert [len(group) for group in groups] == [2, 1]


def test_groups_are_limited_to_the_offsets_that_an_index_can_hold() -> None:
    segments = [segment(0), segment(10), segment(2**31 + 5)]

    groups = group_segments(segments, TopicSettings(), 2**31 + 9)

    # The last offset of the second segment is not known: it may end where the third begins.
    assert [len(group) for group in groups] == [1, 2]


def test_an_empty_segment_does_not_start_a_new_group() -> None:
    segments = [segment(0), segment(2**31 + 5, size_bytes=0)]

    assert len(group_segments(segments, TopicSettings(), 2**32)) == 1
