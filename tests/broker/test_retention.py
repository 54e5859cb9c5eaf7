"""Which segments retention deletes, why it keeps others, and which are chosen to free space."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kdump.broker.retention.free_space import choose_to_free
from kdump.broker.retention.retention import (
    Reason,
    RetainableLog,
    RetainableSegment,
    fates,
    held_back,
)
from kdump.state.metadata.config_keys import CleanupPolicy
from kdump.state.metadata.settings import TopicSettings

NOW_MS = 1_000_000
DAY = TopicSettings(retention_ms=100)
UNLIMITED = TopicSettings(retention_ms=-1)
COMPACTED = TopicSettings(retention_ms=100, cleanup_policy=frozenset({CleanupPolicy.COMPACT}))


def log_of(
    times: Sequence[int], *, size: int = 10, start: int = 0, mark: int | None = None
) -> RetainableLog:
    """A log of segments of ten offsets each, with these largest timestamps."""
    end = 10 * len(times)
    segments = [RetainableSegment(10 * at, size, size + 2, ms) for at, ms in enumerate(times)]
    return RetainableLog(
        segments=tuple(segments),
        log_start_offset=start,
        log_end_offset=end,
        high_watermark=end if mark is None else max(mark, start),
        has_high_watermark=mark != 0,
    )


def reasons(log: RetainableLog, settings: TopicSettings) -> list[Reason]:
    return [fate.reason for fate in fates(log, settings, NOW_MS)]


def test_a_segment_is_deleted_when_its_largest_timestamp_is_older_than_the_limit() -> None:
    assert reasons(log_of([NOW_MS - 101, NOW_MS - 100]), DAY) == [
        Reason.OVER_AGE,
        Reason.TOO_YOUNG,
    ]


def test_the_active_segment_is_deleted_too_when_everything_is_old() -> None:
    assert reasons(log_of([1, 2]), DAY) == [Reason.OVER_AGE, Reason.OVER_AGE]


def test_an_empty_active_segment_is_kept() -> None:
    log = log_of([1, 2])
    empty = log.segments[1]._replace(size_bytes=0)
    log = replace(log, segments=(log.segments[0], empty), log_end_offset=10)
    assert reasons(log, DAY) == [Reason.OVER_AGE, Reason.EMPTY_ACTIVE]


def test_size_is_checked_before_age() -> None:
    settings = TopicSettings(retention_ms=100, retention_bytes=20)
    assert reasons(log_of([1, 2, 3, NOW_MS]), settings) == [
        Reason.OVER_SIZE,
        Reason.OVER_SIZE,
        Reason.OVER_AGE,
        Reason.TOO_YOUNG,
    ]


def test_retention_by_size_keeps_at_least_the_limit() -> None:
    settings = TopicSettings(retention_ms=-1, retention_bytes=21)
    assert reasons(log_of([1, 2, 3]), settings) == [Reason.UNLIMITED] * 3


def test_any_policy_deletes_segments_below_the_log_start_offset() -> None:
    assert reasons(log_of([1, 2, 3], start=20), COMPACTED) == [
        Reason.BELOW_LOG_START,
        Reason.BELOW_LOG_START,
        Reason.POLICY,
    ]


def test_no_segment_that_ends_above_the_high_watermark_is_deleted() -> None:
    assert reasons(log_of([1, 2, 3], mark=19), DAY) == [
        Reason.OVER_AGE,
        Reason.HIGH_WATERMARK,
        Reason.HIGH_WATERMARK,
    ]


def test_without_a_high_watermark_only_segments_below_the_log_start_are_deleted() -> None:
    assert reasons(log_of([1, 2, 3], mark=0, start=10), DAY) == [
        Reason.BELOW_LOG_START,
        Reason.NO_HIGH_WATERMARK,
        Reason.NO_HIGH_WATERMARK,
    ]


def test_a_timestamp_in_the_future_keeps_its_segment_and_all_later_ones() -> None:
    log = log_of([1, NOW_MS + 50, 3, NOW_MS - 10])
    found = fates(log, DAY, NOW_MS)
    assert [fate.reason for fate in found] == [
        Reason.OVER_AGE,
        Reason.FUTURE_TIMESTAMP,
        Reason.BEHIND_KEPT,
        Reason.TOO_YOUNG,
    ]
    assert [fate.goes_at_ms for fate in found] == [None] + [NOW_MS + 151] * 3


@pytest.mark.slow
@given(
    times=st.lists(st.integers(NOW_MS - 300, NOW_MS + 100), min_size=1, max_size=6),
    retention_ms=st.integers(0, 200),
)
def test_a_segment_is_deleted_at_the_predicted_time_and_not_before(
    times: list[int], retention_ms: int
) -> None:
    log = log_of(times)
    settings = TopicSettings(retention_ms=retention_ms)
    for at, fate in enumerate(fates(log, settings, NOW_MS)):
        if fate.goes_at_ms is None:
            assert fate.is_deleted
        else:
            assert fates(log, settings, fate.goes_at_ms)[at].is_deleted
            assert not fates(log, settings, fate.goes_at_ms - 1)[at].is_deleted


@pytest.mark.slow
@given(
    times=st.lists(st.integers(NOW_MS - 300, NOW_MS + 100), min_size=1, max_size=6),
    start=st.integers(0, 60),
    mark=st.integers(0, 60),
    retention_bytes=st.integers(-1, 60),
)
def test_only_the_oldest_replicated_segments_are_deleted(
    times: list[int], start: int, mark: int, retention_bytes: int
) -> None:
    log = log_of(times, start=min(start, 10 * len(times)), mark=mark)
    found = fates(log, TopicSettings(retention_ms=100, retention_bytes=retention_bytes), NOW_MS)
    count = sum(fate.is_deleted for fate in found)
    assert [fate.is_deleted for fate in found] == [True] * count + [False] * (len(found) - count)
    assert not count or log.upper_bound(count - 1) <= log.high_watermark


@pytest.mark.parametrize(
    ("log", "settings", "expected"),
    [
        (log_of([1, 2]), DAY, ()),
        (log_of([1, 2], mark=5), DAY, (Reason.HIGH_WATERMARK,)),
        (log_of([1, 2], mark=0), DAY, (Reason.NO_HIGH_WATERMARK,)),
        (log_of([NOW_MS + 1, 2]), DAY, (Reason.FUTURE_TIMESTAMP,)),
        (log_of([1, 2]), COMPACTED, (Reason.POLICY,)),
        # Nothing holds back a segment that retention would keep anyway.
        (log_of([NOW_MS, NOW_MS], mark=0), DAY, ()),
        (log_of([1, 2]), UNLIMITED, ()),
    ],
)
def test_the_reason_that_holds_retention_back_is_given(
    log: RetainableLog, settings: TopicSettings, expected: tuple[Reason, ...]
) -> None:
    assert held_back(log, settings, NOW_MS) == expected


# ---- Freeing space ----


def test_the_oldest_segments_of_all_logs_are_chosen_until_enough_space_is_freed() -> None:
    logs = [log_of([10, 40, 50]), log_of([20, 30, 60])]
    assert choose_to_free(logs, 30) == (1, 2)


def test_no_segment_is_chosen_to_free_0_bytes() -> None:
    assert choose_to_free([log_of([1])], 0) == (0,)


def test_segments_are_chosen_in_log_order_even_if_timestamps_decrease() -> None:
    logs = [log_of([90, 1, 1]), log_of([50, 60, 70])]
    assert choose_to_free(logs, 30) == (0, 3)
    assert choose_to_free(logs, 60) == (2, 3)


def test_segments_that_are_not_replicated_are_never_chosen() -> None:
    assert choose_to_free([log_of([1, 2, 3], mark=10), log_of([1], mark=0)], 100) == (1, 0)


@pytest.mark.slow
@given(
    lists=st.lists(st.lists(st.integers(0, 99), max_size=5), max_size=4),
    wanted=st.integers(0, 200),
)
def test_no_more_segments_are_chosen_than_needed(lists: list[list[int]], wanted: int) -> None:
    logs = [log_of(times) for times in lists]
    counts = choose_to_free(logs, wanted)
    chosen = [log.segments[:count] for log, count in zip(logs, counts, strict=True)]
    freed_bytes = sum(segment.disk_bytes for segments in chosen for segment in segments)
    total = sum(segment.disk_bytes for log in logs for segment in log.segments)
    assert freed_bytes >= wanted or freed_bytes == total
    assert not freed_bytes or freed_bytes - 12 < wanted
