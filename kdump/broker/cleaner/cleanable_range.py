"""From where to where a log may be compacted, and what keeps it from going on.

Follows ``LogCleanerManager.cleanableOffsets`` and ``LogToClean``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kdump.broker.cleaner.cleanable_log import CompactedLog


class Hold(enum.Enum):
    """What the range ends at."""

    HIGH_WATERMARK = "high watermark"
    """What lies behind it may not be replicated yet."""
    OPEN_TRANSACTION = "open transaction"
    """Nobody knows yet whether it will be aborted."""
    ACTIVE_SEGMENT = "active segment"
    """It is still written to, so it is never compacted."""
    COMPACTION_LAG = "compaction lag"
    """Its records are younger than ``min.compaction.lag.ms``."""


@dataclass(frozen=True, slots=True)
class CleanableRange:
    """The offsets that a round of compaction goes over.

    Attributes:
        first_dirty_offset: first one whose key removes earlier records of that key.
        first_uncleanable_offset: first one that may not be removed.
        end_offset: base offset of the segment that holds that one: only whole segments are
            compacted, so this is where the range ends.
        held_by: what the range ends at.
        held_at: the offset of that; may lie below the first dirty one.
        is_reset: whether the checkpoint did not fit the log, so that all is dirty again.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    end_offset: int
    held_by: Hold
    held_at: int
    is_reset: bool

    @property
    def is_empty(self) -> bool:
        """Whether there is no whole segment to go over."""
        return self.end_offset <= self.first_dirty_offset


def cleanable_range(log: CompactedLog, cleaner_offset: int | None) -> CleanableRange:
    """The range of ``log``, of which the cleaner has been over what is below ``cleaner_offset``.

    Args:
        log: the log.
        cleaner_offset: what ``cleaner-offset-checkpoint`` says; None where it has no line.

    Raises:
        OSError: a time index cannot be read.
    """
    first_dirty = log.log_start_offset if cleaner_offset is None else cleaner_offset
    is_reset = not log.log_start_offset <= first_dirty <= log.log_end_offset
    if is_reset:
        first_dirty = log.log_start_offset
    is_open = log.last_stable_offset < log.high_watermark
    ends = [
        (log.active_base_offset, Hold.ACTIVE_SEGMENT),
        (log.last_stable_offset, Hold.OPEN_TRANSACTION if is_open else Hold.HIGH_WATERMARK),
    ]
    young = _first_young_segment(log, first_dirty)
    if young is not None:
        ends.append((young, Hold.COMPACTION_LAG))
    held_at, held_by = min(ends, key=lambda end: end[0])
    uncleanable = max(first_dirty, held_at)
    closed = log.between(uncleanable, max(uncleanable, log.active_base_offset))
    return CleanableRange(
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=uncleanable,
        end_offset=closed[0].base_offset if closed else log.active_base_offset,
        held_by=held_by,
        held_at=held_at,
        is_reset=is_reset,
    )


def _first_young_segment(log: CompactedLog, first_dirty_offset: int) -> int | None:
    """Base offset of the first that holds a record younger than the lag; None if none does."""
    lag_ms = log.settings.min_compaction_lag_ms
    if lag_ms <= 0 or first_dirty_offset > log.active_base_offset:
        return None
    for segment in log.between(first_dirty_offset, log.active_base_offset):
        if log.largest_timestamp_ms(segment) > log.now_ms - lag_ms:
            return segment.base_offset
    return None
