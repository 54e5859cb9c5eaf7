"""Leader epochs and their start offsets in memory, without the file that keeps them."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kdump.formats.checkpoints import EpochEntry


class EpochEnd(NamedTuple):
    """The end of a leader epoch: where the next one begins, or the log ends."""

    leader_epoch: int
    end_offset: int


def begin_before(entries: Sequence[EpochEntry], offset: int) -> bool:
    """Whether leader epochs contradict a log that begins at ``offset``: they begin before it.

    Whenever the start of a log rises, Kafka lets the current epoch begin there, and forgets those
    before it (``LeaderEpochFileCache.truncateFromStart``).
    """
    return bool(entries) and min(entry.start_offset for entry in entries) < offset


def start_within(log_start_offset: int, end_offset: int, entries: Sequence[EpochEntry]) -> int:
    """Give the log start offset, or one that the log can have if it ends before that.

    Then the log is not what was checkpointed, and a broker would delete all of it. But what leader
    epochs show to be deleted, too, is deleted: the log begins with them.
    """
    if log_start_offset <= end_offset:
        return log_start_offset
    first = min((entry.start_offset for entry in entries), default=0)
    return max(first, 0) if first <= end_offset else 0


class EpochHistory:
    """Leader epochs in memory: each begins after the one before it.

    Follows ``LeaderEpochFileCache`` without its file.
    """

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        """Take entries in the order of their lines in ``leader-epoch-checkpoint``.

        Raises:
            ValueError: an epoch or an offset is negative.
        """
        self._entries: list[EpochEntry] = []
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries, by epoch."""
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> int | None:
        return self._entries[-1].epoch if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that ``epoch`` begins at ``start_offset``; removes entries that contradict it.

        Returns:
            Whether it was not known yet.

        Raises:
            ValueError: an epoch or an offset is negative.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} at offset {start_offset} is impossible")
        entries = self._entries
        if entries and epoch == entries[-1].epoch and start_offset >= entries[-1].start_offset:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochEntry(epoch, start_offset))
        return True

    def truncate_from_end(self, end_offset: int) -> bool:
        """Remove the epochs that begin at or after ``end_offset``; gives whether there were any."""
        kept = len(self._entries)
        while end_offset >= 0 and kept and self._entries[kept - 1].start_offset >= end_offset:
            kept -= 1
        is_changed = kept < len(self._entries)
        del self._entries[kept:]
        return is_changed

    def truncate_from_start(self, start_offset: int) -> bool:
        """Remove the epochs that end before ``start_offset``; the current one then begins there.

        Returns:
            Whether an epoch began at or before ``start_offset``.
        """
        count = self._count_to(start_offset)
        if count:
            self._entries[:count] = [EpochEntry(self._entries[count - 1].epoch, start_offset)]
        return count > 0

    def clear(self) -> None:
        self._entries.clear()

    def end_offset_for(self, leader_epoch: int, log_end_offset: int) -> EpochEnd | None:
        """Find the greatest epoch not above ``leader_epoch``, and where it ends.

        This is the answer to ``OffsetsForLeaderEpoch``. Follows ``endOffsetFor``.

        Args:
            leader_epoch: the epoch that is asked for; -1 if it is not known.
            log_end_offset: where the latest epoch ends.

        Returns:
            None where Kafka answers -1: the epoch is not known, or above all epochs. Below all of
            them, the epoch that was asked for, which ends where the first one begins.
        """
        if leader_epoch == -1:
            return None
        above = bisect.bisect_right(self._entries, leader_epoch, key=lambda entry: entry.epoch)
        if above == len(self._entries):
            is_latest = self.latest_epoch == leader_epoch
            return EpochEnd(leader_epoch, log_end_offset) if is_latest else None
        found = self._entries[above - 1].epoch if above else leader_epoch
        return EpochEnd(found, self._entries[above].start_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """Give the epoch in which ``offset`` lies; None before the first. As ``epochForOffset``."""
        count = self._count_to(offset)
        return self._entries[count - 1].epoch if count else None

    def _count_to(self, offset: int) -> int:
        """Count the epochs that begin at or before ``offset``."""
        return bisect.bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
