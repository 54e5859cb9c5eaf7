"""Which of several controllers' disks has the most of the cluster's metadata.

What ``kdump quorum show`` asks. Like an election, it ranks copies by the epoch of the last record,
then by the end of the log (``QuorumState`` and ``OffsetAndEpoch``).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from kdump.jobs.metadata.metadata_copies import MetadataCopy, committed_end
from kdump.jobs.metadata.metadata_questions import OtherCopy, compared
from kdump.phases import phase
from kdump.state.metadata.metadata_nodes import Voter


class RankedVoter(Struct, frozen=True):
    """A voter, and its copy of the metadata; None if its disk was not shown."""

    voter: Voter
    copy: MetadataCopy | None


class QuorumRanking(Struct, frozen=True):
    """The controllers' disks.

    Attributes:
        best: the most advanced copy.
        others: the other copies, the more advanced first, compared with it.
        committed_end: up to where records are known to be committed; None if no disk says it.
        voters: as the best copy has them; none if it does not name any.
    """

    best: MetadataCopy
    others: Sequence[OtherCopy]
    committed_end: int | None
    voters: Sequence[RankedVoter]

    @property
    def kraft_version(self) -> int:
        """1 if the metadata has the voters, 0 if the configuration has them."""
        return int(any(each.voter.directory_id is not None for each in self.voters))

    @property
    def shown_voters(self) -> int:
        """How many voters' disks were shown."""
        return sum(each.copy is not None for each in self.voters)

    @property
    def is_best_of_voter(self) -> bool:
        """Whether the best copy is a voter's, so that it can be reset."""
        return any(each.copy is self.best for each in self.voters)

    @property
    def has_majority(self) -> bool:
        """Whether the voters whose disks were shown can elect a leader."""
        return bool(self.voters) and self.shown_voters > len(self.voters) // 2

    @property
    def uncommitted_records(self) -> int:
        """How many records of the best copy are not known to be committed."""
        return max(self.best.end.offset - (self.committed_end or 0), 0)


def rank_copies(copies: Sequence[MetadataCopy]) -> QuorumRanking:
    """Rank copies of one cluster's metadata, the most advanced one first.

    Raises:
        OSError: a file cannot be read.
    """
    best = copies[0]
    with phase(f"reading {best.partition.path}"):
        end, voters = committed_end(copies)
    ranked = [RankedVoter(voter, _copy_of(voter, copies)) for voter in voters]
    return QuorumRanking(best, compared(copies), end, ranked)


def _copy_of(voter: Voter, copies: Sequence[MetadataCopy]) -> MetadataCopy | None:
    return next((each for each in copies if voter.is_at(each.node_id, each.directory_id)), None)
