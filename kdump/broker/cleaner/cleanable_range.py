"""Find the range of a log that can be compacted, and what limits it.

Follows ``LogCleanerManager.cleanableOffsets`` and ``LogToClean``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kdump.broker.cleaner.cleanable_log import CompactedLog


class Hold(enum.Enum):
    """What limits the range."""

    HIGH_WATERMARK = "high watermark"
    """Records after it may not be replicated yet."""
    OPEN_TRANSACTION = "open transaction"
    """It is unknown whether it will be aborted."""
    ACTIVE_SEGMENT = "active segment"
    """It is still being written, so it is never compacted."""
    COMPACTION_LAG = "compaction lag"
    """Its records are younger than ``min.compaction.lag.ms``."""


@dataclass(frozen=True, slots=True)
class CleanableRange:
    """The offsets that a round of compaction processes.

    Attributes:
        first_dirty_offset: the first offset that was not compacted yet.
        first_uncleanable_offset: the first offset that may not be compacted.
        end_offset: base offset of the segment with that offset: only whole segments are compacted,
            so the range ends here, exclusive.
        held_by: what limits the range.
        held_at: offset of that limit; can be below the first dirty offset.
        is_reset: whether the checkpoint did not fit the log, so the whole log is dirty again.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    end_offset: int
    held_by: Hold
    held_at: int
    is_reset: bool

    @property
    def is_empty(self) -> bool:
        """Whether there is no whole segment to compact."""
        return self.end_offset <= self.first_dirty_offset


def cleanable_range(log: CompactedLog, cleaner_offset: int | None) -> CleanableRange:
    """Find the cleanable range of ``log``.

    Args:
        log: the log.
        cleaner_offset: from ``cleaner-offset-checkpoint``, where the last round stopped; None if it
            has no line.

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
    """Base offset of the first segment with a record younger than the lag; None if none has."""
    lag_ms = log.settings.min_compaction_lag_ms
    if lag_ms <= 0 or first_dirty_offset > log.active_base_offset:
        return None
    for segment in log.between(first_dirty_offset, log.active_base_offset):
        if log.largest_timestamp_ms(segment) > log.now_ms - lag_ms:
            return segment.base_offset
    return None
