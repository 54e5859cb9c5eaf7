"""Find the range of a log that can be compacted, and what limits it.

Follows ``LogCleanerManager.cleanableOffsets`` and ``LogToClean``.
"""

from __future__ import annotations

import enum

from msgspec import Struct

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


class DirtyFrom(enum.Enum):
    """What decides the first dirty offset."""

    CHECKPOINT = "cleaner checkpoint"
    """The cleaner stopped there last."""
    NO_CHECKPOINT = "no cleaner checkpoint"
    """The log was never cleaned: it is dirty from its start."""
    CHECKPOINT_BELOW_LOG_START = "cleaner checkpoint below the log start"
    """Older records were deleted since: the log is dirty from its start."""
    CHECKPOINT_PAST_LOG_END = "cleaner checkpoint past the log end"
    """The log was truncated since: it is dirty from its start again."""


class CleanableRange(Struct, frozen=True):
    """The offsets that a round of compaction processes.

    Attributes:
        first_dirty_offset: the first offset that was not compacted yet.
        first_uncleanable_offset: the first offset that may not be compacted.
        end_offset: base offset of the segment with that offset: only whole segments are compacted,
            so the range ends here, exclusive.
        held_by: what limits the range.
        held_at: offset of that limit; can be below the first dirty offset.
        dirty_from: what decides the first dirty offset.
        held_until_ms: when ``min.compaction.lag.ms`` no longer limits the range; None if something
            else does.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    end_offset: int
    held_by: Hold
    held_at: int
    dirty_from: DirtyFrom
    held_until_ms: int | None = None

    @property
    def is_reset(self) -> bool:
        """Whether the checkpoint did not fit the log, so the whole log is dirty again."""
        return self.dirty_from in (
            DirtyFrom.CHECKPOINT_BELOW_LOG_START,
            DirtyFrom.CHECKPOINT_PAST_LOG_END,
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is no whole segment to compact."""
        return self.end_offset <= self.first_dirty_offset


def cleanable_range(log: CompactedLog, cleaner_offset: int | None) -> CleanableRange:
    """Find the cleanable range of ``log``.

    Args:
        cleaner_offset: from ``cleaner-offset-checkpoint``, where the last round stopped; None if it
            has no line.

    Raises:
        OSError: a time index cannot be read.
    """
    dirty_from = _dirty_from(log, cleaner_offset)
    first_dirty = log.log_start_offset
    if dirty_from is DirtyFrom.CHECKPOINT and cleaner_offset is not None:
        first_dirty = cleaner_offset
    is_open = log.last_stable_offset < log.high_watermark
    ends = [
        (log.active_base_offset, Hold.ACTIVE_SEGMENT),
        (log.last_stable_offset, Hold.OPEN_TRANSACTION if is_open else Hold.HIGH_WATERMARK),
    ]
    young = _first_young_segment(log, first_dirty)
    if young is not None:
        ends.append((young[0], Hold.COMPACTION_LAG))
    held_at, held_by = min(ends, key=lambda end: end[0])
    uncleanable = max(first_dirty, held_at)
    closed = log.closed_from(uncleanable)
    return CleanableRange(
        first_dirty_offset=first_dirty,
        first_uncleanable_offset=uncleanable,
        end_offset=closed[0].base_offset if closed else log.active_base_offset,
        held_by=held_by,
        held_at=held_at,
        dirty_from=dirty_from,
        held_until_ms=young[1] if young and held_by is Hold.COMPACTION_LAG else None,
    )


def _dirty_from(log: CompactedLog, cleaner_offset: int | None) -> DirtyFrom:
    if cleaner_offset is None:
        return DirtyFrom.NO_CHECKPOINT
    if cleaner_offset < log.log_start_offset:
        return DirtyFrom.CHECKPOINT_BELOW_LOG_START
    if cleaner_offset > log.log_end_offset:
        return DirtyFrom.CHECKPOINT_PAST_LOG_END
    return DirtyFrom.CHECKPOINT


def _first_young_segment(log: CompactedLog, first_dirty_offset: int) -> tuple[int, int] | None:
    """The first segment with a record younger than the lag: base offset, and until when.

    None if there is none.
    """
    lag_ms = log.settings.min_compaction_lag_ms
    if lag_ms <= 0:
        return None
    for segment in log.closed_from(first_dirty_offset):
        largest_ms = log.largest_timestamp_ms(segment)
        if largest_ms > log.now_ms - lag_ms:
            return segment.base_offset, largest_ms + lag_ms
    return None
