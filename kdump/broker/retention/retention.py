"""Decide which segments of a log retention deletes, and why it keeps the others.

Follows ``UnifiedLog.deleteOldSegments``: from the oldest segment on, it deletes first those below
the log start offset, then those over the size limit, then those over the age limit, each until a
segment stays. Pure functions from the log to the fate of each segment.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from kdump.state.metadata.config_keys import CleanupPolicy
from kdump.state.metadata.settings import TopicSettings


class RetainableSegment(NamedTuple):
    """A segment, as retention sees it. A tuple, because workers send 30,000 of them.

    Attributes:
        base_offset: from its name.
        size_bytes: of its log, which is what Kafka counts.
        disk_bytes: of its log and its indexes.
        timestamp_ms: its largest timestamp, from its time index; if there is none, the
            modification time of its log.
        has_timestamp: whether it is from the time index.
    """

    base_offset: int
    size_bytes: int
    disk_bytes: int
    timestamp_ms: int
    has_timestamp: bool = True


class RetainableLog(Struct, frozen=True):
    """A log, as retention sees it.

    Attributes:
        segments: by base offset; the last one is active.
        log_start_offset: first offset of the log.
        log_end_offset: end of the log, exclusive.
        high_watermark: up to which the log is known to be replicated.
        has_high_watermark: whether ``replication-offset-checkpoint`` has a line for it; if not, the
            log start offset is used, and nothing after it is deleted.
    """

    segments: tuple[RetainableSegment, ...]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    has_high_watermark: bool = True

    def upper_bound(self, at: int) -> int:
        """Base offset of the next segment, or the log end offset."""
        return self.segments[at + 1].base_offset if self.has_next(at) else self.log_end_offset

    def has_next(self, at: int) -> bool:
        """Whether another segment follows."""
        return at + 1 < len(self.segments)

    def is_deletable(self, at: int) -> bool:
        """Whether a segment can be deleted at all: replicated, and not the empty active one."""
        if self.high_watermark < self.upper_bound(at):
            return False
        return self.has_next(at) or self.segments[at].size_bytes > 0


class Reason(enum.Enum):
    """Why a segment is deleted or kept; the value is the reason in words."""

    BELOW_LOG_START = "it is before the log start offset"
    OVER_SIZE = "the log is larger than retention.bytes"
    OVER_AGE = "it is older than retention.ms"

    EMPTY_ACTIVE = "it is the active segment, and empty"
    POLICY = "cleanup.policy does not include delete"
    NO_HIGH_WATERMARK = "the partition has no line in replication-offset-checkpoint"
    HIGH_WATERMARK = "it ends past the high watermark"
    UNLIMITED = "retention.ms sets no limit, and the log is within retention.bytes"
    FUTURE_TIMESTAMP = "it has a timestamp in the future"
    TOO_YOUNG = "it is not older than retention.ms"
    BEHIND_KEPT = "an earlier segment is kept"

    @property
    def is_deletion(self) -> bool:
        return self in (Reason.BELOW_LOG_START, Reason.OVER_SIZE, Reason.OVER_AGE)


class SegmentFate(NamedTuple):
    """Whether a segment is deleted, and why. A tuple, as :class:`RetainableSegment`.

    Attributes:
        reason: why it is deleted or kept.
        goes_at_ms: the first time at which its age deletes it; None if it is deleted now, or if
            time alone will not delete it.
    """

    segment: RetainableSegment
    reason: Reason
    goes_at_ms: int | None = None

    @property
    def is_deleted(self) -> bool:
        return self.reason.is_deletion


def fates(log: RetainableLog, settings: TopicSettings, now_ms: int) -> tuple[SegmentFate, ...]:
    """The fate of each segment of ``log`` when a broker applies retention at ``now_ms``."""
    reasons = _deletions(log, settings, now_ms)
    found = [
        SegmentFate(segment, reason) for segment, reason in zip(log.segments, reasons, strict=False)
    ]
    goes_at_ms: int | None = now_ms
    for at in range(len(found), len(log.segments)):
        reason, own_ms = _why_kept(log, at, settings, now_ms)
        goes_at_ms = None if goes_at_ms is None or own_ms is None else max(goes_at_ms, own_ms)
        found.append(SegmentFate(log.segments[at], reason, goes_at_ms))
    return tuple(found)


def below_log_start(log: RetainableLog) -> int:
    """How many segments are below the log start offset: any policy deletes them."""
    return _count_from(
        log, 0, lambda at: log.has_next(at) and log.upper_bound(at) <= log.log_start_offset
    )


def _deletions(log: RetainableLog, settings: TopicSettings, now_ms: int) -> list[Reason]:
    """The reasons of the deleted segments, which are the first ones."""
    reasons = [Reason.BELOW_LOG_START] * below_log_start(log)
    if settings.is_deleted:
        reasons += [Reason.OVER_SIZE] * _over_size(log, len(reasons), settings.retention_bytes)
        reasons += [Reason.OVER_AGE] * _over_age(log, len(reasons), settings.retention_ms, now_ms)
    return reasons


def _over_size(log: RetainableLog, first: int, retention_bytes: int) -> int:
    if retention_bytes < 0:
        return 0
    excess = sum(segment.size_bytes for segment in log.segments[first:]) - retention_bytes
    if excess < 0:
        return 0

    def is_too_much(at: int) -> bool:
        nonlocal excess
        if excess < log.segments[at].size_bytes:
            return False
        excess -= log.segments[at].size_bytes
        return True

    return _count_from(log, first, is_too_much)


def _over_age(log: RetainableLog, first: int, retention_ms: int, now_ms: int) -> int:
    if retention_ms < 0:
        return 0
    return _count_from(log, first, lambda at: now_ms - log.segments[at].timestamp_ms > retention_ms)


def _count_from(log: RetainableLog, first: int, goes: Callable[[int], bool]) -> int:
    """How many consecutive segments from ``first`` on are deletable and deleted."""
    at = first
    while at < len(log.segments) and log.is_deletable(at) and goes(at):
        at += 1
    return at - first


def _why_kept(
    log: RetainableLog, at: int, settings: TopicSettings, now_ms: int
) -> tuple[Reason, int | None]:
    """Why a segment is kept, and the first time at which it would not be."""
    segment = log.segments[at]
    if not log.has_next(at) and not segment.size_bytes:
        return Reason.EMPTY_ACTIVE, None
    if not settings.is_deleted:
        return Reason.POLICY, None
    if log.high_watermark < log.upper_bound(at):
        has_mark = log.has_high_watermark
        return Reason.HIGH_WATERMARK if has_mark else Reason.NO_HIGH_WATERMARK, None
    if settings.retention_ms < 0:
        return Reason.UNLIMITED, None
    goes_at_ms = segment.timestamp_ms + settings.retention_ms + 1
    if goes_at_ms <= now_ms:
        return Reason.BEHIND_KEPT, goes_at_ms
    is_future = segment.timestamp_ms > now_ms
    return Reason.FUTURE_TIMESTAMP if is_future else Reason.TOO_YOUNG, goes_at_ms


def held_back(log: RetainableLog, settings: TopicSettings, now_ms: int) -> tuple[Reason, ...]:
    """The reasons that keep segments which would be deleted now otherwise."""
    holds = list(_without_holds(log, settings, now_ms))
    if not holds:
        return ()
    count = len(_deletions(log, settings, now_ms))
    return tuple(
        reason
        for reason, other_log, other_settings in holds
        if len(_deletions(other_log, other_settings, now_ms)) > count
    )


def _without_holds(
    log: RetainableLog, settings: TopicSettings, now_ms: int
) -> Iterator[tuple[Reason, RetainableLog, TopicSettings]]:
    """Each reason that may keep segments, with log and settings without it."""
    if log.high_watermark < log.log_end_offset:
        mark = Reason.HIGH_WATERMARK if log.has_high_watermark else Reason.NO_HIGH_WATERMARK
        yield mark, replace(log, high_watermark=log.log_end_offset), settings
    if any(segment.timestamp_ms > now_ms for segment in log.segments):
        past = tuple(
            segment._replace(timestamp_ms=0) if segment.timestamp_ms > now_ms else segment
            for segment in log.segments
        )
        yield Reason.FUTURE_TIMESTAMP, replace(log, segments=past), settings
    if not settings.is_deleted:
        policies = settings.cleanup_policy | {CleanupPolicy.DELETE}
        others = dataclasses.replace(settings, cleanup_policy=policies)  # noqa: TID251 - not of a struct
        yield Reason.POLICY, log, others
