"""What was found about the replicas of one partition."""

from __future__ import annotations

from msgspec import Struct

from kdump.formats.names import TopicPartition
from kdump.jobs.diff.comparison import OnlyOnOne, Parting
from kdump.jobs.diff.cut_batch import CutBatch
from kdump.jobs.diff.replica_log import OffsetRange
from kdump.log.log_search import ReplicaEnd
from kdump.log.valid_windows import Damage
from kdump.state.epochs.follower_truncation import LoadedReplica, Truncation
from kdump.storage.location import Location


class ReplicaResult(Struct, frozen=True):
    """What was found about one replica.

    Attributes:
        side: the number of its side.
        path: its directory.
        topic_id: as Kafka writes it; None if it has none.
        start_offset: the first offset of the log.
        end_offset: after the last valid batch.
        loaded: as a broker has it after loading; None if no broker loads it.
        refusal: why no broker loads it.
        last: the leader epoch of its last batch, and its end.
        epochs_differ_at: the first offset at which the leader epochs that a broker would have
            contradict the batches; None if they do not.
        unreadable: the first ranges of offsets that damage took.
        damages: the first damaged ranges of bytes.
        recoverable: the first ranges of offsets that it has, and that a starting broker drops from
            it because its log is damaged.
        lost_if_leading: how many records are lost if it leads, those that a start drops included.
    """

    side: int
    path: Location
    topic_id: str | None
    start_offset: int
    end_offset: int
    loaded: LoadedReplica | None
    refusal: str | None
    last: ReplicaEnd
    epochs_differ_at: int | None
    unreadable: tuple[OffsetRange, ...]
    damages: tuple[Damage, ...]
    damage_count: int
    recoverable: tuple[OffsetRange, ...]
    lost_if_leading: int

    @property
    def is_damaged(self) -> bool:
        """Whether a starting broker drops valid records, or does not load it."""
        return bool(self.recoverable) or self.refusal is not None


class PairResult(Struct, frozen=True):
    """Two replicas compared.

    Attributes:
        left: the number of one replica.
        right: of the other.
        left_truncation: the left one as the follower of the right one; None if unknown.
        right_truncation: likewise.
        left_cut: the batch within which the truncation of the left one falls; None if there is
            none.
        right_cut: likewise.
        common_epoch: the leader epoch of the last common offset; None if it is not known.
    """

    left: int
    right: int
    parting: Parting
    left_truncation: Truncation | None
    right_truncation: Truncation | None
    left_cut: CutBatch | None
    right_cut: CutBatch | None
    left_only: OnlyOnOne
    right_only: OnlyOnOne
    common_epoch: int | None


class UnrelatedReplica(Struct, frozen=True):
    """A replica that is not compared with another one: their topics only have the same name.

    Attributes:
        side: the number of its side.
        path: its directory.
        topic_id: as Kafka writes it.
    """

    side: int
    path: Location
    topic_id: str | None


class TopicDiff(Struct, frozen=True):
    """The replicas of one topic's partition compared, each with each.

    Attributes:
        replicas: at least two, in the order of the split.
        judged_end_offset: from there on nothing was compared, because a broker was using one of the
            logs; None if everything was.
    """

    replicas: tuple[ReplicaResult, ...]
    pairs: tuple[PairResult, ...]
    judged_end_offset: int | None = None


class PartitionDiff(Struct, frozen=True):
    """The replicas of a partition compared.

    Attributes:
        topics: usually one; several if topics of one name have different ids.
        unrelated: each two replicas of different topics.
    """

    key: TopicPartition | None
    topics: tuple[TopicDiff, ...]
    unrelated: tuple[tuple[UnrelatedReplica, UnrelatedReplica], ...] = ()

    @property
    def replicas(self) -> tuple[ReplicaResult, ...]:
        """All that were compared."""
        return tuple(each for topic in self.topics for each in topic.replicas)

    @property
    def pairs(self) -> tuple[PairResult, ...]:
        """Each two that were compared."""
        return tuple(each for topic in self.topics for each in topic.pairs)

    @property
    def is_different(self) -> bool:
        """Whether something differs, or is damaged."""
        return (
            bool(self.unrelated)
            or any(each.is_damaged or each.damage_count for each in self.replicas)
            or any(each.parting.offset is not None for each in self.pairs)
            or self.has_only_on_one
        )

    @property
    def has_only_on_one(self) -> bool:
        """Whether a replica has a record that another one has not."""
        return any(pair.left_only.records or pair.right_only.records for pair in self.pairs)


class NotCompared(Struct, frozen=True):
    """A partition that could not be compared.

    Attributes:
        path: the file or directory.
        what: the error; a text if a replica has a format that is not compared.
    """

    key: TopicPartition | None
    path: str
    what: str

    @property
    def is_different(self) -> bool:
        """Something is wrong with it."""
        return True

    @property
    def has_only_on_one(self) -> bool:
        """Nothing is known of its records."""
        return False


class GoneMeanwhile(Struct, frozen=True):
    """A partition whose broker has deleted or moved a replica meanwhile."""

    key: TopicPartition | None
    is_different: bool = False
    has_only_on_one: bool = False


Compared = PartitionDiff | NotCompared | GoneMeanwhile
