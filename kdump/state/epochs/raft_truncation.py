"""To where a replica of the cluster's metadata truncates its log when it follows another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kdump.state.epochs.epoch_history import EpochHistory
from kdump.state.epochs.follower_truncation import LoadedReplica, Truncation

_NO_EPOCH: Final = 0
"""Of a log without records and snapshots (``lastFetchedEpoch``)."""


class SnapshotId(NamedTuple):
    """The name of a snapshot; the later one is greater (``OffsetAndEpoch``)."""

    epoch: int
    end_offset: int


def truncation_in_raft(
    follower: LoadedReplica,
    leader: LoadedReplica,
    follower_snapshots: Sequence[SnapshotId] = (),
    leader_snapshots: Sequence[SnapshotId] = (),
) -> Truncation | None:
    """Find to where ``follower`` truncates its log of the cluster's metadata.

    The leader begins a new epoch at the end of its log. The follower fetches from the end of its
    own, and names its latest epoch. While the leader answers that this epoch ended earlier, the
    follower truncates and asks again. Where the leader's log begins with a snapshot that the
    follower does not reach, it fetches the leader's latest snapshot and starts over at its end.

    Follows ``RaftLog`` (``validateOffsetAndEpoch``, ``truncateToEndOffset``), ``KafkaRaftLog`` and
    ``KafkaRaftClient.handleFetchResponse``. A high watermark does not count: Raft finds it again
    after a start.

    Returns:
        None if Raft fails: it never truncates below the start of its log.
    """
    own = _RaftLog(follower, follower_snapshots)
    of_leader = _RaftLog(leader, leader_snapshots)
    latest = [each for each in (own.latest_epoch, of_leader.latest_epoch) if each is not None]
    of_leader.history.assign(max(latest, default=_NO_EPOCH) + 1, of_leader.end_offset)
    asked = set[SnapshotId]()
    while (fetched := own.last_fetched) not in asked:
        if fetched is None:
            return None
        asked.add(fetched)
        if of_leader.begins_after(fetched):
            return Truncation(of_leader.snapshots[-1].end_offset, starts_over=True)
        diverging = of_leader.diverging(fetched)
        if diverging is None:
            return Truncation(own.end_offset)
        own.truncate(diverging)
        if own.end_offset < own.start_offset:
            return None
    return None


class _RaftLog:
    """A log of the cluster's metadata, as Raft has it in memory."""

    def __init__(self, replica: LoadedReplica, snapshots: Sequence[SnapshotId]) -> None:
        self.start_offset = replica.log_start_offset
        self.end_offset = replica.log_end_offset
        self.history = EpochHistory(replica.leader_epochs)
        self.snapshots = sorted(
            each for each in snapshots if each.end_offset >= replica.log_start_offset
        )

    @property
    def latest_epoch(self) -> int | None:
        """Of the log, or of a snapshot if the log has no epoch."""
        if self.history.latest_epoch is not None:
            return self.history.latest_epoch
        return self.snapshots[-1].epoch if self.snapshots else None

    @property
    def last_fetched(self) -> SnapshotId | None:
        """Where the next fetch begins, and the epoch of the last record; None if Raft fails."""
        if self.history.latest_epoch is None and self.snapshots:
            end = self.snapshots[-1].end_offset
            if not end == self.start_offset == self.end_offset:
                return None
        epoch = self.latest_epoch
        return SnapshotId(_NO_EPOCH if epoch is None else epoch, self.end_offset)

    def begins_after(self, fetched: SnapshotId) -> bool:
        """Whether the leader answers a fetch with its latest snapshot."""
        if not self.snapshots or self.start_offset == fetched.end_offset == 0:
            return False
        earliest = self.snapshots[0]
        return (
            fetched.end_offset < self.start_offset
            or (fetched.end_offset == self.start_offset and fetched.epoch != earliest.epoch)
            or fetched.epoch < earliest.epoch
        )

    def diverging(self, fetched: SnapshotId) -> SnapshotId | None:
        """The end of the epoch that a fetch names; None if the fetch fits."""
        if self.start_offset == fetched.end_offset == 0:
            return None
        end = self._end_of(fetched.epoch)
        is_other = end.epoch != fetched.epoch or end.end_offset < fetched.end_offset
        return end if is_other else None

    def truncate(self, diverging: SnapshotId) -> None:
        """Truncate to what the leader has of an epoch."""
        if diverging.epoch == _NO_EPOCH:
            end = min(diverging.end_offset, self.end_offset)
        else:
            own = self._end_of(diverging.epoch)
            is_same = own.epoch == diverging.epoch
            end = min(own.end_offset, diverging.end_offset) if is_same else own.end_offset
        self.end_offset = min(end, self.end_offset)
        self.history.truncate_from_end(end)

    def _end_of(self, epoch: int) -> SnapshotId:
        """The end of the greatest epoch not above ``epoch`` (``endOffsetForEpoch``)."""
        found = self.history.end_offset_for(epoch, self.end_offset)
        if found is None:
            latest = self.latest_epoch
            return SnapshotId(_NO_EPOCH if latest is None else latest, self.end_offset)
        if self.snapshots:
            earliest = self.snapshots[0]
            if (found.leader_epoch, found.end_offset) == (epoch, earliest.end_offset):
                return earliest
        return SnapshotId(found.leader_epoch, found.end_offset)
