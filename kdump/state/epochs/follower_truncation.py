"""To where a replica truncates its log when it becomes the follower of another one."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from kdump.formats.checkpoints import EpochEntry
from kdump.log.log_search import within_log
from kdump.state.epochs.epoch_history import EpochHistory


class LoadedReplica(Struct, frozen=True):
    """The log of a replica as a broker has it after loading.

    Attributes:
        log_start_offset: the first offset of the log.
        log_end_offset: the end of the log, exclusive.
        high_watermark: as checkpointed; None if unknown.
        leader_epochs: as the broker has them in memory.
    """

    log_start_offset: int
    log_end_offset: int
    high_watermark: int | None
    leader_epochs: Sequence[EpochEntry]

    @property
    def latest_epoch(self) -> int:
        """The latest leader epoch; -1 without epochs."""
        return self.leader_epochs[-1].epoch if self.leader_epochs else -1


class Truncation(Struct, frozen=True):
    """The log of a follower before it fetches its first record.

    Attributes:
        end_offset: the end of its log: its former end if nothing is truncated.
        starts_over: whether everything is deleted because the leader's log begins after the end of
            the follower's. Then the log begins and ends at ``end_offset``.
    """

    end_offset: int
    starts_over: bool = False


def truncation_as_follower(follower: LoadedReplica, leader: LoadedReplica) -> Truncation | None:
    """Find to where ``follower`` truncates its log.

    The leader begins a new epoch at the end of its log. The follower fetches from the end of its
    own, and names its latest epoch. While the leader answers that this epoch ended earlier, or that
    it has an older one only, the follower truncates and asks again.

    Follows ``AbstractFetcherThread`` (``getOffsetTruncationState``, ``truncateToHighWatermark``,
    ``fetchOffsetAndTruncate``) and ``Partition.readRecords``.

    Returns:
        None if the follower has no epochs and its high watermark is unknown.
    """
    history = EpochHistory(follower.leader_epochs)
    of_leader = EpochHistory(leader.leader_epochs)
    of_leader.assign(max(follower.latest_epoch, leader.latest_epoch) + 1, leader.log_end_offset)
    end = follower.log_end_offset
    if history.latest_epoch is None:
        if follower.high_watermark is None and follower.log_start_offset < end:
            return None
        end = within_log(follower.high_watermark or 0, follower.log_start_offset, end)
    while history.latest_epoch is not None and end >= leader.log_start_offset:
        last_epoch = history.latest_epoch
        answer = of_leader.end_offset_for(last_epoch, leader.log_end_offset)
        assert answer is not None, "the leader's epoch is above all others"
        if answer.leader_epoch == last_epoch and answer.end_offset >= end:
            return Truncation(end)
        own = history.end_offset_for(answer.leader_epoch, end)
        assert own is not None, "the leader answers with an epoch not above the follower's"
        end = min(own.end_offset, end)
        if own.leader_epoch == answer.leader_epoch:
            end = min(answer.end_offset, end)
        history.truncate_from_end(end)
    if end < leader.log_start_offset:
        return Truncation(leader.log_start_offset, starts_over=True)
    return Truncation(min(end, leader.log_end_offset))


def lost_as_follower(held: LoadedReplica, leader: LoadedReplica) -> tuple[range, ...]:
    """Find the offsets that a replica holds and that nobody has once it followed ``leader``.

    Args:
        held: the records of the replica, whether it loads them or not; it may be the leader's own.
        leader: the log that the leader has.
    """
    start, end = held.log_start_offset, held.log_end_offset
    kept_end = min(end, leader.log_end_offset)
    if held.leader_epochs:
        truncation = truncation_as_follower(held, leader)
        assert truncation is not None, "it has epochs"
        kept_end = start if truncation.starts_over else min(kept_end, truncation.end_offset)
    kept_start = max(start, leader.log_start_offset)
    if kept_start >= kept_end:
        kept_start = kept_end = end
    found = range(start, min(kept_start, end)), range(max(kept_end, start), end)
    return tuple(each for each in found if each)
