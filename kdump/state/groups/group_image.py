"""A group and its committed offsets, as a group coordinator has them in memory."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from msgspec import Struct, field

from kdump.formats.names import TopicPartition
from kdump.log.batch_validity import NO_OFFSET
from kdump.state.groups.group_members import CONSUMER_PROTOCOL_TYPE, GroupMember
from kdump.state.groups.streams_topology import StreamsTopology


class GroupType(enum.Enum):
    """The type of a group; the value is Kafka's name for it, in lower case."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class GroupState(enum.Enum):
    """The state of a group; the value is Kafka's name for it."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class CommittedOffset(Struct, frozen=True):
    """A committed offset (``OffsetAndMetadata``).

    Attributes:
        record_offset: of its record in ``__consumer_offsets``.
        leader_epoch: of the last record that was read; None if the consumer did not say.
        metadata: text of the consumer's.
        commit_timestamp_ms: when it was committed.
        expire_timestamp_ms: when it expires; None in records since Kafka 2.1, which do not say.
        topic_id: as Kafka writes it; None if the record has none.
    """

    record_offset: int
    offset: int
    leader_epoch: int | None
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None
    topic_id: str | None


class PendingOffset(Struct, frozen=True):
    """An offset that a transaction will commit, if it is committed.

    Attributes:
        is_undecided: whether the end of the transaction may be in damaged bytes.
    """

    producer_id: int
    committed: CommittedOffset
    is_undecided: bool


class PartitionOffsets(Struct, frozen=True):
    """What a group committed for a partition.

    Attributes:
        committed: None if nothing is.
        pending: of open transactions, by producer id.
        unreadable_offset: of a later record that cannot be decoded: what it commits is unknown.
    """

    committed: CommittedOffset | None
    pending: tuple[PendingOffset, ...] = ()
    unreadable_offset: int | None = None


class Group(Struct, frozen=True):
    """A group.

    Attributes:
        type: None if only offsets are left of it.
        state: as far as the log says it: nobody knows from a disk which members still live; None
            if its record is missing or cannot be decoded.
        protocol_type: ``""`` for a simple group, which only commits offsets.
        protocol: of a classic group, or what the members of a consumer group ask for; None if
            there is none.
        generation: of a classic group; None without one.
        epoch: of a group of another type.
        assignment_epoch: of the target assignment of such a group.
        leader: the member that leads a classic group.
        state_timestamp_ms: since when a classic group is in its state; None if not recorded.
        members: by id.
        offsets: by partition.
        share_partitions: topics by id with the partitions whose state a share group keeps.
        subscribed_topics: of all members; None if that is not known.
        topology: of a group of Kafka Streams; None without its record.
        record_offset: of the latest record about the group itself.
    """

    group_id: str
    type: GroupType | None
    state: GroupState | None
    protocol_type: str = ""
    protocol: str | None = None
    generation: int | None = None
    epoch: int | None = None
    assignment_epoch: int | None = None
    leader: str | None = None
    state_timestamp_ms: int | None = None
    members: tuple[GroupMember, ...] = ()
    offsets: Mapping[TopicPartition, PartitionOffsets] = field(default_factory=dict)
    share_partitions: Mapping[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    subscribed_topics: frozenset[str] | None = frozenset()
    topology: StreamsTopology | None = None
    record_offset: int = NO_OFFSET

    @property
    def is_simple(self) -> bool:
        """Whether it is a classic group that only commits offsets (``isSimpleGroup``)."""
        return self.type is GroupType.CLASSIC and not self.protocol_type and not self.members

    def expires_ms(self, topic: str, committed: CommittedOffset, retention_ms: int) -> int | None:
        """When a coordinator deletes an offset; None if not while the group is as it is.

        Follows ``offsetExpirationCondition`` of each type of group.
        """
        if committed.expire_timestamp_ms is not None:
            expires: int | None = committed.expire_timestamp_ms
        else:
            expires = committed.commit_timestamp_ms + retention_ms
        if self.type is not GroupType.CLASSIC:
            return None if topic in (self.subscribed_topics or ()) else expires
        if not self.protocol_type:
            return expires
        if self.state is GroupState.EMPTY:
            if committed.expire_timestamp_ms is None and self.state_timestamp_ms is not None:
                return self.state_timestamp_ms + retention_ms
            return expires
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE or self.subscribed_topics is None:
            return None
        return None if topic in self.subscribed_topics else expires
